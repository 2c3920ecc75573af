"""A master of a Cluster is killed under load, and its replica takes over.

Replicas get a write after its writer was answered, so the newest writes may be lost: the store says so (its
class is `best_effort`) and names the affected sessions. Nothing else goes wrong: writers get typed errors
for a while, and an append that is repeated under its key is never stored twice.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator

import pytest
from redis.crc import key_slot

from tests.faults.valkey_writers import USER, Judgement, Writers, judged, reported
from tests.harness.thoroughness import report, rng, runs
from tests.harness.valkey_server import Cluster, Valkey
from turnstate.session import Session, SessionManager
from turnstate.stores.redis.layout import bucket_of

SESSIONS = 6
NODE_TIMEOUT = 15_000  # milliseconds until a master that says nothing is replaced: only those that are killed
LONGEST_WAIT = 0.05  # seconds from the acknowledgements that are waited for to the kill


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """A Cluster for one test: a node that a thread of the loop restarted ends with that thread."""
    one = Cluster(replicas=1, node_timeout=NODE_TIMEOUT)
    yield one
    one.stop()


def master_of(cluster: Cluster, session: Session) -> Valkey:
    return cluster.owner(key_slot(b"{ts:%d}" % bucket_of(session._row.address)))


async def fail_over(
    cluster: Cluster, writers: Writers, session: Session, *, wait: float, severed: bool
) -> None:
    """Kill the master of a session, wait for new appends, and bring the old master back as a replica.

    A severed replica gets nothing more before the kill, so that acknowledged writes are certainly lost.
    """
    master = await asyncio.to_thread(master_of, cluster, session)
    (replica,) = await asyncio.to_thread(cluster.replicas_of, master)
    if severed:
        replica.process.send_signal(signal.SIGSTOP)
        master.ask("CLIENT", "KILL", "TYPE", "replica")
        await writers.more(20, of=session)
    await asyncio.sleep(wait)
    master.kill()
    await writers.failed()
    replica.process.send_signal(signal.SIGCONT)
    await asyncio.to_thread(replica.ask, "CLUSTER", "FAILOVER", "TAKEOVER")  # without waiting for a vote
    await writers.more(20, of=session)
    assert await asyncio.to_thread(master_of, cluster, session) is replica
    await asyncio.to_thread(master.start)
    await asyncio.to_thread(cluster.wait)


async def failovers(cluster: Cluster, count: int, *, severed: bool) -> tuple[Writers, Judgement]:
    """Kill masters one after the other while sessions are written to; every loss must be reported."""
    random = rng(f"failover {severed}")
    async with await SessionManager.open(f"{cluster.url}?timeout=2") as sessions:
        assert sessions.store.durability == "best_effort"
        made = [await sessions.create(user=USER) for _ in range(SESSIONS)]
        async with Writers(made, lanes=2) as writers:
            for _ in range(count):
                await writers.more(random.randrange(30, 200))
                wait = random.random() * LONGEST_WAIT
                await fail_over(cluster, writers, random.choice(made), wait=wait, severed=severed)
        told = set(await reported(sessions)), {session.id for session in made if session.notices}
    judgement = await judged(cluster.url, writers)
    assert told == (judgement.losers, judgement.losers)
    return writers, judgement


def counts(count: int, writers: Writers, judgement: Judgement) -> dict[str, int]:
    return {
        "failovers": count,
        "acknowledged_appends": writers.acked,
        "errors": writers.errors.total(),
        "lost": judgement.lost,
        "sessions_told_to_have_lost": len(judgement.losers),
        "doubled": judgement.doubled,
    }


@pytest.mark.req("G3", "G5", "G6")
def test_writers_continue_after_a_failover_and_every_loss_is_reported(
    cluster: Cluster, record_property: Callable[[str, object], None]
) -> None:
    count = runs(1, long=30)
    writers, judgement = asyncio.run(failovers(cluster, count, severed=False))
    report(record_property, "failovers of a Cluster", **counts(count, writers, judgement))
    assert writers.errors.total() > 0
    assert judgement.wrong == []


@pytest.mark.req("G3", "G5", "G6")
def test_writes_that_a_failover_lost_before_replication_are_reported(
    cluster: Cluster, record_property: Callable[[str, object], None]
) -> None:
    count = runs(1, long=10)
    writers, judgement = asyncio.run(failovers(cluster, count, severed=True))
    report(record_property, "failovers to a replica that heard nothing", **counts(count, writers, judgement))
    assert judgement.lost > 0
    assert judgement.wrong == []
