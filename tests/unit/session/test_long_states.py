"""Conversations that are longer than a state holds: what was decided and set before it still counts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from tests.harness.state_cap import state_cap
from tests.harness.thoroughness import runs
from tests.unit.session.session_fixtures import Harness, entries, parcels, rows, run
from tests.unit.session.state_fixtures import (
    BUDGET,
    elsewhere,
    exchanges,
    plain,
    prompts,
    reloaded,
    said,
    validate,
)
from turnstate import Budget, Message
from turnstate.codec import kind_of
from turnstate.context.cut import Strategy
from turnstate.context.window import Window
from turnstate.conversation import ConversationState, ToolOrigin, amazon_q, fields, from_json, to_json
from turnstate.conversation.edits import LineTracking
from turnstate.entry import Cut
from turnstate.errors import NotFound, NothingToUndo
from turnstate.session import Session
from turnstate.toolspec import ToolSpec

LIMIT = 6
AT_CAP = 5  # exchanges that the cut at the limit keeps
SUMMARY = "Goal: what was said from a to e."
LS = ToolSpec(name="ls", description="lists", input_schema={"type": "object", "properties": {}})


@pytest.fixture
def limit() -> Iterator[int]:
    """Let a state hold a few exchanges instead of 10,000."""
    with state_cap(LIMIT) as cap:
        yield cap


def questions(letter: str, count: int = 2 * LIMIT) -> list[str]:
    return [f"{letter}{number}" for number in range(count)]


def compacted(state: ConversationState, *, keep: int = 1, summary: str | None = None) -> None:
    plan = state.plan_compaction(Strategy(keep=keep))
    assert plan is not None
    state.compact(plan, summary)


def asked(window: Window) -> list[str]:
    return [message.text for message in window.messages if message.role == "user"]


def summary_of(window: Window) -> str:
    """Return the summary that a window begins with; none where it does not."""
    return window.messages[0].text if window.messages[0].kind == "summary" else ""


async def long_session(harness: Harness, *, summary: str | None = SUMMARY) -> Session:
    """Return a session with a compaction, and more exchanges behind it than a state holds."""
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
        assert fields(loaded) == fields(live)
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
    assert fields(from_json(to_json(loaded))) == fields(loaded)


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
    assert fields(loaded) == fields(state)
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
    assert fields(loaded) == fields(state)


# The cap, whoever reaches it: a session that no state wrote, or a state, in turns of any length.


BUDGETS = [Budget(150), Budget(400), Budget(1_200), BUDGET]
MOVES = ["rewind", "restore", "begin", "exit"]


def live(state: ConversationState, budget: Budget) -> tuple[list[Message], list[str | None]]:
    """Return what a state shows: a window, and the questions of its history."""
    return list(state.preview(budget).messages), prompts(state)


async def same_windows(harness: Harness, session: Session, live: ConversationState | None = None) -> None:
    """Assert that all who read a session show the same window, of no more exchanges than a state holds."""
    for budget in BUDGETS:
        state, other = await reloaded(harness, session), await elsewhere(harness, session)
        windows = [await session.preview(budget), await other.preview(budget), state.preview(budget)]
        windows += [live.preview(budget)] if live else []
        for window in windows:
            assert window.messages == windows[0].messages, budget
            assert sum(one.role == "assistant" for one in window.messages) <= LIMIT
            if window.messages:
                validate(window)


async def archived(session: Session) -> list[int]:
    """Return the places of the messages that were handed to the memory engine; each was once."""
    messages = [message.id for message in await session.messages()]
    sent = [one for one in await parcels(session._writer.store, "archive") if one.session == session.id]
    ranges = [json.loads(one.body) for one in sent]
    places = [(messages.index(one["first"]), messages.index(one["last"])) for one in ranges]
    gone = [place for first, last in sorted(places) for place in range(first, last + 1)]
    assert len(gone) == len(set(gone))
    return gone


@pytest.mark.req("I4", "I5")
@pytest.mark.usefixtures("limit")
@run
async def test_a_session_that_no_state_wrote_shows_everyone_the_same_at_the_cap(harness: Harness) -> None:
    for first in ("session", "state", "no one"):
        session = await (await harness.manager()).create()
        for message in exchanges(40, 3):
            await session.append(message)
        if first == "session":
            await session.window(BUDGET)
        if first == "state":
            await reloaded(harness, session)
        await same_windows(harness, session)
        window = await session.window(BUDGET)
        assert "question 0" in summary_of(window)
        (cut,) = [entry for entry in await entries(session) if isinstance(entry, Cut)]
        assert cut.asked == {"operation": "cap"}
        assert await archived(session) == list(range(2 * 36))


@pytest.mark.req("I4", "I5", "C4")
@pytest.mark.usefixtures("limit")
@run
async def test_the_question_of_a_turn_that_is_longer_than_the_cap_stays(harness: Harness) -> None:
    for by_state in (True, False):
        session = await (await harness.manager()).create()
        state = await session.conversation()
        for number, message in enumerate(exchanges(30, 100)):
            if not by_state:
                await session.append(message)
                continue
            state.add(message)
            if number % 5 == 4:
                await session.commit(state)
                await same_windows(harness, session, state)
        if by_state:
            await session.commit(state)
        await same_windows(harness, session, state if by_state else None)
        assert asked(await session.window(BUDGET))[-1] == "question 0"


@pytest.mark.req("I4", "I5", "B1")
@pytest.mark.usefixtures("limit")
@run
async def test_cuts_that_start_after_the_cap_serve_as_before(harness: Harness) -> None:
    session, small = await (await harness.manager()).create(), [Budget(90), Budget(130)]
    for number, message in enumerate(exchanges(60, 2)):
        await session.append(message)
        if number % 5 == 0:
            before = [await session.window(budget) for budget in small]
    assert not any(entry.asked for entry in await entries(session) if isinstance(entry, Cut))
    before = [await session.window(budget) for budget in small]
    (cut,) = (await session.window(BUDGET)).decisions
    assert isinstance(cut, Cut)
    assert cut.asked == {"operation": "cap"}
    for budget, window in zip(small, before, strict=True):
        again = await session.window(budget)
        assert again.decisions == ()
        assert again.messages == window.messages
    await same_windows(harness, session)


@pytest.mark.req("I4", "I5")
@pytest.mark.usefixtures("limit")
@run
async def test_all_agree_at_the_cap_whatever_happens_in_which_order(harness: Harness) -> None:
    for seed in range(runs(2, long=40)):
        rng, session = Random(seed), await (await harness.manager()).create()
        state, said_so_far = await session.conversation(), exchanges(400, rng.choice([1, 2, 3, 5, 20]))
        moves, head = MOVES if seed % 2 else [], state.head
        for _ in range(25):
            if state.head is not head and moves:  # results of calls on another branch cannot be added
                head = state.head
                while said_so_far[0].role != "user":
                    said_so_far.pop(0)
            match rng.choice(
                ["append", "append", "say", "say", "window", "compact", "clear", "undo", "load", *moves]
            ):
                case "append":
                    await session.append(*(said_so_far.pop(0) for _ in range(rng.choice([1, 2, 9, 16]))))
                    state = await session.conversation()
                case "say":
                    for _ in range(rng.choice([1, 2, 9, 16])):
                        state.add(said_so_far.pop(0))
                case "window":
                    state.window(rng.choice(BUDGETS))
                case "compact" if plan := state.plan_compaction(Strategy(keep=rng.choice([1, 3]))):
                    state.compact(plan)
                case "clear" if rng.random() < 0.3:
                    state.clear()
                case "undo":
                    with suppress(NothingToUndo):
                        state.undo()
                case "load":
                    await session.commit(state)
                    state = await reloaded(harness, session)
                case "rewind" if state.messages:
                    await session.rewind(rng.choice(await session.messages()).id)
                    state = await session.conversation()
                case "restore":
                    with suppress(NotFound):
                        state.restore_moment(rng.randrange(len(state.head.entries) + 1))
                case "begin" if state.messages:
                    with suppress(NotFound):
                        state.begin_tangent(at=rng.choice(state.messages).id)
                case "exit":
                    state.exit_tangent_mode()
            before = [live(state, budget) for budget in BUDGETS]
            await session.commit(state)
            assert [live(state, budget) for budget in BUDGETS] == before
            assert fields(await reloaded(harness, session)) == fields(state)
            await same_windows(harness, session, state)
            if not moves:  # what two branches share may leave on each of them
                await archived(session)


@pytest.mark.req("I4", "I5")
@run
async def test_going_back_in_a_long_conversation_shows_as_much_live_as_loaded_again(
    harness: Harness, limit: int
) -> None:
    """It can go back to any of the exchanges that it shows, and nothing is missing before it is committed."""
    for back in range(limit):
        for how in ("restore", "tangent"):
            session = await long_session(harness)
            state = await reloaded(harness, session)
            if how == "restore":
                ends = [
                    n
                    for n, one in enumerate(state.head.entries, 1)
                    if getattr(one, "role", "") == "assistant"
                ]
                state.restore_moment(ends[-1 - back])
            else:
                state.begin_tangent(at=state.history[-1 - back].assistant.id)
            assert prompts(state) == [f"q{n}" for n in range(2 * limit - back)][-limit:]
            before = [live(state, budget) for budget in BUDGETS]
            await session.commit(state)
            assert [live(state, budget) for budget in BUDGETS] == before
            await same_windows(harness, session, state)
            assert fields(await reloaded(harness, session)) == fields(state)


@pytest.mark.req("I4", "J1")
@run
async def test_a_fork_where_a_tangent_began_is_loaded_though_the_main_conversation_begins_later(
    harness: Harness, limit: int
) -> None:
    session = await (await harness.manager()).create()
    state = await session.conversation()
    said(state, *questions("q", 5 * limit))
    before = state.messages[: 2 * limit + 6]  # more than a state shows, and less than is loaded
    state.begin_tangent(at=before[-1].id)
    said(state, "aside")
    await session.commit(state)
    await session.fork(at=before[-1].id)
    assert (await session.conversation()).messages == before


@pytest.mark.req("I4", "D5")
@run
async def test_a_step_of_a_state_to_what_is_not_loaded_is_refused_and_the_session_takes_it(
    harness: Harness, limit: int
) -> None:
    session = await (await harness.manager()).create()
    for message in exchanges(5 * limit, 1):  # no state and no window, so no cut at the cap
        await session.append(message)
    await session.compact(BUDGET)
    state = await reloaded(harness, session)
    before = (fields(state), len(state.head.entries), state.timelines.copy())
    with pytest.raises(NothingToUndo, match=r"session\.undo\(\), and load it again"):
        state.undo()
    for step in (
        lambda: state.restore_moment(3),
        lambda: state.begin_tangent(at=state.messages[3].id),
    ):
        with pytest.raises(NotFound, match=r"session\.rewind\(\)"):
            step()
    assert (fields(state), len(state.head.entries), state.timelines) == before
    await session.commit(state)
    assert await session.undo() == "compact"
    await session.catch_up(state)
    await same_windows(harness, session, state)
    await session.rewind(state.messages[3].id)
    await same_windows(harness, session, await session.conversation())


# What is set, and the files that are tracked.


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
    assert fields(from_json(to_json(loaded))) == fields(loaded)


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
