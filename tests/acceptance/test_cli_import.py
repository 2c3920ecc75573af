from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.acceptance.cli_program import (
    broken,
    command_line,
    conversation,
    environment,
    jsonl,
    on_a_terminal,
    turnstate,
)
from tests.acceptance.kept_sessions import make, opened, row, there
from turnstate import Budget, Message

pytestmark = pytest.mark.req("P3")


@pytest.fixture
def other(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/other.db"


def exported(url: str) -> str:
    code, out, _ = turnstate("export", "--all", "--store", url)
    assert code == 0
    return out


def lived(url: str) -> str:
    """Keep a session with branches, cuts and epochs."""
    with opened(url) as sessions:
        session = sessions.create(user="anna", title="A life", tags=["x"], system="You help.")
        for number in range(60):
            session.append(Message.user(f"question {number} " + "word " * 30))
            session.append(Message.assistant(f"answer {number}"))
        session.window(Budget(window=1_500))
        session.fork(at=session.messages()[10].id, name="what if")
        session.append(Message.user("what if?"))
        session.undo()
        session = session.reset()
        session.append(Message.user("anew"))
        session.end("done")
        return session.id


@pytest.mark.req("G6")
def test_an_archive_moves_to_another_store_as_it_is(url: str, other: str, tmp_path: Path) -> None:
    lived(url)
    make(url, "hello")
    (tmp_path / "a.jsonl").write_text(archive := exported(url))
    code, out, err = turnstate("import", tmp_path / "a.jsonl", "--store", other)
    assert (code, out) == (0, "")
    assert err.startswith("turnstate: 2 sessions imported (")
    assert exported(other) == archive
    assert turnstate("import", "-", "--store", other, stdin=archive).err == (
        "turnstate: 0 sessions imported, 2 sessions already present (0 entries)\n"
    )
    assert exported(other) == archive


def test_json_says_what_became_of_each(url: str, other: str) -> None:
    id = make(url, "hello")
    archive = exported(url)
    (found,) = turnstate("import", "-", "--store", other, "--json", stdin=archive).objects
    assert found == {"id": id, "result": "imported", "entries": 1}


@pytest.mark.req("G4")
def test_sessions_go_to_the_tenant_that_is_named(url: str, other: str) -> None:
    id = make(url, "hello")
    assert turnstate("import", "-", "--store", other, "--tenant", "acme", stdin=exported(url)).code == 0
    assert there(other) == []
    assert there(other, "acme") == [id]


def test_another_session_of_the_same_id_is_an_error_or_passed_over(url: str, other: str) -> None:
    make(url, "ours", id="a")
    kept = make(url, "ours", id="b")
    make(other, "theirs", id="a")
    code, _, err = turnstate("import", "-", "--store", other, stdin=exported(url))
    assert (code, err.count("\n")) == (1, 1)
    assert "stdin: another session a exists already; pass --skip-existing to skip it" in err
    code, _, err = turnstate("import", "-", "--store", other, "--skip-existing", stdin=exported(url))
    assert (code, err) == (0, "turnstate: 1 session imported, 1 session skipped (1 entry)\n")
    assert sorted(there(other)) == ["a", kept]
    assert "theirs" in turnstate("show", "a", "--store", other).out


@pytest.mark.req("G6")
@pytest.mark.parametrize("line", [4, 5, 42, 102])
def test_a_damaged_line_is_named_and_its_session_is_not_there(url: str, other: str, line: int) -> None:
    make(url, id="before", title="on lines 2 and 3")
    lived(url)
    lines = exported(url).splitlines(keepends=True)
    lines[line - 1] = lines[line - 1][:20] + "\n"
    code, out, err = turnstate("import", "-", "--store", other, stdin="".join(lines))
    assert (code, out) == (2, "")
    assert f"turnstate: stdin: line {line}: " in err
    assert there(other) == ["before"]


def test_what_is_no_archive_makes_no_store(url: str, other: str, tmp_path: Path) -> None:
    make(url)
    (tmp_path / "a.jsonl").write_text(jsonl(conversation(id="x")))
    code, _, err = turnstate("import", tmp_path / "a.jsonl", "--store", other)
    assert code == 2
    assert "a.jsonl: line 1: this is not a Turnstate archive; pass --from NAME" in err
    assert not (tmp_path / "other.db").exists()


def test_an_archive_that_was_cut_off_is_told(url: str, other: str) -> None:
    make(url, "one", id="a")
    make(url, "two", id="b")
    lines = exported(url).splitlines(keepends=True)
    code, _, err = turnstate("import", "-", "--store", other, stdin="".join(lines[:-2]))
    assert code == 2
    assert "turnstate: 1 session imported (1 entry)\nturnstate: stdin: line 6: the file ends before" in err
    assert there(other) == ["a"]


@pytest.mark.usefixtures("url")
def test_a_file_that_is_not_there_is_one_line(other: str) -> None:
    code, _, err = turnstate("import", "nowhere.jsonl", "--store", other)
    assert (code, err) == (2, "turnstate: nowhere.jsonl: there is no such file\n")


@pytest.mark.req("G6")
def test_after_a_kill_the_same_command_completes_the_import(url: str, other: str, tmp_path: Path) -> None:
    first, second = make(url, "hello"), lived(url)
    archive = exported(url)
    half = archive.encode()[: len(archive.encode()) * 2 // 3]
    with subprocess.Popen(
        command_line("import", "-", "--store", other),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(),
    ) as process:  # fmt: skip
        assert process.stdin
        process.stdin.write(half)
        process.stdin.flush()
        while not (tmp_path / "other.db").exists() or set(there(other)) != {first, second}:
            assert process.poll() is None
            time.sleep(0.01)
        process.kill()
    states = {one["id"]: one["state"] for one in turnstate("sessions", "--json", "--store", other).objects}
    assert states == {first: "live", second: "importing"}
    assert turnstate("export", second, "--store", other).err.endswith("its import is not finished\n")
    code, _, err = turnstate("import", "-", "--store", other, stdin=archive)
    assert code == 0
    assert err.startswith("turnstate: 1 session imported, 1 session already present (")
    assert exported(other) == archive


@pytest.mark.req("A8")
def test_conversations_of_a_provider_become_sessions(url: str) -> None:
    lines = jsonl(conversation(id="one", title="First", team="blue"), conversation(id=2), conversation())
    code, out, _ = turnstate("import", "-", "--from", "openai-chat", "--user", "anna", "--json", stdin=lines)
    results = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [one["result"] for one in results] == ["imported"] * 3
    assert [one["id"] for one in results[:2]] == ["one", "2"]
    found = row(url, "one")
    assert (found.user, found.title, found.meta) == ("anna", "First", {"team": "blue"})
    again = json.loads(turnstate("export", "one", "--format", "openai-chat").out)
    assert again == {"id": "one", "messages": conversation()["messages"]}
    assert set(there(url)) == {one["id"] for one in results}


def test_the_same_conversations_are_not_imported_twice(url: str) -> None:
    lines = jsonl(conversation(id="one"), conversation(), conversation())
    assert turnstate("import", "-", "--from", "openai-chat", stdin=lines).code == 0
    code, _, err = turnstate("import", "-", "--from", "openai-chat", stdin=lines)
    assert (code, err) == (0, "turnstate: 0 sessions imported, 3 sessions already present (0 entries)\n")
    assert len(there(url)) == 3


def test_one_document_is_one_session(url: str) -> None:
    code, _, err = turnstate("import", "-", "--from", "openai-chat", stdin=conversation()["messages"])
    assert (code, err) == (0, "turnstate: 1 session imported (5 entries)\n")
    assert len(there(url)) == 1


def test_a_broken_conversation_is_kept_as_it_is(url: str) -> None:
    assert turnstate("import", "-", "--from", "openai-chat", stdin=broken(id="x")).code == 0
    with opened(url) as sessions:
        session = sessions.open("x")
        assert [message.role for message in session.messages()] == ["user", "tool"]
        assert session.window(Budget(window=8_000)).messages


def test_a_bad_line_is_named_and_the_others_can_be_taken(url: str) -> None:
    lines = jsonl(conversation(id="a"), "{broken", conversation(id="c"))
    code, _, err = turnstate("import", "-", "--from", "openai-chat", stdin=lines)
    assert code == 2
    assert "turnstate: stdin line 2: not JSON" in err
    assert there(url) == ["a"]
    code, _, err = turnstate("import", "-", "--from", "openai-chat", "--keep-going", stdin=lines)
    assert code == 2
    assert err.endswith("turnstate: 1 session imported, 1 session already present (5 entries)\n")
    assert sorted(there(url)) == ["a", "c"]


@pytest.mark.usefixtures("url")
@pytest.mark.parametrize("option", [["--user", "anna"], ["--keep-going"]])
def test_options_of_conversations_are_bad_usage_for_archives(option: list[str]) -> None:
    code, out, err = turnstate("import", "-", *option)
    assert (code, out, err.count("\n")) == (2, "", 1)


def test_a_terminal_sees_progress(url: str, other: str, tmp_path: Path) -> None:
    for number in range(20):
        make(url, str(number))
    (tmp_path / "a.jsonl").write_text(exported(url))
    code, _, seen = on_a_terminal("import", tmp_path / "a.jsonl", "--store", other)
    assert code == 0
    assert "20 sessions" in seen


def test_an_interruption_leaves_whole_sessions(url: str, other: str, tmp_path: Path) -> None:
    lived(url)
    archive = exported(url).encode()
    with subprocess.Popen(
        command_line("import", "-", "--store", other),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(),
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # background jobs ignore it
    ) as process:  # fmt: skip
        assert process.stdin
        assert process.stderr
        process.stdin.write(archive[: len(archive) // 2])
        process.stdin.flush()
        while not (tmp_path / "other.db").exists() or not there(other):
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        process.stdin.close()
        process.wait(60)
        assert b"Traceback" not in process.stderr.read()
    assert there(other) == []
