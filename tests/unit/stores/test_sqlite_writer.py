"""The writer thread: what it takes together, and what becomes of those who ask when it ends."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from random import Random

import apsw
import pytest

from tests.unit.stores.verification_fixtures import NOW, run, said, session, verified
from turnstate.errors import AlreadyExists, Conflict, InputError, StoreError
from turnstate.stores.sqlite import SqliteStore
from turnstate.stores.sqlite import writer as writer_module
from turnstate.stores.sqlite.connection import migrate
from turnstate.stores.sqlite.search import behind
from turnstate.stores.sqlite.writer import BATCH, QUICK_COMMITS, SMALL_BATCH, Writer
from turnstate.stores.values import Address, Change, Receipt, Span


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
        asyncio.get_running_loop().call_soon(writer.close)
        asked = asyncio.ensure_future(writer.run(tagging(1)))
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


def test_appends_of_one_transaction_follow_each_other_and_a_refused_one_leaves_no_trace(
    tmp_path: Path,
) -> None:
    """Heads are not read again, so they must be what a reader sees: after refusals, rivals and other jobs."""
    path, rng = tmp_path / "agent.db", Random(5)
    places = [Address("acme", f"s{n}") for n in range(3)]

    async def scene(store: SqliteStore) -> None:
        rival, written, number = SqliteStore(str(path)), dict[Address, list[str]](), 0
        try:
            for at in places:
                await store.create(session(at))
                written[at] = []
            for _ in range(40):
                jobs, asked = list[Awaitable[object]](), list[tuple[Address, str]]()
                for _ in range(rng.randrange(1, 9)):
                    at, number = rng.choice(places), number + 1
                    known = rng.random() < 0.1 and written[at]
                    id = rng.choice(written[at]) if known else f"m{number}"
                    expected = 0 if rng.random() < 0.1 else None
                    one = Change(at=at, now=NOW, records=(said(id, "w"),), expected_version=expected)
                    jobs.append((rival if rng.random() < 0.1 else store).commit(one))
                    asked.append((at, id))
                if rng.random() < 0.2:
                    jobs.append(store.update(rng.choice(places), title=f"title {number}"))
                for (at, id), outcome in zip(
                    asked, await asyncio.gather(*jobs, return_exceptions=True), strict=False
                ):
                    assert isinstance(outcome, Receipt | Conflict | AlreadyExists), outcome
                    written[at] += [id] if isinstance(outcome, Receipt) else []
            for at in places:
                rows = await rival.read(at, Span(1, 1, 10_000))
                row = await store.get(at)
                assert sorted(one.id for one in rows) == sorted(written[at])
                assert (row.seq, row.total, row.version) == (len(rows), rows[-1].total, len(rows))
        finally:
            await rival.close()

    run(path, scene)
    assert verified(path) == []


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


class Disk:
    """Says that it is quick or slow, whatever the machine does, and notes which thread makes each commit."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch, self.threads = patch, list[int]()
        self.is_quick(True)

    def is_quick(self, quick: bool) -> None:
        self._patch.setattr(writer_module, "QUICK", 3_600.0 if quick else 0.0)
        self._patch.setattr(writer_module, "QUICK_JOB", 0.0)

    async def watch(self, store: SqliteStore) -> None:
        await store._writer.run_alone(lambda db: db.set_commit_hook(self._commit))

    def _commit(self) -> bool:
        self.threads.append(threading.get_ident())
        return False

    async def in_loop(self, store: SqliteStore, count: int, *, text: str = "w") -> int:
        """Append one after the other; return how many commits were made in this thread."""
        before, at = len(self.threads), Address("acme", "s")
        for number in range(count):
            one = said(f"m{before}-{number}", text)
            await store.commit(Change(at=at, now=NOW, records=(one,)))
        return self.threads[before:].count(threading.get_ident())

    async def together(self, store: SqliteStore, count: int, *, text: str = "w") -> list[bool]:
        """Append at once; return for each commit whether it was made in this thread."""
        before, at = len(self.threads), Address("acme", "s")
        those = [said(f"t{before}-{number}", text) for number in range(count)]
        receipts = await asyncio.gather(
            *(store.commit(Change(at=at, now=NOW, records=(one,))) for one in those)
        )
        assert [one.first for one in receipts] == [receipts[0].first + place for place in range(count)]
        return [thread == threading.get_ident() for thread in self.threads[before:]]


async def begun(store: SqliteStore, disk: Disk) -> None:
    """Append until commits are made in the loop's thread."""
    await store.create(session(Address("acme", "s")))
    await disk.watch(store)
    assert await disk.in_loop(store, 2 * QUICK_COMMITS) >= 1


def test_a_disk_that_stalls_blocks_the_loop_for_one_commit(tmp_path: Path, disk: Disk) -> None:
    async def scene(store: SqliteStore) -> None:
        await begun(store, disk)
        disk.is_quick(False)
        assert await disk.in_loop(store, 20) == 1
        disk.is_quick(True)
        assert await disk.in_loop(store, QUICK_COMMITS) == 0
        assert await disk.in_loop(store, QUICK_COMMITS) >= 1

    run(tmp_path / "agent.db", scene)


def test_appends_of_one_moment_are_committed_together_in_the_loop_while_the_disk_is_quick(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "IDLE", 3_600.0)  # the thread does not use the connection meanwhile

    async def scene(store: SqliteStore) -> None:
        await begun(store, disk)
        await store._writer.run(lambda _: None)  # the thread has given the WAL its size
        assert await disk.together(store, BATCH) == [True]
        assert await disk.together(store, 2 * BATCH + 2) == [True] * 3
        assert not any(await disk.together(store, BATCH, text="words " * (SMALL_BATCH // BATCH // 6)))
        disk.is_quick(False)
        assert sum(await disk.together(store, 4 * BATCH)) == 1

    run(tmp_path / "agent.db", scene)
    assert verified(tmp_path / "agent.db") == []


def test_appends_in_the_loop_let_the_other_tasks_have_their_turn(tmp_path: Path, disk: Disk) -> None:
    async def scene(store: SqliteStore) -> None:
        turns = 0

        async def take_turns() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        await begun(store, disk)
        other = asyncio.ensure_future(take_turns())
        assert await disk.in_loop(store, 20) >= 1
        assert turns >= 20
        other.cancel()

    run(tmp_path / "agent.db", scene)


def test_an_append_that_is_refused_in_the_loop_leaves_the_next_ones_there(tmp_path: Path, disk: Disk) -> None:
    async def scene(store: SqliteStore) -> None:
        await begun(store, disk)
        stale = Change(at=Address("acme", "s"), now=NOW, records=(said("stale", "w"),), expected_version=0)
        for _ in range(3):
            with pytest.raises(Conflict):
                await store.commit(stale)
        assert await disk.in_loop(store, 20) >= 1
        both = [store.commit(Change(at=stale.at, now=NOW, records=(said(id, "w"),))) for id in "ab"]
        first, second = await asyncio.gather(*both)
        assert (first.last, second.last) == (second.first - 1, first.last + 1)

    run(tmp_path / "agent.db", scene)
    assert verified(tmp_path / "agent.db") == []


def test_a_lock_of_another_process_is_not_waited_for_in_the_loop(tmp_path: Path, disk: Disk) -> None:
    path = tmp_path / "agent.db"

    async def scene(store: SqliteStore) -> None:
        await begun(store, disk)
        rival = apsw.Connection(str(path))
        rival.execute("BEGIN IMMEDIATE")
        appending = asyncio.ensure_future(disk.in_loop(store, 1))
        await asyncio.sleep(0.02)  # would not return before the lock is free if the loop waited for it
        rival.execute("ROLLBACK")
        assert await appending == 0
        rival.close()

    run(path, scene)


def test_a_signal_in_a_commit_of_the_loop_leaves_no_transaction_open(tmp_path: Path, disk: Disk) -> None:
    path = tmp_path / "agent.db"

    def interrupt(db: apsw.Connection) -> None:
        def raise_interrupt() -> bool:
            raise KeyboardInterrupt

        db.set_commit_hook(raise_interrupt)

    async def go_on() -> None:
        await disk.watch(store)
        await disk.in_loop(store, 2)  # the first has the id of the one that was interrupted
        await store.close()

    async def prepare() -> None:
        await begun(store, disk)
        await store._writer.run_alone(interrupt)

    store, loop = SqliteStore(str(path)), asyncio.new_event_loop()
    loop.run_until_complete(prepare())
    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(disk.in_loop(store, 1))
    loop.run_until_complete(go_on())
    loop.close()
    assert verified(path) == []


def test_large_appends_and_those_of_a_store_that_wants_a_thread_are_made_there(
    tmp_path: Path, disk: Disk
) -> None:
    async def scene(store: SqliteStore) -> None:
        await begun(store, disk)
        assert await disk.in_loop(store, 3, text="many words " * 4_000) == 0
        threaded = SqliteStore(store.path, commits_in_loop=False)
        await disk.watch(threaded)
        assert await disk.in_loop(threaded, 3 * QUICK_COMMITS) == 0
        await threaded.close()

    run(tmp_path / "agent.db", scene)


def test_after_commits_in_the_loop_the_thread_carries_the_wal_over_and_continues_the_index(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "IDLE", 0.05)
    path = tmp_path / "agent.db"

    async def scene(store: SqliteStore) -> None:
        await begun(store, disk)
        log, sizes = path.with_name(f"{path.name}-wal"), set[int]()
        for _ in range(8):
            await disk.in_loop(store, 60, text="word " * 800)
            sizes.add(log.stat().st_size)
        assert max(sizes) < 3 * 4_120_000  # it would be five times as long
        while await store._readers.run(behind):
            await asyncio.sleep(0.05)

    run(path, scene)
    assert verified(path) == []
