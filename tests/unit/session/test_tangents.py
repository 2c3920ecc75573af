"""Tangents in a session: branches of its log that any process enters, leaves, and takes up again."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from tests.unit.session.session_fixtures import (
    Harness,
    answer,
    asks,
    call,
    entries,
    grown,
    run,
)
from tests.unit.session.state_fixtures import (
    BUDGET,
    elsewhere,
    exchanges,
    plain,
    prompts,
    recorded,
    reloaded,
    said,
    validate,
)
from turnstate import Message
from turnstate.context.cut import Strategy
from turnstate.conversation import from_json, to_json
from turnstate.entry import Tangent
from turnstate.session import SessionManager
from turnstate.stores.memory import MemoryStore
from turnstate.stores.values import Address, BranchRow, Change, Receipt, Row, SessionRow, Span
from turnstate.testing import FixedClock


@pytest.mark.req("J1", "J2")
@run
async def test_a_tangent_leaves_the_state_byte_for_byte_in_memory_in_the_log_and_in_a_new_process(
    harness: Harness,
) -> None:
    session = await (await harness.manager()).create(system="You keep a lighthouse.")
    state = await session.conversation()
    said(state, "one", "two")
    state.set_next_user_message("three")
    await session.commit(state)
    before, window = plain(state), (await session.window(BUDGET)).messages
    state.enter_tangent_mode()
    said(state, "aside", "further")
    await session.commit(state)
    assert plain(state) != before
    assert plain(await reloaded(harness, session)) == plain(state)
    state.exit_tangent_mode()
    assert plain(state) == before
    await session.commit(state)
    assert plain(state) == before
    assert plain(await reloaded(harness, session)) == before
    assert (await session.window(BUDGET)).messages == window
    assert (await (await elsewhere(harness, session)).window(BUDGET)).messages == window


@pytest.mark.req("J1", "J2")
@pytest.mark.parametrize("writes", [(), ("enter",), ("say",), ("enter", "say"), ("enter", "say", "leave")])
@run
async def test_it_does_not_matter_when_a_tangent_is_written(harness: Harness, writes: Sequence[str]) -> None:
    session = await (await harness.manager()).create()
    await grown(session, 3)
    state = await session.conversation()
    before = plain(state)

    async def step(name: str) -> None:
        if name in writes:
            await session.commit(state)

    state.enter_tangent_mode()
    await step("enter")
    said(state, "aside")
    await step("say")
    state.exit_tangent_mode()
    await step("leave")
    said(state, "three")
    await session.commit(state)
    loaded = await reloaded(harness, session)
    assert plain(loaded) == plain(state)
    assert len(loaded.history) == 4
    assert [one.opening for one in loaded.kept_tangents()] == ["aside"]
    await session.rewind(to=(await session.messages())[5].id)
    assert plain(await reloaded(harness, session)) == before


@pytest.mark.req("J1")
@run
async def test_another_process_leaves_a_tangent_that_this_one_entered(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    await grown(session, 2)
    state = await session.conversation(os=None)
    before = plain(state)
    state.enter_tangent_mode()
    said(state, "aside")
    await session.commit(state)
    other = await elsewhere(harness, session)
    there = await other.conversation()
    assert there.is_in_tangent_mode()
    assert there.get_tangent_duration_seconds() is not None
    there.exit_tangent_mode()
    await other.commit(there)
    assert plain(there) == plain(await reloaded(harness, session)) == before


@pytest.mark.req("J3", "A8")
@run
async def test_a_tail_that_answers_tool_results_gives_a_valid_request_in_every_process(
    harness: Harness,
) -> None:
    session = await (await harness.manager()).create()
    await grown(session, 2)
    state = await session.conversation()
    state.enter_tangent_mode()
    one, two = call(), call("cat")
    state.set_next_user_message("Look.")
    state.push_assistant_message(asks(one, two))
    state.add_tool_results([answer(two), answer(one)])
    state.push_assistant_message(Message.assistant("There."))
    await session.commit(state)
    state.exit_tangent_mode_with_tail()
    state.set_next_user_message("and?")
    await session.commit(state)
    for window in (
        state.window(BUDGET),
        await session.window(BUDGET),
        await (await elsewhere(harness, session)).window(BUDGET),
        (await reloaded(harness, session)).window(BUDGET),
    ):
        validate(window)
        assert [message.role for message in window.messages[4:]] == [
            "user",
            "assistant",
            "tool",
            "assistant",
            "user",
        ]


@pytest.mark.req("J3", "D5")
@run
async def test_a_tail_survives_a_compaction_inside_the_tangent(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    await grown(session, 4)
    main = (await session.window(BUDGET)).messages
    state = await session.conversation()
    state.enter_tangent_mode()
    said(state, "aside", "further")
    await session.commit(state)
    await session.compact(BUDGET, strategy=Strategy(keep=0))
    state = await session.conversation()
    state.exit_tangent_mode_with_tail()
    await session.commit(state)
    window = await (await elsewhere(harness, session)).window(BUDGET)
    assert window.messages[:-2] == main
    assert [message.text for message in window.messages[-2:]] == ["further", "answer to further"]
    validate(window)


@pytest.mark.req("J2", "J4")
@run
async def test_nested_tangents_are_kept_reopened_and_left_in_other_processes(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    state = await session.conversation()
    said(state, "one", "two", "three")
    views = [plain(state)]
    outer = state.begin_tangent(at=state.messages[1].id)
    said(state, "aside")
    views.append(plain(state))
    inner = state.begin_tangent()
    said(state, "inner")
    views.append(plain(state))
    await session.commit(state)
    for expected in reversed(views):
        assert plain(state) == plain(await reloaded(harness, session)) == expected
        state.exit_tangent_mode()
        await session.commit(state)
    loaded = await reloaded(harness, session)
    assert [one.name for one in loaded.kept_tangents()] == [outer, inner]
    loaded.reopen_tangent(inner)
    assert prompts(loaded) == ["one", "aside", "inner"]
    other = await elsewhere(harness, session)
    said(loaded, "deeper")
    await other.commit(loaded)
    assert prompts(await reloaded(harness, session)) == ["one", "aside", "inner", "deeper"]
    loaded.exit_tangent_mode()
    loaded.exit_tangent_mode_with_summary("All is well.")
    await other.commit(loaded)
    last = await reloaded(harness, session)
    assert prompts(last) == ["one", "two", "three"]
    assert last.next_message is not None
    assert "All is well." in (last.next_message.prompt or "")
    validate(last.window())


@pytest.mark.req("J2", "I9")
@run
async def test_a_fork_from_a_message_of_a_tangent_does_not_take_the_place_of_the_tangent(
    harness: Harness,
) -> None:
    session = await (await harness.manager()).create()
    state = await session.conversation()
    said(state, "main")
    state.begin_tangent()
    said(state, "aside", "further")
    answered = state.messages[3].id
    assert state.undo() == "tangent"
    await session.commit(state)
    await session.fork(at=answered)
    loaded = await reloaded(harness, session)
    for one in (loaded, from_json(to_json(loaded))):
        assert (prompts(one), one.is_in_tangent_mode()) == (["main", "aside"], True)
        assert one.undo() == "fork"
        assert [kept.exchanges for kept in one.kept_tangents()] == [2]


@pytest.mark.req("J2", "J4")
@run
async def test_reopening_a_tangent_out_of_another_leaves_that_one_where_it_was(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    state = await session.conversation()
    said(state, "main")
    other = state.begin_tangent()
    said(state, "b")
    state.exit_tangent_mode()
    left = state.begin_tangent()
    said(state, "a1")
    place = len(state.head.entries)
    said(state, "a2")
    state.restore_moment(place)
    said(state, "a3")
    nested = state.begin_tangent()
    said(state, "c1")
    state.exit_tangent_mode()
    state.reopen_tangent(other)
    await session.commit(state)
    for one in (state, await reloaded(harness, session), from_json(to_json(state))):
        assert prompts(one) == ["main", "b"]
        assert [kept.name for kept in one.kept_tangents()] == [left, nested]
        one.reopen_tangent(nested)  # which leaves the other one
        assert prompts(one) == ["main", "a1", "a3", "c1"]
        one.reopen_tangent(left)
        assert prompts(one) == ["main", "a1", "a3"]
        one.exit_tangent_mode()
        twice = ["tangent exit", "tangent"] * 2  # the nested one was left twice
        assert [one.undo() for _ in range(6)] == ["tangent exit", *twice, "restore"]
        assert prompts(one) == ["main", "a1", "a2"]


@pytest.mark.req("J2")
@run
async def test_a_tangent_copies_nothing_in_the_log(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    await grown(session, 20)
    state = await session.conversation()
    state.enter_tangent_mode()
    said(state, "aside")
    await session.commit(state)
    state.exit_tangent_mode()
    await session.commit(state)
    store, at = session._writer.store, session._row.address
    branches = await store.branches(at)
    written = [await store.read(at, Span(branch.id, 1, 2**31 - 1)) for branch in branches]
    assert [branch.operation for branch in branches] == ["create", "tangent"]
    assert [len(some) for some in written] == [41, 3]
    assert [type(entry) for entry in await entries(session)][-1] is Tangent


class CountingStore(MemoryStore):
    """A store in memory that counts what it is asked, and what it gives."""

    def __init__(self) -> None:
        super().__init__()
        self.counts = Counter[str]()

    async def get(self, at: Address) -> SessionRow:
        self.counts["get"] += 1
        return await super().get(at)

    async def commit(self, change: Change) -> Receipt:
        self.counts["commit"] += 1
        self.counts["rows written"] += len(change.records)
        return await super().commit(change)

    async def read(self, at: Address, span: Span, **limits: Any) -> list[Row]:
        found = await super().read(at, span, **limits)
        self.counts["read"] += 1
        self.counts["rows read"] += len(found)
        return found

    async def find(self, at: Address, ids: Sequence[str]) -> list[Row]:
        self.counts["find"] += 1
        return await super().find(at, ids)

    async def newest(self, at: Address, spans: Sequence[Span], kinds: Sequence[str]) -> dict[str, Row]:
        self.counts["newest"] += 1
        return await super().newest(at, spans, kinds)

    async def branches(self, at: Address) -> list[BranchRow]:
        found = await super().branches(at)
        self.counts["branches"] += 1
        self.counts["branches read"] += len(found)
        return found


async def aside_and_back(messages: int) -> Counter[str]:
    """Enter and leave a tangent on a session of so many messages, and count what the store has to do."""
    store = CountingStore()
    session = await SessionManager(store, clock=FixedClock()).create()
    said_before = exchanges(messages // 2, a_turn=5)
    records = tuple(map(recorded, said_before))
    await store.commit(Change(at=session._row.address, now=0, records=records))
    state = await session.conversation()
    await session.commit(state)  # of 24,000 messages some are over the cap: their cut is written
    store.counts.clear()
    state.enter_tangent_mode()
    await session.commit(state)
    said(state, "aside")
    await session.commit(state)
    state.exit_tangent_mode()
    await session.commit(state)
    return store.counts


@pytest.mark.req("J2")
def test_entering_and_leaving_asks_no_more_of_a_store_with_4_000_messages_than_of_one_with_10() -> None:
    few, many = asyncio.run(aside_and_back(10)), asyncio.run(aside_and_back(4_000))
    assert many == few
    assert (few["rows read"], few["rows written"]) == (0, 4)
