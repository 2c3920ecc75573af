"""Slots move between the masters of a Cluster under load: nothing is lost, and nothing is stored twice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest
from redis.crc import key_slot

from tests.faults.valkey_writers import USER, Judgement, Writers, judged, reported
from tests.harness.thoroughness import report, rng, runs
from tests.harness.valkey_server import Cluster
from turnstate.session import Session, SessionManager
from turnstate.stores.redis.layout import bucket_of

SESSIONS = 4


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    one = Cluster()
    yield one
    one.stop()


def slot_of(session: Session) -> int:
    return key_slot(b"{ts:%d}" % bucket_of(session._row.address))


async def resharded(
    cluster: Cluster, moves: int, *, forgetting: bytes = b""
) -> tuple[Writers, Judgement, int, set[str]]:
    """Move the slots of sessions that are written to; count the keys that moved."""
    random, keys = rng("reshard"), 0
    async with await SessionManager.open(cluster.url) as sessions:
        made = [await sessions.create(user=USER) for _ in range(SESSIONS)]
        async with Writers(made, lanes=2) as writers:
            for _ in range(moves):
                await writers.more(random.randrange(10, 60))
                slot = slot_of(random.choice(made))
                source = await asyncio.to_thread(cluster.owner, slot)
                target = random.choice([node for node in cluster.nodes if node is not source])
                keys += await asyncio.to_thread(cluster.move, slot, target, forgetting=forgetting)
                assert await asyncio.to_thread(cluster.owner, slot) is target
            await writers.more(20)
        told = set(await reported(sessions))
    return writers, await judged(cluster.url, writers), keys, told


@pytest.mark.req("G3", "G5", "G6")
def test_slots_that_move_under_load_lose_and_duplicate_nothing(
    cluster: Cluster, record_property: Callable[[str, object], None]
) -> None:
    moves = runs(3, long=100)
    writers, judgement, keys, told = asyncio.run(resharded(cluster, moves))
    report(
        record_property,
        "slots moved under load",
        moves=moves,
        keys=keys,
        acknowledged_appends=writers.acked,
        errors=writers.errors.total(),
        lost=judgement.lost,
        doubled=judgement.doubled,
    )
    assert (judgement.lost, judgement.wrong, told) == (0, [], set())


def test_a_move_that_forgets_keys_is_caught(cluster: Cluster) -> None:
    _, judgement, _, _ = asyncio.run(resharded(cluster, 1, forgetting=b":body:"))
    assert judgement.lost
    assert judgement.unsound
