"""What PostgreSQL acknowledged is durable: the server crashes at random moments under load, and restarts.

It is stopped at once with all its processes, or one of them is killed, so that it ends the others and
recovers by itself. Several processes write all the time, and never reopen their stores.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from random import Random
from tempfile import TemporaryFile
from types import TracebackType
from typing import Self

import asyncpg
import pytest

from tests.faults.postgres_faults import broken, children, create_sessions
from tests.faults.postgres_writers import HANG, SIZE, Mode
from tests.faults.promises import Promises, losses
from tests.harness.postgres_server import PostgresServer, execute
from tests.harness.programs import environment, program
from tests.harness.thoroughness import LONG, report, rng, runs

MOST_BETWEEN = 60  # acknowledgements from one crash to the next
PROCESSES, LANES = 3 if LONG else 2, 4
LONGEST_WAIT = 0.02  # seconds from the last of them to the crash


class WriterProcesses:
    """Processes that write, and the promises they print; any output on stderr is a fault."""

    def __init__(self, url: str, ids: Sequence[str], mode: Mode) -> None:
        self.promises = Promises()
        self.failed, self.repeated = 0, 0
        self._ready, self._gone = 0, 0
        lanes = [ids[lane % len(ids)] for lane in range(LANES)]
        self._commands = [(url, mode, f"p{number}", *lanes) for number in range(PROCESSES)]
        self._complaints = TemporaryFile()  # noqa: SIM115 - closed when the processes have ended

    async def hear_more(self, count: int) -> None:
        """Wait until all processes write, and for some more acknowledgements."""
        enough = len(self.promises.acked) + count
        async with asyncio.timeout(HANG):
            while self._ready < PROCESSES or len(self.promises.acked) < enough:
                assert not self._gone, f"a process that should write has ended: {self._complaint()}"
                await asyncio.sleep(0.002)

    async def __aenter__(self) -> Self:
        started = {"env": environment(), "stdin": PIPE, "stdout": PIPE, "stderr": self._complaints}
        self._processes = [
            await asyncio.create_subprocess_exec(
                *program("tests.faults.postgres_writers", *command), **started
            )
            for command in self._commands
        ]
        self._hearing = [asyncio.create_task(self._hear(process)) for process in self._processes]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes:
            process.stdin.close()
        await asyncio.gather(*self._hearing)
        ends = [await process.wait() for process in self._processes]
        with self._complaints:
            assert kind or (self._complaint(), ends) == ("", [0] * PROCESSES)

    async def _hear(self, process: Process) -> None:
        """Record the lines of one process until it ends."""
        async for line in process.stdout:
            said = json.loads(line)
            if "ask" in said:
                self.promises.ask(said["ask"], SIZE)
            self.promises.hear([said])
            self._ready += "ready" in said
            self.failed += said.get("failed", 0)
            self.repeated += said.get("repeated", 0)
        self._gone += 1

    def _complaint(self) -> str:
        self._complaints.seek(0)
        return self._complaints.read().decode()


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A server that flushes only what a commit waits for."""
    if not sys.platform.startswith("linux"):
        pytest.skip("fault tests need Linux")
    made = PostgresServer(wal_writer_delay="10s", autovacuum="off")
    yield made
    made.remove()


def crash(server: PostgresServer, random: Random) -> None:
    """Stop a server at once and start it, or kill one of its processes so that it recovers."""
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
    """Return True if a server has recovered."""
    try:
        execute("SELECT 1", url=server.url())
    except (asyncpg.PostgresError, OSError):
        return False
    return True


async def crashes(
    server: PostgresServer, count: int, mode: Mode = Mode.CAREFUL, **settings: str
) -> tuple[WriterProcesses, list[str]]:
    """Crash a server many times under load; return the writers, and what was broken."""
    random, schema = rng(f"crashes {mode} {settings}"), f"crashes_{secrets.token_hex(4)}"
    ids = await create_sessions(server.url(schema=schema), 2)
    async with WriterProcesses(server.url(schema=schema, **settings), ids, mode) as processes:
        for _ in range(count):
            await processes.hear_more(random.randrange(1, MOST_BETWEEN))
            await asyncio.sleep(random.random() * LONGEST_WAIT)
            await asyncio.to_thread(crash, server, random)
        await processes.hear_more(MOST_BETWEEN)
    return processes, await broken(server.url(schema=schema), ids, processes.promises)


@pytest.mark.req("G3", "G5", "G6")
def test_a_server_that_crashes_under_load_loses_splits_and_duplicates_nothing(
    server: PostgresServer, record_property: Callable[[str, object], None]
) -> None:
    count = runs(2, long=100)
    processes, wrong = asyncio.run(crashes(server, count))
    report(
        record_property,
        "crashes of PostgreSQL",
        crashes=count,
        acknowledged_appends=len(processes.promises.acked),
        failed_and_asked_again=processes.failed,
        done_already=processes.repeated,
        lost=losses(wrong),
    )
    assert wrong == []
    assert processes.failed
    assert len(processes.promises.acked) == len(processes.promises.asked)


def is_caught(server: PostgresServer, mode: Mode = Mode.CAREFUL, **settings: str) -> bool:
    """Crash a server until something is lost: what is in doubt may just have been done before a crash."""
    return any(losses(asyncio.run(crashes(server, 1, mode, **settings))[1]) for _ in range(20))


def test_a_server_that_does_not_wait_for_its_disk_is_caught(server: PostgresServer) -> None:
    assert is_caught(server, synchronous_commit="off")


def test_an_acknowledgement_before_the_commit_is_caught(server: PostgresServer) -> None:
    assert is_caught(server, Mode.HASTY)
