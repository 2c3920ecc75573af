"""Operations read a few entries, and the same ones in a short conversation and in a long one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from tests.unit.conversation.conversation_fixtures import call, exchanges, result, talk, work, write
from turnstate import Message
from turnstate.context.cut import Strategy
from turnstate.conversation import ConversationState
from turnstate.conversation.kept_settings import changed
from turnstate.entry import Answer, Checkpoint, ModelChange, Note, Restore, Usage
from turnstate.errors import NotFound
from turnstate.log import operations
from turnstate.log.memory_log import MemoryLog
from turnstate.log.operations import FEW, Effect, Here, Operation, Placed, Read, Slice, known_calls
from turnstate.log.path import CUTS
from turnstate.log.tangents import begin, kept, leave, reopen
from turnstate.log.undo import UNDO_KINDS, fork, restore, rewind, undo, undo_restore

SHORT, LONG = 20, 1_000
"""The exchanges of a short and of a long conversation."""


class Reads(NamedTuple):
    """What an operation returned, the entries that it read, and the reads in which it did."""

    effect: Effect
    placed: list[Placed]
    shapes: list[tuple[type[Read], int]]

    @property
    def said(self) -> list[str]:
        """The texts of the messages that were read, each once, in the order of the log."""
        found = {one.place: one.message.text for one in self.placed if one.message}
        return [found[place] for place in sorted(found)]

    @property
    def kinds(self) -> set[str]:
        return {one.kind for one in self.placed}


def reads_of(log: MemoryLog, operation: Operation) -> Reads:
    """Run an operation, apply nothing, and return what it read."""
    steps, answer = operation(Here(log.id, log.head, 1)), None
    placed, shapes = list[Placed](), list[tuple[type[Read], int]]()
    while True:
        try:
            read = steps.send(answer)
        except StopIteration as end:
            return Reads(end.value, placed, shapes)
        answer = log.answer(read)
        found: Any = list(answer.values()) if isinstance(answer, dict) else answer
        placed += [one for one in found if isinstance(one, Placed)]
        shapes.append((type(read), len(found)))


def conversation(length: int) -> ConversationState:
    """Return a conversation with so many exchanges and their usage, and marks of each kind before them."""
    state = ConversationState("c")
    state.set_system("Keep.")
    state.set_model("gpt-4o")
    talk(state, "before the tangent")
    state.begin_tangent()
    talk(state, "aside")
    state.exit_tangent_mode()
    for number in range(length):
        write(state, Message.user(f"question {number}"), Message.assistant(f"answer {number}"))
        state.log.add(Usage(input=1))
    return state


Scene = Callable[[ConversationState], Operation]


def asking(state: ConversationState) -> None:
    state.set_next_user_message("go")
    state.push_assistant_message(Message.assistant("calling", tool_calls=[call("ls"), call("cat")]))


def aside(state: ConversationState, *words: str) -> None:
    state.begin_tangent()
    talk(state, *words)


def compacted(state: ConversationState) -> None:
    plan = state.plan_compaction(Strategy(keep=1))
    assert plan is not None
    state.compact(plan)


def clear(state: ConversationState) -> Operation:
    asking(state)
    return operations.clear()


def begin_early(state: ConversationState) -> Operation:
    return begin(at=state.messages[8].id)


def leave_with_tail(state: ConversationState) -> Operation:
    aside(state, *map(str, range(30)))
    return leave("tail")


def leave_with_tail_of_calls(state: ConversationState) -> Operation:
    aside(state, *map(str, range(30)))
    work(state, "look", call("ls"), call("cat"), call("rm"))
    return leave("tail")


def leave_with_digest(state: ConversationState) -> Operation:
    aside(state, "one", "two", "three")
    return leave("summary")


def leave_with_summary(state: ConversationState) -> Operation:
    aside(state, *map(str, range(30)))
    return leave("summary", "short")


def leave_with_nothing(state: ConversationState) -> Operation:
    aside(state, *map(str, range(30)))
    return leave()


def reopen_first(state: ConversationState) -> Operation:
    return reopen(state.kept_tangents()[0].name)


def rewind_far(state: ConversationState) -> Operation:
    return rewind(state.messages[8].id)


def fork_here(_: ConversationState) -> Operation:
    return fork()


def fork_far(state: ConversationState) -> Operation:
    return fork(state.messages[8].id)


SAVED = Checkpoint(label="1", commit="a" * 40, work_tree="/work")
MARK = Restore(label="1", commit="a" * 40)


def restore_checkpoint(state: ConversationState) -> Operation:
    asking(state)
    number = state.log.add(SAVED).seq
    talk(state, "since")
    return restore(number, SAVED, MARK)


def undo_of_a_restore(state: ConversationState) -> Operation:
    number = state.log.add(SAVED).seq
    state.log.operate(restore(number, SAVED, MARK), now=1)
    return undo_restore(state.log.head.seq)


def undo_of_a_compaction(state: ConversationState) -> Operation:
    compacted(state)
    talk(state, *map(str, range(30)))
    return undo()


def undo_of_a_clearing(state: ConversationState) -> Operation:
    state.clear()
    talk(state, *map(str, range(30)))
    return undo()


def undo_of_an_exit(state: ConversationState) -> Operation:
    aside(state, *map(str, range(30)))
    state.exit_tangent_mode()
    talk(state, *map(str, range(30)))
    return undo()


def undo_of_a_tangent(state: ConversationState) -> Operation:
    aside(state, *map(str, range(30)))
    return undo()


def write_a_note(_: ConversationState) -> Operation:
    return operations.write(Note("503"))


def set_model(_: ConversationState) -> Operation:
    return operations.set_model(ModelChange("gpt-4.1", "o200k_base"))


def change_settings(_: ConversationState) -> Operation:
    return operations.change_settings(changed({"mcp_enabled": False}))


def record_lines(_: ConversationState) -> Operation:
    return operations.record_lines({"a.py": {"lines": 1}})


def begin_here(_: ConversationState) -> Operation:
    return begin()


def list_tangents(_: ConversationState) -> Operation:
    return kept()


SCENES: list[Scene] = [
    write_a_note,
    set_model,
    change_settings,
    record_lines,
    clear,
    begin_here,
    begin_early,
    leave_with_nothing,
    leave_with_tail,
    leave_with_tail_of_calls,
    leave_with_digest,
    leave_with_summary,
    list_tangents,
    reopen_first,
    fork_here,
    fork_far,
    rewind_far,
    restore_checkpoint,
    undo_of_a_restore,
    undo_of_a_compaction,
    undo_of_a_clearing,
    undo_of_an_exit,
    undo_of_a_tangent,
]


def read_in(scene: Scene, length: int = LONG) -> Reads:
    state = conversation(length)
    operation = scene(state)
    return reads_of(state.log, operation)


@pytest.mark.req("J2")
@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_an_operation_reads_no_more_in_a_long_conversation_than_in_a_short_one(scene: Scene) -> None:
    short, long = read_in(scene, SHORT), read_in(scene, LONG)
    assert long.shapes == short.shapes
    assert len(long.placed) < 100
    assert not long.effect.is_nothing or scene is list_tangents


@pytest.mark.req("J2")
@pytest.mark.parametrize("scene", [write_a_note, record_lines, begin_here, fork_here])
def test_what_is_written_at_the_head_reads_nothing(scene: Scene) -> None:
    assert read_in(scene).shapes == []


@pytest.mark.req("M1")
@pytest.mark.parametrize(("scene", "kinds"), [(set_model, {"model"}), (change_settings, {"model"})])
def test_settings_and_models_are_read_by_their_kind(scene: Scene, kinds: set[str]) -> None:
    assert read_in(scene).kinds == kinds


@pytest.mark.req("J3")
def test_the_tail_reads_the_last_exchange_the_first_words_and_what_waits() -> None:
    found = read_in(leave_with_tail)
    texts = [entry.text for entry in found.effect.entries if isinstance(entry, Message)]
    assert texts == ["29", "answer to 29"]
    first = ["0", "answer to 0", "1", "answer to 1", "2", "answer to 2", "3"]  # with the tangent's beginning
    ends = found.said[found.said.index("3") + 1 :]
    assert found.said[: -len(ends)][-len(first) :] == first
    assert set(ends) == {text for number in range(26, 30) for text in (f"{number}", f"answer to {number}")}


@pytest.mark.req("J3", "A8")
def test_a_tail_that_answers_results_reads_back_to_the_question() -> None:
    found = read_in(leave_with_tail_of_calls)
    said = [entry.role for entry in found.effect.entries if isinstance(entry, Message)]
    assert said == ["user", "assistant", "tool", "assistant"]
    assert "look" in found.said
    assert "15" not in found.said


@pytest.mark.req("J4")
def test_a_summary_reads_the_entries_of_the_tangent_and_none_from_before_it() -> None:
    found = read_in(leave_with_digest)
    own = [text for word in ("one", "two", "three") for text in (word, f"answer to {word}")]
    assert [text for text in found.said if text in own] == own
    assert set(found.said) - set(own) == set()
    given = read_in(leave_with_summary)
    assert len(given.placed) < 2 * FEW


@pytest.mark.req("J4")
@pytest.mark.parametrize("scene", [begin_early, fork_far, rewind_far])
def test_a_place_in_the_past_is_found_with_its_round(scene: Scene) -> None:
    state = conversation(LONG)
    message, operation = state.messages[8], scene(state)
    found = reads_of(state.log, operation)
    last = max(one.seq for one in found.placed)
    assert next(one.id for one in found.placed if one.seq == last) == message.id
    assert all(last - FEW < one.seq for one in found.placed)


@pytest.mark.req("I8")
def test_clearing_reads_the_last_round_the_marks_and_the_first_and_last_words() -> None:
    found = read_in(clear)
    answers = [entry for entry in found.effect.entries if isinstance(entry, Answer)]
    assert len(answers) == 2
    assert found.said[0] == "before the tangent"
    assert found.said[-1] == "calling"
    pages = [shape for shape in found.shapes if shape[0] is Slice]
    assert len(pages) == 3
    assert all(count <= FEW for _, count in pages)


@pytest.mark.req("D5")
@pytest.mark.parametrize(
    "scene",
    [undo_of_a_compaction, undo_of_a_clearing, undo_of_a_tangent, undo_of_a_restore],
)
def test_undo_reads_marks_by_their_kind_and_no_messages(scene: Scene) -> None:
    assert read_in(scene).kinds <= {*UNDO_KINDS, *CUTS}


@pytest.mark.req("D5", "J2")
def test_undo_of_an_exit_reads_no_message_but_the_last_of_the_tangent() -> None:
    found = read_in(undo_of_an_exit)
    assert found.said == ["answer to 29"]
    assert found.kinds == {"message", "tangent"}


@pytest.mark.req("J2")
def test_tangents_are_listed_by_their_marks() -> None:
    assert read_in(list_tangents).kinds == {"tangent"}
    assert read_in(reopen_first).kinds == {"tangent"}


@pytest.mark.req("J3")
def test_the_tail_does_not_depend_on_the_length_of_the_tangent() -> None:
    def tail(length: int) -> Reads:
        state = conversation(SHORT)
        aside(state, *map(str, range(length)))
        return reads_of(state.log, leave("tail"))

    assert tail(30).shapes == tail(300).shapes


@pytest.mark.req("A5")
def test_results_read_back_to_their_calls_and_no_further() -> None:
    log = MemoryLog("c")
    for message in exchanges(500, a_turn=2):
        log.add(message)
    one = call()
    log.add(Message.assistant(tool_calls=[one]))
    given = Message.tool([result(one)])
    read = 0

    def counted(_: Here) -> Any:
        nonlocal read
        steps, answer = known_calls(log.path(), [given]), None
        while True:
            try:
                answer = yield steps.send(answer)
            except StopIteration:
                return Effect()
            read += len(answer)

    log.operate(counted, now=1)
    assert read == FEW


@pytest.mark.req("J4")
def test_a_place_that_is_not_on_the_path_is_not_found() -> None:
    state = conversation(SHORT)
    aside(state, "elsewhere")
    there = state.messages[-1].id
    state.exit_tangent_mode()
    with pytest.raises(NotFound, match="on this path"):
        state.begin_tangent(at=there)
    assert state.log.operate(fork(there), now=1).result is None
    assert state.log.walk(state.log.path())[-1].id == there
