"""Conversations that are longer than a history may be: what was decided and set before it still counts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from tests.harness.state_cap import state_cap
from tests.harness.thoroughness import runs
from tests.unit.session.session_fixtures import Harness, entries, everything, parcels, rows, run
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
from turnstate.conversation import FileLineTracker, ToolOrigin, amazon_q, fields, from_json, to_json
from turnstate.conversation.edits import LineTracking
from turnstate.entry import Checkpoint, Cut
from turnstate.errors import NothingToUndo, SessionError
from turnstate.log.operations import write
from turnstate.session import Session
from turnstate.testing import ScriptedModel
from turnstate.toolspec import ToolSpec

LIMIT = 6
AT_CAP = 5  # exchanges that the cut at the limit keeps
SUMMARY = "Goal: what was said from a to e."
LS = ToolSpec(name="ls", description="lists", input_schema={"type": "object", "properties": {}})


@pytest.fixture
def limit() -> Iterator[int]:
    """Let a history have a few exchanges instead of 10,000."""
    with state_cap(LIMIT) as cap:
        yield cap


def questions(letter: str, count: int = 2 * LIMIT) -> list[str]:
    return [f"{letter}{number}" for number in range(count)]


async def compacted(session: Session, *, keep: int = 1, summary: str | None = None) -> None:
    """Compact a session, with a summary that a model wrote if one is given."""
    if summary is not None:
        session.summarize_with(ScriptedModel(summary))
    await session.compact(BUDGET, strategy=Strategy(keep=keep), model=summary is not None)


def asked(window: Window) -> list[str]:
    return [message.text for message in window.messages if message.role == "user"]


def summary_of(window: Window) -> str:
    """Return the summary that a window begins with; none where it does not."""
    return window.messages[0].text if window.messages[0].kind == "summary" else ""


async def long_session(harness: Harness, *, summary: str | None = SUMMARY) -> Session:
    """Return a session with a compaction, and more exchanges behind it than a history may have."""
    session = await (await harness.manager()).create()
    await said(session, *"abcdef")
    await compacted(session, summary=summary)
    await said(session, *questions("q"))
    return session


@pytest.mark.req("I4", "I5")
@run
async def test_views_and_windows_show_the_same_at_the_cap(harness: Harness, limit: int) -> None:
    session = await (await harness.manager()).create()
    for number, question in enumerate(questions("q", 5 * limit), start=1):
        await said(session, question)
        windows = [await one.window(BUDGET) for one in (session, await elsewhere(harness, session))]
        view = await reloaded(harness, session, last=10 * limit)
        assert len(view.history) == min(number, limit)
        kept = view.history[slice(*view.valid_history_range)]
        windows.append(from_json(to_json(view)).preview(BUDGET))
        for window in windows:
            assert asked(window) == [entry.user.prompt for entry in kept]
            assert window.messages == windows[0].messages
            validate(window)
        default = await reloaded(harness, session)
        assert default.history == kept  # it begins with what the newest cut keeps
    cuts = [entry for entry in await entries(session) if isinstance(entry, Cut)]
    assert [cut.asked for cut in cuts] == [{"operation": "cap"}] * len(cuts)
    assert [kind_of(cut) for cut in cuts] == ["cut"] * len(cuts)
    with pytest.raises(NothingToUndo):
        await session.undo()


@pytest.mark.req("I4")
@run
async def test_the_cut_at_the_cap_is_recorded_by_windows_only(harness: Harness, limit: int) -> None:
    session = await (await harness.manager()).create()
    await said(session, *questions("q", 3 * limit))
    before = await everything(session)
    for last in (None, 1, limit, 10 * limit):
        view = await session.conversation(last=last)
        assert len(view.history) == min(last or limit, limit)
        assert view.history[-1].user.prompt == f"q{3 * limit - 1}"
    await session.preview(BUDGET)
    assert await everything(session) == before
    await session.window(BUDGET)
    (cut,) = [entry for entry in await entries(session) if isinstance(entry, Cut)]
    assert cut.asked == {"operation": "cap"}


@pytest.mark.req("I4")
@pytest.mark.usefixtures("limit")
@run
async def test_messages_that_leave_at_the_cap_are_handed_to_the_memory_engine_once(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    for question in questions("q", 20):
        await said(session, question)
        await session.window(BUDGET)
    gone = await archived(session)
    assert gone == list(range(len(gone)))
    assert len(gone) == 2 * (20 - AT_CAP - 1)


@pytest.mark.req("I4", "D5")
@pytest.mark.usefixtures("limit")
@run
async def test_the_summary_of_what_is_not_loaded_is_shown(harness: Harness) -> None:
    session = await long_session(harness)
    window = await session.window(BUDGET)
    assert SUMMARY in summary_of(window)
    assert len(window.messages) == 1 + 2 * AT_CAP
    validate(window)
    other = await elsewhere(harness, session)
    assert (await other.preview(BUDGET)).messages == window.messages
    for last in (None, 2, 100):
        view = await other.conversation(last=last)
        assert view.latest_summary is not None
        assert SUMMARY in view.latest_summary[0]
        assert view.has_earlier


@pytest.mark.req("I4", "I9")
@run
async def test_a_long_conversation_lives_on_in_documents(harness: Harness, limit: int) -> None:
    session = await long_session(harness)
    window = await session.window(BUDGET)
    view = await reloaded(harness, session, last=100)
    assert view.valid_history_range == (limit - AT_CAP, limit)
    restored = from_json(to_json(view))
    assert plain(restored) == plain(view)
    assert restored.preview(BUDGET).messages == window.messages
    document = amazon_q.write(view)
    assert amazon_q.write(restored) == document
    assert len(document["history"]) == AT_CAP
    assert SUMMARY in document["latest_summary"][0]
    again = amazon_q.read(document)
    assert [entry.user.prompt for entry in again.history] == questions("q")[-AT_CAP:]


@pytest.mark.req("I4", "D5")
@pytest.mark.usefixtures("limit")
@pytest.mark.parametrize("since", [4, 12], ids=["still shown", "not loaded"])
@run
async def test_undoing_a_compaction_brings_the_summary_before_it_back(harness: Harness, since: int) -> None:
    session = await (await harness.manager()).create()
    await said(session, *"abcdef")
    await compacted(session, summary=SUMMARY)
    await said(session, *"ghij")
    await compacted(session, summary="Goal: and what was said up to i.")
    await said(session, *questions("q", since))
    assert await session.undo() == "compact"
    windows = [await one.preview(BUDGET) for one in (session, await elsewhere(harness, session))]
    view = await reloaded(harness, session, last=100)
    assert view.latest_summary is not None
    assert SUMMARY in view.latest_summary[0]
    for window in (*windows, from_json(to_json(view)).preview(BUDGET)):
        assert SUMMARY in summary_of(window)
        assert "up to i" not in summary_of(window)


@pytest.mark.req("I4", "D5")
@pytest.mark.usefixtures("limit")
@pytest.mark.parametrize("summary", [SUMMARY, None], ids=["by a model", "digest"])
@run
async def test_a_summary_is_still_there_when_an_undo_is_not_loaded_any_more(
    harness: Harness, summary: str | None
) -> None:
    session = await long_session(harness, summary=summary)
    await session.window(BUDGET)
    before = (await reloaded(harness, session)).latest_summary
    assert before is not None
    await compacted(session)
    await session.undo()
    assert (await reloaded(harness, session)).latest_summary == before
    await said(session, *questions("r"))
    window = await session.window(BUDGET)
    view = await reloaded(harness, session)
    assert view.latest_summary is not None
    for shown in (window, await (await elsewhere(harness, session)).preview(BUDGET)):
        assert view.latest_summary[0] in summary_of(shown)
        assert "“a”" in summary_of(shown)
        assert summary is None or summary in summary_of(shown)


@pytest.mark.req("I4", "D5")
@pytest.mark.usefixtures("limit")
@run
async def test_a_compaction_that_was_undone_leaves_no_summary_however_long_it_goes_on(
    harness: Harness,
) -> None:
    session = await (await harness.manager()).create()
    await said(session, *"abcdef")
    await compacted(session, summary=SUMMARY)
    await session.undo()
    assert (await reloaded(harness, session)).latest_summary is None
    await said(session, *questions("q"))
    assert SUMMARY not in summary_of(await session.window(BUDGET))
    view = await reloaded(harness, session)
    assert view.latest_summary is not None
    assert view.latest_summary[1].details == {"operation": "cap"}


# All who read a session show the same, in turns of any length and whatever happens.


BUDGETS = [Budget(150), Budget(400), Budget(1_200), BUDGET]


async def same_windows(harness: Harness, session: Session) -> None:
    """Assert that all who read a session show the same window, of no more exchanges than a history has."""
    for budget in BUDGETS:
        other = await elsewhere(harness, session)
        windows = [await session.preview(budget), await other.preview(budget)]
        for window in windows:
            assert window.messages == windows[0].messages, budget
            assert sum(one.role == "assistant" for one in window.messages) <= LIMIT
            if window.messages:
                validate(window)


async def same_views(harness: Harness, session: Session) -> None:
    """Assert that a view does not depend on how much is loaded, and that its document shows the same."""
    whole = await reloaded(harness, session, last=1_000)
    assert len(whole.history) <= LIMIT
    for last in (1, 3, None):
        view = await reloaded(harness, session, last=last)
        count = min(len(view.history), len(whole.history))
        assert count >= min(last or 1, len(whole.history))
        assert prompts(view)[len(view.history) - count :] == prompts(whole)[len(whole.history) - count :]
        assert (view.next_message, view.system, view.extra) == (
            whole.next_message,
            whole.system,
            whole.extra,
        )
        assert view.latest_summary == whole.latest_summary
        assert view.is_in_tangent_mode() == whole.is_in_tangent_mode()
    document = from_json(to_json(whole))
    assert (prompts(document), document.next_message) == (prompts(whole), whole.next_message)
    assert plain(from_json(to_json(document))) == plain(document)


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
async def test_a_session_that_nobody_looked_at_shows_everyone_the_same_at_the_cap(harness: Harness) -> None:
    for first in ("window", "view", "no one"):
        session = await (await harness.manager()).create()
        for message in exchanges(40, 3):
            await session.append(message)
        if first == "window":
            await session.window(BUDGET)
        if first == "view":
            await reloaded(harness, session)
        await same_windows(harness, session)
        await same_views(harness, session)
        window = await session.window(BUDGET)
        assert "question 0" in summary_of(window)
        (cut,) = [entry for entry in await entries(session) if isinstance(entry, Cut)]
        assert cut.asked == {"operation": "cap"}
        assert await archived(session) == list(range(2 * 36))


@pytest.mark.req("I4", "I5", "C4")
@pytest.mark.usefixtures("limit")
@pytest.mark.parametrize("looks", [True, False])
@run
async def test_the_question_of_a_turn_that_is_longer_than_the_cap_stays(
    harness: Harness, looks: bool
) -> None:
    session = await (await harness.manager()).create()
    for number, message in enumerate(exchanges(30, 100)):
        await session.append(message)
        if looks and number % 5 == 4:
            await session.window(BUDGET)
            await same_windows(harness, session)
    await same_windows(harness, session)
    assert asked(await session.window(BUDGET))[-1] == "question 0"
    assert len((await session.conversation()).history) <= LIMIT


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
    for seed in range(runs(3, long=40)):
        rng, session = Random(seed), await (await harness.manager()).create()
        left = exchanges(400, rng.choice([1, 2, 3, 5, 20]))
        moves = ["rewind", "begin", "leave", "tail", "reopen"] if seed % 2 else []
        for _ in range(25):
            moved = session.info.branch
            match rng.choice(["append", "append", "append", "window", "compact", "clear", "undo", *moves]):
                case "append":
                    await session.append(*(left.pop(0) for _ in range(rng.choice([1, 2, 9, 16]))))
                case "window":
                    await session.window(rng.choice(BUDGETS))
                case "compact":
                    strategy = Strategy(keep=rng.choice([1, 3]))
                    with suppress(SessionError):  # there is nothing to compact
                        await session.compact(rng.choice(BUDGETS), strategy=strategy, model=False)
                case "clear" if rng.random() < 0.3:
                    await session.clear()
                case "undo":
                    with suppress(NothingToUndo):
                        await session.undo()
                case "rewind" if messages := await session.messages():
                    await session.rewind(rng.choice(messages).id)
                case "begin" if messages := await session.messages():
                    await session.begin_tangent(at=rng.choice(messages).id)
                case "leave":
                    await session.leave_tangent()
                case "tail":
                    await session.leave_tangent("tail")
                case "reopen" if kept := await session.tangents():
                    await session.reopen_tangent(rng.choice(kept).name)
            while session.info.branch != moved and left[0].role != "user":
                left.pop(0)  # results of calls on another branch cannot be added
            await same_windows(harness, session)
            await same_views(harness, session)
            if not moves:  # what two branches share may leave on each of them
                await archived(session)


@pytest.mark.req("I4", "I5")
@run
async def test_going_back_in_a_long_conversation_shows_what_was_said_before(
    harness: Harness, limit: int
) -> None:
    for back in range(limit):
        for how in ("rewind", "tangent", "fork"):
            session = await long_session(harness)
            view = await reloaded(harness, session, last=100)
            answer = view.history[-1 - back].assistant.id
            match how:
                case "rewind":
                    await session.rewind(answer)
                case "tangent":
                    await session.begin_tangent(at=answer)
                case "fork":
                    await session.fork(at=answer)
            view = await reloaded(harness, session, last=100)
            assert prompts(view) == [f"q{n}" for n in range(2 * limit - back)][-limit:]
            await same_windows(harness, session)
            await same_views(harness, session)
            assert await session.undo() == how


@pytest.mark.req("I4", "J1")
@run
async def test_a_fork_where_a_tangent_began_is_shown_though_the_main_conversation_is_longer(
    harness: Harness, limit: int
) -> None:
    session = await (await harness.manager()).create()
    await said(session, *questions("q", 5 * limit))
    before = (await session.messages())[: 2 * limit + 6]
    await session.begin_tangent(at=before[-1].id)
    await said(session, "aside")
    await session.fork(at=before[-1].id)
    assert await session.messages() == before
    assert (await session.conversation()).messages == before[-2 * limit - 2 :]


# What is set, and the files that are tracked.


async def write_files(session: Session, tracking: LineTracking, folder: Path, numbers: range) -> None:
    """Let the agent write a file in each exchange."""
    for number in numbers:
        path = folder / f"file{number}.py"
        tracking.before_write(path, creates=True)
        path.write_text("x\n")
        tracking.created(path, "x\n")
        tracking.reported(path)
        new = tracking.unrecorded
        await session.record_lines(new)
        tracking.recorded(new)
        await said(session, f"write {number}")


async def beside_messages(session: Session) -> int:
    """Count the bytes of all entries on the path that are no messages."""
    return sum(len(row.body) for row in await rows(session) if row.kind != "message")


@pytest.mark.req("I1", "G5")
@run
async def test_the_log_grows_by_as_much_for_the_200th_tracked_file_as_for_the_100th(
    harness: Harness, tmp_path: Path
) -> None:
    session = await (await harness.manager()).create()
    tracking = LineTracking(tmp_path)
    sizes = list[int]()
    for numbers in (range(100), range(100, 200)):
        await write_files(session, tracking, tmp_path, numbers)
        sizes.append(await beside_messages(session))
    assert sizes[1] < 400_000
    assert sizes[1] < 3 * sizes[0]
    assert len(await session.lines()) == 200
    for known in (
        await (await elsewhere(harness, session)).lines(),
        (await reloaded(harness, session, last=1)).file_line_tracker,
    ):
        assert known == await session.lines() == tracking.records


@pytest.mark.req("I1", "I4")
@run
async def test_settings_and_files_from_before_the_part_that_is_loaded_still_count(
    harness: Harness, tmp_path: Path, limit: int
) -> None:
    session = await (await harness.manager()).create()
    await session.change_settings(tools={ToolOrigin("builtin"): [LS]})
    await session.set_model("gpt-4o")
    tracking = LineTracking(tmp_path)
    point = Checkpoint(label="1", commit="0" * 40, at=1)
    await session.operate(write(point))
    await write_files(session, tracking, tmp_path, range(4 * limit))
    await session.window(BUDGET)
    view = await reloaded(harness, session, last=100)
    assert len(view.history) == limit
    assert view.file_line_tracker == tracking.records
    assert (view.tools, view.model_info) == ({ToolOrigin("builtin"): [LS]}, await session.model())
    assert view.checkpoint_manager is not None
    assert view.checkpoint_manager.checkpoints == (point,)
    document = from_json(to_json(view))
    assert fields(document) == fields(view)


@pytest.mark.req("I1", "J1")
@run
async def test_tracked_files_go_with_the_branch_on_which_they_were_written(
    harness: Harness, tmp_path: Path
) -> None:
    session = await (await harness.manager()).create()
    tracking = LineTracking(tmp_path)

    async def known() -> dict[str, FileLineTracker]:
        found = await session.lines()
        assert await (await elsewhere(harness, session)).lines() == found
        assert (await reloaded(harness, session, last=100)).file_line_tracker == found
        return found

    await write_files(session, tracking, tmp_path, range(3))
    moment, before = (await session.messages())[-1].id, await known()
    await write_files(session, tracking, tmp_path, range(2, 5))
    main = await known()
    await session.begin_tangent()
    await write_files(session, tracking, tmp_path, range(4, 7))
    aside = await known()
    assert aside == tracking.records
    await session.leave_tangent()
    assert await known() == main
    await session.rewind(to=moment)
    assert await known() == before
    assert [await session.undo(), await session.undo()] == ["rewind", "tangent exit"]
    assert await known() == aside


@pytest.mark.req("I1")
@run
async def test_a_setting_that_is_taken_away_stays_away(harness: Harness, tmp_path: Path) -> None:
    session = await (await harness.manager()).create()
    await write_files(session, LineTracking(tmp_path), tmp_path, range(2))
    await session.change_settings(extra={"theme": "dark"}, tools={ToolOrigin("builtin"): [LS]})
    await session.append(Message.user("hello"))
    await session.change_settings(extra={}, tools={})
    await session.record_lines(dict.fromkeys(await session.lines()))
    await session.append(Message.assistant("hi"))
    for view in (await reloaded(harness, session), await reloaded(harness, session, last=1)):
        assert (view.tools, view.extra, view.file_line_tracker) == ({}, {}, {})
    assert await session.lines() == await (await elsewhere(harness, session)).lines() == {}
