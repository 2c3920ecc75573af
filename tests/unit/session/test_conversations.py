"""Conversations of a session: a state is loaded, changed and written, and any process sees the same."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from session_stage import (
    Stage,
    answer,
    answers,
    asks,
    call,
    cuts,
    entries,
    everything,
    grown,
    played,
    rows,
    texts,
)

from holdfast import Budget, Message, ToolSpec, formats
from holdfast.context.compaction import Strategy
from holdfast.context.window import Window
from holdfast.conversation import ConversationState, RequestMetadata, ToolOrigin, fields, from_json, to_json
from holdfast.entry import Note, Settings, Tangent, Usage, encode
from holdfast.errors import Conflict, EpochEnded, InputError
from holdfast.session import Session, SessionManager
from holdfast.stores.memory import MemoryStore
from holdfast.stores.values import Address, Branch, Change, Position, Receipt, Record, Row, SessionRow, Span
from holdfast.testing import FixedClock

BUDGET = Budget(20_000)
LS = ToolSpec(name="ls", description="lists", input_schema={"type": "object", "properties": {}})


def said(state: ConversationState, *questions: str) -> None:
    for question in questions:
        state.set_next_user_message(question)
        state.push_assistant_message(Message.assistant(f"answer to {question}"))


def prompts(state: ConversationState) -> list[str | None]:
    return [entry.user.prompt for entry in state.history]


def plain(state: ConversationState) -> bytes:
    return msgspec.json.encode(fields(state))


async def elsewhere(stage: Stage, session: Session) -> Session:
    """Open the session as another process does."""
    return await (await stage.manager()).open(session.id)


async def reloaded(stage: Stage, session: Session) -> ConversationState:
    return await (await elsewhere(stage, session)).conversation()


def validate(window: Window) -> None:
    for name in formats.names():
        provider = formats.get(name)
        request = window.messages[-1].role in ("user", "tool")
        assert provider.validate(provider.render(window.messages), request=request) == [], name


@pytest.mark.req("I1")
@played
async def test_a_state_that_was_committed_is_loaded_as_it_was(stage: Stage) -> None:
    session = await (await stage.manager()).create(system="You keep a lighthouse.")
    state = await session.conversation()
    state.tools = {ToolOrigin("builtin"): [LS], ToolOrigin.mcp("lamps"): [LS]}
    state.set_model("gpt-4o")
    said(state, "one", "two")
    one = call()
    state.set_next_user_message("Look.")
    state.push_assistant_message(asks(one), RequestMetadata(input=7, details={"id": "r"}))
    state.add_tool_results([answer(one, {"found": 0})])
    state.append_transcript("the request failed: 503")
    await session.commit(state)
    loaded = await reloaded(stage, session)
    assert plain(loaded) == plain(state)
    assert loaded.head.prompt == "You keep a lighthouse."
    assert loaded.preview().messages == state.preview().messages
    assert list(loaded.head.entries) == list(state.head.entries)
    assert await session.messages() == state.messages


@pytest.mark.req("I1")
@played
async def test_nothing_reaches_the_store_before_a_commit_and_all_of_it_in_one_write(stage: Stage) -> None:
    session = await (await stage.manager()).create()
    state = await session.conversation()
    before = await everything(session)
    said(state, "one", "two")
    assert await everything(session) == before
    receipt = await session.commit(state)
    assert receipt is not None
    assert (receipt.first, receipt.last) == (1, 4)
    assert await session.commit(state) is None


@pytest.mark.req("I1")
@played
async def test_a_state_and_the_session_may_take_turns(stage: Stage) -> None:
    session = await (await stage.manager()).create()
    await grown(session, 2)
    state = await session.conversation()
    said(state, "by the state")
    await session.commit(state)
    assert (await session.window(BUDGET)).messages[-1].text == "answer to by the state"
    await session.append(Message.user("by the session"), Message.assistant("yes"))
    state = await session.conversation()
    assert [text.split(" word")[0] for text in map(str, prompts(state))] == [
        "question 0",
        "question 1",
        "by the state",
        "by the session",
    ]


@pytest.mark.req("I1")
@played
async def test_a_state_that_was_overtaken_is_refused_and_nothing_of_it_is_lost(stage: Stage) -> None:
    session = await (await stage.manager()).create()
    state = await session.conversation()
    said(state, "mine")
    other = await elsewhere(stage, session)
    await other.append(Message.user("theirs"))
    before = await everything(session)
    with pytest.raises(Conflict, match="load it again"):
        await session.commit(state)
    assert await everything(session) == before
    assert prompts(state) == ["mine"]
    again = await session.conversation()
    again.head.extend(state.head.entries.own)
    await session.commit(again)
    assert await texts(session) == ["theirs", "mine", "answer to mine"]


@pytest.mark.req("I1", "G7")
@played
async def test_a_state_of_an_epoch_that_ended_is_refused(stage: Stage) -> None:
    session = await (await stage.manager()).create()
    await grown(session, 1)
    state = await session.conversation()
    said(state, "late")
    await (await elsewhere(stage, session)).reset()
    with pytest.raises(EpochEnded):
        await session.commit(state)
    assert await (await elsewhere(stage, session)).messages() == []


@pytest.mark.req("I1")
@played
async def test_a_state_of_another_session_is_refused(stage: Stage) -> None:
    sessions = await stage.manager()
    first, second = await sessions.create(), await sessions.create()
    state = await first.conversation()
    said(state, "one")
    with pytest.raises(InputError, match="is not that of session"):
        await second.commit(state)


@pytest.mark.req("I1", "I9")
@played
async def test_a_state_that_lived_in_json_can_be_given_a_session(stage: Stage) -> None:
    session = await (await stage.manager()).create(id="from-json")
    state = ConversationState("from-json")
    state.tools = {ToolOrigin("builtin"): [LS]}
    said(state, "one", "two", "three")
    plan = state.plan_compaction(Strategy(keep=1))
    assert plan is not None
    state.compact(plan)
    state.begin_tangent(at=state.messages[1].id)
    said(state, "aside")
    state.exit_tangent_mode()
    restored = from_json(to_json(state))
    await session.commit(restored)
    loaded = await reloaded(stage, session)
    assert plain(loaded) == plain(state)
    assert loaded.kept_tangents() == state.kept_tangents()
    assert [await session.undo() for _ in range(3)] == ["tangent exit", "tangent", "compact"]
    assert (await reloaded(stage, session)).valid_history_range == (0, 3)


@pytest.mark.req("I1")
@played
async def test_a_state_from_elsewhere_does_not_replace_a_conversation(stage: Stage) -> None:
    session = await (await stage.manager()).create(id="mine")
    await grown(session, 1)
    before = await everything(session)
    state = ConversationState("mine")
    said(state, "one")
    with pytest.raises(InputError, match="has a conversation already"):
        await session.commit(state)
    assert await everything(session) == before


@pytest.mark.req("I2", "L1")
@played
async def test_settings_are_written_when_they_change_and_only_then(stage: Stage) -> None:
    session = await (await stage.manager()).create()
    state = await session.conversation()
    said(state, "one")
    state.tools = {ToolOrigin("builtin"): [LS]}
    said(state, "two")
    state.mcp_enabled = False
    await session.commit(state)
    await session.commit(state)
    kinds = [type(entry).__name__ for entry in await entries(session)]
    assert kinds == ["Message", "Message", "Settings", "Message", "Message", "Settings"]
    assert not any(b"tool_manager" in row.body or b"agents" in row.body for row in await rows(session))
    loaded = await reloaded(stage, session)
    assert (loaded.tools, loaded.mcp_enabled) == ({ToolOrigin("builtin"): [LS]}, False)
    assert (loaded.tool_manager, loaded.agents) == (None, None)


@pytest.mark.req("I3")
@played
async def test_a_prompt_whose_request_failed_is_in_the_log_and_still_waits(stage: Stage) -> None:
    session = await (await stage.manager()).create()
    state = await session.conversation()
    state.set_next_user_message("Is it lit?")
    state.append_transcript("the request was cancelled")
    await session.commit(state)
    loaded = await reloaded(stage, session)
    assert loaded.next_message is not None
    assert loaded.next_message.prompt == "Is it lit?"
    assert loaded.transcript == ["> Is it lit?", "the request was cancelled"]
    assert await texts(session) == ["Is it lit?"]
    assert [type(entry) for entry in await entries(session)] == [Message, Note]
    loaded.push_assistant_message(Message.assistant("It is."))
    assert prompts(loaded) == ["Is it lit?"]


@pytest.mark.req("I3")
@played
async def test_what_is_known_of_a_request_is_an_entry_of_its_own(stage: Stage) -> None:
    session = await (await stage.manager()).create()
    state = await session.conversation()
    state.set_next_user_message("one")
    state.push_assistant_message(Message.assistant("1"), RequestMetadata(input=5, output=1, model="gpt-4o"))
    await session.commit(state)
    assert [type(entry) for entry in await entries(session)] == [Message, Message, Usage]
    assert (await reloaded(stage, session)).history == state.history


def exchanges(count: int, a_turn: int) -> list[Message]:
    """Give the messages of so many exchanges; a turn has some of them, with a call between each two."""
    found, open_call = list[Message](), None
    for number in range(count):
        told = answers(answer(open_call)) if open_call else Message.user(f"question {number}")
        open_call = call() if (number + 1) % a_turn else None
        found += [told, Message.assistant(f"{number}", tool_calls=[open_call] if open_call else [])]
    return found


@pytest.mark.req("I4", "I6")
@played
async def test_of_10_001_exchanges_10_000_or_fewer_are_live_and_the_log_has_all(stage: Stage) -> None:
    session = await (await stage.manager()).create(system="You keep a lighthouse.")
    state = await session.conversation()
    state.tools = {ToolOrigin("builtin"): [LS]}
    state.note_settings()
    state.head.extend(exchanges(10_001, a_turn=3))
    await session.commit(state)
    loaded = await reloaded(stage, session)
    for one in (state, loaded):
        assert len(one.history) == 9_998
        assert one.history[0].user.prompt == "question 3"
        assert one.valid_history_range == (0, 9_998)
        assert len(one.transcript) == 10_000
    assert plain(loaded) == plain(state)
    assert plain(from_json(to_json(loaded))) == plain(state)
    assert len(await session.messages()) == 20_002


@pytest.mark.req("I4", "J4")
def test_what_stands_before_the_part_that_is_loaded_still_counts() -> None:
    async def test() -> None:
        store = MemoryStore()
        session = await SessionManager(store, clock=FixedClock()).create(system="You keep a lighthouse.")
        state = await session.conversation()
        state.tools = {ToolOrigin("builtin"): [LS]}
        await session.commit(state)
        records = tuple(map(recorded, exchanges(10_001, a_turn=3)))
        await store.commit(Change(at=session.row.address, now=0, records=records))
        state = await session.conversation()
        before = plain(state)
        assert len(state.messages) == 2 * 9_998  # older ones were not even folded in
        assert (state.head.prompt, state.tools) == ("You keep a lighthouse.", {ToolOrigin("builtin"): [LS]})
        state.begin_tangent(at=state.messages[-5].id)
        assert state.preview().messages[0].text == "You keep a lighthouse."
        assert state.tools == {ToolOrigin("builtin"): [LS]}
        said(state, "aside")
        state.exit_tangent_mode()
        await session.commit(state)
        again = await session.conversation()
        assert plain(again) == before
        assert [one.opening for one in again.kept_tangents()] == ["aside"]
        restored = from_json(to_json(again))
        assert plain(restored) == before
        restored.reopen_tangent(restored.kept_tangents()[0].name)
        assert restored.head.prompt == "You keep a lighthouse."
        assert prompts(restored)[-1] == "aside"

    asyncio.run(test())


@pytest.mark.req("J1", "J2")
@played
async def test_a_tangent_leaves_the_state_byte_for_byte_in_memory_in_the_log_and_in_a_new_process(
    stage: Stage,
) -> None:
    session = await (await stage.manager()).create(system="You keep a lighthouse.")
    state = await session.conversation()
    said(state, "one", "two")
    state.set_next_user_message("three")
    await session.commit(state)
    before, window = plain(state), (await session.window(BUDGET)).messages
    state.enter_tangent_mode()
    said(state, "aside", "further")
    await session.commit(state)
    assert plain(state) != before
    assert plain(await reloaded(stage, session)) == plain(state)
    state.exit_tangent_mode()
    assert plain(state) == before
    await session.commit(state)
    assert plain(state) == before
    assert plain(await reloaded(stage, session)) == before
    assert (await session.window(BUDGET)).messages == window
    assert (await (await elsewhere(stage, session)).window(BUDGET)).messages == window


@pytest.mark.req("J1", "J2")
@pytest.mark.parametrize("writes", [(), ("enter",), ("say",), ("enter", "say"), ("enter", "say", "leave")])
@played
async def test_it_does_not_matter_when_a_tangent_is_written(stage: Stage, writes: Sequence[str]) -> None:
    session = await (await stage.manager()).create()
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
    loaded = await reloaded(stage, session)
    assert plain(loaded) == plain(state)
    assert len(loaded.history) == 4
    assert [one.opening for one in loaded.kept_tangents()] == ["aside"]
    await session.rewind(to=(await session.messages())[5].id)
    assert plain(await reloaded(stage, session)) == before


@pytest.mark.req("J1")
@played
async def test_another_process_leaves_a_tangent_that_this_one_entered(stage: Stage) -> None:
    session = await (await stage.manager()).create()
    await grown(session, 2)
    state = await session.conversation(os=None)
    before = plain(state)
    state.enter_tangent_mode()
    said(state, "aside")
    await session.commit(state)
    other = await elsewhere(stage, session)
    there = await other.conversation()
    assert there.is_in_tangent_mode()
    assert there.get_tangent_duration_seconds() is not None
    there.exit_tangent_mode()
    await other.commit(there)
    assert plain(there) == plain(await reloaded(stage, session)) == before


@pytest.mark.req("J3", "A8")
@played
async def test_a_tail_that_answers_tool_results_gives_a_valid_request_in_every_process(stage: Stage) -> None:
    session = await (await stage.manager()).create()
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
        await (await elsewhere(stage, session)).window(BUDGET),
        (await reloaded(stage, session)).window(BUDGET),
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
@played
async def test_a_tail_survives_a_compaction_inside_the_tangent(stage: Stage) -> None:
    session = await (await stage.manager()).create()
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
    window = await (await elsewhere(stage, session)).window(BUDGET)
    assert window.messages[:-2] == main
    assert [message.text for message in window.messages[-2:]] == ["further", "answer to further"]
    validate(window)


@pytest.mark.req("J2", "J4")
@played
async def test_nested_tangents_are_kept_reopened_and_left_in_other_processes(stage: Stage) -> None:
    session = await (await stage.manager()).create()
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
        assert plain(state) == plain(await reloaded(stage, session)) == expected
        state.exit_tangent_mode()
        await session.commit(state)
    loaded = await reloaded(stage, session)
    assert [one.name for one in loaded.kept_tangents()] == [outer, inner]
    loaded.reopen_tangent(inner)
    assert prompts(loaded) == ["one", "aside", "inner"]
    other = await elsewhere(stage, session)
    said(loaded, "deeper")
    await other.commit(loaded)
    assert prompts(await reloaded(stage, session)) == ["one", "aside", "inner", "deeper"]
    loaded.exit_tangent_mode()
    loaded.exit_tangent_mode_with_summary("All is well.")
    await other.commit(loaded)
    last = await reloaded(stage, session)
    assert prompts(last) == ["one", "two", "three"]
    assert last.next_message is not None
    assert "All is well." in (last.next_message.prompt or "")
    validate(last.window())


@pytest.mark.req("J2")
@played
async def test_a_tangent_copies_nothing_in_the_log(stage: Stage) -> None:
    session = await (await stage.manager()).create()
    await grown(session, 20)
    state = await session.conversation()
    state.enter_tangent_mode()
    said(state, "aside")
    await session.commit(state)
    state.exit_tangent_mode()
    await session.commit(state)
    store, at = session._scribe.store, session.row.address
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

    async def branches(self, at: Address) -> list[Branch]:
        found = await super().branches(at)
        self.counts["branches"] += 1
        self.counts["branches read"] += len(found)
        return found


def recorded(message: Message) -> Record:
    return Record(id=message.id, kind="message", body=encode(message), tokens=3)


async def aside_and_back(messages: int) -> Counter[str]:
    """Enter and leave a tangent on a session of so many messages, and count what the store has to do."""
    store = CountingStore()
    session = await SessionManager(store, clock=FixedClock()).create()
    said_before = exchanges(messages // 2, a_turn=5)
    records = tuple(map(recorded, said_before))
    await store.commit(Change(at=session.row.address, now=0, records=records))
    state = await session.conversation()
    store.counts.clear()
    state.enter_tangent_mode()
    await session.commit(state)
    said(state, "aside")
    await session.commit(state)
    state.exit_tangent_mode()
    await session.commit(state)
    return store.counts


@pytest.mark.req("J2")
def test_entering_and_leaving_asks_no_more_of_a_store_with_100_000_messages_than_of_one_with_10() -> None:
    few, many = asyncio.run(aside_and_back(10)), asyncio.run(aside_and_back(100_000))
    assert many == few
    assert (few["rows read"], few["rows written"]) == (0, 4)


@pytest.mark.req("I5")
@played
async def test_what_the_session_cut_is_seen_in_the_valid_range(stage: Stage) -> None:
    session = await (await stage.manager()).create()
    messages = await grown(session, 60)
    window = await session.window(Budget(2_000))
    state = await session.conversation()
    start, end = state.valid_history_range
    first = next(message for message in window.messages if message.kind != "summary")
    assert state.history[start].user.messages == (first,)
    assert (end, len(state.history)) == (60, 60)
    assert state.latest_summary is None  # nobody asked for it
    assert state.messages == messages


@pytest.mark.req("D5", "I5")
@played
async def test_a_compaction_of_the_session_is_seen_in_the_state(stage: Stage) -> None:
    session = await (await stage.manager()).create()
    await grown(session, 10)
    done = await session.compact(BUDGET, strategy=Strategy(keep=3), focus="the key")
    state = await reloaded(stage, session)
    assert state.valid_history_range == (7, 10)
    assert state.latest_summary is not None
    text, known = state.latest_summary
    assert text == done.summary
    assert known.details == done.cut.asked
    assert state.undo() == "compact"
    await session.commit(state)
    assert (await session.window(BUDGET)).tokens == done.tokens_before


@pytest.mark.req("D5")
@played
async def test_a_compaction_of_a_state_holds_for_the_session(stage: Stage) -> None:
    session = await (await stage.manager()).create()
    await grown(session, 10)
    before = (await session.window(BUDGET)).messages
    state = await session.conversation()
    plan = state.plan_compaction(Strategy(keep=2))
    assert plan is not None
    state.compact(plan, "Goal: find the key.", source={"model": "gpt-4o"})
    await session.commit(state)
    window = await (await elsewhere(stage, session)).window(BUDGET)
    assert "Goal: find the key." in window.messages[0].text
    assert len(window.messages) == 5
    assert await session.undo() == "compact"
    assert (await session.window(BUDGET)).messages == before
    assert (await reloaded(stage, session)).valid_history_range == (0, 10)


@pytest.mark.req("I7")
@played
async def test_what_a_request_needs_is_decided_once_and_written_with_the_rest(stage: Stage) -> None:
    session = await (await stage.manager()).create()
    state = await session.conversation()
    said(state, *(f"question {number} " + "word " * 60 for number in range(30)))
    state.set_next_user_message("and?")
    window = state.window(Budget(1_000))
    await session.commit(state)
    assert len(await cuts(session)) == 1
    loaded = await reloaded(stage, session)
    again = loaded.window(Budget(1_000))
    assert (again.messages, again.decisions) == (window.messages, ())
    assert len(await session.messages()) == 61


@pytest.mark.req("I1")
@played
async def test_a_damaged_entry_is_shown_as_such_and_costs_no_other(stage: Stage) -> None:
    session = await (await stage.manager()).create()
    await grown(session, 2)
    store = session._scribe.store
    await store.commit(
        Change(
            at=session.row.address,
            now=stage.clock(),
            records=(Record(id="broken", kind="settings", body=b"{}"),),
            expected_head=Position(1, 4),
        )
    )
    await session.append(Message.user("three"), Message.assistant("3"))
    state = await session.conversation()
    assert len(state.history) == 3
    assert any("holdfast verify" in line for line in state.transcript)
    assert not any(isinstance(entry, Settings) for entry in state.head.entries)
