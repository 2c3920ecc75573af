"""On a full disk appends fail with one typed error and reads work; with free space appends work again."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from tests.faults.fork_server import ForkServer, Worker
from tests.faults.mounts import SmallDisk
from tests.faults.promises import Promises, losses
from tests.faults.recovery import examine
from tests.harness.thoroughness import LONG, report, rng, runs
from turnstate import Budget, Message, SessionManager
from turnstate.errors import EpochEnded, StoreUnavailable
from turnstate.testing import FixedClock

ROOM = 64 << 20
PAGE = 4096


def append_until_full(worker: Worker, promises: Promises, prefix: str, size: int) -> list[str]:
    """Append until three appends in a row have failed; return the types of the errors."""
    errors, number = list[str](), 0
    while len(errors) < 3:
        reply = worker.ask("append", name=promises.ask(f"{prefix}-{number}", size), size=size)
        promises.hear([reply])
        errors = [*errors, reply["error"]] if "error" in reply else []
        number += 1
    return errors


def fill_and_free(
    disk: SmallDisk, worker: Worker, promises: Promises, random: Random, prefix: str
) -> list[str]:
    """Fill the disk except for a few pages, append until it is full, free space, append; return faults."""
    disk.fill(leave=random.randrange(random.choice([4, 20, 300])) * PAGE)
    errors = append_until_full(worker, promises, prefix, random.choice([1, 3, 30]))
    wrong = [f"another error: {error}" for error in errors if error != "StoreUnavailable"]
    wrong += promises.broken_by(worker.must("read")["texts"])
    disk.free()
    reply = worker.ask("append", name=promises.ask(f"{prefix}-free"))
    promises.hear([reply])
    return wrong + ([] if "ack" in reply else [f"refused with room again: {reply}"])


def full_disks(fork_server: ForkServer, home: Path, count: int, plant: str = "") -> tuple[int, list[str]]:
    """Fill a disk many times; return the number of acknowledged appends, and what was broken."""
    random, promises, broken = rng(f"full {plant}"), Promises(), list[str]()
    with SmallDisk(home / "small", size=ROOM) as disk:
        url = f"sqlite:///{disk.path}/agent.db"
        with fork_server.worker(url, plant=plant) as worker:
            session = worker.enter()
            for turn in range(count):
                broken += fill_and_free(disk, worker, promises, random, f"full{turn}")
        broken += examine(fork_server, url, session, promises)
    return len(promises.acked), broken


@pytest.mark.req("G6")
def test_a_full_disk_refuses_appends_and_accepts_them_again_with_free_space(
    fork_server: ForkServer, home: Path, record_property: Callable[[str, object], None]
) -> None:
    count = runs(3, long=40)
    acked, broken = full_disks(fork_server, home, count)
    report(record_property, "full disks", runs=count, acknowledged_appends=acked, lost=losses(broken))
    assert broken == []


@pytest.mark.req("G6")
def test_a_store_that_could_not_be_created_on_a_full_disk_can_be_created_later(
    fork_server: ForkServer, home: Path
) -> None:
    with SmallDisk(home / "small", size=ROOM) as disk:
        url = f"sqlite:///{disk.path}/agent.db"
        for pages in range(0, 12, 1 if LONG else 3):
            disk.fill(leave=pages * PAGE)
            with fork_server.worker(url) as worker:
                reply = worker.ask("open")
                assert "opened" in reply or reply["error"] == "StoreUnavailable", (pages, reply)
            disk.free()
        with fork_server.worker(url) as worker:
            worker.enter()
            worker.must("append", name="with room")
            worker.must("close")


def test_a_store_that_hides_a_full_disk_is_caught(fork_server: ForkServer, home: Path) -> None:
    _, broken = full_disks(fork_server, home, 1, plant="hides errors")
    assert losses(broken)


async def fill_sessions(path: Path) -> None:
    """Write a session of a few megabytes and a short one; what is in the log goes into the file."""
    async with await SessionManager.open(f"sqlite:///{path}") as sessions:
        long = await sessions.create(id="long")
        for number in range(60):
            await long.append(Message.user(f"{number} " + "all work and no play " * 2_000))
        await (await sessions.create(id="short")).append(Message.user("hello"))


def needed(text: str) -> int:
    """Return the bytes that an error asks for."""
    (amount,) = re.findall(r"needs about ([0-9.,]+) MB", text)
    return int(float(amount.replace(",", "")) * 1e6)


@pytest.mark.req("G9")
def test_a_deletion_that_a_full_disk_refuses_says_how_much_space_it_needs(home: Path) -> None:
    async def destroy(disk: SmallDisk) -> None:
        async with await SessionManager.open(f"sqlite:///{disk.path}/agent.db") as sessions:
            disk.fill()
            with pytest.raises(StoreUnavailable, match="nothing was deleted") as refused:
                await sessions.destroy("long")
            assert len(await (await sessions.open("long")).messages()) == 60
            disk.free()
            disk.fill(leave=needed(str(refused.value)))
            assert (await sessions.destroy("long")).entries == 60
            assert [row.id for row in await sessions.list()] == ["short"]
            disk.free()
            assert [finding async for finding in sessions.store.verify(repair=False)] == []

    with SmallDisk(home / "small", size=ROOM) as disk:
        asyncio.run(fill_sessions(disk.path / "agent.db"))
        asyncio.run(destroy(disk))


@pytest.mark.req("G6")
def test_a_window_is_answered_on_a_full_disk_though_its_cut_cannot_be_recorded(home: Path) -> None:
    async def window(disk: SmallDisk) -> None:
        async with await SessionManager.open(f"sqlite:///{disk.path}/agent.db") as sessions:
            session = await sessions.create()
            for number in range(40):
                await session.append(
                    Message.user(f"question {number} " * 50), Message.assistant("answer " * 50)
                )
            disk.fill()
            made = await session.window(Budget(3_000))
            assert made.pending_cut is not None
            assert made.tokens <= 3_000
            assert any("could not be recorded" in notice for notice in session.notices)
            disk.free()
            assert (await session.window(Budget(3_000))).tokens <= 3_000
            assert session.notices == ()
            assert await session.entries(kinds=["cut"])

    with SmallDisk(home / "small", size=ROOM) as disk:
        asyncio.run(window(disk))


@pytest.mark.req("G6", "G8")
def test_an_idle_session_that_is_over_is_opened_and_read_on_a_full_disk(home: Path) -> None:
    async def read(disk: SmallDisk) -> None:
        url, clock = f"sqlite:///{disk.path}/agent.db", FixedClock()
        async with await SessionManager.open(url, clock=clock, idle=60) as sessions:
            await (await sessions.create(id="idle")).append(Message.user("hello"))
        clock.advance(3_600_000)
        async with await SessionManager.open(url, clock=clock) as sessions:
            disk.fill()
            session = await sessions.open("idle")
            assert [message.text for message in await session.messages()] == ["hello"]
            with pytest.raises(StoreUnavailable):
                await session.append(Message.user("still there?"))
            disk.free()
            with pytest.raises(EpochEnded):
                await session.append(Message.user("still there?"))

    with SmallDisk(home / "small", size=ROOM) as disk:
        asyncio.run(read(disk))
