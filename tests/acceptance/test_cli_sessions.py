from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from tests.acceptance.cli_program import into_a_closing_pipe, on_a_terminal, turnstate
from tests.acceptance.kept_sessions import answering, make, opened, row, there
from turnstate import Message, blocking
from turnstate.testing import FixedClock

pytestmark = pytest.mark.req("P3", "G2")

VERBS = ["rename", "tag", "set-model", "end", "reset", "destroy", "erase"]
ARGUMENTS = {"rename": ["ID", "x"], "tag": ["ID", "x"], "erase": ["--session", "ID", "--yes"]}
ARGUMENTS |= {"set-model": ["ID", "gpt-4o"], "end": ["ID"], "reset": ["ID"], "destroy": ["ID", "--yes"]}


def verb_line(verb: str, id: str) -> list[str]:
    return [verb, *(id if word == "ID" else word for word in ARGUMENTS[verb])]


def listed(*arguments: object) -> list[str]:
    code, out, _ = turnstate("sessions", *arguments, "--json")
    assert code == 0
    return [json.loads(line)["id"] for line in out.splitlines()]


def test_sessions_are_listed_the_newest_first_with_what_is_known_of_them(url: str) -> None:
    first = make(url, "hello", user="anna", title="The export", tags=["urgent", "billing"])
    second = make(url)
    code, out, err = turnstate("sessions")
    heading, *lines = out.splitlines()
    assert (code, err) == (0, "")
    assert heading.split() == ["id", "user", "state", "active", "entries", "tokens", "tags", "title"]
    assert [line.split()[0] for line in lines] == [second, first]
    assert lines[1].split()[1:] == [
        "anna",
        "live",
        "just",
        "now",
        "1",
        "5",
        "billing,",
        "urgent",
        "The",
        "export",
    ]


def test_json_has_a_line_a_session(url: str) -> None:
    id = make(url, "hello", user="anna", title="T", tags=["x"], meta={"k": [1]}, idle=60)
    (found,) = turnstate("sessions", "list", "--json").objects
    assert found["id"] == id
    assert (found["user"], found["title"], found["tags"], found["meta"]) == ("anna", "T", ["x"], {"k": [1]})
    assert (found["state"], found["entries"], found["idle"], found["version"]) == ("live", 1, 60.0, 1)
    assert found["active"].endswith("Z")
    assert found["ended"] is None


@pytest.mark.usefixtures("url")
def test_a_store_that_was_never_used_is_empty_and_is_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TURNSTATE_STORE")
    code, out, err = turnstate("sessions")
    assert (code, out, err.startswith("turnstate: no sessions found; --store names another")) == (0, "", True)
    assert list(tmp_path.iterdir()) == []


def test_filters_leave_out_what_is_not_asked_for(url: str) -> None:
    anna = make(url, user="anna", tags=["x"])
    bob = make(url, user="bob")
    with opened(url) as sessions:
        sessions.open(bob).end("closed")
    assert listed("--user", "anna") == [anna]
    assert listed("--tag", "x") == [anna]
    assert listed("--live") == [anna]
    assert listed("--ended") == [bob]
    assert listed("--user", "anna", "--ended") == []


@pytest.mark.parametrize(
    ("option", "count"),
    [
        (["--since", "1h"], 2),
        (["--until", "1h"], 0),
        (["--since", "2001-09-09"], 2),
        (["--until", "2001-09-09T01:46:40+01:00"], 0),
        (["--since", "2w", "--until", "9999-01-01"], 2),
    ],
)
def test_a_moment_is_a_date_or_how_long_ago(url: str, option: list[str], count: int) -> None:
    make(url)
    make(url)
    assert len(listed(*option)) == count


@pytest.mark.usefixtures("url")
def test_no_moment_is_bad_usage() -> None:
    code, out, err = turnstate("sessions", "--since", "yesterday")
    assert (code, out) == (2, "")
    assert "'yesterday' is not a time" in err


def test_a_long_list_says_that_there_is_more(url: str) -> None:
    for _ in range(5):
        make(url)
    code, out, err = turnstate("sessions", "--limit", 3)
    assert (code, len(out.splitlines())) == (0, 4)
    assert err == "turnstate: showing the newest 3; --limit 0 shows all\n"
    assert len(listed("--limit", 0)) == len(listed("--limit", 5)) == 5
    assert turnstate("sessions", "--limit", 5).err == ""


@pytest.mark.req("G4")
def test_tenants_do_not_see_each_other(url: str) -> None:
    ours, theirs = make(url, tenant="default"), make(url, tenant="acme")
    assert listed() == [ours]
    assert listed("--tenant", "acme") == [theirs]


def test_a_title_cannot_act_on_the_terminal(url: str) -> None:
    make(url, title="red \x1b[31m [bold]alert[/bold]")
    _, out, _ = turnstate("sessions")
    assert r"red \x1b[31m [bold]alert[/bold]" in out


def test_a_narrow_terminal_gets_whole_ids_and_short_titles(url: str) -> None:
    id = make(url, "hello", user="anna", title="word " * 40)
    code, _, seen = on_a_terminal("sessions", COLUMNS="100")
    assert code == 0
    line = seen.splitlines()[1]
    assert line.startswith(f"{id}  anna  live ")
    assert line.endswith("…")
    assert len(line) == 100


@pytest.mark.req("B1")
def test_the_model_of_a_session_is_set_and_shown(url: str) -> None:
    id = make(url, "hello")
    code, out, err = turnstate("sessions", "set-model", id, "claude-sonnet-4-5")
    told = "uses claude-sonnet-4-5 from here on, counted by estimate:claude"
    assert (code, out, err) == (0, "", f"turnstate: session {id} {told}\n")
    assert "— model: claude-sonnet-4-5, counted by estimate:claude" in turnstate("show", id).out


def test_a_session_is_renamed_by_the_beginning_of_its_id(url: str) -> None:
    id = make(url, id="0197a1c2")
    make(url, id="0298ffff")
    code, out, err = turnstate("sessions", "rename", "0197", "The nightly export")
    assert (code, out) == (0, "")
    assert err == f"turnstate: session {id} renamed to 'The nightly export'\n"
    assert row(url, id).title == "The nightly export"


def test_a_beginning_that_several_ids_share_is_refused_with_them(url: str) -> None:
    for number in range(7):
        make(url, id=f"0197-{number}")
    code, out, err = turnstate("sessions", "rename", "0197", "x")
    assert (code, out) == (1, "")
    assert err.count("\n") == 1
    assert "0197-6, 0197-5, 0197-4, 0197-3, 0197-2 and 2 more" in err


def test_an_id_that_begins_another_means_itself(url: str) -> None:
    make(url, id="a")
    make(url, id="ab")
    assert turnstate("sessions", "rename", "a", "me").code == 0
    assert (row(url, "a").title, row(url, "ab").title) == ("me", "")


def test_tags_are_added_and_taken_away(url: str) -> None:
    id = make(url, tags=["old", "kept"])
    assert turnstate("sessions", "tag", id, "new", "--remove", "old").code == 0
    assert row(url, id).tags == ("kept", "new")
    assert turnstate("sessions", "tag", id, "--remove", "kept", "--remove", "new").code == 0
    assert row(url, id).tags == ()
    assert turnstate("sessions", "tag", id).code == 2


@pytest.mark.req("G7")
def test_a_conversation_is_ended_and_reset(url: str) -> None:
    id = make(url, "hello", system="You help.")
    assert turnstate("sessions", "end", id, "--reason", "solved").code == 0
    assert (row(url, id).ended is not None, row(url, id).reason) == (True, "solved")
    code, _, err = turnstate("sessions", "end", id)
    assert (code, err.count("\n")) == (1, 1)
    code, _, err = turnstate("sessions", "reset", id)
    assert (code, err) == (0, f"turnstate: session {id} starts again: epoch 2\n")
    assert (row(url, id).ended, row(url, id).epoch) == (None, 2)


@pytest.mark.req("G8")
def test_sessions_that_were_left_idle_are_ended(url: str) -> None:
    clock = FixedClock(int(time.time() * 1000) - 3_600_000)

    with blocking.SessionManager.open(url, clock=clock) as sessions:
        old = sessions.create(idle=60)
        old.append(Message.user("hello"))
        sessions.create()
    code, out, err = turnstate("sessions", "expire")
    assert (code, out, err) == (0, f"{old.id}\n", "turnstate: 1 session ended\n")
    assert turnstate("sessions", "expire", "--json") == (0, "", "turnstate: 0 sessions ended\n")
    assert listed("--ended") == [old.id]


@pytest.mark.req("G4")
@pytest.mark.parametrize("verb", VERBS)
def test_an_unknown_id_is_one_line_and_exit_code_1(url: str, verb: str) -> None:
    make(url)
    code, out, err = turnstate("sessions", *verb_line(verb, "nobody"))
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert err.startswith("turnstate: there is no session nobody; ")


@pytest.mark.req("G4")
@pytest.mark.parametrize("verb", VERBS)
def test_another_users_and_another_tenants_id_are_unknown(url: str, verb: str) -> None:
    id = make(url, user="anna")
    for whose in (["--user", "bob"], ["--tenant", "acme"]):
        code, out, err = turnstate("sessions", *verb_line(verb, id), *whose)
        assert (code, out, err.count("\n")) == (1, "", 1)
        assert err.startswith(f"turnstate: there is no session {id}; ")
    assert row(url, id).version == 0


@pytest.mark.req("G9")
@pytest.mark.parametrize("verb", ["destroy", "erase"])
def test_without_a_terminal_nothing_is_deleted_without_yes(url: str, verb: str) -> None:
    id = make(url)
    arguments = [word for word in verb_line(verb, id) if word != "--yes"]
    code, out, err = turnstate("sessions", *arguments)
    assert (code, out) == (2, "")
    assert "--yes" in err
    assert there(url) == [id]


@pytest.mark.req("G9")
def test_the_user_at_a_terminal_is_asked(url: str) -> None:
    id = make(url, "hello", title="Dear diary")
    code, _, seen = answering("n", "sessions", "destroy", id)
    assert code == 1
    assert f"Delete session {id} “Dear diary”, 1 entry, last used just now?" in seen
    assert "nothing was deleted" in seen
    assert there(url) == [id]
    assert answering("y", "sessions", "destroy", id).code == 0
    assert there(url) == []


@pytest.mark.req("G9")
def test_what_deletes_wants_all_of_the_id(url: str) -> None:
    id = make(url, id="0197a1c2")
    for arguments in (["destroy", "0197", "--yes"], ["erase", "--session", "0197", "--yes"]):
        assert turnstate("sessions", *arguments).code == 1
    assert there(url) == [id]


@pytest.mark.req("G9")
def test_a_destroyed_session_is_gone(url: str) -> None:
    id, kept = make(url, "one", "two"), make(url)
    code, out, _ = turnstate("sessions", "destroy", id, "--yes", "--json")
    assert code == 0
    assert json.loads(out) == {"id": id, "entries": 2, "branches": 1, "keys": 0, "parcels": 0}
    assert there(url) == [kept]


@pytest.mark.req("G9")
def test_erasing_a_user_leaves_a_receipt_and_no_byte(url: str, tmp_path: Path) -> None:
    mine = [make(url, "my secret is xyzzy", user="anna") for _ in range(3)]
    kept = make(url, "hello", user="bob")
    assert any(b"xyzzy" in path.read_bytes() for path in tmp_path.glob("agent.db*"))
    code, out, err = turnstate("sessions", "erase", "--user", "anna", "--yes", "--json")
    receipt = json.loads(out)
    assert (code, err) == (0, "")
    assert set(receipt["sessions"]) == set(mine)
    assert receipt["sessions"][mine[0]] == {"entries": 1, "branches": 1, "keys": 0, "parcels": 0}
    assert receipt["scrubbed"] is True
    assert there(url) == [kept]
    assert not any(b"xyzzy" in path.read_bytes() for path in tmp_path.glob("agent.db*"))


@pytest.mark.req("G9", "F1")
def test_erasing_a_user_makes_the_memory_forget(url: str, tmp_path: Path) -> None:
    id = make(url, "my secret is xyzzy", user="anna")
    turnstate("sessions", "end", id)
    assert turnstate("worker", "--once").code == 0
    files = [path for path in tmp_path.rglob("*memory*") if path.is_file()]
    assert any(b"xyzzy" in path.read_bytes() for path in files)
    code, out, _ = turnstate("sessions", "erase", "--user", "anna", "--yes")
    assert code == 0
    assert "1 session, 0 snapshots, 1 message in memory; no byte" in out
    assert not any(b"xyzzy" in path.read_bytes() for path in files if path.exists())


def test_a_user_of_whom_nothing_is_kept_is_erased_all_the_same(url: str) -> None:
    make(url, user="anna")
    code, out, _ = turnstate("sessions", "erase", "--user", "nobody", "--yes", "--json")
    assert (code, json.loads(out)["sessions"]) == (0, {})


@pytest.mark.usefixtures("url")
def test_erasing_without_a_session_or_user_is_bad_usage() -> None:
    assert turnstate("sessions", "erase", "--yes").code == 2


@pytest.mark.parametrize("verb", ["list", *VERBS, "expire"])
def test_every_verb_explains_itself(verb: str) -> None:
    code, out, _ = turnstate("sessions", verb, "--help")
    assert code == 0
    assert "\n    turnstate sessions" in out
    assert "Exit codes:\n    0  success\n" in out
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.usefixtures("url")
def test_an_unknown_verb_is_bad_usage() -> None:
    code, _, err = turnstate("sessions", "nope")
    assert (code, "No such command 'nope'" in err) == (2, True)


@pytest.mark.usefixtures("url")
@pytest.mark.parametrize(
    ("wrong", "code", "reason"),
    [
        ("nowhere", 2, "no store has the scheme"),
        ("ftp://x", 2, "no store has the scheme"),
        ("sqlite:///missing.db", 3, "the file missing.db does not exist"),
        ("sqlite:///missing/agent.db", 3, "the file missing/agent.db does not exist"),
        ("sqlite:///text.db", 3, "text.db is no"),
        ("sqlite:///", 2, "names no file"),
    ],
)
def test_a_store_that_cannot_be_opened_is_one_line(
    tmp_path: Path, wrong: str, code: int, reason: str
) -> None:
    (tmp_path / "text.db").write_text("these are not the bytes of a database " * 100)
    done = turnstate("sessions", "--store", wrong)
    assert (done.code, done.out) == (code, "")
    assert done.err.startswith("turnstate: ")
    assert done.err.count("\n") == 1
    assert reason in done.err
    assert [path.name for path in tmp_path.iterdir()] == ["text.db"]


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is read-only to root")
def test_a_folder_that_cannot_be_written_is_one_line(url: str, tmp_path: Path) -> None:
    id = make(url)
    for path in tmp_path.glob("agent.db*"):
        path.chmod(0o400)
    tmp_path.chmod(0o500)
    try:
        code, _, err = turnstate("sessions", "rename", id, "x")
    finally:
        tmp_path.chmod(0o700)
    assert (code, err.count("\n")) == (3, 1)


def test_a_reader_that_closes_the_pipe_early_is_no_error(url: str) -> None:
    with opened(url) as sessions:
        for number in range(300):
            sessions.create(title="x" * 400, id=f"s{number:04}")
    assert into_a_closing_pipe("sessions", "--json", "--limit", "0") == (141, "")
