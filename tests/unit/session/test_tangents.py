"""Tangents in a session: branches of its log that any process enters, leaves, and takes up again."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from msgspec import field

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
    restored,
    said,
    validate,
)
from turnstate import Message
from turnstate.context.cut import Strategy
from turnstate.conversation import FileLineTracker, from_json, to_json
from turnstate.conversation.environment import System
from turnstate.entry import Tangent
from turnstate.session import Session, SessionManager
from turnstate.stores.memory import MemoryStore
from turnstate.stores.values import Address, BranchRow, Change, Receipt, Row, SessionRow, Span
from turnstate.testing import FixedClock


class OsAt(System, frozen=True):
    """The operating system at a time of the test."""

    clock: FixedClock = field(default_factory=FixedClock)

    def now(self) -> int:
        return self.clock()


@pytest.mark.req("J1", "J2")
@run
async def test_a_tangent_leaves_the_conversation_byte_for_byte_here_and_in_a_new_process(
    harness: Harness,
) -> None:
    session = await (await harness.manager()).create(system="You keep a lighthouse.")
    await said(session, "one", "two")
    await session.append(Message.user("three"))
    before, window = plain(await session.conversation()), (await session.window(BUDGET)).messages
    await session.begin_tangent()
    await said(session, "aside", "further")
    inside = await session.conversation()
    assert plain(inside) != before
    assert plain(await reloaded(harness, session)) == plain(inside)
    assert inside.tangent_state is not None
    assert [entry.user.prompt for entry in inside.tangent_state.main_history] == ["one", "two"]
    await session.leave_tangent()
    assert plain(await session.conversation()) == plain(await reloaded(harness, session)) == before
    assert (await session.window(BUDGET)).messages == window
    assert (await (await elsewhere(harness, session)).window(BUDGET)).messages == window


@pytest.mark.req("J1")
@run
async def test_another_process_leaves_a_tangent_that_this_one_entered(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    await grown(session, 2)
    before = plain(await session.conversation())
    name = await session.begin_tangent()
    await said(session, "aside")
    harness.clock.advance(5_000)
    other = await elsewhere(harness, session)
    there = await other.conversation(os=OsAt(clock=harness.clock))
    assert there.is_in_tangent_mode()
    assert there.get_tangent_duration_seconds() == 5
    assert await other.leave_tangent() == name
    assert await other.leave_tangent() is None  # outside of a tangent
    for handle in (session, other):
        assert plain(await handle.conversation()) == before
    assert [(one.name, one.opening) for one in await session.tangents()] == [(name, "aside")]


@pytest.mark.req("J2")
@run
async def test_a_tangent_in_which_nothing_was_said_leaves_no_trace(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    await grown(session, 1)
    messages, kinds = await session.messages(), [type(entry) for entry in await entries(session)]
    for bring in (None, "tail", "summary"):
        await session.begin_tangent()
        await session.leave_tangent(bring)  # type: ignore[arg-type]
        assert await session.messages() == messages
        assert [type(entry) for entry in await entries(session)] == kinds
    assert await session.tangents() == []


@pytest.mark.req("J3", "A8")
@run
async def test_a_tail_that_answers_tool_results_gives_a_valid_request_in_every_process(
    harness: Harness,
) -> None:
    session = await (await harness.manager()).create()
    await grown(session, 2)
    await session.begin_tangent()
    one, two = call(), call("cat")
    await session.append(Message.user("Look."), asks(one, two))
    await session.append(Message.tool([answer(two), answer(one)]), Message.assistant("There."))
    await session.leave_tangent("tail")
    await session.append(Message.user("and?"))
    for handle in (session, await elsewhere(harness, session)):
        window = await handle.window(BUDGET)
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
    await session.begin_tangent()
    await said(session, "aside", "further")
    await session.compact(BUDGET, strategy=Strategy(keep=0))
    await session.leave_tangent("tail")
    window = await (await elsewhere(harness, session)).window(BUDGET)
    assert window.messages[:-2] == main
    assert [message.text for message in window.messages[-2:]] == ["further", "answer to further"]
    validate(window)


@pytest.mark.req("J3")
@run
async def test_a_summary_is_the_given_one_or_a_digest_of_the_tangent(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    await grown(session, 1)
    for summary, shown in (("All is well.", "All is well."), (None, "Where is the lamp?")):
        await session.begin_tangent()
        await said(session, "Where is the lamp?")
        await session.leave_tangent("summary", summary=summary)
        assert shown in (await session.messages(last=1))[0].text
        validate(await session.window(BUDGET))
        assert await session.undo() == "tangent exit"
        assert (await session.messages(last=1))[0].text == "answer to Where is the lamp?"
        await session.leave_tangent()


@pytest.mark.req("J2", "J4")
@run
async def test_nested_tangents_are_kept_reopened_and_left_in_other_processes(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    await said(session, "one", "two", "three")
    views = [plain(await session.conversation())]
    outer = await session.begin_tangent(at=(await session.messages())[1].id)
    await said(session, "aside")
    views.append(plain(await session.conversation()))
    inner = await session.begin_tangent()
    await said(session, "inner")
    views.append(plain(await session.conversation()))
    for expected in reversed(views):
        assert plain(await session.conversation()) == plain(await reloaded(harness, session)) == expected
        await session.leave_tangent()
    other = await elsewhere(harness, session)
    assert [one.name for one in await other.tangents()] == [outer, inner]
    await other.reopen_tangent(inner)
    assert prompts(await other.conversation()) == ["one", "aside", "inner"]
    await said(other, "deeper")
    await session.reopen_tangent(outer)  # which leaves the inner one
    assert prompts(await session.conversation()) == ["one", "aside"]
    await session.reopen_tangent(inner)
    assert prompts(await reloaded(harness, session)) == ["one", "aside", "inner", "deeper"]
    assert [await session.leave_tangent(), await other.leave_tangent("summary", summary="All is well.")] == [
        inner,
        outer,
    ]
    last = await reloaded(harness, session)
    assert prompts(last) == ["one", "two", "three"]
    assert last.next_message is not None
    assert "All is well." in (last.next_message.prompt or "")
    validate(await session.window(BUDGET))


@pytest.mark.req("J2", "I9")
@run
async def test_a_fork_from_a_message_of_a_tangent_does_not_take_the_place_of_the_tangent(
    harness: Harness,
) -> None:
    session = await (await harness.manager()).create()
    await said(session, "main")
    name = await session.begin_tangent()
    await said(session, "aside", "further")
    answered = (await session.messages())[3].id
    assert await session.undo() == "tangent"
    await session.fork(at=answered)
    loaded = await reloaded(harness, session, last=100)
    assert (prompts(loaded), loaded.is_in_tangent_mode()) == (["main", "aside"], True)
    document = from_json(to_json(loaded))
    assert (prompts(document), document.is_in_tangent_mode()) == (["main", "aside"], True)
    assert await session.undo() == "fork"
    assert [one.name for one in await session.tangents()] == [name]
    await session.reopen_tangent(name)
    assert prompts(await session.conversation()) == ["main", "aside", "further"]


@pytest.mark.req("J2", "J4")
@run
async def test_reopening_a_tangent_out_of_another_leaves_that_one_where_it_was(harness: Harness) -> None:
    session = await (await harness.manager()).create()

    async def shown() -> list[str | None]:
        return prompts(await reloaded(harness, session))

    await said(session, "main")
    other = await session.begin_tangent()
    await said(session, "b")
    await session.leave_tangent()
    left = await session.begin_tangent()
    await said(session, "a1")
    place = session.info.seq
    await said(session, "a2")
    await session.operate(restored(place))
    await said(session, "a3")
    nested = await session.begin_tangent()
    await said(session, "c1")
    await session.leave_tangent()
    await session.reopen_tangent(other)
    assert await shown() == ["main", "b"]
    assert [kept.name for kept in await session.tangents()] == [left, nested]
    await session.reopen_tangent(nested)  # which leaves the other one
    assert await shown() == ["main", "a1", "a3", "c1"]
    await session.reopen_tangent(left)
    assert await shown() == ["main", "a1", "a3"]
    await session.leave_tangent()
    twice = ["tangent exit", "tangent"] * 2  # the nested one was left twice
    assert [await session.undo() for _ in range(6)] == ["tangent exit", *twice, "restore"]
    assert await shown() == ["main", "a1", "a2"]


@pytest.mark.req("J2")
@run
async def test_a_tangent_copies_nothing_in_the_log(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    await grown(session, 20)
    await session.begin_tangent()
    await said(session, "aside")
    await session.leave_tangent()
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


Work = Callable[[Session], Awaitable[object]]

OPERATIONS: dict[str, Work] = {
    "begin": lambda session: session.begin_tangent(),
    "begin earlier": lambda session: session.begin_tangent(at=f"{session.id}-3"),
    "leave": lambda session: session.leave_tangent(),
    "leave with the tail": lambda session: session.leave_tangent("tail"),
    "leave with a summary": lambda session: session.leave_tangent("summary"),
    "list": lambda session: session.tangents(),
    "clear": lambda session: session.clear(),
    "undo": lambda session: session.undo(),
    "fork": lambda session: session.fork(),
    "rewind": lambda session: session.rewind(f"{session.id}-3"),
    "set the model": lambda session: session.set_model("gpt-4o"),
    "settings": lambda session: session.change_settings(extra={"a": 1}),
    "note": lambda session: session.note("for people"),
    "lines": lambda session: session.lines(),
    "record lines": lambda session: session.record_lines({"/a": FileLineTracker(sha256="x", lines=1)}),
}
IN_A_TANGENT = ("leave", "list", "undo")


async def cost(operation: str, messages: int) -> Counter[str]:
    """Count what an operation asks of the store in a session of so many messages, and what it gets."""
    store = CountingStore()
    session = await SessionManager(store, clock=FixedClock()).create(id="s1")
    before = [
        one.replace(id=f"s1-{place}") for place, one in enumerate(exchanges(messages // 2, a_turn=5), 1)
    ]
    await store.commit(Change(at=session._row.address, now=0, records=tuple(map(recorded, before))))
    session = await SessionManager(store, clock=FixedClock()).open("s1")
    await session.lines()
    if operation.startswith(IN_A_TANGENT):
        await session.begin_tangent()
        await said(session, "aside", "further")
    store.counts.clear()
    await OPERATIONS[operation](session)
    return store.counts


@pytest.mark.req("J2")
@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_operation_asks_no_more_of_a_store_with_4_000_messages_than_of_one_with_40(
    operation: str,
) -> None:
    few, many = asyncio.run(cost(operation, 40)), asyncio.run(cost(operation, 4_000))
    assert many == few
    assert few["commit"] == (operation not in ("list", "lines"))
    assert few["rows read"] <= 30


@pytest.mark.req("J2")
def test_a_tangent_is_begun_and_left_alike_whether_there_were_10_or_200_others() -> None:
    async def reads(others: int) -> Counter[str]:
        store = CountingStore()
        session = await SessionManager(store, clock=FixedClock()).create()
        await said(session, "main")
        for _ in range(others):
            await session.begin_tangent()
            await said(session, "aside")
            await session.leave_tangent()
        store.counts.clear()
        await session.begin_tangent()
        await said(session, "aside")
        await session.leave_tangent()
        del store.counts["branches read"]
        return store.counts

    assert asyncio.run(reads(200)) == asyncio.run(reads(10))
