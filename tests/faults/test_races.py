"""Many processes append to one session at once: nothing is lost, and all read the same log."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.faults.empty_stores import KINDS, PLANTED_KINDS, empty_store, named
from tests.faults.fork_server import ForkServer, Reply
from tests.faults.promises import Promises, losses
from tests.faults.recovery import examine
from tests.harness.thoroughness import report, runs

RACERS = 16


def race(
    fork_server: ForkServer, url: str, do: str, racers: int, count: int, plant: str = ""
) -> tuple[int, list[str]]:
    """Let processes append at once; return the number of conflicts, and what was broken."""
    promises, replies = Promises(), list[Reply]()
    with ExitStack() as stack:
        workers = [stack.enter_context(fork_server.worker(url, plant=plant)) for _ in range(racers)]
        session = workers[0].enter()
        for worker in workers[1:]:
            worker.enter(session)
        for racer, worker in enumerate(workers):
            for number in range(count):
                promises.ask(f"racer{racer}-{number}")
            worker.tell(do, prefix=f"racer{racer}", count=count)
        for worker in workers:
            while "done" not in (reply := worker.hear()):
                replies.append(reply)
                assert "error" not in reply, reply
            replies.append(reply)
            worker.must("close")
    promises.hear(replies)
    wrong = history_faults(replies, racers * count)
    conflicts = sum(reply.get("conflicts", 0) for reply in replies)
    return conflicts, wrong + examine(fork_server, url, session, promises)


def history_faults(replies: list[Reply], expected: int) -> list[str]:
    """Return appends that share a version, or do not follow the version that they expected."""
    acks = [reply for reply in replies if "ack" in reply]
    wrong = [f"accepted too late: {ack}" for ack in acks if ack.get("at") not in (None, ack["version"] - 1)]
    versions = sorted(ack["version"] for ack in acks)
    if versions != list(range(versions[0], versions[0] + expected)):
        wrong.append(f"versions are not one after the other: {versions[:50]}")
    return wrong


@pytest.mark.req("G3", "G5")
@pytest.mark.parametrize("do", ["burst", "contend"])
def test_racing_processes_lose_and_duplicate_nothing(
    do: str, fork_server: ForkServer, store_url: str, record_property: Callable[[str, object], None]
) -> None:
    count = runs(8, long=125)
    conflicts, broken = race(fork_server, store_url, do, RACERS, count)
    how = "at any version" if do == "burst" else "at the version they saw"
    report(
        record_property,
        f"{RACERS} racing processes on {named(store_url)}, {how}",
        appends=RACERS * count,
        conflicts=conflicts,
        lost=losses(broken),
    )
    assert broken == []
    assert conflicts or do == "burst"


@pytest.mark.req("G3", "G5")
def test_eight_processes_lose_nothing_in_many_appends(
    fork_server: ForkServer, store_url: str, record_property: Callable[[str, object], None]
) -> None:
    count = runs(250 if store_url.startswith("sqlite") else 50, long=250)
    _, broken = race(fork_server, store_url, "burst", 8, count)
    report(record_property, f"8 processes on {named(store_url)}", appends=8 * count, lost=losses(broken))
    assert broken == []


@pytest.mark.parametrize(("do", "plant"), [("contend", "checks first"), ("burst", "forgets one")])
@pytest.mark.parametrize("store_url", PLANTED_KINDS, indirect=True)
def test_a_planted_race_is_caught(do: str, plant: str, fork_server: ForkServer, store_url: str) -> None:
    _, broken = race(fork_server, store_url, do, RACERS, 12, plant=plant)
    assert broken


@pytest.mark.req("G3")
@pytest.mark.parametrize("kind", KINDS)
def test_eight_processes_open_a_new_store_at_once(
    kind: str, fork_server: ForkServer, folder: Path, record_property: Callable[[str, object], None]
) -> None:
    tries, failures = runs(3, long=160), list[Reply]()
    for attempt in range(tries):
        (place := folder / str(attempt)).mkdir()
        with empty_store(kind, place) as url, ExitStack() as stack:
            workers = [stack.enter_context(fork_server.worker(url)) for _ in range(8)]
            for worker in workers:
                worker.tell("open")
                worker.tell("create")
                worker.tell("append", name="hello")
            replies = [worker.hear() for worker in workers for _ in range(3)]
            failures += [reply for reply in replies if "error" in reply]
            failures += workers[0].ask("verify").get("findings", ["no answer"])
    report(record_property, f"8 processes open a new store in {kind}", tries=tries, failures=len(failures))
    assert failures == []
