"""A writer that was stopped while it held the lease is refused when it continues after a takeover.

No append of the old holder may follow an append of the new one. A process that is stopped inside a
transaction keeps an SQLite file locked, so no other process can take over before it continues; then it is
continued first, and refused as soon as it has lost the lease. Such rounds are counted as locked.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

import pytest

from tests.faults.empty_stores import named
from tests.faults.fork_server import ForkServer, Reply, Worker
from tests.faults.promises import Promises
from tests.faults.recovery import examine
from tests.harness.thoroughness import report, rng, runs

LEASE = 0.03  # seconds
PAUSE = 0.002
MANY = 2_000  # appends, more than a zombie gets to make
LOCKED = 0.3  # seconds without an answer until the file counts as locked by the zombie


def take_over(heir: Worker, zombie: Worker) -> bool:
    """Take the lease when it has expired; return True if the zombie had to continue for that."""
    woken = False
    while True:
        heir.tell("acquire", seconds=60)
        if not woken and not heir.has_answered(LOCKED):
            zombie.signal(signal.SIGCONT)
            woken = True
        if "error" not in (reply := heir.hear()):
            return woken
        assert reply["error"] == "Busy", reply
        time.sleep(PAUSE)


def one_round(
    zombie: Worker, heir: Worker, promises: Promises, wait: float, number: int
) -> tuple[bool, Reply]:
    """Stop the holder, let another take over and write, continue it; return the holder's last answer."""
    for kind, count in (("zombie", MANY), ("heir", 3)):
        for one in range(count):
            promises.ask(f"{kind}{number}-{one}")
    zombie.must("acquire", seconds=LEASE)
    zombie.tell("stream", prefix=f"zombie{number}", count=MANY, pause=PAUSE)
    promises.hear([zombie.hear()])
    time.sleep(wait)
    zombie.signal(signal.SIGSTOP)
    zombie.wait_until_stopped()
    locked = take_over(heir, zombie)
    promises.hear(heir.must("append", name=f"heir{number}-{one}") for one in range(2))
    zombie.signal(signal.SIGCONT)
    promises.hear([heir.must("append", name=f"heir{number}-2")])
    last = last_answer(zombie, promises)
    heir.must("release")
    zombie.must("release")
    return locked, last


def last_answer(zombie: Worker, promises: Promises) -> Reply:
    """Return the error that ends the appends of a zombie, or else end them after two more.

    The second one is certainly made after everything that happened before this call.
    """
    heard, more = zombie.heard_already(), 0
    while more < 2 and not (heard and "error" in heard[-1]):
        heard.append(zombie.hear())
        more += 1
    if "error" not in heard[-1]:
        zombie.tell("rest")
        while "done" not in heard[-1]:
            heard.append(zombie.hear())
        assert "resting" in zombie.hear()
    promises.hear(heard)
    return heard[-1]


def zombies(fork_server: ForkServer, url: str, rounds: int, plant: str = "") -> tuple[int, int, list[str]]:
    """Run many rounds; return the numbers of refusals and of locked rounds, and what was broken."""
    promises, random = Promises(), rng(f"zombie {plant}")
    refused, locked, broken = 0, 0, list[str]()
    with fork_server.worker(url, plant=plant) as one, fork_server.worker(url, plant=plant) as other:
        session = one.enter()
        other.enter(session)
        for number in range(rounds):
            zombie, heir = random.sample([one, other], 2)
            woken, last = one_round(zombie, heir, promises, random.random() * LEASE / 2, number)
            locked += woken
            refused += last.get("error") == "Fenced"
            broken += [] if last.get("error") == "Fenced" else [f"not refused: {last}"]
        broken += interleaved(one.must("read")["texts"])
    return refused, locked, broken + examine(fork_server, url, session, promises)


def interleaved(stored: list[str]) -> list[str]:
    """Return the appends that follow those of a later holder."""
    heirs, found = set[str](), list[str]()
    for text in stored:
        holder = text.partition("-")[0]
        number = holder.removeprefix("zombie").removeprefix("heir")
        if holder.startswith("heir"):
            heirs.add(number)
        elif number in heirs:
            found.append(f"fork: {text} after its lease was taken over")
    return found


@pytest.mark.req("G3", "G5")
def test_a_writer_that_was_stopped_while_another_took_over_is_refused(
    fork_server: ForkServer, store_url: str, record_property: Callable[[str, object], None]
) -> None:
    rounds = runs(4, long=100)
    refused, locked, broken = zombies(fork_server, store_url, rounds)
    title = f"zombie writers on {named(store_url)}"
    report(record_property, title, rounds=rounds, refused=refused, locked=locked, wrong=len(broken))
    assert broken == []


def test_a_store_that_does_not_check_the_fence_is_caught(fork_server: ForkServer, store_url: str) -> None:
    _, _, broken = zombies(fork_server, store_url, 2, plant="takes any fence")
    assert any("fork" in what for what in broken)
