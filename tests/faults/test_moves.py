"""A move that is broken off is completed by the same command, whatever broke it off.

`turnstate import` is killed at any moment, or stopped while another one does its work, or loses its
server. What is there afterwards is whole or marked as half-made, and the next import of the same archive
ends with exactly what the archive holds. A killed `turnstate export` leaves no file, or a whole one.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from every_store import SYNCED, named
from moving import Round, by_session, findings, killed, make_archive, overtaken, ran, seconds_of
from nursery import Nursery, Reply
from postgres_server import PostgresServer
from thoroughness import rng, runs, tell
from valkey_server import Cluster, Valkey

pytestmark = pytest.mark.req("P3", "G3", "G6")

STORE_CANNOT_BE_USED = 3  # the exit code
Record = Callable[[str, object], None]


@pytest.fixture
def archive(nursery: Nursery, folder: Path) -> Path:
    return make_archive(nursery, folder)


def test_an_import_that_was_killed_is_completed_by_the_next(
    nursery: Nursery, store_url: str, archive: Path, record_property: Record
) -> None:
    random, rounds, kills, halves, broken = rng("killed import"), 0, 0, 0, list[str]()
    whole = len(by_session(archive))
    length = seconds_of(nursery, Round(nursery, store_url, archive, 0).command)
    while rounds < runs(3, long=40) or not halves:
        rounds += 1
        one = Round(nursery, store_url, archive, rounds)
        for _ in range(random.choice([1, 2, 3])):
            kills += killed(nursery, one.command, random.uniform(0, length))
            there, wrong = one.wrong_meanwhile()
            halves, broken = halves + (there < whole), broken + wrong
            broken += findings(nursery, store_url) if halves == 1 else []
        broken += one.wrong_after_another_import()
    broken += findings(nursery, store_url)
    title = f"imports into {named(store_url)} that were killed"
    tell(record_property, title, rounds=rounds, kills=kills, halves=halves, wrong=len(broken))
    assert broken == []


def test_an_import_that_does_not_mark_what_is_half_made_is_caught(
    nursery: Nursery, store_url: str, archive: Path
) -> None:
    random, broken = rng("unmarked import"), list[str]()
    length = seconds_of(nursery, Round(nursery, store_url, archive, 0).command)
    for number in range(1, 40):
        one = Round(nursery, store_url, archive, number)
        killed(nursery, one.command, random.uniform(0, length), plant="marks nothing")
        if broken := one.wrong_meanwhile()[1]:
            break
    assert broken


def test_an_import_that_slept_while_another_did_its_work_harms_nothing(
    nursery: Nursery, store_url: str, archive: Path, record_property: Record
) -> None:
    random, rounds, broken, refused = rng("stopped import"), runs(2, long=30), list[str](), 0
    length = seconds_of(nursery, Round(nursery, store_url, archive, 0).command)
    for number in range(1, rounds + 1):
        one = Round(nursery, store_url, archive, number)
        for last in overtaken(nursery, one.command, random.uniform(0, length)):
            refused += last["code"] == 1
            broken += [] if last["code"] == 0 or "another import" in last["remarks"] else [str(last)]
        broken += one.wrong_after_another_import()
    broken += findings(nursery, store_url)
    title = f"imports into {named(store_url)} that were overtaken"
    tell(record_property, title, rounds=rounds, refused=refused, wrong=len(broken))
    assert broken == []


class Crashing(NamedTuple):
    """A server, and how it goes away and comes back."""

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
    """A Cluster of which one node falls silent; it keeps nothing on a disk, and so is not killed."""
    nodes = Cluster()

    def come_back() -> None:
        nodes.nodes[0].process.send_signal(signal.SIGCONT)
        while not all(b"cluster_state:ok" in node.ask("CLUSTER", "INFO") for node in nodes.nodes):
            time.sleep(0.05)

    yield Crashing(nodes.url, lambda: nodes.nodes[0].process.send_signal(signal.SIGSTOP), come_back)
    nodes.stop()


@pytest.mark.parametrize("running", [postgres, valkey, cluster])
def test_an_import_whose_server_went_away_is_completed_when_it_is_back(
    running: Callable[[], AbstractContextManager[Crashing]],
    nursery: Nursery,
    archive: Path,
    record_property: Record,
) -> None:
    random, rounds, told, broken = rng("lost server"), runs(2, long=20), 0, list[str]()
    with running() as server:
        length = seconds_of(nursery, Round(nursery, server.url, archive, 0).command)
        for number in range(1, rounds + 1):
            one = Round(nursery, server.url, archive, number)
            with nursery.worker("") as worker:
                worker.tell("run", arguments=one.command)
                time.sleep(random.uniform(0, length))
                server.leave()
                last = worker.hear()
            told += last["code"] == STORE_CANNOT_BE_USED
            broken += [] if last["code"] == 0 or is_told(last) else [str(last)]
            server.come_back()
            broken += one.wrong_meanwhile()[1] + one.wrong_after_another_import()
        broken += findings(nursery, server.url)
    title = f"imports whose {named(server.url).removeprefix('a ')} went away"
    tell(record_property, title, rounds=rounds, told=told, wrong=len(broken))
    assert broken == []


def is_told(last: Reply) -> bool:
    """Tell whether a store that cannot be used is told in one line, behind what was imported until then."""
    *done, why = last["remarks"].splitlines()
    known = last["code"] == STORE_CANNOT_BE_USED
    return known and len(done) < 2 and all(" imported (" in line for line in done) and bool(why)


def test_an_export_that_was_killed_leaves_no_file_or_a_whole_one(
    nursery: Nursery, store_url: str, archive: Path, folder: Path, record_property: Record
) -> None:
    random, rounds, kills, drafts, broken = rng("killed export"), runs(5, long=100), 0, 0, list[str]()
    ran(nursery, ["import", str(archive), "--store", store_url])
    whole = archive.read_bytes()
    (place := folder / "out").mkdir()
    path = place / "archive.jsonl"
    command = ["export", "--all", "-o", str(path), "--store", store_url]
    length = seconds_of(nursery, command)
    for _ in range(rounds):
        path.unlink(missing_ok=True)
        kills += killed(nursery, command, random.uniform(0, length))
        broken += ["half a file"] if path.exists() and path.read_bytes() != whole else []
        for draft in place.glob(".turnstate-*"):
            drafts += 1
            looks_whole = b'"type":"end"' in draft.read_bytes()
            broken += ["half a file looks whole"] if looks_whole and draft.read_bytes() != whole else []
            draft.unlink()
    title = f"exports from {named(store_url)} that were killed"
    tell(record_property, title, rounds=rounds, kills=kills, drafts=drafts, wrong=len(broken))
    assert broken == []
