"""Three of ten answers are lost after the commit: repeating under the same key stores nothing twice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.valkey_writers import USER, Judgement, Writers, judged
from tests.harness.redis_proxy import Proxy
from tests.harness.thoroughness import report, rng, runs
from tests.harness.valkey_server import empty_server
from turnstate.session import SessionManager

ODDS = 0.3
LANES = 10


async def lossy(folder: Path, appends: int, *, keyed: bool = True) -> tuple[Writers, Judgement, int]:
    """Append to one session over a connection that loses answers; count the lost ones."""
    server = empty_server()
    async with Proxy(folder, server.socket) as proxy, await SessionManager.open(proxy.url()) as sessions:
        session = await sessions.create(user=USER)
        writers = Writers([session], lanes=0, keyed=keyed)
        proxy.odds, proxy.random = ODDS, rng("lost replies")
        names = [f"{lane}-{number}" for number in range(appends // LANES) for lane in range(LANES)]
        shares = [names[lane::LANES] for lane in range(LANES)]
        await asyncio.gather(*(writers.make(session, share) for share in shares))
        proxy.odds = 0
    return writers, await judged(server.url, writers), proxy.lost


@pytest.mark.req("G3", "G5")
def test_appends_whose_answers_are_lost_are_made_once(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    appends = runs(150, long=10_000)
    writers, judgement, lost = asyncio.run(lossy(tmp_path, appends))
    report(
        record_property,
        "answers of Valkey lost after the commit",
        appends=appends,
        lost_answers=lost,
        errors=writers.errors.total(),
        lost=judgement.lost,
        doubled=judgement.doubled,
    )
    assert (writers.acked, judgement.lost, judgement.wrong) == (appends, 0, [])
    assert lost > appends // 5


def test_appends_without_keys_are_caught_as_duplicates(tmp_path: Path) -> None:
    _, judgement, _ = asyncio.run(lossy(tmp_path, 100, keyed=False))
    assert judgement.doubled
