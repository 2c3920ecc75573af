"""All processes of PostgreSQL are stopped under load, and continue after a while.

Requests that were sent meanwhile are done later, or never; callers wait until the timeout of the store and
get an error that says the outcome is unknown. An append that they repeat is stored once.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.faults.postgres_faults import broken, children, create_sessions
from tests.faults.postgres_writers import PAUSE, USER, Mode, Writers, numbered
from tests.faults.promises import Promises, losses
from tests.harness.postgres_server import PostgresServer
from tests.harness.thoroughness import LONG, report, rng
from turnstate.session.manager import SessionManager
from turnstate.stores.postgres.connections import PATIENCE, Connections

LANES = 16  # more than there are connections: some wait for one
SHORT = 0.5  # seconds of patience, so that a stop of some seconds outlasts it
STOPS = [5.0, 30.0, 45.0] if LONG else [1.5]


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    if not sys.platform.startswith("linux"):
        pytest.skip("fault tests need Linux")
    made = PostgresServer()
    yield made
    made.remove()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set a shorter timeout for the store."""
    monkeypatch.setitem(Connections._run.__kwdefaults__, "patience", SHORT)


def stop(server: PostgresServer) -> list[int]:
    """Stop all processes of a server, the one that starts the others first."""
    assert server.process is not None
    _stop(server.process.pid)
    stopped = children(server)
    for pid in stopped:
        _stop(pid)
    return [server.process.pid, *stopped]


def _stop(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)
    while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "TZ":
        time.sleep(0.001)


async def stalls(server: PostgresServer, stops: list[float], mode: Mode) -> tuple[Writers, list[str]]:
    """Stop a server under load for some seconds each; return the writers, and what was broken."""
    random, writers, over = rng(f"stalls {mode}"), Writers(Promises(), mode), asyncio.Event()
    url = server.url(schema=f"stalls_{secrets.token_hex(4)}")
    ids = await create_sessions(url, 2)
    async with await SessionManager.open(url) as sessions:
        handles = [await sessions.open(ids[lane % 2], user=USER) for lane in range(LANES)]
        names = [numbered(f"lane{lane}", over.is_set) for lane in range(LANES)]
        writing = asyncio.gather(*map(writers.write, handles, names), writers.read(handles[0], over.is_set))
        try:
            for seconds in stops:
                await writers.heard_more(LANES * 2)
                await asyncio.sleep(random.random() * PAUSE)
                stopped = await asyncio.to_thread(stop, server)
                try:
                    await asyncio.sleep(seconds)
                finally:
                    for pid in stopped:
                        os.kill(pid, signal.SIGCONT)
        finally:
            over.set()
            await writing
    return writers, await broken(url, ids, writers.promises)


def told(
    record_property: Callable[[str, object], None], title: str, writers: Writers, wrong: list[str]
) -> None:
    report(
        record_property,
        title,
        acknowledged_appends=len(writers.promises.acked),
        reads=writers.reads,
        failed_and_asked_again=writers.failed,
        done_already=writers.repeated,
        lost=losses(wrong),
        longest_wait_in_seconds=round(writers.longest),
    )


@pytest.mark.req("G3", "G5", "G6")
def test_a_server_that_was_stopped_has_done_everything_once(
    server: PostgresServer, record_property: Callable[[str, object], None]
) -> None:
    writers, wrong = asyncio.run(stalls(server, STOPS, Mode.CAREFUL))
    told(record_property, f"PostgreSQL stopped for {STOPS} seconds", writers, wrong)
    assert wrong == []
    assert len(writers.promises.acked) == len(writers.promises.asked)
    assert writers.failed or max(STOPS) < PATIENCE


@pytest.mark.req("G3", "G5", "G6")
@pytest.mark.usefixtures("impatient")
def test_appends_that_timed_out_and_were_repeated_are_stored_once(
    server: PostgresServer, record_property: Callable[[str, object], None]
) -> None:
    writers, wrong = asyncio.run(stalls(server, [1.2] * len(STOPS), Mode.CAREFUL))
    told(record_property, "PostgreSQL stopped for longer than callers wait", writers, wrong)
    assert wrong == []
    assert len(writers.promises.acked) == len(writers.promises.asked)
    assert writers.failed


@pytest.mark.usefixtures("impatient")
def test_a_caller_that_repeats_without_a_key_is_caught(server: PostgresServer) -> None:
    for _ in range(50):  # a stall may fall between two appends
        _, wrong = asyncio.run(stalls(server, [1.2], Mode.KEYLESS))
        if any("twice" in what for what in wrong):
            return
    pytest.fail("nothing was written twice")
