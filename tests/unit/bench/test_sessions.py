"""The session benches run, write alike and judge rightly, on tiny sizes and without the peers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from bench import (
    peer_process,
    session_cold,
    session_contest,
    session_disk,
    session_latency,
    session_length,
    session_messages,
    session_raw,
    session_reads,
    session_throughput,
    sessions,
)
from bench.peer_process import PeerMissing
from bench.peers import service, sqlite_settings
from bench.session_contest import Place
from bench.session_messages import Book
from bench.session_ours import Ours
from turnstate.context.manager import StateManager
from turnstate.stores.sqlite.wal import FULL_SIZE

_FROM = "FROM entry JOIN session ON session.key = entry.session"
_ORDER = "ORDER BY session.id, entry.seq"
_FOUND = "WHERE entry.key IN (SELECT rowid FROM word WHERE word MATCH 'ticket')"
WRITTEN = (
    f"SELECT session.id, entry.seq, entry.id, kind, body, tokens, entry.total {_FROM} {_ORDER}",
    "SELECT id, branch, seq, total, version FROM session ORDER BY id",
    f"SELECT session.id, entry.seq {_FROM} {_FOUND} {_ORDER}",
)
MOUNTS = """/dev/vda / ext4 rw 0 0
tmpfs /run tmpfs rw 0 0
/dev/vdb /run/data xfs rw 0 0
"""


@pytest.fixture
def ours(tmp_path: Path) -> Iterator[Ours]:
    (tmp_path / "ours").mkdir()
    one = Ours(tmp_path / "ours")
    yield one
    one.end()


@pytest.fixture
def raw(tmp_path: Path) -> Iterator[session_raw.Raw]:
    (tmp_path / "raw").mkdir()
    one = session_raw.Raw(tmp_path / "raw")
    yield one
    one.end()


def rows(file: Path, sql: str) -> list[tuple[object, ...]]:
    db = apsw.Connection(str(file))
    found = [tuple(row) for row in db.execute(sql)]
    db.close()
    return found


def test_a_report_has_about_400_tokens() -> None:
    tokens = [StateManager().count([report]).tokens for report in session_messages.reports(20)]
    assert 360 < sum(tokens) / len(tokens) < 440


@pytest.mark.parametrize("made", [session_messages.realistic, session_messages.brief])
def test_conversations_hold_as_many_messages_as_were_asked_for_and_none_of_the_core(made: object) -> None:
    assert callable(made)
    messages = [message for conversation in made(250) for message in conversation]
    assert len(messages) == 250
    assert {message.role for message in messages} <= {"user", "assistant", "tool"}


def test_talk_is_without_calls() -> None:
    said = session_messages.talk(31)
    assert len(said) == 31
    assert not any(message.tool_calls or message.tool_results for message in said)


def test_a_round_has_one_message_of_each_kind() -> None:
    assert len(session_messages.kinds(3)) == 3 * len(session_latency.KINDS)
    assert session_latency.by_kind(range(10)) == {  # type: ignore[arg-type]
        kind: range(place, 10, 5) for place, kind in enumerate(session_latency.KINDS)
    }


def test_the_bare_loop_writes_the_rows_and_words_that_we_write(ours: Ours, tmp_path: Path) -> None:
    messages = session_messages.agent(24)
    book, places = Book(tmp_path, "agent", messages), [Place("ours.db", f"client {n}") for n in range(3)]
    ours.clients(places, book)
    ours.catch_up("ours.db")
    ours.close("ours.db")
    bare = session_raw.Bare(tmp_path, "bare.db", [place.session for place in places])
    bare.write(session_throughput.by_turns(places, messages), session_raw.cutter(), at_once=3)
    bare.close()
    for sql in WRITTEN:
        written = rows(tmp_path / "bare.db", sql)
        assert written
        assert written == rows(tmp_path / "ours" / "ours.db", sql)


def test_clients_write_by_turns() -> None:
    places = [Place("file", "a"), Place("file", "b")]
    assert session_throughput.by_turns(places, [1, 2, 3, 4]) == [("a", 1), ("b", 3), ("a", 2), ("b", 4)]


def test_whoever_takes_too_long_runs_a_few_times_only() -> None:
    ran = list[tuple[str, str, int]]()

    def run(name: str, case: str, number: int) -> list[float]:
        ran.append((name, case, number))
        return [10.0 if name == "slow" else 0.0]

    spent = session_contest.taking_turns(["quick", "slow"], ["case"], 8, run, enough=5.0)
    assert len(spent["quick", "case"]) == 8
    assert len(spent["slow", "case"]) == session_contest.LEAST
    assert ran[:4] == [("quick", "case", 0), ("slow", "case", 0), ("quick", "case", 1), ("slow", "case", 1)]


@pytest.mark.parametrize(
    ("folder", "expected"),
    [
        ("/home/me", ("/dev/vda", "ext4")),
        ("/run/x", ("tmpfs", "tmpfs")),
        ("/run/data/x", ("/dev/vdb", "xfs")),
        ("/running", ("/dev/vda", "ext4")),
    ],
)
def test_the_file_system_of_a_folder_is_that_of_the_nearest_mount(
    folder: str, expected: tuple[str, str]
) -> None:
    assert session_contest.file_system(Path(folder), MOUNTS) == expected
    assert session_contest.file_system(Path(folder), "") == ("?", "?")


@pytest.mark.parametrize(
    ("level", "full"), [("OFF", False), ("NORMAL", False), ("FULL", True), ("EXTRA", True)]
)
def test_only_who_waits_for_the_disk_is_durable(level: str, full: bool) -> None:
    assert session_contest.Settings("wal", level, "3.51.3").are_full is full


def test_settings_are_read_from_the_connection_that_writes(ours: Ours, raw: session_raw.Raw) -> None:
    assert str(ours.settings) == str(raw.settings) == "WAL FULL"
    db = apsw.Connection(":memory:")
    db.pragma("synchronous", "OFF")
    assert str(session_raw.settings_of(db)) == "MEMORY OFF"
    db.close()


def test_the_place_of_each_conversation_is_known_up_to_a_number() -> None:
    conversations = session_messages.brief(250)
    assert session_disk.spans(conversations, 250) == [range(100), range(100, 200), range(200, 250)]
    assert session_disk.spans(conversations, 150) == [range(100), range(100, 150)]


def test_bytes_on_the_disk_are_those_of_a_file_and_what_belongs_to_it(tmp_path: Path) -> None:
    for name in ("a.db", "a.db-wal", "b.db"):
        (tmp_path / name).write_bytes(b"1234")
    assert session_contest.disk_bytes(tmp_path, "a.db") == 8


class Notebook:
    """A peer that keeps messages in a list."""

    packages: tuple[str, ...] = ("turnstate",)

    def __init__(self) -> None:
        self.kept = dict[tuple[str, str], list[object]]()
        self.closed = 0

    def messages(self, row: service.Row) -> list[object]:
        return [row["id"]]

    async def opened(self, path: str, session: str) -> service.Handle:
        return Page(self, self.kept.setdefault((path, session), []))


class Page:
    def __init__(self, notebook: Notebook, kept: list[object]) -> None:
        self._notebook, self._kept = notebook, kept

    async def write(self, messages: object) -> None:
        assert isinstance(messages, list)
        self._kept += messages

    async def read(self, count: int) -> int:
        return len(self._kept[-count:])

    async def settings(self) -> dict[str, str]:
        async def row(sql: str) -> object:
            return {"journal_mode": ("wal",), "synchronous": (1,), "sqlite_version()": ("3.0",)}[
                sql.split()[1]
            ]

        return await sqlite_settings.read(row)

    async def close(self) -> None:
        self._notebook.closed += 1


def test_a_peer_is_given_the_messages_that_were_asked_for(tmp_path: Path) -> None:
    book, notebook = Book(tmp_path, "talk", session_messages.talk(12)), Notebook()
    answering, ids = service.Service(notebook), [str(message.id) for message in book.messages]

    async def ask() -> None:
        settings = {"journal": "wal", "synchronous": "NORMAL", "sqlite": "3.0"}
        assert await answering.settings("p", "s") == settings
        await answering.fill("p", "s", book.path, 0, 3)
        assert len(await answering.append("p", "s", book.path, 3, 6, 1e9)) == 3
        assert len(await answering.append("p", "s", book.path, 6, 9, 0.0)) == 1
        await answering.clients("q", ["a", "b"], book.path, 6)
        assert await answering.read("p", "s", 2) >= 0
        await answering.close("p")

    asyncio.run(ask())
    assert notebook.kept["p", "s"] == ids[:7]
    assert (notebook.kept["q", "a"], notebook.kept["q", "b"]) == (ids[:6], ids[6:])
    assert notebook.closed == 2


def test_a_peer_that_cannot_be_installed_is_told_of(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(*_: object) -> Path:
        raise PeerMissing("not here")

    monkeypatch.setattr(peer_process, "python", missing)
    assert sessions._peers(tmp_path) == []
    assert "without LangGraph: not here" in capsys.readouterr().out


def test_raw_on_a_grown_wal_does_not_extend_it(tmp_path: Path) -> None:
    book, sizes = Book(tmp_path, "some", session_messages.talk(8)), dict[bool, set[int]]()
    for grown in (False, True):
        (folder := tmp_path / f"grown {grown}").mkdir()
        one, sizes[grown] = session_raw.Raw(folder, grown=grown), set()
        for step in range(8):
            one.append(Place("a.db"), book, range(step, step + 1))
            sizes[grown].add((folder / "a.db-wal").stat().st_size)
        one.end()
    assert len(sizes[False]) > 1
    assert sizes[True] == {FULL_SIZE}


def test_length_reads_latency_throughput_and_disk_are_reported_without_peers(
    ours: Ours,
    raw: session_raw.Raw,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("gc.collect", lambda: 0)  # the heap of all tests, again and again
    monkeypatch.setattr(session_length, "READS", 2)
    session_length.report(ours, [raw], [], tmp_path, sizes=(100, 200), budgets=(4_000,), rounds=1)
    session_reads.report(ours, raw, [], tmp_path, rounds=1)
    (tmp_path / "grown").mkdir()
    grown = session_raw.Raw(tmp_path / "grown", grown=True)
    session_latency.report([ours, raw, grown], tmp_path, turns=1)
    grown.end()
    case = session_throughput.Case("4 clients, agent", session_messages.agent, 4, 16)
    session_throughput.report(ours, [], tmp_path, cases=[case], turns=1)
    session_disk.report([ours, raw], [], tmp_path, count=60)
    printed = capsys.readouterr().out
    for said in (
        "open and window at 4,000: 200 messages at most 1.2 × 100",
        "append: 200 messages at most 1.2 × 100",
        "the last 20 of 600: at most 3 × raw",
        "open a session and its window, 100 messages: at most 4 × raw",
        "append: at most 1.6 × raw SQLite",
        "append: at most 2.6 × raw on a grown WAL",
        "4 clients, agent: at least 0.6 × the bare loop",
        "4 clients, agent: 99 of 100 wait at most 25 ms",
        "disk, generated conversations: at most 1.6 × the JSON",
        "disk, brief messages: at most 1.8 × the JSON",
    ):
        assert f"goal: {said}" in printed
    assert printed.count("WAL FULL") >= 6


def test_a_cold_file_is_read_and_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    session_cold.report(tmp_path, sessions=session_cold.FIRST + 4)
    printed = capsys.readouterr().out
    for name in (session_cold.COLD, session_cold.WARM, session_cold.THREADS):
        assert f"\n{name}  " in printed
    assert "goal: file not in memory: 999 of 1,000" in printed
