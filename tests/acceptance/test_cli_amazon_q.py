from __future__ import annotations

import copy
import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.cli_program import turnstate
from tests.acceptance.kept_sessions import make, opened, row, there
from tests.harness.posix_locks import IN_USE, SHARED, is_locked
from turnstate import Message
from turnstate.cli.commands import amazon_q
from turnstate.errors import InputError
from turnstate.stores.sqlite.connection import connect, migrate

pytestmark = [pytest.mark.req("I9", "P3"), pytest.mark.usefixtures("url")]

EXAMPLE = Path(__file__).parents[2] / "docs/examples/qcli.json"
ID = "0d0f6a52-6a57-4f0e-9a52-2f4f5b0c9d11"


def example(**changes: Any) -> dict[str, Any]:
    return {**json.loads(EXAMPLE.read_text()), **changes}


def as_row(document: dict[str, Any]) -> str:
    """Write a document as the original does into its database: the range is one short."""
    short = copy.deepcopy(document)
    short["valid_history_range"][1] -= 1
    return json.dumps(short, ensure_ascii=False, separators=(",", ":"))


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """Make a database with the conversations of two folders, and an unrelated table."""
    path = tmp_path / "data.sqlite3"
    rows = [
        (str(tmp_path / "shop"), as_row(example())),
        (str(tmp_path / "blog"), as_row(example(conversation_id="blog-1"))),
    ]
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE conversations (key TEXT PRIMARY KEY, value TEXT)")
        connection.execute("CREATE TABLE history (id INTEGER PRIMARY KEY)")
        connection.executemany("INSERT INTO conversations VALUES (?, ?)", rows)
    return path


def test_a_saved_file_becomes_a_session_and_goes_back_byte_for_byte(url: str, tmp_path: Path) -> None:
    code, out, err = turnstate("amazon-q", "import", EXAMPLE)
    assert (code, err) == (0, "turnstate: 1 session imported\n")
    assert out == f"{ID}  qcli.json: 2 exchanges, 4 messages, 1 tool\n"
    assert (there(url), row(url, ID).title) == ([ID], "qcli.json")
    assert turnstate("amazon-q", "export", ID[:8], "-o", tmp_path / "back.json") == (0, "", "")
    assert (tmp_path / "back.json").read_bytes() == EXAMPLE.read_bytes()


def test_the_other_commands_show_what_came_over(url: str) -> None:
    turnstate("amazon-q", "import", EXAMPLE, "--store", url)
    shown = turnstate("show", ID).out
    assert "add a retry to fetch.py" in shown
    assert "→ fs_write" in shown
    assert ID in turnstate("search", "retry").out
    exported = json.loads(turnstate("export", ID, "--format", "anthropic").out)
    assert exported["messages"][1]["content"][1]["name"] == "fs_write"


def test_json_says_what_came_over() -> None:
    assert turnstate("amazon-q", "import", EXAMPLE, "--json").objects == [
        {
            "id": ID,
            "title": "qcli.json",
            "exchanges": 2,
            "messages": 4,
            "tools": 1,
            "files": 1,
            "summary": False,
            "tangent": False,
            "checkpoints": False,
            "result": "imported",
        }
    ]
    (again,) = turnstate("amazon-q", "import", EXAMPLE, "--json", "--skip-existing").objects
    assert again["result"] == "skipped"


def test_an_id_that_is_taken_is_an_error_and_nothing_changes(url: str) -> None:
    make(url, "ours", id=ID)
    code, out, err = turnstate("amazon-q", "import", EXAMPLE)
    assert (code, out) == (1, "")
    assert err == (
        f"turnstate: {EXAMPLE}: another session {ID} exists already; pass --skip-existing to skip it\n"
    )
    with opened(url) as sessions:
        assert [message.text for message in sessions.open(ID).messages()] == ["ours"]


def test_the_conversation_of_one_folder_is_taken_from_a_database(
    url: str, database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = database.read_bytes(), sorted(os.listdir(tmp_path))
    (tmp_path / "shop").mkdir()
    monkeypatch.chdir(tmp_path / "shop")
    code, out, _ = turnstate("amazon-q", "import", database, "--key", ".", "--store", url)
    assert (code, out) == (0, f"{ID}  {tmp_path}/shop: 2 exchanges, 4 messages, 1 tool\n")
    assert row(url, ID).title == f"{tmp_path}/shop"
    assert database.read_bytes() == before[0]
    assert set(os.listdir(tmp_path)) - set(before[1]) <= {"shop", "agent.db", "agent.db-wal", "agent.db-shm"}


def test_the_range_of_a_row_is_computed_again(database: Path, tmp_path: Path) -> None:
    turnstate("amazon-q", "import", database, "--key", tmp_path / "shop")
    code, out, _ = turnstate("amazon-q", "export", ID)
    assert (code, json.loads(out)) == (0, example())


def test_all_conversations_of_a_database_come_over(url: str, database: Path) -> None:
    code, out, err = turnstate("amazon-q", "import", database, "--all", "--user", "ann")
    assert (code, len(out.splitlines()), err) == (0, 2, "turnstate: 2 sessions imported\n")
    assert sorted(there(url)) == [ID, "blog-1"]
    assert row(url, "blog-1").user == "ann"


def test_a_database_of_several_folders_wants_to_know_which(database: Path, tmp_path: Path) -> None:
    code, _, err = turnstate("amazon-q", "import", database)
    assert code == 2
    assert f"contains 2 conversations ({tmp_path}/blog, {tmp_path}/shop); pass --key DIR" in err
    code, _, err = turnstate("amazon-q", "import", database, "--key", "/nowhere")
    assert (code, "no conversation for /nowhere; it contains 2 conversations" in err) == (1, True)
    assert turnstate("amazon-q", "import", database, "--key", "/a", "--all").code == 2
    assert not (tmp_path / "agent.db").exists()


def test_a_bad_row_costs_the_others_nothing_where_one_keeps_going(url: str, database: Path) -> None:
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("INSERT INTO conversations VALUES ('/bad', '{\"conversation_id\": 7}')")
        connection.execute("INSERT INTO conversations VALUES ('/empty', NULL)")
    code, _, err = turnstate("amazon-q", "import", database, "--all")
    assert (code, "/bad: " in err) == (2, True)
    assert there(url) == []
    code, out, err = turnstate("amazon-q", "import", database, "--all", "--keep-going")
    assert (code, len(out.splitlines())) == (2, 2)
    assert ", /empty: the row's value is not text" in err
    assert sorted(there(url)) == [ID, "blog-1"]


def test_a_database_in_wal_mode_is_read_and_left_alone(database: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA journal_mode=wal")
    assert turnstate("amazon-q", "import", database, "--key", tmp_path / "shop").code == 0
    assert not list(tmp_path.glob("data.sqlite3-*"))


def test_a_database_that_is_in_use_gives_what_was_written_last(
    url: str, database: Path, tmp_path: Path
) -> None:
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=wal")
        newest = as_row(example(conversation_id="newest"))
        connection.execute("UPDATE conversations SET value = ? WHERE key LIKE '%/shop'", [newest])
        assert turnstate("amazon-q", "import", database, "--key", tmp_path / "shop").code == 0
    assert there(url) == ["newest"]


def test_a_store_that_this_process_has_open_is_refused_and_keeps_its_locks(tmp_path: Path) -> None:
    migrate(str(path := tmp_path / "own.db"))
    with closing(connect(str(path), write=True)) as db:
        db.execute("SELECT count(*) FROM session").fetchall()
        code, _, err = turnstate("amazon-q", "import", path, "--all")
        assert (code, "is the store that the conversations are imported into" in err) == (2, True)
        assert is_locked(path, SHARED)
        assert is_locked(Path(f"{path}-shm"), IN_USE)


@pytest.mark.parametrize(
    ("content", "code", "told"),
    [
        (b"", 2, "not JSON"),
        (b"{", 2, "not JSON"),
        (b"[]", 2, "(at $)"),
        (b'{"a": 1, "a": 2}', 2, "occurs twice"),
        (b"[" * 10_000, 2, "nested deeper"),
        (b"SQLite format 3\0 and then nothing", 2, "cannot be read"),
    ],
)
def test_what_is_no_conversation_is_refused_and_makes_no_session(
    url: str, tmp_path: Path, content: bytes, code: int, told: str
) -> None:
    (tmp_path / "bad.json").write_bytes(content)
    outcome = turnstate("amazon-q", "import", tmp_path / "bad.json")
    assert (outcome.code, outcome.out) == (code, "")
    assert f"bad.json: {'' if told != 'cannot be read' else told}" in outcome.err
    assert told in outcome.err
    assert outcome.err.count("\n") == 1
    assert there(url) == []


def test_a_missing_field_is_named_by_its_path(tmp_path: Path) -> None:
    document = example()
    del document["history"][1]["user"]["content"]
    (tmp_path / "bad.json").write_text(json.dumps(document))
    code, _, err = turnstate("amazon-q", "import", tmp_path / "bad.json")
    assert (code, "(at $.history[1].user.content)" in err) == (2, True)


def test_a_file_is_read_from_standard_input(url: str) -> None:
    assert turnstate("amazon-q", "import", "-", stdin=EXAMPLE.read_bytes()).code == 0
    assert row(url, ID).title == "stdin"


def test_checkpoints_and_a_tangent_come_over_and_go_back(tmp_path: Path) -> None:
    document = example()
    aside = copy.deepcopy(document["history"][:1])
    document["checkpoint_manager"] = {
        "checkpoints": [{"tag": "1", "history_snapshot": aside}],
        "tag_index": {"1": 0},
    }
    document["tangent_state"] = {
        "main_history": aside,
        "main_next_message": None,
        "main_transcript": ["> aside"],
        "main_latest_summary": None,
        "tangent_start_time": [2025, 298, 5, 3, 11, 482_913_377, 0, 0, 0],
    }
    (tmp_path / "aside.json").write_text(json.dumps(document))
    code, out, err = turnstate("amazon-q", "import", tmp_path / "aside.json")
    assert (code, out.endswith(", an open tangent\n")) == (0, True)
    assert "note: its checkpoints are only kept for export" in err
    assert json.loads(turnstate("amazon-q", "export", ID).out) == document


def test_an_existing_file_is_replaced_only_with_force(tmp_path: Path) -> None:
    turnstate("amazon-q", "import", EXAMPLE)
    (tmp_path / "talk.json").write_text("mine")
    code, _, err = turnstate("amazon-q", "export", ID, "-o", tmp_path / "talk.json")
    assert (code, "already exists; pass --force to replace it" in err) == (2, True)
    assert (tmp_path / "talk.json").read_text() == "mine"
    assert turnstate("amazon-q", "export", ID, "-o", tmp_path / "talk.json", "--force").code == 0
    assert (tmp_path / "talk.json").read_bytes() == EXAMPLE.read_bytes()


def test_a_row_for_the_database_is_one_line() -> None:
    turnstate("amazon-q", "import", EXAMPLE)
    out = turnstate("amazon-q", "export", ID, "--row").out
    assert out == json.dumps(example(), ensure_ascii=False, separators=(",", ":")) + "\n"


def test_a_session_of_ours_is_written_in_that_shape_and_says_what_is_left_out(url: str) -> None:
    with opened(url) as sessions:
        session = sessions.create(system="You help.", id="ours")
        session.append(Message.user("hello"), Message.assistant("Good morning!"))
    code, out, err = turnstate("amazon-q", "export", "ours")
    document = json.loads(out)
    assert code == 0
    assert document["transcript"] == ["> hello", "Good morning!\n[Tool uses: none]"]
    assert document["valid_history_range"] == [0, 1]
    assert err == (
        "turnstate: session ours: note: the system prompt is left out; in Amazon Q it comes from the agent\n"
    )
    assert turnstate("amazon-q", "import", "-", "--tenant", "other", stdin=out).code == 0


def test_a_session_that_is_not_there_is_an_error(url: str) -> None:
    make(url, "hello")
    assert turnstate("amazon-q", "export", "nobody").code == 1
    assert turnstate("amazon-q", "export").code == 2
    assert turnstate("amazon-q", "import").code == 2


@pytest.mark.parametrize("name", ["import", "export"])
def test_the_help_explains_the_command_and_is_linked_from_the_general_one(name: str) -> None:
    assert f"`turnstate amazon-q {name}`" in " ".join(turnstate(name, "--help").out.split())
    code, out, _ = turnstate("amazon-q", name, "--help")
    assert code == 0
    assert out.startswith(f"Usage: turnstate amazon-q {name} [OPTIONS]")
    assert f"\n    turnstate amazon-q {name}" in out
    assert max(map(len, out.splitlines())) <= 80


ENDLESS = {
    "a view": "CREATE VIEW conversations AS WITH RECURSIVE n(key) AS"
    " (SELECT 1 UNION ALL SELECT key + 1 FROM n) SELECT key, 'x' AS value FROM n",
    "a virtual table": "CREATE VIRTUAL TABLE conversations USING fts5(key, value)",
    "no table": "CREATE TABLE history (key TEXT, value TEXT)",
}


@pytest.mark.parametrize("schema", ENDLESS.values(), ids=ENDLESS)
@pytest.mark.parametrize("which", [(), ("--all",), ("--key", "x")], ids=str)
def test_only_a_plain_table_of_a_database_is_read(
    tmp_path: Path, schema: str, which: tuple[str, ...]
) -> None:
    with closing(sqlite3.connect(tmp_path / "endless.sqlite3")) as connection, connection:
        connection.execute(schema)
    done = turnstate("amazon-q", "import", tmp_path / "endless.sqlite3", *which)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "no table `conversations`" in done.err


def test_a_query_of_a_foreign_database_stops_after_so_much_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A column that the schema computes could go on for as long as it likes."""
    path = tmp_path / "slow.sqlite3"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE conversations (key TEXT, value TEXT)")
        rows = [(str(number), "x") for number in range(90_000)]
        connection.executemany("INSERT INTO conversations VALUES (?, ?)", rows)
    monkeypatch.setattr(amazon_q, "MAX_STEPS", amazon_q._STEPS)
    with (
        pytest.raises(InputError, match="a query takes too long"),
        amazon_q.saved_conversations(str(path), key=None, everything=True),
    ):
        pass
