"""Acknowledged means durable on PostgreSQL: the server dies at random moments under load, and comes back.

It is stopped at once with all its processes, or one of them is killed, upon which it ends the others and
recovers by itself. Several processes write all the while, and never open their stores again.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from random import Random

import asyncpg
import pytest
from postgres_aftermath import broken
from postgres_crew import Crew
from postgres_crowd import Manner
from postgres_ground import begun, children
from postgres_server import PostgresServer, execute
from promises import losses
from thoroughness import rng, runs, tell

MOST_BETWEEN = 60  # acknowledgements from one crash to the next
LONGEST_WAIT = 0.02  # seconds from the last of them to the crash


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A server that flushes nothing that nobody waits for."""
    if not sys.platform.startswith("linux"):
        pytest.skip("fault tests need Linux")
    made = PostgresServer(wal_writer_delay="10s", autovacuum="off")
    yield made
    made.remove()


def crash(server: PostgresServer, random: Random) -> None:
    """Stop a server at once and start it again, or let it do that by itself."""
    if random.random() < 0.5:
        server.stop(signal.SIGQUIT)
        server.start()
        return
    victim = random.choice(children(server))
    with suppress(ProcessLookupError):  # it may be one that was about to end
        os.kill(victim, signal.SIGKILL)
    while victim in children(server) or not answers(server):
        time.sleep(0.01)


def answers(server: PostgresServer) -> bool:
    """Tell whether a server has recovered."""
    try:
        execute("SELECT 1", url=server.url())
    except (asyncpg.PostgresError, OSError):
        return False
    return True


async def crashes(
    server: PostgresServer, count: int, manner: Manner = Manner.CAREFUL, **settings: str
) -> tuple[Crew, list[str]]:
    """Crash a server many times under those who write; give what they said, and what was broken."""
    random, schema = rng(f"crashes {manner} {settings}"), f"crashes_{secrets.token_hex(4)}"
    ids = await begun(server.url(schema=schema), 2)
    async with Crew(server.url(schema=schema, **settings), ids, manner) as crew:
        for _ in range(count):
            await crew.hear_more(random.randrange(1, MOST_BETWEEN))
            await asyncio.sleep(random.random() * LONGEST_WAIT)
            await asyncio.to_thread(crash, server, random)
        await crew.hear_more(MOST_BETWEEN)
    return crew, await broken(server.url(schema=schema), ids, crew.promises)


@pytest.mark.req("G3", "G5", "G6")
def test_a_server_that_crashes_under_load_loses_tears_and_doubles_nothing(
    server: PostgresServer, record_property: Callable[[str, object], None]
) -> None:
    count = runs(3, long=100)
    crew, wrong = asyncio.run(crashes(server, count))
    tell(
        record_property,
        "crashes of PostgreSQL",
        crashes=count,
        acknowledged_appends=len(crew.promises.acked),
        failed_and_asked_again=crew.failed,
        done_already=crew.repeated,
        lost=losses(wrong),
    )
    assert wrong == []
    assert crew.failed
    assert len(crew.promises.acked) == len(crew.promises.asked)


def test_a_server_that_does_not_wait_for_its_disk_is_caught(server: PostgresServer) -> None:
    _, wrong = asyncio.run(crashes(server, 2, synchronous_commit="off"))
    assert losses(wrong)


def test_an_acknowledgement_before_the_commit_is_caught(server: PostgresServer) -> None:
    _, wrong = asyncio.run(crashes(server, 2, Manner.HASTY))
    assert losses(wrong)
