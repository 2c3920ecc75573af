"""Views: what a session shows of its conversation, in every process; looking at it changes nothing."""

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
from tests.unit.session.state_fixtures import (
    BUDGET,
    elsewhere,
    exchanges,
    plain,
    prompts,
    recorded,
    reloaded,
    said,
    spoken,
)
from turnstate import Budget, Message, Policy, ToolSpec
from turnstate.archive import adopt_state
from turnstate.context.cut import Strategy
from turnstate.conversation import ConversationState, FileLineTracker, ToolOrigin, from_json, to_json
from turnstate.entry import Checkpoint, Note, Prompt, SettingsChange, Usage
from turnstate.errors import InputError, NotLoaded
from turnstate.formats import ReceivedMessage
from turnstate.log import records
from turnstate.log.operations import write
from turnstate.memory import handover
from turnstate.session import Session, SessionManager
from turnstate.session.view import NEWEST
from turnstate.stores.values import Change, Position, Record
from turnstate.testing import ScriptedModel

LS = ToolSpec(name="ls", description="lists", input_schema={"type": "object", "properties": {}})


@pytest.mark.req("I1")
@run
async def test_a_view_shows_all_that_was_written(harness: Harness) -> None:
    session = await (await harness.manager()).create(system="You keep a lighthouse.")
    tools = {ToolOrigin("builtin"): [LS], ToolOrigin.mcp("lamps"): [LS]}
    await session.change_settings(tools=tools, mcp_enabled=False, extra={"theme": "dark"})
    await session.set_model("gpt-4o")
    await said(session, "one", "two")
    one, reported = call(), Usage(input=7, details={"id": "r"})
    await session.append(Message.user("Look."), ReceivedMessage.of(asks(one), reported))
    await session.append(answers(answer(one, {"found": 0})))
    await session.note("the request failed: 503")
    await session.record_lines({"/a": FileLineTracker(sha256="x", lines=1)})
    for view in (await session.conversation(), await reloaded(harness, session, last=100)):
        assert (view.tools, view.mcp_enabled, view.extra) == (tools, False, {"theme": "dark"})
        assert view.model_info == await session.model()
        assert prompts(view) == ["one", "two", "Look."]
        assert view.history[-1].request_metadata == reported
        assert view.next_message is not None
        assert view.next_message.tool_use_results == (answer(one, {"found": 0}),)
        assert view.transcript[-2:] == ["\n[Tool uses: ls]", "the request failed: 503"]
        assert view.system == "You keep a lighthouse." == await session.system()
        assert view.file_line_tracker == {"/a": FileLineTracker(sha256="x", lines=1)} == await session.lines()
        assert view.messages == await session.messages()
        assert (view.version, view.has_earlier) == (session.version, False)
        assert (view.tool_manager, view.agents) == (None, None)


@run
async def test_a_handle_that_made_a_window_knows_what_it_wrote_before_and_after_an_operation(
    harness: Harness,
) -> None:
    session = await (await harness.manager()).create()
    await session.append(Message.user("one"))
    await session.window(Budget(10_000))
    await session.note("for people")
    await session.append(Message.assistant("two"))
    known = session._handle.windows.known
    assert known is not None
    assert [message.text for message in known.messages] == ["one", "two"]
    assert known.head == session._writer.row.head


@pytest.mark.req("I1")
@run
async def test_looking_writes_nothing(harness: Harness) -> None:
    session = await (await harness.manager()).create(id="s1")
    await grown(session, 30)
    await session.begin_tangent()
    await said(session, "aside")
    before = await everything(session)
    for handle in (session, await elsewhere(harness, session)):
        views = [await handle.conversation(), await handle.conversation(last=3)]
        for view in views:
            to_json(view)
            view.record_settings()
        await handle.tangents()
        await handle.lines()
        await handle.preview(Budget(600))
        await handle.preview_compact(Budget(600))
        await handle.branches()
    assert await everything(session) == before


@pytest.mark.req("I1")
@run
async def test_a_view_never_changes_and_names_the_sessions_method(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    await said(session, "one")
    view = await session.conversation()
    shown, before = plain(view), await everything(session)
    changes = {
        "append(Message.user(…))": lambda: view.set_next_user_message("two"),
        "append(Message.tool(…))": lambda: view.add_tool_results([]),
        "append(Message.assistant(…))": lambda: view.push_assistant_message(Message.assistant("2")),
        "append(…)": lambda: view.add(Prompt("You help.")),
        "note(…)": lambda: view.append_transcript("a line"),
        "set_system(…)": lambda: view.set_system("You help."),
        "set_model(…)": lambda: view.set_model("gpt-4o"),
        "clear()": view.clear,
        "undo()": view.undo,
        "begin_tangent()": view.begin_tangent,
        "leave_tangent()": view.exit_tangent_mode,
        "leave_tangent('tail')": view.exit_tangent_mode_with_tail,
        "leave_tangent('summary')": view.exit_tangent_mode_with_summary,
        "reopen_tangent(…)": lambda: view.reopen_tangent("x"),
        "window(…)": view.window,
        "preview(…)": view.preview,
        "preview_compact()": view.plan_compaction,
        "change_settings(tools=…)": lambda: setattr(view, "tools", {}),
        "change_settings(extra=…)": lambda: setattr(view, "extra", {}),
        "record_lines(…)": lambda: setattr(view, "file_line_tracker", {}),
    }
    for method, change in changes.items():
        with pytest.raises(InputError) as raised:
            change()
        assert f"use await session.{method}" in str(raised.value)
        assert hasattr(Session, method.partition("(")[0])
    for name in ("model", "model_info"):
        with pytest.raises(InputError, match="set_model"):
            setattr(view, name, None)
    await said(session, "two")
    assert plain(view) == shown
    assert (await session.conversation()).version > view.version
    assert (await texts(session))[:2] == ["one", "answer to one"]
    assert len(before) == 4  # type: ignore[arg-type]


@pytest.mark.req("I4")
@run
async def test_a_view_has_the_newest_exchanges_or_as_many_as_are_asked_for(harness: Harness) -> None:
    session = await (await harness.manager()).create(system="You keep a lighthouse.")
    await session.change_settings(extra={"theme": "dark"})
    spoken_before = exchanges(NEWEST + 20, 1)
    for start in range(0, len(spoken_before), 100):
        await session.append(*spoken_before[start : start + 100])
    view = await session.conversation()
    assert (len(view.history), view.has_earlier) == (NEWEST, True)
    assert prompts(view)[0] == "question 20"
    for last in (1, 7, NEWEST, NEWEST + 19):
        view = await reloaded(harness, session, last=last)
        assert (len(view.history), view.has_earlier) == (last, True)
        assert view.history[-1].assistant == spoken_before[-1]
        assert (view.system, view.extra) == ("You keep a lighthouse.", {"theme": "dark"})
        assert view.valid_history_range == (0, last)
    for last in (NEWEST + 20, 10_000, 10**9):
        view = await reloaded(harness, session, last=last)
        assert (len(view.history), view.has_earlier) == (NEWEST + 20, False)
        assert view.messages == spoken_before


@pytest.mark.req("I4", "I5", "D5")
@run
async def test_a_view_begins_with_what_the_newest_cut_keeps(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    await grown(session, 10)
    assert not (await session.conversation()).has_earlier
    done = await session.compact(BUDGET, strategy=Strategy(keep=3), focus="the key")
    view = await reloaded(harness, session)
    assert (len(view.history), view.valid_history_range, view.has_earlier) == (3, (0, 3), True)
    assert view.latest_summary is not None
    text, known = view.latest_summary
    assert (text, known.details) == (done.summary, done.cut.asked)
    whole = await reloaded(harness, session, last=10_000)
    assert (whole.valid_history_range, whole.has_earlier) == ((7, 10), False)
    assert whole.latest_summary == view.latest_summary
    await session.undo()
    assert (await reloaded(harness, session)).valid_history_range == (0, 10)
    assert (await session.window(BUDGET)).tokens == done.tokens_before


@pytest.mark.req("I1", "I5")
@run
async def test_a_view_from_a_cut_has_whole_exchanges_even_if_the_cut_keeps_only_the_answer(
    harness: Harness,
) -> None:
    policy = Policy(lock_turns=1, lock_turns_at_most=2, hard_lock=3, summary_tokens=60)
    session = await (await harness.manager(policy=policy)).create()
    for number in range(9):
        await session.append(Message.user(f"turn {number} " + "word " * 20))
        await session.append(Message.assistant("answer " * (number * 37 % 60)))
    await session.window(Budget(250))
    (cut,) = await cuts(session)
    whole, view = await session.conversation(last=10_000), await session.conversation()
    first = whole.history[whole.valid_history_range[0]]
    assert cut.kept_from == first.assistant.id  # and the question before it is pinned
    assert view.history[0] == first
    assert view.history == whole.history[whole.valid_history_range[0] :]


@pytest.mark.req("I5")
@run
async def test_what_a_window_cut_is_seen_in_the_valid_range(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    messages = await grown(session, 60)
    window = await session.window(Budget(2_000))
    first = next(message for message in window.messages if message.kind != "summary")
    view = await session.conversation(last=10_000)
    start, end = view.valid_history_range
    assert view.history[start].user.messages == (first,)
    assert (end, len(view.history)) == (60, 60)
    assert view.latest_summary is None  # nobody asked for it
    assert view.messages == messages
    assert (await session.conversation()).history == view.history[start:]


@pytest.mark.req("I4")
@run
async def test_what_a_view_does_not_have_names_the_call_that_reads_it(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    await session.record_lines({"/a": FileLineTracker(sha256="x", lines=1)})
    point = Checkpoint(label="1", commit="0" * 40, at=1)
    await session.operate(write(point))
    await grown(session, 10)
    await session.begin_tangent()
    await said(session, "aside")
    await session.leave_tangent()
    await session.compact(BUDGET, strategy=Strategy(keep=1))
    view = await session.conversation()
    for attribute, call_named in (
        ("file_line_tracker", r"await session\.lines\(\)"),
        ("checkpoint_manager", r"await session\.conversation\(last="),
    ):
        with pytest.raises(NotLoaded, match=call_named):
            getattr(view, attribute)
    with pytest.raises(NotLoaded, match=r"await session\.tangents\(\)"):
        view.kept_tangents()
    assert await session.lines() == {"/a": FileLineTracker(sha256="x", lines=1)}
    view = await session.conversation(last=1)
    assert view.file_line_tracker == await session.lines()
    assert view.kept_tangents() == await session.tangents()
    assert [one.opening for one in view.kept_tangents()] == ["aside"]
    assert view.checkpoint_manager is not None
    assert view.checkpoint_manager.checkpoints == (point,)


@pytest.mark.req("I4", "I9")
@run
async def test_the_document_of_a_view_in_a_tangent_has_the_main_conversation(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    await said(session, "one", "two")
    await session.begin_tangent()
    await said(session, "x", "y", "z")
    await session.compact(BUDGET, strategy=Strategy(keep=1), model=False)
    for last in (None, 1, 3, 4, 100):
        document = from_json(to_json(await session.conversation(last=last)))
        assert prompts(document)[-1] == "z"
        document.exit_tangent_mode()
        assert prompts(document)[-1] == "two"


@pytest.mark.req("I4", "I9")
@run
async def test_the_document_of_a_tangent_that_begins_before_the_one_around_it_has_the_main_conversation(
    harness: Harness,
) -> None:
    session = await (await harness.manager()).create()
    await said(session, "one", "two")
    await session.begin_tangent()
    await said(session, "x")
    await session.begin_tangent(at=(await session.messages())[1].id)
    await said(session, "y")
    document = from_json(to_json(await session.conversation(last=100)))
    assert prompts(document) == ["one", "y"]
    document.exit_tangent_mode()
    document.exit_tangent_mode()
    assert prompts(document) == ["one", "two"]


@pytest.mark.req("I4", "I9")
@run
async def test_the_document_of_a_part_has_the_checkpoints_and_lines_from_before_it(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    await session.operate(write(Checkpoint(label="0", commit="0" * 40)))
    await session.record_lines({"a.py": FileLineTracker(lines=3)})
    await said(session, "one", "two", "three")
    view = await session.conversation(last=1)
    document = from_json(to_json(view))
    assert document.checkpoint_manager == view.checkpoint_manager
    assert document.file_line_tracker == view.file_line_tracker != {}


@pytest.mark.req("I4", "I9")
@run
async def test_the_document_of_a_part_sends_nothing_that_was_undone_before_it(harness: Harness) -> None:
    sessions = await harness.manager(model=ScriptedModel("Goal: the first.", "Goal: the second."))
    session = await sessions.create()
    await said(session, *map(str, range(12)))
    await session.compact(BUDGET, strategy=Strategy(keep=4))
    await said(session, "a", "b")
    await session.compact(BUDGET, strategy=Strategy(keep=1))
    await session.undo()
    await said(session, "c")
    for last in (1, 2):  # the second summary is before the part, or in it
        view = await session.conversation(last=last)
        document = from_json(to_json(view))
        assert view.latest_summary is not None
        assert view.latest_summary[0] == "Goal: the first."
        assert document.latest_summary is not None
        assert document.latest_summary[0] == "Goal: the first."


@pytest.mark.req("I1", "I9")
@run
async def test_a_conversation_that_lived_in_json_becomes_a_session(harness: Harness) -> None:
    state = ConversationState("from-json")
    state.tools = {ToolOrigin("builtin"): [LS]}
    spoken(state, "one", "two", "three")
    plan = state.plan_compaction(Strategy(keep=1))
    assert plan is not None
    state.compact(plan)
    state.begin_tangent(at=state.messages[1].id)
    spoken(state, "aside")
    state.exit_tangent_mode()
    sessions = await harness.manager()
    await adopt_state(sessions.store, sessions.tenant, from_json(to_json(state)))
    session = await sessions.open("from-json")
    loaded = await reloaded(harness, session, last=100)
    assert plain(loaded) == plain(state)
    assert [(one.name, one.opening) for one in loaded.kept_tangents()] == [
        (one.name, one.opening) for one in state.kept_tangents()
    ]
    assert [await session.undo() for _ in range(3)] == ["tangent exit", "tangent", "compact"]
    assert (await reloaded(harness, session)).valid_history_range == (0, 3)


@pytest.mark.req("I2", "L1")
@run
async def test_settings_are_written_when_they_change_and_only_then(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    await said(session, "one")
    await session.change_settings(tools={ToolOrigin("builtin"): [LS]})
    await session.change_settings(tools={ToolOrigin("builtin"): [LS]})
    await said(session, "two")
    await session.change_settings(mcp_enabled=False)
    await session.change_settings(mcp_enabled=False)
    await session.change_settings()
    kinds = [type(entry).__name__ for entry in await entries(session)]
    assert kinds == ["Message", "Message", "SettingsChange", "Message", "Message", "SettingsChange"]
    assert not any(b"tool_manager" in row.body or b"agents" in row.body for row in await rows(session))
    loaded = await reloaded(harness, session)
    assert (loaded.tools, loaded.mcp_enabled) == ({ToolOrigin("builtin"): [LS]}, False)
    await session.rewind(to=(await session.messages())[1].id)
    loaded = await reloaded(harness, session)
    assert (loaded.tools, loaded.mcp_enabled) == ({}, True)


@pytest.mark.req("I3")
@run
async def test_a_prompt_whose_request_failed_is_in_the_log_and_still_waits(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    await session.append(Message.user("Is it lit?"))
    await session.note("the request was cancelled")
    loaded = await reloaded(harness, session)
    assert loaded.next_message is not None
    assert loaded.next_message.prompt == "Is it lit?"
    assert loaded.transcript == ["> Is it lit?", "the request was cancelled"]
    assert await texts(session) == ["Is it lit?"]
    assert [type(entry) for entry in await entries(session)] == [Message, Note]
    await session.append(Message.assistant("It is."))
    assert prompts(await session.conversation()) == ["Is it lit?"]


@pytest.fixture
def cap() -> Iterator[int]:
    """A tenth of the real number of exchanges, which the tests of the history reach."""
    with state_cap(runs(1_000, long=10_000)) as exchanges:
        yield exchanges


@pytest.mark.req("I4", "I6")
@run
async def test_of_one_exchange_too_many_no_more_than_the_cap_are_shown_and_the_log_has_all(
    harness: Harness, cap: int
) -> None:
    session = await (await harness.manager()).create(system="You keep a lighthouse.")
    await session.change_settings(tools={ToolOrigin("builtin"): [LS]})
    some = tuple(map(recorded, exchanges(cap + 1, a_turn=3)))
    at = session._row.address
    await session._writer.store.commit(Change(at=at, now=harness.clock(), records=some))
    before = await everything(session)
    loaded = await reloaded(harness, session, last=10 * cap)
    assert len(loaded.history) == cap - 2
    assert loaded.history[0].user.prompt == "question 3"
    assert len(loaded.transcript) == cap
    assert await everything(session) == before  # looking records no cut
    wide = Budget(10_000_000)
    window = await session.window(wide, tools=[LS])
    (cut,) = await cuts(session)
    assert cut.asked == {"operation": "cap"}
    loaded = await reloaded(harness, session, last=10 * cap)
    assert loaded.valid_history_range == (cap // 10 - 1, cap - 2)  # a turn's edge: room for a tenth more
    other = await (await elsewhere(harness, session)).window(wide, tools=[LS])
    for one in (window, other, from_json(to_json(loaded)).preview(wide)):
        assert [message.kind for message in one.messages[:2]] == ["prompt", "summary"]
        assert one.messages == window.messages
    assert (other.tokens, other.decisions) == (window.tokens, ())
    kept = loaded.history[slice(*loaded.valid_history_range)]
    assert window.messages[2] == kept[0].user.messages[0]
    assert len(window.messages) == 2 + 2 * len(kept) + 1  # the last call is under way
    assert plain(from_json(to_json(loaded))) == plain(loaded)
    assert len(await session.messages()) == 2 * cap + 2


@pytest.mark.req("I4", "J4")
@run
async def test_what_stands_before_the_part_that_is_loaded_still_counts(harness: Harness) -> None:
    session = await (await harness.manager()).create(system="You keep a lighthouse.")
    await session.change_settings(tools={ToolOrigin("builtin"): [LS]})
    for message in exchanges(31, a_turn=3):
        await session.append(message)

    async def view() -> ConversationState:
        loaded = await reloaded(harness, session, last=10)
        assert (loaded.system, loaded.tools) == (
            "You keep a lighthouse.",
            {ToolOrigin("builtin"): [LS]},
        )
        assert loaded.has_earlier
        return loaded

    before = plain(await view())
    name = await session.begin_tangent(at=(await session.messages())[-5].id)
    await view()
    await said(session, "aside")
    assert prompts(await view())[-1] == "aside"
    await session.leave_tangent()
    again = await view()
    assert plain(again) == before
    assert [one.opening for one in again.kept_tangents()] == ["aside"]
    await session.reopen_tangent(name)
    inside = from_json(to_json(await view()))
    assert (inside.system, inside.is_in_tangent_mode(), prompts(inside)[-1]) == (
        "You keep a lighthouse.",
        True,
        "aside",
    )
    assert inside.tangent_state is not None
    inside.exit_tangent_mode()
    assert prompts(inside)[-3:] == prompts(again)[-3:]


@pytest.mark.req("I1", "E4")
@run
async def test_the_document_of_a_view_sends_the_same_bytes_as_its_session(harness: Harness) -> None:
    session = await (await harness.manager()).create(system="You keep a lighthouse.")
    await grown(session, 3)
    one = call()
    await session.append(Message.user("Look."), asks(one), answers(answer(one, "a line of the log\n" * 30)))
    window = await session.window(BUDGET)
    for _ in ("main", "tangent"):
        document = from_json(to_json(await session.conversation(last=100)))
        assert document.preview(BUDGET).messages == window.messages
        await session.begin_tangent()


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
    assert not any(isinstance(one.entry, SettingsChange) for one in state.shown.placed)


@pytest.mark.req("F3")
@pytest.mark.parametrize("aside", [False, True])
def test_what_leaves_by_a_compaction_is_left_for_the_memory_engine(aside: bool) -> None:
    async def cut_twice() -> None:
        async with await SessionManager.open("memory:") as sessions:
            session = await sessions.create()
            await said(session, "one")
            if aside:
                await session.begin_tangent()
            for words in ("two", "three"):
                await session.compact(strategy=Strategy(keep=0), model=False)
                await said(session, words)
            messages = [message.id for message in await session.messages()]
            found = []
            for parcel in await sessions.store.parcels(limit=9):
                contents = records.contents(parcel)
                assert isinstance(contents, records.Eviction)
                evicted = await handover.evicted(sessions.store, session._row, parcel.id, contents)
                found.append([message.id async for message in evicted.messages])
            assert sorted(found, key=lambda ids: messages.index(ids[0])) == [messages[:2], messages[2:4]]

    asyncio.run(cut_twice())
