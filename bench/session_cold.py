"""How long reads of a file that is not in memory block the event loop.

Small reads are made in the thread of the loop, but only while the file is in memory: a read from a disk may
take long. Here many sessions of one file are opened in random order and their last messages are read, after
the system was asked to drop the file from its cache. Another task measures how long each iteration of the
loop takes; the longest one during each session counts. The same is measured for the file in memory, and with
all reads in threads. The search index has caught up before that: while it is updated in the background, the
indexer competes for Python's lock, and pauses are longer, wherever the reads run.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random

from turnstate import SessionManager

from .session_messages import agent
from .session_ours import filled
from .window_print import goal, ms, table

SESSIONS, MESSAGES, LAST = 4_000, 40, 20
FIRST = 50  # sessions that are read before it counts, so that modules, threads and statements are there
GOAL = 0.002  # seconds for which 999 of 1,000 sessions block the loop at most

COLD, WARM, THREADS = "not in memory", "in memory", "not in memory, all reads in threads"


def report(folder: Path, *, sessions: int = SESSIONS) -> None:
    """Measure and print."""
    path = folder / "cold.db"
    asyncio.run(_fill(path, sessions))
    rows, found = [], dict[str, list[float]]()
    for name, options in ((COLD, ""), (WARM, ""), (THREADS, "?commit=thread")):
        if name != WARM:
            drop_from_memory(path)
        start = time.perf_counter()
        found[name] = sorted(asyncio.run(_read(f"sqlite:///{path}{options}", sessions)))
        rate = sessions / (time.perf_counter() - start)
        pauses = (quantile(found[name], share) for share in (0.5, 0.99, 0.999, 1.0))
        rows.append([name, f"{path.stat().st_size / 1e6:,.0f}", f"{rate:,.0f}", *map(ms, pauses)])
    print(f"\nReads and the loop: {sessions:,} sessions opened, and their last {LAST} messages read (ms).")
    table(
        ["the file is", "MB", "sessions a second", "longest pause: median", "99%", "99.9%", "at most"], rows
    )
    longest = quantile(found[COLD], 0.999)
    aim = f"file not in memory: 999 of 1,000 sessions block the loop for at most {GOAL * 1000:g} ms"
    goal(aim, f"{longest * 1000:.2f} ms", longest <= GOAL)


def drop_from_memory(path: Path) -> None:
    """Ask the system to drop a file from its cache."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)  # pages that are not written yet would stay
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(file)


def quantile(sorted_values: Sequence[float], share: float) -> float:
    """Return the value that a share of the values does not exceed."""
    return sorted_values[min(len(sorted_values) - 1, int(len(sorted_values) * share))]


async def _fill(path: Path, sessions: int) -> None:
    messages = agent(MESSAGES)
    async with SessionManager.open(f"sqlite:///{path}") as manager:
        for number in range(sessions):
            await filled(await manager.create(user="u", id=f"session {number}"), messages)
            if number % 100 == 99 or number == sessions - 1:  # or the index would be continued while we read
                await manager.store.search("default", ["x"], user=None, before=None, limit=1)


async def _read(url: str, sessions: int) -> list[float]:
    """Read all sessions in a random order that is always the same; return the longest pause during each."""
    order, clock = list(range(sessions)), LoopClock()
    Random(7).shuffle(order)
    pauses = list[float]()
    async with SessionManager.open(url) as manager:
        for place, number in enumerate(order):
            if place == FIRST:
                running = asyncio.create_task(clock.run())
            session = await manager.open(f"session {number}")
            await session.messages(last=LAST)
            if place > FIRST:
                await asyncio.sleep(0)
                pauses.append(clock.longest)
                clock.longest = 0.0
        running.cancel()
    return pauses


class LoopClock:
    """Measures how long each iteration of the loop takes."""

    longest = 0.0

    async def run(self) -> None:
        """Run until it is cancelled."""
        last = time.perf_counter()
        while True:
            await asyncio.sleep(0)
            now = time.perf_counter()
            self.longest, last = max(self.longest, now - last), now
