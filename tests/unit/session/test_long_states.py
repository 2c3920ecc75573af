"""Conversations that are longer than a state holds: what was decided and set before it still counts."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from session_fixtures import Harness, entries, parcels, rows, run
from state_fixtures import BUDGET, elsewhere, plain, reloaded, said, validate

from turnstate import Message
from turnstate.codec import kind_of
from turnstate.context.cut import Strategy
from turnstate.context.window import Window
from turnstate.conversation import ConversationState, ToolOrigin, amazon_q, fields, from_json, to_json
from turnstate.conversation.edits import LineTracking
from turnstate.entry import Cut
from turnstate.errors import NothingToUndo
from turnstate.session import Session
from turnstate.toolspec import ToolSpec

LIMIT = 6
AT_CAP = 5  # exchanges that the cut at the limit keeps
SUMMARY = "Goal: what was said from a to e."
LS = ToolSpec(name="ls", description="lists", input_schema={"type": "object", "properties": {}})


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch) -> int:
    """Let a state hold a few exchanges instead of 10,000."""
    name, found = "MAX_CONVERSATION_STATE_HISTORY_LEN", 0
    for module in [one for key, one in sys.modules.items() if key.startswith("turnstate.")]:
        if hasattr(module, name):
            monkeypatch.setattr(module, name, LIMIT)
            found += 1
    assert found
    return LIMIT


def questions(letter: str, count: int = 2 * LIMIT) -> list[str]:
    return [f"{letter}{number}" for number in range(count)]


def compacted(state: ConversationState, *, keep: int = 1, summary: str | None = None) -> None:
    plan = state.plan_compaction(Strategy(keep=keep))
    assert plan is not None
    state.compact(plan, summary)


def shown(state: ConversationState) -> dict[str, Any]:
    """Give the fields of a state; the transcript holds as much as was loaded."""
    return {name: value for name, value in fields(state).items() if name != "transcript"}


def asked(window: Window) -> list[str]:
    return [message.text for message in window.messages if message.role == "user"]


def summary_of(window: Window) -> str:
    """Give the summary that a window begins with; none where it does not."""
    return window.messages[0].text if window.messages[0].kind == "summary" else ""


async def long_session(harness: Harness, *, summary: str | None = SUMMARY) -> Session:
    """Give a session with a compaction, and more exchanges behind it than a state holds."""
    session = await (await harness.manager()).create()
    state = await session.conversation()
    said(state, *"abcdef")
    compacted(state, summary=summary)
    said(state, *questions("q"))
    await session.commit(state)
    return session


@pytest.mark.req("I4", "I5")
@run
async def test_live_loaded_and_session_windows_show_the_same_at_the_cap(harness: Harness, limit: int) -> None:
    session = await (await harness.manager()).create()
    state = await session.conversation()
    for number, question in enumerate(questions("q", 5 * limit), start=1):
        said(state, question)
        await session.commit(state)
        loaded = await reloaded(harness, session)
        start, end = state.valid_history_range
        assert len(state.history) == end == min(number, limit)
        assert (loaded.history, loaded.valid_history_range) == (state.history, (start, end))
        windows = [one.window(BUDGET) for one in (state, loaded)]
        windows += [await one.window(BUDGET) for one in (session, await elsewhere(harness, session))]
        for window in windows:
            assert asked(window) == [entry.user.prompt for entry in state.history[start:end]]
            assert window.messages == windows[0].messages
            validate(window)
    cuts = [entry for entry in await entries(session) if isinstance(entry, Cut)]
    assert [cut.asked for cut in cuts] == [{"operation": "cap"}] * len(cuts)
    assert [kind_of(cut) for cut in cuts] == ["cut"] * len(cuts)
    with pytest.raises(NothingToUndo):
        state.undo()
    with pytest.raises(NothingToUndo):
        await session.undo()


@pytest.mark.req("I4")
@pytest.mark.usefixtures("limit")
@run
async def test_messages_that_leave_at_the_cap_are_handed_to_the_memory_engine_once(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    state = await session.conversation()
    said(state, *questions("q", 20))
    await session.commit(state)
    messages = [message.id for message in await session.messages()]
    ranges = [json.loads(parcel.body) for parcel in await parcels(session._writer.store, "archive")]
    ranges.sort(key=lambda one: messages.index(one["first"]))
    gone = [
        id
        for one in ranges
        for id in messages[messages.index(one["first"]) : messages.index(one["last"]) + 1]
    ]
    assert gone == messages[: len(gone)]
    assert len(gone) == 2 * (20 - AT_CAP - 1)


@pytest.mark.req("I4", "D5")
@pytest.mark.usefixtures("limit")
@run
async def test_the_summary_of_what_is_not_loaded_stands_in_the_window(harness: Harness) -> None:
    session = await long_session(harness)
    loaded = await reloaded(harness, session)
    window = loaded.preview(BUDGET)
    assert SUMMARY in summary_of(window)
    assert len(window.messages) == 1 + 2 * AT_CAP
    validate(window)
    assert SUMMARY in summary_of(await (await elsewhere(harness, session)).preview(BUDGET))


@pytest.mark.req("I4", "I9")
@run
async def test_the_document_of_the_original_holds_the_exchanges_that_are_loaded(
    harness: Harness, limit: int
) -> None:
    session = await long_session(harness)
    loaded = await reloaded(harness, session)
    document = amazon_q.write(loaded)
    assert len(document["history"]) == AT_CAP < limit
    assert SUMMARY in document["latest_summary"][0]
    again = amazon_q.read(document)
    assert [entry.user.prompt for entry in again.history] == questions("q")[-AT_CAP:]


@pytest.mark.req("I4", "I9")
@run
async def test_a_long_conversation_lives_on_in_json(harness: Harness, limit: int) -> None:
    session = await long_session(harness)
    loaded = await reloaded(harness, session)
    restored = from_json(to_json(loaded))
    assert plain(restored) == plain(loaded)
    assert restored.valid_history_range == (limit - AT_CAP, limit)
    assert restored.preview(BUDGET).messages == loaded.preview(BUDGET).messages
    assert amazon_q.write(restored) == amazon_q.write(loaded)


@pytest.mark.req("I4", "I5")
@pytest.mark.usefixtures("limit")
@run
async def test_a_long_conversation_looks_the_same_live_and_loaded(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    live = await session.conversation()
    said(live, *"abcdef")
    compacted(live, summary=SUMMARY)
    for letter in "qrs":
        said(live, *questions(letter, 4))
        await session.commit(live)
        loaded = await reloaded(harness, session)
        assert shown(loaded) == shown(live)
        assert SUMMARY in summary_of(live.preview(BUDGET))
        assert SUMMARY in summary_of(loaded.preview(BUDGET))


@pytest.mark.req("I4", "D5")
@pytest.mark.usefixtures("limit")
@pytest.mark.parametrize("by_state", [True, False], ids=["of the state", "of the session"])
@run
async def test_undoing_a_compaction_brings_a_summary_back_that_is_not_loaded(
    harness: Harness, by_state: bool
) -> None:
    session = await (await harness.manager()).create()
    state = await session.conversation()
    said(state, *"abcdef")
    compacted(state, summary=SUMMARY)
    said(state, *"ghij")
    compacted(state, summary="Goal: and what was said up to i.")
    said(state, *questions("q", 4 if by_state else 12))
    await session.commit(state)
    if by_state:
        state = await session.conversation()
        assert state.undo() == "compact"
        await session.commit(state)
    else:
        assert await session.undo() == "compact"
    loaded = await reloaded(harness, session)
    assert loaded.latest_summary is not None
    assert SUMMARY in loaded.latest_summary[0]
    assert SUMMARY in summary_of(loaded.preview(BUDGET))
    assert SUMMARY in summary_of(await (await elsewhere(harness, session)).preview(BUDGET))
    assert shown(from_json(to_json(loaded))) == shown(loaded)


@pytest.mark.req("I4", "D5")
@pytest.mark.usefixtures("limit")
@pytest.mark.parametrize("summary", [SUMMARY, None], ids=["by a model", "digest"])
@run
async def test_a_summary_is_still_there_when_an_undo_is_not_loaded_any_more(
    harness: Harness, summary: str | None
) -> None:
    session = await long_session(harness, summary=summary)
    state = await reloaded(harness, session)
    before = state.latest_summary
    assert before is not None
    compacted(state)
    state.undo()
    assert state.latest_summary == before
    await session.commit(state)
    assert (await reloaded(harness, session)).latest_summary == before
    said(state, *questions("r"))
    await session.commit(state)
    loaded = await reloaded(harness, session)
    assert shown(loaded) == shown(state)
    assert loaded.latest_summary is not None
    assert loaded.latest_summary == state.latest_summary
    for window in (loaded.preview(BUDGET), await (await elsewhere(harness, session)).preview(BUDGET)):
        assert loaded.latest_summary[0] in summary_of(window)
        assert "“a”" in summary_of(window)
        assert summary is None or summary in summary_of(window)


@pytest.mark.req("I4", "D5")
@pytest.mark.usefixtures("limit")
@run
async def test_a_compaction_that_was_undone_leaves_no_summary_however_long_it_goes_on(
    harness: Harness,
) -> None:
    session = await (await harness.manager()).create()
    state = await session.conversation()
    said(state, *"abcdef")
    compacted(state, summary=SUMMARY)
    state.undo()
    said(state, *questions("q"))
    await session.commit(state)
    loaded = await reloaded(harness, session)
    assert SUMMARY not in summary_of(loaded.preview(BUDGET))
    assert loaded.latest_summary is not None
    assert loaded.latest_summary[1].details == {"operation": "cap"}
    assert shown(loaded) == shown(state)


def write_files(tracking: LineTracking, state: ConversationState, folder: Path, numbers: range) -> None:
    """Let the agent write a file in each exchange."""
    for number in numbers:
        path = folder / f"file{number}.py"
        tracking.before_write(path, creates=True)
        path.write_text("x\n")
        tracking.created(path, "x\n")
        tracking.reported(path)
        said(state, f"write {number}")


async def beside_messages(session: Session) -> int:
    """Count the bytes of all entries on the path that are no messages."""
    return sum(len(row.body) for row in await rows(session) if row.kind != "message")


@pytest.mark.req("I1", "G5")
@run
async def test_the_log_grows_by_as_much_for_the_200th_tracked_file_as_for_the_100th(
    harness: Harness, tmp_path: Path
) -> None:
    session = await (await harness.manager()).create()
    state = await session.conversation()
    tracking = LineTracking(state, tmp_path)
    sizes = list[int]()
    for numbers in (range(100), range(100, 200)):
        write_files(tracking, state, tmp_path, numbers)
        await session.commit(state)
        sizes.append(await beside_messages(session))
    assert sizes[1] < 400_000
    assert sizes[1] < 3 * sizes[0]
    assert len(state.file_line_tracker) == 200
    assert (await reloaded(harness, session)).file_line_tracker == state.file_line_tracker


@pytest.mark.req("I1", "I4")
@run
async def test_settings_that_changed_before_the_part_that_is_loaded_still_count_and_newer_tracked_files(
    harness: Harness, tmp_path: Path, limit: int
) -> None:
    session = await (await harness.manager()).create()
    state = await session.conversation()
    state.tools = {ToolOrigin("builtin"): [LS]}
    state.set_model("gpt-4o")
    tracking = LineTracking(state, tmp_path)
    write_files(tracking, state, tmp_path, range(4 * limit))
    await session.commit(state)
    loaded = await reloaded(harness, session)
    assert len(loaded.history) == limit
    assert len(loaded.file_line_tracker) >= limit - 1  # those that were written in the part that is loaded
    assert loaded.file_line_tracker.items() <= state.file_line_tracker.items()
    assert (loaded.tools, loaded.model_info) == (state.tools, state.model_info)
    assert shown(from_json(to_json(loaded))) == shown(loaded)


@pytest.mark.req("I1", "J1")
@run
async def test_tracked_files_go_with_the_timeline_that_they_were_written_on(
    harness: Harness, tmp_path: Path
) -> None:
    session = await (await harness.manager()).create()
    state = await session.conversation()
    tracking = LineTracking(state, tmp_path)
    write_files(tracking, state, tmp_path, range(3))
    moment, before = len(state.head.entries), dict(state.file_line_tracker)
    write_files(tracking, state, tmp_path, range(2, 5))
    main = dict(state.file_line_tracker)
    state.begin_tangent()
    write_files(tracking, state, tmp_path, range(4, 7))
    aside = dict(state.file_line_tracker)
    await session.commit(state)
    loaded = await reloaded(harness, session)
    assert loaded.file_line_tracker == aside
    for one in (state, loaded):
        one.exit_tangent_mode()
        assert one.file_line_tracker == main
        one.restore_moment(moment)
        assert one.file_line_tracker == before
    await session.commit(state)
    assert (await reloaded(harness, session)).file_line_tracker == before
    assert from_json(to_json(state)).file_line_tracker == before


@pytest.mark.req("I1")
@run
async def test_a_setting_that_is_taken_away_stays_away(harness: Harness, tmp_path: Path) -> None:
    session = await (await harness.manager()).create()
    state = await session.conversation()
    state.set_model("gpt-4o")
    write_files(LineTracking(state, tmp_path), state, tmp_path, range(2))
    state.extra = {"theme": "dark"}
    state.set_next_user_message("hello")
    await session.commit(state)
    state.model_info = None
    state.extra = {}
    state.file_line_tracker = {}
    state.push_assistant_message(Message.assistant("hi"))
    await session.commit(state)
    loaded = await reloaded(harness, session)
    assert (loaded.model_info, loaded.extra, loaded.file_line_tracker) == (None, {}, {})
    assert plain(loaded) == plain(state)
