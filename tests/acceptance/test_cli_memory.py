from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from tests.acceptance.cli_program import turnstate
from tests.acceptance.kept_sessions import make
from turnstate.memory.builtin import sqlite

pytestmark = pytest.mark.req("P3", "F5")


@pytest.fixture
def session(url: str) -> str:
    """Deliver a session of ann that ended, and return its id."""
    id = make(url, "By the way, we moved to Porto in March.", "The weather is fine.", user="ann")
    assert turnstate("sessions", "end", id).code == 0
    assert turnstate("worker", "--once").code == 0
    return id


def test_a_question_is_answered_with_the_message_it_comes_from(session: str) -> None:
    first, *_ = turnstate("memory", "search", "--user", "ann", "which city do I live in?", "--json").objects
    assert first["session"] == session
    assert first["text"] == "By the way, we moved to Porto in March."
    shown = turnstate("show", first["message"], "--json").objects
    assert "Porto" in str(shown)
    code, out, err = turnstate("memory", "search", "--user", "ann", "--limit", "1", "city")
    assert (code, err) == (0, "")
    assert out.splitlines()[1] == "  By the way, we moved to Porto in March."
    assert turnstate("memory", "search", "--user", "bob", "city").code == 1
    assert turnstate("memory", "search", "--user", "ann", "--tenant", "other", "city").code == 1


def test_users_facts_and_the_profile_are_shown(session: str) -> None:
    assert turnstate("memory", "list", "--json").objects == [{"user": "ann", "turns": 2, "dropped": 0}]
    assert turnstate("memory", "list").out.splitlines()[0].split() == ["user", "turns", "dropped"]
    (fact,) = turnstate("memory", "list", "--user", "ann", "--json").objects
    assert (fact["kind"], fact["value"], fact["ended"]) == ("home", "Porto", None)
    assert [source["session"] for source in fact["sources"]] == [session]
    code, out, _ = turnstate("memory", "show", "--user", "ann", fact["id"][:6])
    assert code == 0
    assert "Porto" in out.splitlines()[0]
    assert f"said in session {session}" in out.splitlines()[1]
    assert turnstate("memory", "show", "--user", "ann").out.startswith("Home: Porto (")
    assert turnstate("memory", "show", "--user", "bob").code == 1
    code, _, err = turnstate("memory", "show", "--user", "ann", "zz")
    assert (code, err) == (1, "turnstate: no fact begins with 'zz'\n")


@pytest.mark.usefixtures("session")
def test_a_fact_is_corrected_and_its_history_is_shown() -> None:
    (home,) = turnstate("memory", "list", "--user", "ann", "--json").objects
    (new,) = turnstate(
        "memory", "update", "--user", "ann", home["id"], "Vila", "Real", "--until", "2999-06-30", "--json"
    ).objects
    assert (new["value"], new["until"]) == ("Vila Real", "2999-06-30T23:59:59.999Z")
    assert new["sources"] == home["sources"]
    assert turnstate("memory", "list", "--user", "ann", "--json").objects == [new]
    assert len(turnstate("memory", "list", "--user", "ann", "--all", "--json").objects) == 2
    shown = turnstate("memory", "show", "--user", "ann", new["id"]).out.splitlines()
    assert "Vila Real" in shown[0]
    assert "Porto" in shown[2]
    assert turnstate("memory", "show", "--user", "ann").out.startswith("Home: Vila Real (")
    for at, values in [("1999-01-01", []), ("2998-01-01T00:00", ["Vila Real"]), ("2999-07-01", [])]:
        listed = turnstate("memory", "list", "--user", "ann", "--as-of", at, "--json").objects
        assert [fact["value"] for fact in listed] == values
    code, _, err = turnstate("memory", "update", "--user", "ann", "zz", "Faro")
    assert (code, "there is no fact 'zz'" in err) == (1, True)
    code, _, err = turnstate("memory", "list", "--user", "ann", "--as-of", "yesterday")
    assert (code, "is neither a date nor a time" in err) == (2, True)
    assert turnstate("memory", "forget", "--user", "ann", "--fact", new["id"], "--history", "--yes").code == 0
    assert turnstate("memory", "list", "--user", "ann", "--all", "--json").objects == []


@pytest.mark.usefixtures("url")
def test_a_note_is_added_and_one_fact_is_forgotten() -> None:
    (fact,) = turnstate("memory", "add", "--user", "ann", "prefers", "window seats", "--json").objects
    assert fact["text"] == "prefers window seats"
    assert turnstate("memory", "search", "--user", "ann", "seat").code == 0
    code, _, err = turnstate("memory", "forget", "--user", "ann", "--fact", fact["id"], "--yes")
    assert (code, err) == (0, f"turnstate: the fact {fact['id']} is forgotten\n")
    assert turnstate("memory", "forget", "--user", "ann", "--fact", fact["id"], "--yes").code == 1
    assert turnstate("memory", "search", "--user", "ann", "seat").code == 1


@pytest.mark.usefixtures("session")
def test_forgetting_says_if_a_reader_kept_bytes_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "SCRUB_SECONDS", 0.1)
    reader = apsw.Connection(str(tmp_path / "agent-memory.db"))
    reader.execute("BEGIN; SELECT count(*) FROM document").fetchall()
    code, _, err = turnstate("memory", "forget", "--user", "ann", "--yes")
    assert (code, err.splitlines()[-1]) == (0, "turnstate: forgotten: 2 messages")
    assert err.startswith("turnstate: rows were deleted, but their bytes may be left in ")
    reader.close(True)
    assert turnstate("memory", "forget", "--user", "ann", "--yes").err == "turnstate: forgotten: 0 messages\n"


def test_a_user_or_a_session_is_forgotten_after_a_confirmation(session: str) -> None:
    assert turnstate("memory", "forget", "--user", "ann").code == 2  # stdin is no terminal
    assert turnstate("memory", "forget", "--yes").code == 2
    assert turnstate("memory", "forget", "--user", "ann", "--session", session, "--yes").code == 2
    assert turnstate("memory", "forget", "--session", session, "--yes", "--json").objects == [{"messages": 2}]
    assert turnstate("memory", "list", "--user", "ann").out == ""
    assert turnstate("memory", "forget", "--user", "ann", "--yes").err == "turnstate: forgotten: 0 messages\n"


@pytest.mark.usefixtures("session")
def test_an_export_can_be_imported_for_another_user(tmp_path: Path) -> None:
    path = tmp_path / "ann.jsonl"
    assert turnstate("memory", "export", "--user", "ann", "-o", path).code == 0
    assert turnstate("memory", "export", "--user", "ann").out == path.read_text()
    assert turnstate("memory", "import", "--user", "bob", path).err == "turnstate: imported 2 turns\n"
    assert turnstate("memory", "import", "--user", "eve", stdin=path.read_bytes()).code == 0
    for user in ("bob", "eve"):
        (fact,) = turnstate("memory", "list", "--user", user, "--json").objects
        assert fact["value"] == "Porto"
    code, _, err = turnstate("memory", "import", "--user", "bob", stdin="{}\n")
    assert (code, err.startswith("turnstate: line 1 is not a line of an exported memory")) == (2, True)
    assert turnstate("memory", "import", "--user", "bob", tmp_path / "none.jsonl").code == 2


def test_reading_creates_no_memory_and_other_engines_do_what_they_can(url: str, tmp_path: Path) -> None:
    for arguments in (["list"], ["list", "--user", "ann"], ["export", "--user", "ann"]):
        assert turnstate("memory", *arguments).code == 0
    assert turnstate("memory", "search", "--user", "ann", "city").code == 1
    assert not list(tmp_path.glob("*memory*"))
    make(url, "I live in Porto.", user="ann")
    assert turnstate("sessions", "end", "last").code == 0
    engine = f"builtin:{tmp_path / 'notes.db'}"
    assert turnstate("worker", "--once", "--engine", engine).code == 0
    assert turnstate("memory", "search", "--user", "ann", "--engine", engine, "Porto").code == 0
    code, _, err = turnstate("memory", "add", "--user", "ann", "--engine", "none", "likes rain")
    assert (code, err) == (
        2,
        "turnstate: only the built-in engine can do that; pass --engine builtin:PATH\n",
    )


@pytest.mark.usefixtures("session")
def test_erasing_a_user_erases_the_memory_of_the_worker() -> None:
    (receipt,) = turnstate("sessions", "erase", "--user", "ann", "--yes", "--json").objects
    assert receipt["memories"] == 2
    assert turnstate("memory", "search", "--user", "ann", "city").code == 1


@pytest.mark.usefixtures("url")
def test_the_engine_can_be_set_by_the_environment_and_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "turnstate.toml").write_text('memory = "builtin:own.db"\n')
    assert turnstate("config", "trust", "--yes").code == 0
    assert turnstate("memory", "add", "--user", "ann", "likes rain").code == 0
    assert (tmp_path / "own.db").exists()
    monkeypatch.setenv("TURNSTATE_MEMORY", "builtin:other.db")
    assert turnstate("memory", "search", "--user", "ann", "rain").code == 1
    assert turnstate("memory", "search", "--user", "ann", "rain", "--engine", "builtin:own.db").code == 0
    code, _, err = turnstate("memory", "search", "--user", "ann", "rain", "--engine", "parrot")
    assert (code, "known engines: none, builtin" in err) == (2, True)


def test_results_are_filtered(session: str) -> None:
    def found(*options: str) -> int:
        return len(turnstate("memory", "search", "--user", "ann", "which city?", "--json", *options).objects)

    assert found("--session", session, "--role", "user", "--since", "2020-01-01") > 0
    assert found("--session", "other") == found("--role", "tool") == found("--until", "2020-01-01") == 0
    assert found("--min-score", "0.01") > 0 == found("--min-score", "1")
    assert turnstate("memory", "search", "--user", "ann", "city", "--since", "soon").code == 2
