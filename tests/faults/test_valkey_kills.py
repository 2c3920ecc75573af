"""Valkey is killed or stopped under load: what was acknowledged is stored once, and no caller hangs.

A server that syncs before it answers loses nothing. One that syncs every second may lose acknowledged
writes even if only its process is killed, since it delays writes while a sync is running; then the store
that got the answers names exactly the sessions that lost something.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from random import Random

import pytest

from tests.faults.valkey_writers import USER, HastyWriters, Judgement, Writers, judged, reported
from tests.harness.thoroughness import LONG, report, rng, runs
from tests.harness.valkey_server import Valkey
from turnstate.session import SessionManager

SESSIONS = 4
LONGEST_WAIT = 0.05  # seconds from the acknowledgements that are waited for to the kill
TIMEOUT = 1  # seconds that the store waits for the server
SLACK = 20.0  # seconds that a busy machine may add to that


@pytest.fixture(params=["always", "everysec"])
def server(request: pytest.FixtureRequest) -> Iterator[Valkey]:
    one = Valkey("--appendonly", "yes", "--appendfsync", request.param)
    yield one
    one.stop()


async def killed(
    server: Valkey, random: Random, kills: int, make_writers: type[Writers] = Writers
) -> tuple[Writers, Judgement]:
    """Kill the server repeatedly while sessions are written to."""
    async with await SessionManager.open(f"{server.url}?timeout={TIMEOUT}") as sessions:
        made = [await sessions.create(user=USER) for _ in range(SESSIONS)]
        async with make_writers(made) as writers:
            for number in range(kills):
                await writers.more(random.randrange(5, 150))
                await asyncio.sleep(random.random() * LONGEST_WAIT)
                server.kill()
                if number % 2 == 0:  # every other kill lasts too long for the store to pass over it
                    await writers.failed()
                await asyncio.to_thread(server.start)
            await writers.more(20)
        told = set(await reported(sessions)), {session.id for session in made if session.notices}
    judgement = await judged(server.url, writers)
    assert told == (judgement.losers, judgement.losers), "told otherwise than it is"
    return writers, judgement


@pytest.mark.req("G3", "G5", "G6")
def test_a_killed_server_duplicates_nothing_and_every_loss_is_reported(
    server: Valkey, request: pytest.FixtureRequest, record_property: Callable[[str, object], None]
) -> None:
    sync, kills = request.node.callspec.params["server"], runs(2, long=200)
    writers, judgement = asyncio.run(killed(server, rng(f"valkey {sync}"), kills))
    report(
        record_property,
        f"Valkey killed, appendfsync {sync}",
        kills=kills,
        acknowledged_appends=writers.acked,
        errors=writers.errors.total(),
        lost=judgement.lost,
        sessions_told_to_have_lost=len(judgement.losers),
        doubled=judgement.doubled,
    )
    assert writers.errors.total() > 0
    assert judgement.wrong == []
    assert judgement.lost == 0 or sync == "everysec"


@pytest.mark.parametrize("server", ["always"], indirect=True)
def test_writers_that_treat_a_failed_append_as_done_are_caught(server: Valkey) -> None:
    with pytest.raises(AssertionError, match="told"):
        asyncio.run(killed(server, rng("hasty"), 1, HastyWriters))


async def stopped(server: Valkey, seconds: float, *, keyed: bool = True) -> tuple[Writers, Judgement]:
    """Stop the server for some seconds while sessions are written to."""
    async with await SessionManager.open(f"{server.url}?timeout={TIMEOUT}") as sessions:
        made = [await sessions.create(user=USER) for _ in range(SESSIONS)]
        async with Writers(made, keyed=keyed) as writers:
            await writers.more(50)
            server.process.send_signal(signal.SIGSTOP)
            await asyncio.sleep(seconds)
            server.process.send_signal(signal.SIGCONT)
            await writers.more(50)
    return writers, await judged(server.url, writers)


@pytest.mark.req("G3", "G5")
@pytest.mark.parametrize("server", ["always"], indirect=True)
def test_a_stopped_server_is_reported_in_time_and_does_each_append_once(
    server: Valkey, record_property: Callable[[str, object], None]
) -> None:
    seconds = 30 if LONG else 2
    writers, judgement = asyncio.run(stopped(server, seconds))
    report(
        record_property,
        "Valkey stopped",
        seconds=seconds,
        acknowledged_appends=writers.acked,
        errors=writers.errors.total(),
        lost=judgement.lost,
        doubled=judgement.doubled,
    )
    assert writers.errors.total() > 0
    assert writers.longest < TIMEOUT + SLACK
    assert (judgement.lost, judgement.wrong) == (0, [])


@pytest.mark.parametrize("server", ["always"], indirect=True)
def test_writers_that_repeat_without_a_key_are_caught(server: Valkey) -> None:
    _, judgement = asyncio.run(stopped(server, TIMEOUT + 1, keyed=False))
    assert judgement.doubled
