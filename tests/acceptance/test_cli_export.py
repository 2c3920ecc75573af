from __future__ import annotations

import json
import stat
from pathlib import Path
from uuid import UUID

import apsw
import pytest

from tests.acceptance.cli_program import into_a_closing_pipe, on_a_terminal, turnstate
from tests.acceptance.kept_sessions import LONG, make, opened, work
from turnstate import Message, ToolCallRequest, formats

pytestmark = pytest.mark.req("P3")


def test_an_archive_holds_a_header_the_sessions_oldest_first_and_an_end(url: str) -> None:
    first, second = make(url, "one", user="anna"), make(url, "two")
    code, out, err = turnstate("export", "--all")
    assert (code, err) == (0, "")
    lines = [json.loads(line) for line in out.splitlines()]
    assert lines[0] == {"turnstate": "archive", "version": 1}
    assert [line["type"] for line in lines[1:]] == ["session", "branch", "entry"] * 2 + ["end"]
    assert [line["id"] for line in lines if line.get("type") == "session"] == [first, second]
    assert lines[3]["body"]["content"] == "one"
    assert turnstate("export", "--all", "--format", "jsonl").out == out


def test_sessions_are_chosen_by_id_or_by_user(url: str) -> None:
    make(url, id="0197a", user="anna")
    make(url, id="0298b", user="bob")
    make(url, id="0399c", user="anna")

    def exported(*arguments: str) -> list[str]:
        lines = [json.loads(line) for line in turnstate("export", *arguments).out.splitlines()]
        return [line["id"] for line in lines if line.get("type") == "session"]

    assert exported("0399", "0197a", "0399c") == ["0399c", "0197a"]
    assert exported("--all", "--user", "anna") == ["0197a", "0399c"]
    assert exported("--all", "--user", "nobody") == []


@pytest.mark.req("G4")
@pytest.mark.parametrize("whose", [["--user", "bob"], ["--tenant", "acme"]])
def test_what_is_not_ones_own_is_not_there(url: str, whose: list[str]) -> None:
    id = make(url, "secret", user="anna")
    code, out, err = turnstate("export", id, *whose)
    assert (code, out, err.startswith(f"turnstate: there is no session {id}; ")) == (1, "", True)


def test_a_file_appears_complete_and_is_not_replaced_unasked(url: str, tmp_path: Path) -> None:
    make(url, "hello")
    path = tmp_path / "backup.jsonl"
    assert turnstate("export", "--all", "-o", path) == (0, "", "")
    first = path.read_bytes()
    assert first.endswith(b'{"type":"end","sessions":1}\n')
    assert turnstate("export", "--all", "-o", path).code == 2
    make(url, "more")
    assert turnstate("export", "--all", "--output", path, "--force").code == 0
    assert path.read_bytes().endswith(b'{"type":"end","sessions":2}\n')
    assert stat.S_ISREG(path.stat().st_mode)


def test_a_failed_export_leaves_no_file(url: str, tmp_path: Path) -> None:
    make(url)
    assert turnstate("export", "nobody", "-o", tmp_path / "out").code == 1
    assert turnstate("export", "--all", "-o", tmp_path / "missing" / "out").code == 2
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("arguments", [[], ["x", "--all"]])
def test_ids_or_all_of_them(url: str, arguments: list[str]) -> None:
    make(url)
    code, out, err = turnstate("export", *arguments)
    assert (code, out) == (2, "")
    assert "--all" in err


@pytest.mark.req("A8")
@pytest.mark.parametrize("name", formats.names())
def test_a_session_is_written_for_a_provider_and_taken_by_it(url: str, name: str) -> None:
    id, _ = work(url, LONG, {"files": []}, system="You help.")
    code, out, _ = turnstate("export", id, "--format", name)
    payload = json.loads(out)
    target = formats.get(name)
    assert code == 0
    assert payload["id"] == id
    assert target.validate({key: value for key, value in payload.items() if key != "id"}) == []
    assert "line 8100 of the log" in out
    assert "You help." in out
    assert out.startswith("{\n  ")


def test_many_sessions_are_written_a_line_each(url: str) -> None:
    ids = [make(url, f"hello {number}") for number in range(3)]
    _, out, _ = turnstate("export", "--all", "--format", "openai-chat")
    assert [(json.loads(line)["id"]) for line in out.splitlines()] == ids
    _, out, _ = turnstate("export", *ids[:2], "--format", "anthropic")
    assert len(out.splitlines()) == 2


def test_calls_that_never_got_a_result_are_answered_for_the_provider(url: str) -> None:
    with opened(url) as sessions:
        session = sessions.create()
        call = ToolCallRequest(name="ls", args={})
        session.append(Message.user("look"), Message.assistant(None, tool_calls=[call]))
    code, out, _ = turnstate("export", session.id, "--format", "openai-chat")
    assert code == 0
    assert [message["role"] for message in json.loads(out)["messages"]] == ["user", "assistant", "tool"]
    with opened(url) as sessions:
        assert len(sessions.open(session.id).messages()) == 2


def test_markdown_is_for_people(url: str) -> None:
    first, second = make(url, "Good morning!", title="Greetings"), make(url, "Good night!")
    _, out, _ = turnstate("export", first, "--format", "markdown")
    assert out.startswith("## user · ")
    assert out.endswith("\n\nGood morning!\n")
    _, out, _ = turnstate("export", "--all", "--format", "markdown")
    assert f"# Greetings ({first})\n\n## user" in out
    assert f"# {second}\n\n## user" in out


def test_an_unknown_format_is_bad_usage(url: str) -> None:
    code, out, err = turnstate("export", make(url), "--format", "nope")
    assert (code, out, err.count("\n")) == (2, "", 1)


def test_a_damaged_entry_is_told_and_keeps_its_place(url: str, tmp_path: Path) -> None:
    id = make(url, "one", "two", "three")
    db = apsw.Connection(str(tmp_path / "agent.db"))
    ((damaged,),) = db.execute("UPDATE entry SET body = x'7b7d' WHERE seq = 2 RETURNING id").fetchall()
    db.close()
    code, out, err = turnstate("export", id)
    assert code == 1
    place = f"entry {UUID(bytes=damaged)} of session {id}"
    told = f"turnstate: {place} is damaged: the archive keeps its position without its content\n"
    assert err == told
    assert [json.loads(line).get("damaged") for line in out.splitlines()[3:6]] == [None, True, None]


def test_a_terminal_sees_progress_and_the_archive_none_of_it(url: str, tmp_path: Path) -> None:
    for number in range(20):
        make(url, str(number))
    with open(tmp_path / "out", "w+b") as out:
        seen = on_a_terminal("export", "--all", stdout=out).err
        out.seek(0)
        assert out.read().count(b'"type":"session"') == 20
    assert "20 sessions" in seen


def test_a_reader_that_closes_the_pipe_early_is_no_error(url: str) -> None:
    id = make(url, *["word " * 2_000] * 40)
    assert into_a_closing_pipe("export", id) == (141, "")
