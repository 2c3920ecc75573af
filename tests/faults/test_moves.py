"""An interrupted import is completed by the same command.

`turnstate import` is killed at any moment, or stopped while another one does the same, or loses its
server. Each session is then complete or marked as unfinished, and the next import of the same archive
leaves exactly what the archive holds. A killed `turnstate export` leaves no file, or a complete one.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.faults.empty_stores import IMPORT_KINDS, PLANTED_KINDS, SYNCED, named
from tests.faults.fork_server import ForkServer, Reply
from tests.harness.postgres_server import PostgresServer
from tests.harness.thoroughness import report, rng, runs
from tests.harness.valkey_server import Cluster, Valkey

pytestmark = pytest.mark.req("P3", "G3", "G6")

SESSIONS = 4
SIZE = 80  # messages of an append: an import writes them in more parts than there were appends
UNSWEPT = "its removal was interrupted"  # an import restarted a session: leftover index entries find nothing
LOCKED = 3.0  # seconds without an answer until a file counts as locked by whoever was stopped
STORE_CANNOT_BE_USED = 3  # the exit code
Record = Callable[[str, object], None]


def make_archive(fork_server: ForkServer, folder: Path) -> Path:
    """Export sessions with branches and epochs."""
    (home := folder / "home").mkdir()
    url, path = f"sqlite:///{home}/agent.db", folder / "archive.jsonl"
    with fork_server.worker(url) as worker:
        for number in range(SESSIONS):
            worker.must("open")
            worker.must("create")
            for part, divide in (("said", "fork"), ("forked", "reset"), ("anew", "rest")):
                worker.must("append", name=f"{number}-{part}", size=SIZE)
                worker.must(divide)
            worker.must("close")
    ran(fork_server, ["export", "--all", "-o", str(path), "--store", url])
    return path


def by_session(path: Path) -> list[str]:
    """Return the lines of each session of an archive."""
    _, *sessions = path.read_text().split('\n{"type":"session"')
    return [session.partition('\n{"type":"end"')[0] for session in sessions]


def ran(fork_server: ForkServer, command: list[str]) -> Reply:
    """Run the program successfully to its end."""
    with fork_server.worker("") as worker:
        reply = worker.must("run", arguments=command)
    assert reply["code"] == 0, reply
    return reply


def seconds_of(fork_server: ForkServer, command: list[str]) -> float:
    """Return the seconds that a command takes without a fault."""
    with fork_server.worker("") as worker:
        begun = time.monotonic()
        reply = worker.must("run", arguments=command)
        assert reply["code"] == 0, reply
        return time.monotonic() - begun


def killed(fork_server: ForkServer, command: list[str], moment: float, plant: str = "") -> bool:
    """Kill the program some seconds after its start; return True if it was still running."""
    with fork_server.worker("", plant=plant) as worker:
        worker.tell("run", arguments=command)
        time.sleep(moment)
        return not worker.kill()


def overtaken(fork_server: ForkServer, command: list[str], moment: float) -> tuple[Reply, Reply]:
    """Stop the program, let another one run the same command, and return the answers of both.

    If the first was stopped inside a transaction on a file, the other waits until it continues.
    """
    with fork_server.worker("") as first, fork_server.worker("") as second:
        first.tell("run", arguments=command)
        time.sleep(moment)
        first.signal(signal.SIGSTOP)
        first.wait_until_stopped()
        second.tell("run", arguments=command)
        second.has_answered(LOCKED)
        first.signal(signal.SIGCONT)
        return first.hear(), second.hear()


def findings(fork_server: ForkServer, url: str) -> list[str]:
    """Return what a check of the whole store finds, except for removals that were killed."""
    with fork_server.worker(url) as worker:
        worker.must("open")
        found: list[str] = worker.must("verify")["findings"]
        worker.must("close")
    return [fault for fault in found if fault != UNSWEPT]


class Round:
    """The import of one archive into one store, under a tenant of its own."""

    def __init__(self, fork_server: ForkServer, url: str, archive: Path, number: int) -> None:
        self._nursery, self._archive = fork_server, archive
        self._place = ["--tenant", f"round {number}", "--store", url]
        self.command = ["import", str(archive), *self._place]

    def wrong_meanwhile(self) -> tuple[int, list[str]]:
        """Return the number of complete sessions, and what should not be there."""
        whole, found = by_session(self._archive), self._exported()
        return len(found), [] if found == whole[: len(found)] else ["half a session, or one twice"]

    def wrong_after_another_import(self) -> list[str]:
        """Import again, and return what differs from the archive."""
        ran(self._nursery, self.command)
        return [] if self._exported() == by_session(self._archive) else ["not what the archive holds"]

    def _exported(self) -> list[str]:
        path = self._archive.with_name("exported.jsonl")
        ran(self._nursery, ["export", "--all", "--force", "-o", str(path), *self._place])
        return by_session(path)


@pytest.fixture
def archive(fork_server: ForkServer, folder: Path) -> Path:
    return make_archive(fork_server, folder)


@pytest.mark.parametrize("store_url", IMPORT_KINDS, indirect=True)
def test_an_import_that_was_killed_is_completed_by_the_next(
    fork_server: ForkServer, store_url: str, archive: Path, record_property: Record
) -> None:
    random, rounds, kills, halves, broken = rng("killed import"), 0, 0, 0, list[str]()
    whole = len(by_session(archive))
    length = seconds_of(fork_server, Round(fork_server, store_url, archive, 0).command)
    while rounds < runs(1, long=40) or not halves:
        rounds += 1
        one = Round(fork_server, store_url, archive, rounds)
        for _ in range(random.choice([1, 2, 3])):
            kills += killed(fork_server, one.command, random.uniform(0, length))
            there, wrong = one.wrong_meanwhile()
            halves, broken = halves + (there < whole), broken + wrong
            broken += findings(fork_server, store_url) if halves == 1 else []
        broken += one.wrong_after_another_import()
    broken += findings(fork_server, store_url)
    title = f"imports into {named(store_url)} that were killed"
    report(record_property, title, rounds=rounds, kills=kills, halves=halves, wrong=len(broken))
    assert broken == []


@pytest.mark.parametrize("store_url", PLANTED_KINDS, indirect=True)
def test_an_import_that_does_not_mark_unfinished_sessions_is_caught(
    fork_server: ForkServer, store_url: str, archive: Path
) -> None:
    random, broken = rng("unmarked import"), list[str]()
    length = seconds_of(fork_server, Round(fork_server, store_url, archive, 0).command)
    for number in range(1, 40):
        one = Round(fork_server, store_url, archive, number)
        killed(fork_server, one.command, random.uniform(0, length), plant="marks nothing")
        if broken := one.wrong_meanwhile()[1]:
            break
    assert broken


@pytest.mark.parametrize("store_url", IMPORT_KINDS, indirect=True)
def test_an_import_that_was_stopped_while_another_ran_harms_nothing(
    fork_server: ForkServer, store_url: str, archive: Path, record_property: Record
) -> None:
    random, rounds, broken, refused = rng("stopped import"), runs(1, long=30), list[str](), 0
    length = seconds_of(fork_server, Round(fork_server, store_url, archive, 0).command)
    for number in range(1, rounds + 1):
        one = Round(fork_server, store_url, archive, number)
        for last in overtaken(fork_server, one.command, random.uniform(0, length)):
            refused += last["code"] == 1
            broken += [] if last["code"] == 0 or "another import" in last["remarks"] else [str(last)]
        broken += one.wrong_after_another_import()
    broken += findings(fork_server, store_url)
    title = f"imports into {named(store_url)} that were overtaken"
    report(record_property, title, rounds=rounds, refused=refused, wrong=len(broken))
    assert broken == []


class Crashing(NamedTuple):
    """A server, and how it is stopped and started again."""

    url: str
    leave: Callable[[], None]
    come_back: Callable[[], None]


@contextmanager
def postgres() -> Iterator[Crashing]:
    server = PostgresServer()
    yield Crashing(server.url(), lambda: server.stop(signal.SIGQUIT), server.start)
    server.remove()


@contextmanager
def valkey() -> Iterator[Crashing]:
    server = Valkey(*SYNCED)
    yield Crashing(server.url, server.kill, server.start)
    server.stop()


@contextmanager
def cluster() -> Iterator[Crashing]:
    """A Cluster with one node that is stopped; it is not killed, since it keeps nothing on a disk."""
    nodes = Cluster()

    def come_back() -> None:
        nodes.nodes[0].process.send_signal(signal.SIGCONT)
        while not all(b"cluster_state:ok" in node.ask("CLUSTER", "INFO") for node in nodes.nodes):
            time.sleep(0.05)

    yield Crashing(nodes.url, lambda: nodes.nodes[0].process.send_signal(signal.SIGSTOP), come_back)
    nodes.stop()


@pytest.mark.parametrize("running", [postgres, valkey, cluster])
def test_an_import_whose_server_stopped_is_completed_when_it_is_back(
    running: Callable[[], AbstractContextManager[Crashing]],
    fork_server: ForkServer,
    archive: Path,
    record_property: Record,
) -> None:
    random, rounds, told, broken = rng("lost server"), runs(1, long=20), 0, list[str]()
    with running() as server:
        length = seconds_of(fork_server, Round(fork_server, server.url, archive, 0).command)
        for number in range(1, rounds + 1):
            one = Round(fork_server, server.url, archive, number)
            with fork_server.worker("") as worker:
                worker.tell("run", arguments=one.command)
                time.sleep(random.uniform(0, length))
                server.leave()
                last = worker.hear()
            told += last["code"] == STORE_CANNOT_BE_USED
            broken += [] if last["code"] == 0 or is_told(last) else [str(last)]
            server.come_back()
            broken += one.wrong_meanwhile()[1] + one.wrong_after_another_import()
        broken += findings(fork_server, server.url)
    title = f"imports whose {named(server.url).removeprefix('a ')} went away"
    report(record_property, title, rounds=rounds, told=told, wrong=len(broken))
    assert broken == []


def is_told(last: Reply) -> bool:
    """Return True if an unavailable store is reported in one line, after what was imported until then."""
    *done, why = last["remarks"].splitlines()
    known = last["code"] == STORE_CANNOT_BE_USED
    return known and len(done) < 2 and all(" imported (" in line for line in done) and bool(why)


@pytest.mark.parametrize("store_url", IMPORT_KINDS, indirect=True)
def test_an_export_that_was_killed_leaves_no_file_or_a_complete_one(
    fork_server: ForkServer, store_url: str, archive: Path, folder: Path, record_property: Record
) -> None:
    random, rounds, kills, drafts, broken = rng("killed export"), runs(2, long=100), 0, 0, list[str]()
    ran(fork_server, ["import", str(archive), "--store", store_url])
    whole = archive.read_bytes()
    (place := folder / "out").mkdir()
    path = place / "archive.jsonl"
    command = ["export", "--all", "-o", str(path), "--store", store_url]
    length = seconds_of(fork_server, command)
    for _ in range(rounds):
        path.unlink(missing_ok=True)
        kills += killed(fork_server, command, random.uniform(0, length))
        broken += ["half a file"] if path.exists() and path.read_bytes() != whole else []
        for draft in place.glob(".turnstate-*"):
            drafts += 1
            looks_whole = b'"type":"end"' in draft.read_bytes()
            broken += ["half a file looks whole"] if looks_whole and draft.read_bytes() != whole else []
            draft.unlink()
    title = f"exports from {named(store_url)} that were killed"
    report(record_property, title, rounds=rounds, kills=kills, drafts=drafts, wrong=len(broken))
    assert broken == []
