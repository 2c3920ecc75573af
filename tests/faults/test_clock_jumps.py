"""The order of the log does not depend on clocks: the clocks of all writers jump, and it stays correct.

Every writer has a clock that is wrong by up to a day and jumps while leases are held, so two writers may
both believe that they hold one. Appends carry their fence, and fences never decrease in the log.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from random import Random

import pytest

from tests.faults.fork_server import ForkServer, Reply, Worker
from tests.faults.promises import Promises, losses
from tests.faults.recovery import examine
from tests.harness.thoroughness import report, rng, runs

WRITERS = 4
DAY = 24 * 3600 * 1000
REFUSALS = ("Busy", "Fenced")


def refused(reply: Reply) -> bool:
    """Return True for a refusal and False for a success; fail for any other error."""
    assert reply.get("error", "Busy") in REFUSALS, reply
    return "error" in reply


def step(worker: Worker, fences: dict[Worker, int], promises: Promises, random: Random, number: int) -> None:
    """Set the clock of a writer, and let it take the lease or append under the one it believes to hold."""
    worker.must("jump", ahead=random.randrange(-DAY, DAY))
    if worker not in fences or random.random() < 0.2:
        reply = worker.ask("acquire", seconds=random.choice([0.01, 1, 3600]))
        if not refused(reply):
            fences[worker] = reply["fence"]
        return
    name = promises.ask(f"fence{fences[worker]}-{number}")
    reply = worker.ask("append", name=name)
    promises.hear([reply])
    if refused(reply):
        del fences[worker]
        worker.must("release")


def jumps(fork_server: ForkServer, folder: Path, count: int, plant: str = "") -> tuple[Promises, list[str]]:
    """Let writers with jumping clocks take turns; return what was broken."""
    url, promises = f"sqlite:///{folder}/agent.db", Promises()
    random = Random(plant) if plant else rng("clock")  # whether a planted bug is caught is not left to chance
    with ExitStack() as stack:
        workers = [stack.enter_context(fork_server.worker(url, plant=plant)) for _ in range(WRITERS)]
        session = workers[0].enter()
        for worker in workers[1:]:
            worker.enter(session)
        fences = dict[Worker, int]()
        for number in range(count):
            step(random.choice(workers), fences, promises, random, number)
        for worker in workers:
            worker.must("release")
        seen = [worker.must("read")["texts"] for worker in workers]
    broken = fallen(seen[0]) + ["readers disagree" for texts in seen if texts != seen[0]]
    return promises, broken + examine(fork_server, url, session, promises)


def fallen(stored: list[str]) -> list[str]:
    """Return the appends that follow one with a higher fence."""
    highest, found = 0, list[str]()
    for text in stored:
        fence = int(text.partition("-")[0].removeprefix("fence"))
        if fence < highest:
            found.append(f"{text} after fence {highest}")
        highest = max(highest, fence)
    return found


@pytest.mark.req("G5")
def test_jumping_clocks_neither_reorder_nor_lose_nor_let_two_writers_in(
    fork_server: ForkServer, folder: Path, record_property: Callable[[str, object], None]
) -> None:
    count = runs(150, long=10_000)
    promises, broken = jumps(fork_server, folder, count)
    acked = len(promises.acked)
    report(record_property, "clock jumps", jumps=count, acknowledged_appends=acked, lost=losses(broken))
    assert broken == []


@pytest.mark.req("G8")
def test_a_clock_that_jumps_by_days_ends_no_session(
    fork_server: ForkServer, folder: Path, record_property: Callable[[str, object], None]
) -> None:
    url, random, count = f"sqlite:///{folder}/agent.db", rng("idle"), runs(8, long=500)
    refusals = 0
    with fork_server.worker(url) as worker:
        worker.must("open")
        worker.must("create", idle=3_600)
        for number in range(count):
            worker.must("jump", ahead=random.randrange(2, 30) * DAY * (number + 1))
            reply = worker.ask("expire")
            assert reply.get("error") == "ClockSkew", reply
            refusals += 1
            worker.must("append", name=f"after jump {number}")
    report(record_property, "clock jumps", sweeps_refused=refusals)


@pytest.mark.req("G5", "G8")
def test_a_retry_after_a_jump_by_years_is_written_once(fork_server: ForkServer, folder: Path) -> None:
    url, random = f"sqlite:///{folder}/agent.db", rng("keys")
    names = [f"job {number}" for number in range(runs(8, long=500))]
    with fork_server.worker(url) as worker:
        worker.must("open")
        worker.must("create")
        for number, name in enumerate(names):
            worker.must("append", name=name)
            worker.must("jump", ahead=random.randrange(8, 4_000) * DAY * (number + 1))
            for again in random.sample(names[: number + 1], min(number + 1, 3)):
                worker.must("append", name=again)  # each write with a key also forgets keys that are too old
        assert worker.must("read")["texts"] == [f"{name}/0" for name in names]


@pytest.mark.req("G5")
def test_a_retry_is_written_once_whatever_the_clocks_of_processes_that_were_started_since(
    fork_server: ForkServer, folder: Path
) -> None:
    url, random = f"sqlite:///{folder}/agent.db", rng("wrong from the start")
    names = [f"job {number}" for number in range(20)]
    with fork_server.worker(url) as right:
        session = right.enter()
        for name in names:
            right.must("append", name=name)
        for number in range(runs(8, long=100)):
            with fork_server.worker(url) as wrong:
                wrong.must("jump", ahead=random.randrange(8, 20_000) * DAY)
                wrong.enter(session)
                wrong.must(
                    "burst", prefix=f"by clock {number}", count=40
                )  # enough to forget all that is too old
                wrong.must("append", name=names[number % 10])
            right.must("append", name=random.choice(names))
        stored = right.must("read")["texts"]
    assert [text for text in stored if text.startswith("job")] == [f"{name}/0" for name in names]


def test_a_store_that_trusts_clocks_is_caught(fork_server: ForkServer, folder: Path) -> None:
    _, broken = jumps(fork_server, folder, 300, plant="takes any fence")
    assert any("after fence" in what for what in broken)
