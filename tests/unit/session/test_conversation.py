"""Conversations of a session: a state is loaded, changed and written, and any process sees the same."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.harness.state_cap import state_cap
from tests.harness.thoroughness import runs
from tests.unit.session.session_fixtures import (
    Harness,
    answer,
    answers,
    asks,
    call,
    cuts,
    entries,
    everything,
    grown,
    rows,
    run,
    texts,
)
from tests.unit.session.state_fixtures import BUDGET, elsewhere, exchanges, plain, prompts, reloaded, said
from turnstate import Budget, Message, ToolSpec
from turnstate.context.cut import Strategy
from turnstate.conversation import ConversationState, RequestMetadata, ToolOrigin, from_json, to_json
from turnstate.entry import Note, Settings, Usage
from turnstate.errors import Conflict, EpochEnded, InputError
from turnstate.log import records
from turnstate.memory import handover
from turnstate.session import SessionManager
from turnstate.stores.memory import MemoryStore
from turnstate.stores.values import Change, Position, Record
from turnstate.testing import FixedClock

LS = ToolSpec(name="ls", description="lists", input_schema={"type": "object", "properties": {}})


@pytest.mark.req("I1")
@run
async def test_a_state_that_was_committed_is_loaded_as_it_was(harness: Harness) -> None:
    session = await (await harness.manager()).create(system="You keep a lighthouse.")
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
    loaded = await reloaded(harness, session)
    assert plain(loaded) == plain(state)
    assert loaded.head.fold.prompt == "You keep a lighthouse."
    assert loaded.preview().messages == state.preview().messages
    assert list(loaded.head.entries) == list(state.head.entries)
    assert await session.messages() == state.messages


@run
async def test_a_handle_that_made_a_window_knows_what_it_wrote_before_and_after_a_commit(
    harness: Harness,
) -> None:
    session = await (await harness.manager()).create()
    await session.append(Message.user("one"))
    await session.window(Budget(10_000))
    state = await session.conversation()
    state.append_transcript("for people")
    await session.commit(state)
    await session.append(Message.assistant("two"))
    known = session._windows.known
    assert known is not None
    assert [message.text for message in known.messages] == ["one", "two"]
    assert known.head == session._writer.row.head


@run
async def test_a_state_that_continues_what_its_handle_knows_is_written_unread(
    harness: Harness,
) -> None:
    session = await (await harness.manager()).create()
    state = await session.conversation()
    said(state, "one", "two")
    store, reads = session._writer.store, []
    session._writer.refresh = lambda: reads.append("session")
    await session.commit(state)
    del session._writer.refresh
    assert reads == []
    assert (await store.get(session._writer.at)).seq == 4


@pytest.mark.req("I1")
@run
async def test_nothing_reaches_the_store_before_a_commit_and_all_of_it_in_one_write(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    state = await session.conversation()
    before = await everything(session)
    said(state, "one", "two")
    assert await everything(session) == before
    receipt = await session.commit(state)
    assert receipt is not None
    assert (receipt.first, receipt.last) == (1, 4)
    assert await session.commit(state) is None


@pytest.mark.req("I1")
@run
async def test_a_state_and_the_session_may_take_turns(harness: Harness) -> None:
    session = await (await harness.manager()).create()
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
@run
async def test_a_state_that_was_overtaken_is_refused_and_nothing_of_it_is_lost(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    state = await session.conversation()
    said(state, "mine")
    other = await elsewhere(harness, session)
    await other.append(Message.user("theirs"))
    before = await everything(session)
    with pytest.raises(Conflict, match="load it again"):
        await session.commit(state)
    assert await everything(session) == before
    assert prompts(state) == ["mine"]
    again = await session.conversation()
    again.head.extend(state.head.entries)
    await session.commit(again)
    assert await texts(session) == ["theirs", "mine", "answer to mine"]


@pytest.mark.req("I1", "G7")
@run
async def test_a_state_of_an_epoch_that_ended_is_refused(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    await grown(session, 1)
    state = await session.conversation()
    said(state, "late")
    await (await elsewhere(harness, session)).reset()
    with pytest.raises(EpochEnded):
        await session.commit(state)
    assert await (await elsewhere(harness, session)).messages() == []


@pytest.mark.req("I1")
@run
async def test_a_state_of_another_session_is_refused(harness: Harness) -> None:
    sessions = await harness.manager()
    first, second = await sessions.create(), await sessions.create()
    state = await first.conversation()
    said(state, "one")
    with pytest.raises(InputError, match="does not belong to session"):
        await second.commit(state)


@pytest.mark.req("I1", "I9")
@run
async def test_a_state_that_lived_in_json_can_be_given_a_session(harness: Harness) -> None:
    session = await (await harness.manager()).create(id="from-json")
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
    loaded = await reloaded(harness, session)
    assert plain(loaded) == plain(state)
    assert loaded.kept_tangents() == state.kept_tangents()
    assert [await session.undo() for _ in range(3)] == ["tangent exit", "tangent", "compact"]
    assert (await reloaded(harness, session)).valid_history_range == (0, 3)


@pytest.mark.req("I1")
@run
async def test_a_state_from_elsewhere_does_not_replace_a_conversation(harness: Harness) -> None:
    session = await (await harness.manager()).create(id="mine")
    await grown(session, 1)
    before = await everything(session)
    state = ConversationState("mine")
    said(state, "one")
    with pytest.raises(InputError, match="has a conversation already"):
        await session.commit(state)
    assert await everything(session) == before


@pytest.mark.req("I2", "L1")
@run
async def test_settings_are_written_when_they_change_and_only_then(harness: Harness) -> None:
    session = await (await harness.manager()).create()
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
    loaded = await reloaded(harness, session)
    assert (loaded.tools, loaded.mcp_enabled) == ({ToolOrigin("builtin"): [LS]}, False)
    assert (loaded.tool_manager, loaded.agents) == (None, None)


@pytest.mark.req("I3")
@run
async def test_a_prompt_whose_request_failed_is_in_the_log_and_still_waits(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    state = await session.conversation()
    state.set_next_user_message("Is it lit?")
    state.append_transcript("the request was cancelled")
    await session.commit(state)
    loaded = await reloaded(harness, session)
    assert loaded.next_message is not None
    assert loaded.next_message.prompt == "Is it lit?"
    assert loaded.transcript == ["> Is it lit?", "the request was cancelled"]
    assert await texts(session) == ["Is it lit?"]
    assert [type(entry) for entry in await entries(session)] == [Message, Note]
    loaded.push_assistant_message(Message.assistant("It is."))
    assert prompts(loaded) == ["Is it lit?"]


@pytest.mark.req("I3")
@run
async def test_what_is_known_of_a_request_is_an_entry_of_its_own(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    state = await session.conversation()
    state.set_next_user_message("one")
    state.push_assistant_message(Message.assistant("1"), RequestMetadata(input=5, output=1, model="gpt-4o"))
    await session.commit(state)
    assert [type(entry) for entry in await entries(session)] == [Message, Message, Usage]
    assert (await reloaded(harness, session)).history == state.history


@pytest.fixture
def cap() -> Iterator[int]:
    """A tenth of the real number of exchanges, which the tests of the history reach."""
    with state_cap(runs(1_000, long=10_000)) as exchanges:
        yield exchanges


@pytest.mark.req("I4", "I6")
@run
async def test_of_one_exchange_too_many_no_more_than_the_cap_are_live_and_the_log_has_all(
    harness: Harness, cap: int
) -> None:
    session = await (await harness.manager()).create(system="You keep a lighthouse.")
    state = await session.conversation()
    state.tools = {ToolOrigin("builtin"): [LS]}
    state.record_settings()
    state.head.extend(exchanges(cap + 1, a_turn=3))
    await session.commit(state)
    loaded = await reloaded(harness, session)
    for one in (state, loaded):
        assert len(one.history) == cap - 2
        assert one.history[0].user.prompt == "question 3"
        assert one.valid_history_range == (cap // 10 - 1, cap - 2)  # a turn's edge: room for a tenth more
        assert len(one.transcript) == cap
    assert plain(loaded) == plain(state)
    wide = Budget(10_000_000)
    windows = [state.window(wide), loaded.window(wide), await session.window(wide, tools=[LS])]
    for window in windows:
        assert not window.decisions
        assert [message.kind for message in window.messages[:2]] == ["prompt", "summary"]
        assert window.messages == windows[0].messages
        assert window.tokens == windows[0].tokens
    (first, *_), kept = windows[0].messages[2:], state.history[slice(*state.valid_history_range)]
    assert first == kept[0].user.messages[0]
    assert len(windows[0].messages) == 2 + 2 * len(kept) + 1  # the last call is under way
    assert plain(from_json(to_json(loaded))) == plain(state)
    assert len(await session.messages()) == 2 * cap + 2


@pytest.mark.req("I4", "J4")
def test_what_stands_before_the_part_that_is_loaded_still_counts() -> None:
    async def test() -> None:
        store = MemoryStore()
        session = await SessionManager(store, clock=FixedClock()).create(system="You keep a lighthouse.")
        state = await session.conversation()
        state.tools = {ToolOrigin("builtin"): [LS]}
        await session.commit(state)
        for message in exchanges(31, a_turn=3):
            state.add(message)
        await session.commit(state)
        state = await session.conversation()
        before = plain(state)
        assert len(state.messages) == 41  # of 21 exchanges; what is before them was not folded in
        assert (state.head.fold.prompt, state.tools) == (
            "You keep a lighthouse.",
            {ToolOrigin("builtin"): [LS]},
        )
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
        assert restored.head.fold.prompt == "You keep a lighthouse."
        assert prompts(restored)[-1] == "aside"

    with state_cap(10):
        asyncio.run(test())


@pytest.mark.req("I5")
@run
async def test_what_the_session_cut_is_seen_in_the_valid_range(harness: Harness) -> None:
    session = await (await harness.manager()).create()
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
@run
async def test_a_compaction_of_the_session_is_seen_in_the_state(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    await grown(session, 10)
    done = await session.compact(BUDGET, strategy=Strategy(keep=3), focus="the key")
    state = await reloaded(harness, session)
    assert state.valid_history_range == (7, 10)
    assert state.latest_summary is not None
    text, known = state.latest_summary
    assert text == done.summary
    assert known.details == done.cut.asked
    assert state.undo() == "compact"
    await session.commit(state)
    assert (await session.window(BUDGET)).tokens == done.tokens_before


@pytest.mark.req("D5")
@run
async def test_a_compaction_of_a_state_holds_for_the_session(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    await grown(session, 10)
    before = (await session.window(BUDGET)).messages
    state = await session.conversation()
    plan = state.plan_compaction(Strategy(keep=2))
    assert plan is not None
    state.compact(plan, "Goal: find the key.", source={"model": "gpt-4o"})
    await session.commit(state)
    window = await (await elsewhere(harness, session)).window(BUDGET)
    assert "Goal: find the key." in window.messages[0].text
    assert len(window.messages) == 5
    assert await session.undo() == "compact"
    assert (await session.window(BUDGET)).messages == before
    assert (await reloaded(harness, session)).valid_history_range == (0, 10)


@pytest.mark.req("I7")
@run
async def test_what_a_request_needs_is_decided_once_and_written_with_the_rest(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    state = await session.conversation()
    said(state, *(f"question {number} " + "word " * 60 for number in range(30)))
    state.set_next_user_message("and?")
    window = state.window(Budget(1_000))
    await session.commit(state)
    assert len(await cuts(session)) == 1
    loaded = await reloaded(harness, session)
    again = loaded.window(Budget(1_000))
    assert (again.messages, again.decisions) == (window.messages, ())
    assert len(await session.messages()) == 61


@pytest.mark.req("I1", "E4")
@run
async def test_a_state_and_its_session_send_the_same_bytes(harness: Harness) -> None:
    session = await (await harness.manager()).create(system="You keep a lighthouse.")
    await grown(session, 3)
    one = call()
    long = answers(answer(one, "a line of the log\n" * 3_000))
    await session.append(Message.user("Look."), asks(one), long)
    state = await session.conversation()
    window = await session.window(BUDGET)
    assert state.preview(BUDGET).messages == window.messages
    assert f"[Full output: {long.id}" in str(window.messages[-1].tool_results[0].result)
    state.enter_tangent_mode()
    assert state.preview(BUDGET).messages == window.messages


@pytest.mark.req("I1")
@run
async def test_a_damaged_entry_is_shown_as_such_and_costs_no_other(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    await grown(session, 2)
    store = session._writer.store
    await store.commit(
        Change(
            at=session._row.address,
            now=harness.clock(),
            records=(Record(id="broken", kind="settings", body=b"{}"),),
            expected_head=Position(1, 4),
        )
    )
    await session.append(Message.user("three"), Message.assistant("3"))
    state = await session.conversation()
    assert len(state.history) == 3
    assert any("turnstate verify" in line for line in state.transcript)
    assert not any(isinstance(entry, Settings) for entry in state.head.entries)


@pytest.mark.req("F3")
@pytest.mark.parametrize("aside", [False, True])
def test_what_leaves_by_a_cut_of_a_state_is_left_for_the_memory_engine(aside: bool) -> None:
    async def cut_twice() -> None:
        async with await SessionManager.open("memory:") as sessions:
            session = await sessions.create()
            state = await session.conversation()
            spoken = [state.set_next_user_message("one"), Message.assistant("1")]
            state.push_assistant_message(spoken[1])
            if aside:
                state.begin_tangent()
            for words in ("two", "three"):
                plan = state.plan_compaction(Strategy(keep=0))
                assert plan is not None
                state.compact(plan)
                spoken += [state.set_next_user_message(words), Message.assistant(words)]
                state.push_assistant_message(spoken[-1])
            await session.commit(state)
            found = []
            for parcel in await sessions.store.parcels(limit=9):
                contents = records.contents(parcel)
                assert isinstance(contents, records.Eviction)
                evicted = await handover.evicted(sessions.store, session._row, parcel.id, contents)
                found.append([message.id async for message in evicted.messages])
            assert found == [[one.id for one in spoken[:2]], [one.id for one in spoken[2:4]]]

    asyncio.run(cut_twice())
