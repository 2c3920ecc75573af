"""What a conversation shows: the fold of a path to any place is what was shown there, and stays so."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from tests.unit.conversation.conversation_fixtures import prompts, talk, tool, validate, write
from turnstate import Message
from turnstate.context.cut import Strategy
from turnstate.conversation import ConversationState, FileLineTracker, ToolOrigin, fields, from_json, to_json
from turnstate.conversation.shown import DAMAGED, ShownConversation
from turnstate.entry import Checkpoint, Cut, ModelChange, Prompt, SettingsChange, Summary
from turnstate.log.memory_log import MemoryLog
from turnstate.log.operations import Placed
from turnstate.log.path import between
from turnstate.stores.values import Position


class Moment(NamedTuple):
    """What a conversation showed after an entry."""

    message: str
    place: Position
    fields: dict[str, Any]


def eventful() -> tuple[ConversationState, list[Moment]]:
    """Return a conversation in which everything happens, and what it showed at moments on the way."""
    state = ConversationState("c")
    moments = list[Moment]()

    def note() -> None:
        state.record_settings()
        moments.append(Moment(state.messages[-1].id, state.log.head, fields(state)))

    state.set_system("Keep.")
    talk(state, "a", "b", "c")
    note()
    state.append_transcript("503")
    state.tools = {ToolOrigin("builtin"): [tool("ls")]}
    talk(state, "d")
    note()
    plan = state.plan_compaction(Strategy(keep=1))
    assert plan is not None
    state.compact(plan, "Goal: light.")
    talk(state, "e")
    note()
    state.set_model("gpt-4o")
    state.file_line_tracker = {"a.py": FileLineTracker(lines=1)}
    state.set_next_user_message("waiting")
    note()
    state.add(Checkpoint(label="0", commit="a" * 40, work_tree="/work"))
    state.clear()
    talk(state, "f")
    note()
    state.undo()
    talk(state, "g")
    note()
    state.clear()
    state.undo()
    talk(state, "h")
    note()
    return state, moments


MOMENTS = pytest.mark.parametrize("number", range(7))


def shown_at(log: MemoryLog, place: Position) -> ShownConversation:
    shown = ShownConversation()
    shown.extend(log.walk(log.path(place)))
    return shown


def looks(shown: ShownConversation) -> tuple[Any, ...]:
    """Return everything that is shown."""
    return (
        shown.live_history,
        shown.pending,
        shown.lines,
        shown.latest_summary,
        shown.settings,
        shown.trackers,
        shown.checkpoints_since_start,
        shown.open_calls,
        shown.fold.prompt,
        shown.fold.model,
    )


@pytest.mark.req("I1", "I9")
@MOMENTS
def test_the_fold_of_a_path_to_any_place_is_what_was_shown_there(number: int) -> None:
    state, moments = eventful()
    moment = moments[number]
    shown = shown_at(state.log, moment.place)
    then = from_json(moment.fields)  # a document without our part has only what was shown
    assert shown.live_history == then.history
    assert shown.lines == then.transcript
    assert shown.trackers == then.file_line_tracker
    assert [message.id for message in shown.pending] == [message.id for message in then.shown.pending]
    grown = shown_at(state.log, moments[0].place)
    for one in state.log.walk(
        between(state.log.path(moment.place), grown.placed[-1].seq + 1, moment.place.seq)
    ):
        grown.add(one)
    assert looks(grown) == looks(shown)


@pytest.mark.req("J4")
@MOMENTS
def test_a_tangent_from_the_past_shows_what_was_shown_then(number: int) -> None:
    state, moments = eventful()
    moment = moments[number]
    state.begin_tangent(at=moment.message)
    place = state.log.branches[2].fork_seq
    shown = {**fields(state), "tangent_state": None}
    if place == moment.place.seq:
        assert shown == {**moment.fields, "tangent_state": None}
    assert looks(state.shown) == looks(shown_at(state.log, Position(1, place)))
    restored = from_json(to_json(state))
    assert {**fields(restored), "tangent_state": None} == shown
    for one in (state, restored):
        talk(one, "aside")
        one.set_next_user_message("and?")
        validate(one.preview(), one)
    texts = [[message.text for message in one.preview().messages] for one in (state, restored)]
    assert texts[0] == texts[1]
    for one in (state, restored):
        one.exit_tangent_mode()
        assert fields(one) == moments[-1].fields


@pytest.mark.req("I1")
def test_a_clearing_that_is_undone_behind_a_tangent_gives_back_what_waited() -> None:
    state = ConversationState("c")
    talk(state, "a")
    state.set_next_user_message("waiting")
    state.clear()
    talk(state, "b")
    state.begin_tangent()
    talk(state, "t")
    state.exit_tangent_mode()
    assert [state.undo() for _ in range(3)] == ["tangent exit", "tangent", "clear"]
    assert state.history[0].user.prompt == "a"
    assert [message.text for message in state.history[1].user.messages] == ["waiting", "b"]
    state.reopen_tangent(state.kept_tangents()[0].name)
    assert prompts(state) == ["b", "t"]


@pytest.mark.req("J4", "I9")
def test_600_nested_tangents_are_written_as_json_and_read() -> None:
    state = ConversationState("c")
    talk(state, "a")
    for number in range(600):
        state.begin_tangent()
        state.append_transcript(f"level {number}")
    talk(state, "deep")
    restored = from_json(to_json(state))
    assert fields(restored) == fields(state)
    assert prompts(restored) == ["a", "deep"]
    for _ in range(600):
        restored.exit_tangent_mode()
    assert not restored.is_in_tangent_mode()
    assert [one.opening for one in restored.kept_tangents()] == ["deep"]


# The newest part of a path.


def cut_of(state: ConversationState, summary: str) -> Cut:
    plan = state.plan_compaction(Strategy(keep=1))
    assert plan is not None
    return state.compact(plan, summary)


@pytest.mark.req("I1")
def test_the_newest_part_shows_what_is_in_force_from_before_it() -> None:
    state = ConversationState("c")
    state.set_system("Keep.")
    state.set_model("gpt-4o")
    state.mcp_enabled = False
    talk(state, "a", "b", "c")
    cut = cut_of(state, "Goal: light.")
    talk(state, "d", "e")
    path = state.log.path()
    entries = [one.entry for one in state.log.walk(path)]
    summary = next(one for one in entries if isinstance(one, Summary))
    first = next(one.seq for one in state.log.walk(path) if one.message and one.message.text == "d")
    part = ShownConversation(first)
    for entry in entries[: first - 1]:
        if isinstance(entry, Prompt | ModelChange | SettingsChange):
            part.recall(entry)
    part.recall(cut)
    part.recall(summary)
    part.extend(state.log.walk(between(path, first, state.log.head.seq)))
    assert [entry.user.prompt for entry in part.history] == ["d", "e"]
    assert part.latest_summary == state.latest_summary
    assert part.latest_summary is not None
    assert (part.cut, part.first_kept(cut)) == (cut, 0)
    assert (part.fold.prompt, part.fold.model) == ("Keep.", state.shown.fold.model)
    assert part.settings == state.shown.settings


@pytest.mark.req("I6", "G7")
def test_a_damaged_entry_is_a_line_of_the_transcript() -> None:
    state = ConversationState("c")
    talk(state, "a", "b")
    entries = state.log.entries[1]
    entries[2] = entries[2]._replace(entry=None)
    shown = shown_at(state.log, state.log.head)
    assert shown.lines.count(DAMAGED) == 1
    assert [message.text for message in shown.history[1].user.messages] == []
    assert shown.history[1].assistant.text == "answer to b"


@pytest.mark.req("I4")
def test_a_checkpoint_has_its_number_in_the_log() -> None:
    shown = ShownConversation()
    write(state := ConversationState("c"), Message.user("hello"))
    state.log.add(Checkpoint(label="0", commit="a" * 40, work_tree="/work"))
    state.log.add(Checkpoint(label="1", commit="b" * 40))
    shown.extend(state.log.walk(state.log.path()))
    assert [(number, one.label) for number, one in shown.checkpoints_since_start] == [(2, "0"), (3, "1")]
    shown.add(Placed(1, 9, "x", "checkpoint", Checkpoint(label="0", commit="c" * 40, work_tree="/other")))
    assert [(number, one.commit[0]) for number, one in shown.checkpoints_since_start] == [(9, "c")]
