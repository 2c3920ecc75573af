"""The writer thread: what it takes together, and what becomes of those who ask when it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest

from turnstate.errors import InputError, StoreError
from turnstate.stores.sqlite.connection import migrate
from turnstate.stores.sqlite.writer import BATCH, Writer


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    path = str(tmp_path / "agent.db")
    migrate(path)
    one = Writer(path)
    yield one
    one.close()


def commits(db: apsw.Connection) -> list[int]:
    """Note from now on after how many changes each commit comes."""
    seen = list[int]()

    def note() -> bool:
        seen.append(db.total_changes())
        return False

    db.set_commit_hook(note)
    return seen


def tagging(number: int) -> Callable[[apsw.Connection], int]:
    def job(db: apsw.Connection) -> int:
        db.execute("INSERT INTO tag (session, name) VALUES (?, 'x')", (number,))
        return number

    return job


def test_what_is_asked_in_one_turn_of_the_loop_is_one_transaction(writer: Writer) -> None:
    async def ask() -> list[int]:
        seen = await writer.run_alone(commits)
        results = await asyncio.gather(*(writer.run(tagging(number)) for number in range(BATCH)))
        assert results == list(range(BATCH))
        return seen

    assert len(asyncio.run(ask())) == 1


def test_a_job_that_is_refused_takes_none_of_the_others_with_it(writer: Writer) -> None:
    def refused(db: apsw.Connection) -> None:
        tagging(1)(db)
        raise InputError("no")

    async def ask() -> tuple[list[object], object]:
        jobs = [tagging(0), refused, tagging(2)]
        results = await asyncio.gather(*(writer.run(job) for job in jobs), return_exceptions=True)
        return results, await writer.run(lambda db: db.execute("SELECT session FROM tag").fetchall())

    results, kept = asyncio.run(ask())
    assert isinstance(results[1], InputError)
    assert [results[0], results[2]] == [0, 2]
    assert kept == [(0,), (2,)]


def test_a_job_that_is_refused_before_it_wrote_makes_no_job_run_again(writer: Writer) -> None:
    ran = list[int]()

    def counted(number: int) -> Callable[[apsw.Connection], None]:
        def job(db: apsw.Connection) -> None:
            ran.append(number)
            if number == 1:
                raise InputError("no")
            tagging(number)(db)

        return job

    async def ask() -> list[object]:
        jobs = [writer.run(counted(number)) for number in range(3)]
        return await asyncio.gather(*jobs, return_exceptions=True)

    assert [type(result) for result in asyncio.run(ask())] == [type(None), InputError, type(None)]
    assert ran == [0, 1, 2]


def test_who_asks_in_the_turn_in_which_it_is_closed_hears_that_it_is_closed(writer: Writer) -> None:
    async def ask() -> None:
        asked = asyncio.ensure_future(writer.run(tagging(1)))
        asyncio.get_running_loop().call_soon(writer.close)
        with pytest.raises(StoreError, match="is closed; open it again"):
            await asyncio.wait_for(asked, 20)

    asyncio.run(ask())


def test_what_was_handed_over_before_the_end_is_done(writer: Writer) -> None:
    async def ask() -> list[int]:
        asked = [asyncio.ensure_future(writer.run(tagging(number))) for number in range(3 * BATCH)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await asyncio.to_thread(writer.close)
        return await asyncio.gather(*asked)

    assert asyncio.run(ask()) == list(range(3 * BATCH))


def test_two_loops_are_both_answered(writer: Writer) -> None:
    async def ask(first: int) -> list[int]:
        return await asyncio.gather(*(writer.run(tagging(first + number)) for number in range(20)))

    async def both() -> list[list[int]]:
        return await asyncio.gather(*(asyncio.to_thread(asyncio.run, ask(first)) for first in (0, 100)))

    assert asyncio.run(both()) == [list(range(20)), list(range(100, 120))]
