"""A retry is safe on PostgreSQL: answers are lost after the commit, and nothing is stored twice.

A proxy breaks the connection before an answer, or in the middle of it. The store repeats an append that has
a key, on a new connection, and learns that it was done already; a caller repeats one that has none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from tests.faults.postgres_faults import broken, create_sessions, proxied, schema
from tests.faults.postgres_writers import USER, Mode, Writers
from tests.faults.promises import Promises, losses
from tests.harness.postgres_server import local_server
from tests.harness.thoroughness import report, rng, runs
from turnstate.session.manager import SessionManager

SHARE = 0.3  # of the answers to appends that are lost
SESSIONS, LANES = 4, 12
MARK = b"lane"  # in every key, and in no other request than an append


async def write(url: str, ids: list[str], writers: Writers, count: int) -> None:
    """Append from several tasks to several sessions."""
    async with await SessionManager.open(url) as sessions:
        handles = [await sessions.open(ids[lane % len(ids)], user=USER) for lane in range(LANES)]
        names = ([f"lane{lane}-{n}" for n in range(lane, count, LANES)] for lane in range(LANES))
        await asyncio.gather(*map(writers.write, handles, names))


async def losing(count: int, mode: Mode = Mode.CAREFUL) -> tuple[Writers, int, list[str]]:
    """Append while answers are lost; return the writers, the number of lost answers, and what was broken."""
    writers = Writers(Promises(), mode)
    async with schema() as name, proxied() as way:
        ids = await create_sessions(local_server().url(schema=name), SESSIONS)
        way.lose_answers(MARK, SHARE, rng(f"lost answers {mode}"))
        await write(way.url(schema=name), ids, writers, count)
        return writers, way.lost, await broken(local_server().url(schema=name), ids, writers.promises)


@pytest.mark.req("G5", "G6")
def test_appends_whose_answers_are_lost_are_stored_once(
    record_property: Callable[[str, object], None],
) -> None:
    count = runs(150, long=10_000)
    writers, lost, wrong = asyncio.run(losing(count))
    report(
        record_property,
        "answers of PostgreSQL lost after the commit",
        appends=count,
        answers_lost=lost,
        done_already=writers.repeated,
        appends_lost=losses(wrong),
        doubled=sum("twice" in what for what in wrong),
    )
    assert wrong == []
    assert len(writers.promises.acked) == count
    assert lost > count * SHARE / LANES  # an answer may be that of several appends
    assert writers.failed == 0  # the store repeats them by itself, since they have keys
    assert writers.repeated


def test_a_caller_that_repeats_without_a_key_is_caught() -> None:
    _, lost, wrong = asyncio.run(losing(60, Mode.KEYLESS))
    assert lost
    assert any("twice" in what for what in wrong)
