"""A log in memory: branches and entries have the numbers that a store gives them, and are read like there."""

from __future__ import annotations

import pytest

from turnstate import Message
from turnstate.entry import Answer, Checkpoint, Note, Prompt, Restore, Tangent
from turnstate.errors import NotFound, NothingToUndo
from turnstate.ids import CallId
from turnstate.log.memory_log import MemoryLog
from turnstate.log.operations import Branches, Effect, Find, Here, Newest, Operation, Slice, Steps, write
from turnstate.log.tangents import begin, kept, leave, reopen
from turnstate.log.undo import fork, restore, rewind, undo, undo_restore
from turnstate.stores.values import BranchRow, Fork, Position, Span

NOW = 7


def said(log: MemoryLog) -> list[str]:
    return [one.message.text for one in log.walk(log.path()) if one.message]


def run(log: MemoryLog, operation: Operation) -> object:
    return log.operate(operation, now=NOW).result


def talk(log: MemoryLog, *words: str) -> None:
    for one in words:
        log.add(Message.user(one))
        log.add(Message.assistant(f"answer to {one}"))


def questions(log: MemoryLog) -> list[str]:
    return [text for text in said(log) if not text.startswith("answer")]


@pytest.fixture
def log() -> MemoryLog:
    """Return a log with a prompt and two exchanges, and a branch after the first one with another."""
    log = MemoryLog("c")
    log.add(Prompt("Keep."))
    talk(log, "one", "two")
    log.apply(Effect(fork=Fork(parent=1, seq=3, name="b", operation="fork")), now=NOW)
    talk(log, "three")
    return log


def test_numbers_go_on_across_branches(log: MemoryLog) -> None:
    assert log.head == Position(2, 5)
    assert [(one.branch, one.seq) for one in log.walk(log.path())] == [(1, 1), (1, 2), (1, 3), (2, 4), (2, 5)]
    assert log.branches[2] == BranchRow(
        id=2, parent=1, fork_seq=3, created=NOW, name="b", operation="fork", former=1
    )
    assert (log.tip(1), log.tip(2)) == (Position(1, 5), Position(2, 5))
    assert questions(log) == ["one", "three"]


def test_the_tip_of_a_branch_without_entries_is_where_it_forked(log: MemoryLog) -> None:
    log.apply(Effect(fork=Fork(parent=2, seq=4, operation="rewind")))
    assert log.head == log.tip(3) == Position(3, 4)
    assert questions(log) == ["one", "three"]
    log.apply(Effect(select=1, entries=(Note("back"),)))
    assert log.head == Position(1, 6)


def test_what_is_read(log: MemoryLog) -> None:
    span, ids = Span(1, 1, 5), [one.id for one in log.entries[1]]

    def seqs(*slice: object) -> list[int]:
        found = log.answer(Slice(*slice))  # type: ignore[arg-type]
        assert isinstance(found, list)
        return [one.seq for one in found]

    assert seqs(span, None) == [1, 2, 3, 4, 5]
    assert seqs(span, 2) == [1, 2]
    assert seqs(span, 2, True) == [4, 5]
    assert seqs(span, 1, True, ("prompt",)) == [1]
    assert seqs(Span(1, 3, 4), None) == [3, 4]
    assert seqs(Span(2, 1, 4), None) == [4]
    found = log.answer(Newest(tuple(log.path()), ("message", "prompt", "cut")))
    assert isinstance(found, dict)
    assert {kind: one.place for kind, one in found.items()} == {
        "message": Position(2, 5),
        "prompt": Position(1, 1),
    }
    assert log.answer(Find((ids[4], "nowhere"))) == [log.entries[1][4]]
    assert log.answer(Branches()) == [log.branches[1], log.branches[2]]


def test_a_message_is_found_by_its_id_and_an_answer_by_the_message_that_shows_it(log: MemoryLog) -> None:
    answer = Answer.give(CallId("call"), "cancelled")
    placed = log.add(answer)
    assert answer.message is not None
    assert placed.id == answer.message.id
    assert log.answer(Find((placed.id,))) == [placed]
    assert log.answer(Find(("call",))) == []


def test_an_operation_that_fails_changes_nothing(log: MemoryLog) -> None:
    before = log.head, {branch: [*entries] for branch, entries in log.entries.items()}
    for operation in (rewind("nowhere"), begin("nowhere"), fork("nowhere"), reopen("nowhere")):
        with pytest.raises(NotFound):
            run(log, operation)
    assert (log.head, log.entries) == before


def test_an_operation_that_has_more_to_do_is_run_again() -> None:
    log, runs = MemoryLog("c"), list[Position]()

    def twice(here: Here) -> Steps[Effect]:
        yield from ()
        runs.append(here.head)
        return Effect(result=len(runs), entries=(Note(str(len(runs))),), again=len(runs) == 1)

    assert run(log, twice) == 2
    assert runs == [Position(1, 0), Position(1, 1)]


def test_an_entry_is_written_where_the_head_is(log: MemoryLog) -> None:
    run(log, write(Note("here"), Note("there")))
    assert [one.place for one in log.entries[2][-2:]] == [Position(2, 6), Position(2, 7)]


# Restores, in and around tangents.


def checkpoint(log: MemoryLog) -> int:
    """Add a checkpoint and return its number."""
    return log.add(Checkpoint(label="1", commit="a" * 40, work_tree="/work")).seq


def go_back(log: MemoryLog, number: int) -> int:
    """Restore a checkpoint and return the number of its mark."""
    saved = log.walk(log.path())[number - 1].entry
    assert isinstance(saved, Checkpoint)
    run(log, restore(number, saved, Restore(label="1", commit="a" * 40)))
    return log.head.seq


@pytest.fixture
def plain() -> MemoryLog:
    log = MemoryLog("c")
    talk(log, "a")
    return log


@pytest.mark.req("J2")
def test_a_tangent_in_which_a_restore_went_back_is_reopened_where_it_was_left(plain: MemoryLog) -> None:
    run(plain, begin())
    talk(plain, "t1")
    number = checkpoint(plain)
    talk(plain, "t2")
    go_back(plain, number)
    talk(plain, "t3")
    run(plain, leave())
    assert questions(plain) == ["a"]
    (left,) = run(plain, kept())  # type: ignore[misc]
    assert left.opening == "t1"
    run(plain, reopen(left.name))
    assert questions(plain) == ["a", "t1", "t3"]


@pytest.mark.req("J2")
def test_a_tangent_whose_restore_was_undone_is_reopened_where_it_was_left(plain: MemoryLog) -> None:
    run(plain, begin())
    talk(plain, "t1")
    number = checkpoint(plain)
    talk(plain, "t2")
    mark = go_back(plain, number)
    talk(plain, "t3")
    run(plain, undo_restore(mark))
    assert questions(plain) == ["a", "t1", "t2"]
    run(plain, leave())
    (left,) = run(plain, kept())  # type: ignore[misc]
    run(plain, reopen(left.name))
    assert questions(plain) == ["a", "t1", "t2"]


@pytest.mark.req("J2")
def test_a_tangent_that_was_empty_where_it_began_is_kept_with_what_a_restore_led_to(plain: MemoryLog) -> None:
    run(plain, begin())
    number = checkpoint(plain)
    go_back(plain, number)
    talk(plain, "x")
    run(plain, leave())
    (left,) = run(plain, kept())  # type: ignore[misc]
    assert left.opening == "x"
    run(plain, reopen(left.name))
    assert questions(plain) == ["a", "x"]
    run(plain, leave())
    assert questions(plain) == ["a"]


@pytest.mark.req("J1")
def test_a_restore_of_a_moment_before_a_tangent_began_is_outside_of_it(plain: MemoryLog) -> None:
    number = checkpoint(plain)
    talk(plain, "b")
    run(plain, begin())
    talk(plain, "t")
    go_back(plain, number)
    assert questions(plain) == ["a"]
    assert run(plain, leave()) is None
    assert run(plain, undo()) == "restore"
    assert questions(plain) == ["a", "b", "t"]
    assert run(plain, undo()) == "tangent"
    with pytest.raises(NothingToUndo):
        run(plain, undo())


@pytest.mark.req("J2")
def test_an_exit_names_the_branch_on_which_the_tangent_was_left(plain: MemoryLog) -> None:
    name = run(plain, begin())
    talk(plain, "t1", "t2")
    run(plain, rewind(plain.walk(plain.path())[-3].id))
    talk(plain, "t3")
    inside = plain.head.branch
    run(plain, leave())
    exit = plain.walk(plain.path())[-1].entry
    assert exit == Tangent(name=str(name), branch=inside, opening="t1")
    assert run(plain, undo()) == "tangent exit"
    assert plain.head.branch == inside
