"""An archive holds everything: a session with any history is the same in another store."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from tests.harness.postgres_server import fresh_url
from tests.harness.thoroughness import examples
from tests.harness.valkey_server import fresh_cluster, fresh_server
from turnstate import Budget, errors
from turnstate.archive import archive, bundles, encode_line, restore
from turnstate.conversation import FileLineTracker
from turnstate.log.tangents import Bring
from turnstate.session import Session, SessionManager
from turnstate.stores import connect
from turnstate.stores.port import Store
from turnstate.stores.values import Address, Row, SessionFilter, SessionRow, Span
from turnstate.testing import FixedClock, conversations

pytestmark = pytest.mark.req("P3", "G2", "G6")

END = 2**31 - 1

WAYS: list[Bring | None] = [None, "tail", "summary"]

STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                *["say", "say", "say", "say", "cut", "cut", "system", "settings", "lines", "reset", "end"],
                *["fork", "rewind", "aside", "aside", "leave", "leave", "clear", "undo"],
            ]
        ),
        st.integers(0, 2**16),
    ),
    max_size=25,
)


async def live(session: Session, clock: FixedClock, steps: list[tuple[str, int]]) -> None:
    """Take steps with a session."""
    for step, seed in steps:
        clock.advance(seed % 5_000 - 500)  # clocks are set back, now and then
        with suppress(errors.SessionError, errors.InvalidMessage, errors.ContextOverflow):
            session = await _take(session, step, seed)


async def _take(session: Session, step: str, seed: int) -> Session:
    """Take a step, and return the handle for the next one."""
    said = await session.messages()
    if step == "say":
        for message in conversations.valid(seed, turns=1 + seed % 3):
            if message.role != "system":
                await session.append(message)
    elif step == "fork":
        await session.fork(at=said[seed % len(said)].id if said and seed % 4 else None, name=f"f{seed}")
    elif step == "rewind" and said:
        await session.rewind(to=said[seed % len(said)].id)
    elif step == "aside":
        await session.begin_tangent(at=said[seed % len(said)].id if said and seed % 4 == 0 else None)
    elif step == "leave":
        await session.leave_tangent(WAYS[seed % len(WAYS)])
    elif step == "clear":
        await session.clear()
    elif step == "undo":
        await session.undo()
    elif step == "settings":
        await session.change_settings(extra={"color": seed})
    elif step == "lines":
        await session.record_lines({f"{seed % 3}.py": FileLineTracker(lines=seed) if seed % 4 else None})
    elif step == "reset":
        return await session.reset(system="anew" if seed % 2 else None)
    elif step == "cut":
        await session.window(Budget(window=400 + seed % 2_000))
    elif step == "system":
        await session.set_system(f"You are number {seed}. 日本語 \0")
    elif step == "end":
        await session.end(f"because of {seed}")
    return session


async def exported(store: Store) -> list[str]:
    async def oldest_first() -> AsyncIterator[Address]:
        for row in reversed(await store.page("default", SessionFilter(), limit=END)):
            yield row.address

    return [encode_line(line) async for line in archive(store, oldest_first())]


async def kept(store: Store) -> list[tuple[SessionRow, list[object], list[list[Row]]]]:
    """Return all that a store holds of its sessions, except for what is specific to that store."""
    found = []
    for row in await store.page("default", SessionFilter(), limit=END):
        branches = await store.branches(row.address)
        rows = [await store.read(row.address, Span(branch.id, 1, END)) for branch in branches]
        found.append((structs.replace(row, fence=0), list[object](branches), rows))
    return found


async def moved(pasts: list[list[tuple[str, int]]], url: str) -> None:
    clock = FixedClock()
    async with await SessionManager.open("memory:", clock=clock) as sessions:
        for number, steps in enumerate(pasts):
            session = await sessions.create(
                user=f"u{number}" if number % 2 else None,
                system="You help." if number % 3 else None,
                title=f"Talk {number}",
                tags=["b", "a"][: number % 3],
                meta={"n": number, "nested": {"x": [1.5, None]}},
                idle=3_600 if number % 2 else None,
            )
            await live(session, clock, steps)
        lines = await exported(sessions.store)
        target = await connect(url)
        try:
            for bundle in bundles(line.encode() for line in lines):
                restored = await restore(target, "default", bundle, now=clock())
                assert restored.result == "imported"
            assert await exported(target) == lines
            assert await kept(target) == await kept(sessions.store)
            for bundle in bundles(line.encode() for line in lines):
                assert (await restore(target, "default", bundle, now=clock())).result == "known"
        finally:
            await target.close()


@contextmanager
def empty_file() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        yield f"sqlite:///{folder}/agent.db"


@pytest.mark.parametrize(
    "empty_store",
    [empty_file, fresh_url, lambda: nullcontext(fresh_server()), lambda: nullcontext(fresh_cluster())],
    ids=["sqlite", "postgres", "valkey", "cluster"],
)
@given(st.lists(STEPS, min_size=1, max_size=3))
@examples(6, long=200)
def test_sessions_with_any_history_are_the_same_in_another_store(
    empty_store: Callable[[], AbstractContextManager[str]], pasts: list[list[tuple[str, int]]]
) -> None:
    with empty_store() as url:
        asyncio.run(moved(pasts, url))


@given(st.lists(STEPS, min_size=1, max_size=2), st.data())
@examples(10, long=400)
def test_a_damaged_archive_leaves_complete_sessions_or_none(
    pasts: list[list[tuple[str, int]]], data: st.DataObject
) -> None:
    asyncio.run(damaged(pasts, data))


async def restore_all(store: Store, lines: list[bytes], now: int) -> None:
    for bundle in bundles(lines):
        await restore(store, "default", bundle, now=now)


async def damaged(pasts: list[list[tuple[str, int]]], data: st.DataObject) -> None:
    clock = FixedClock()
    async with await SessionManager.open("memory:", clock=clock) as sessions:
        for steps in pasts:
            await live(await sessions.create(), clock, steps)
            clock.advance(1)
        lines = [line.encode() for line in await exported(sessions.store)]
        whole = {row.id: (row, branches, rows) for row, branches, rows in await kept(sessions.store)}
    place = data.draw(st.integers(0, len(lines) - 1))
    fault = data.draw(st.sampled_from(["missing", "twice", "cut", "rest missing", "garbage", "swapped"]))
    first = min(place, len(lines) - 2)
    second = first + 1
    broken = {
        "missing": [*lines[:place], *lines[place + 1 :]],
        "twice": [*lines[: place + 1], *lines[place:]],
        "cut": [*lines[:place], lines[place][: len(lines[place]) // 2], *lines[place + 1 :]],
        "rest missing": lines[:place],
        "garbage": [*lines[:place], b"\xff\x00", *lines[place:]],
        "swapped": [*lines[:first], lines[second], lines[first], *lines[second + 1 :]],
    }[fault]
    target = await connect("memory:")
    with pytest.raises(errors.InputError, match="line "):
        await restore_all(target, broken, clock())
    for row, branches, rows in await kept(target):
        assert (row, branches, rows) == whole[row.id]
