"""A power cut under Valkey: a server that syncs before it answers loses nothing, one that syncs later does.

The second is what the harness has to catch, and what users must be told: its log is sound afterwards, but
shorter than what was acknowledged. The store that got the answers names the sessions that lost something.
A cut may also leave a log with a torn end, which the server refuses until its own tool has removed it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from tests.faults.mounts import Cut, Disk
from tests.faults.valkey_writers import USER, Judgement, Writers, judged, reported
from tests.harness.thoroughness import LONG, report, rng, runs
from tests.harness.valkey_server import Valkey
from turnstate.session import SessionManager

SESSIONS = 4
LONGEST_WAIT = 0.004  # seconds from the acknowledgements that are waited for to the cut: a few commits
TIMEOUT = 2


@dataclass
class Round:
    """The result of one power cut."""

    acked: int
    judgement: Judgement
    told: set[str]
    noticed: set[str]
    mended: bool


async def cut_once(server: Valkey, disk: Disk, how: Cut, random: Random) -> Round:
    """Cut the power while sessions are written to; only what was acknowledged before the cut counts."""
    async with await SessionManager.open(f"{server.url}?timeout={TIMEOUT}") as sessions:
        made = [await sessions.create(user=USER) for _ in range(SESSIONS)]
        server.sync()  # the sessions are there, whatever else goes
        async with Writers(made) as writers:
            await writers.more(random.choice([5, 60, 60, 400]))
            time.sleep(random.random() * LONGEST_WAIT)  # the server works, and nobody hears it
            before = {id: list(one.acked) for id, one in writers.promises.items()}
            disk.cut(how)
            server.kill()
            await asyncio.to_thread(disk.restart)
            mended = await asyncio.to_thread(boot, server)
            await writers.more(20)
        told = set(await reported(sessions))
        noticed = {session.id for session in made if session.notices}
    acked = writers.acked
    for id, one in writers.promises.items():
        one.acked = before[id]
    return Round(acked, await judged(server.url, writers), told, noticed, mended)


def boot(server: Valkey) -> bool:
    """Start the server; return True if its log had to be repaired for that."""
    try:
        server.start()
    except RuntimeError as refusal:
        if "valkey-check-aof --fix" not in str(refusal):
            raise
        server.mend()
        server.start()
        return True
    return False


def power_cuts(home: Path, sync: str, cuts: int) -> Iterator[Round]:
    """Cut the power many times, each time on a new disk and every other time with the journal kept."""
    random = rng(f"valkey power {sync}")
    for number in range(cuts):
        with Disk(home / f"{number}") as disk:
            server = Valkey("--appendonly", "yes", "--appendfsync", sync, data=disk.path)
            try:
                how = Cut.KEEP_JOURNAL if number % 2 else Cut.DROP_JOURNAL
                yield asyncio.run(cut_once(server, disk, how, random))
            finally:
                server.stop()


def told_of(rounds: list[Round], sync: str, record_property: Callable[[str, object], None]) -> None:
    report(
        record_property,
        f"power cuts under Valkey, appendfsync {sync}",
        cuts=len(rounds),
        mended=sum(one.mended for one in rounds),
        acknowledged_appends=sum(one.acked for one in rounds),
        lost=sum(one.judgement.lost for one in rounds),
        sessions_that_went_back=sum(len(one.judgement.losers) for one in rounds),
        of_these_told=sum(len(one.judgement.losers & one.told) for one in rounds),
    )


@pytest.mark.req("G3", "G6")
def test_a_server_that_syncs_every_write_loses_nothing_acknowledged_in_a_power_cut(
    home: Path, record_property: Callable[[str, object], None]
) -> None:
    rounds = list(power_cuts(home, "always", runs(2, long=100)))
    told_of(rounds, "always", record_property)
    assert [wrong for one in rounds for wrong in one.judgement.wrong] == []
    assert sum(one.judgement.lost for one in rounds) == 0


@pytest.mark.req("G3", "G6")
def test_writes_that_a_server_lost_because_it_syncs_every_second_are_reported(
    home: Path, record_property: Callable[[str, object], None]
) -> None:
    rounds = list[Round]()
    for one in power_cuts(home, "everysec", runs(20, long=100)):
        rounds.append(one)
        if not LONG and one.judgement.lost:  # a sync may come just before the cut
            break
    told_of(rounds, "everysec", record_property)
    assert [wrong for one in rounds for wrong in one.judgement.wrong] == []
    assert sum(one.judgement.lost for one in rounds) > 0
    for one in rounds:
        assert one.judgement.losers <= one.told
        assert one.judgement.losers <= one.noticed
