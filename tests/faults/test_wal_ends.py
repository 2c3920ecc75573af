"""A WAL whose end was cut off or zeroed is a shorter WAL: the store is at an earlier commit, and whole.

Nothing outside of the WAL knows how long it was, and zeros follow the newest commit in any WAL that has its
final size. So such a loss cannot be noticed, as the page on stores says; what is promised is that commits are
lost from the end, each as a whole, and that a store that lost nothing is never called damaged.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness.thoroughness import report, rng, runs
from turnstate import Message, SessionManager
from turnstate.stores.sqlite.wal import read_log

COMMITS = 24  # more than it takes to grow the WAL to its final size


async def prepare(folder: Path) -> list[int]:
    """Copy a store while it is open, and return the ends of all frames of its WAL."""
    async with await SessionManager.open(f"sqlite:///{folder}/live.db") as sessions:
        session = await sessions.create(id="s1")
        for number in range(COMMITS):
            await session.append(Message.user(f"{number}/0"), Message.assistant(f"{number}/1"))
        (folder / "copy").mkdir()
        for suffix in ("", "-wal"):
            shutil.copy(folder / f"live.db{suffix}", folder / "copy" / f"agent.db{suffix}")
    log = read_log(str(folder / "copy" / "agent.db"))
    assert log is not None
    frames = sum(frame[2:4] == log.salts for frame in log.frames)
    return [32 + number * (24 + log.page) for number in range(frames + 1)]


async def found(path: Path) -> tuple[list[str] | None, list[str]]:
    """Return the messages of a store, None if it has none at all, and what `verify` says."""
    async with await SessionManager.open(f"sqlite:///{path}") as sessions:
        known = [info.id for info in await sessions.list()]
        texts = [one.text for one in await (await sessions.open("s1")).messages()] if known else None
        return texts, [one.fault async for one in sessions.store.verify(repair=False)]


@pytest.mark.req("G6")
def test_a_wal_that_lost_its_end_leaves_whole_commits(
    folder: Path, record_property: Callable[[str, object], None]
) -> None:
    random, ends = rng("wal ends"), asyncio.run(prepare(folder))
    wanted = [f"{number}/{part}" for number in range(COMMITS) for part in (0, 1)]
    count, lost = runs(6, long=200), 0
    places = [ends[-1], *random.choices(ends, k=count), *(random.randrange(ends[-1]) for _ in range(count))]
    for place in places:
        for zeroed in (False, True):
            shutil.rmtree(folder / "run", ignore_errors=True)
            shutil.copytree(folder / "copy", folder / "run")
            wal = folder / "run" / "agent.db-wal"
            data = wal.read_bytes()
            wal.write_bytes(data[:place] + bytes(len(data) - place if zeroed else 0))
            texts, faults = asyncio.run(found(folder / "run" / "agent.db"))
            assert faults == [], (place, zeroed)
            assert (texts or []) == wanted[: len(texts or [])], (place, zeroed)
            assert len(texts or []) % 2 == 0, (place, zeroed)
            assert place < ends[-1] or texts == wanted
            lost += texts != wanted
    report(record_property, "WALs without their end", copies=2 * len(places), shorter=lost, torn=0)
    assert lost
