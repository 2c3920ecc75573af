"""What undo undoes next: the newest operation that was not undone, by one rule for every log."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from turnstate import Message
from turnstate.context.cut import carried
from turnstate.entry import Cut, Entry, Revert, Tangent
from turnstate.errors import InputError, NothingToUndo, SessionError
from turnstate.ids import MessageId
from turnstate.log.memory_log import MemoryLog
from turnstate.log.operations import Effect, Placed
from turnstate.log.undo import undo, undo_restore
from turnstate.stores.values import BranchRow

BOTH = (MessageId("m0"), MessageId("m1"))


def cut(id: str, **asked: object) -> Cut:
    return Cut(
        id=id,
        kept_from=None,
        summary="",
        covers=BOTH,
        limit=100,
        policy="",
        counter="o200k_base",
        asked=asked,
    )


COMPACTED, CLEARED = cut("a", before=1), cut("b", operation="clear")
BEGAN, LEFT = Tangent(name="t", started=1), Tangent(name="t", branch=2)
SAID, COLLECTED = Message.user("hello"), cut("c")


def log_of(*entries: Entry, tangent: Sequence[Entry] = ()) -> MemoryLog:
    """Return a log with these entries on its first branch, and a tangent from its beginning."""
    log = MemoryLog("c")
    log.graft(BranchRow(id=2, parent=1, fork_seq=0, created=1, name="t", operation="tangent", former=1))
    for branch, some in ((2, [BEGAN, *tangent]), (1, entries)):
        log.head = log.tip(branch)
        for entry in some:
            log.add(entry)
    return log


def undone(log: MemoryLog) -> Effect:
    return log.operate(undo(), now=1)


def undone_number(*entries: Entry, tangent: Sequence[Entry] = ()) -> tuple[str, int] | None:
    """Return the name and the number of what undo undoes."""
    try:
        effect = undone(log_of(*entries, tangent=tangent))
    except NothingToUndo:
        return None
    (mark,) = effect.entries
    assert isinstance(mark, Revert | Tangent)
    return effect.result, mark.at if isinstance(mark, Revert) else mark.undone


@pytest.mark.req("D5")
@pytest.mark.parametrize(
    ("entries", "tangent", "expected"),
    [
        ([], [], None),
        ([SAID, BEGAN, COLLECTED], [], None),
        ([COMPACTED, SAID, COLLECTED], [], ("compact", 1)),
        ([COMPACTED, CLEARED, SAID], [], ("clear", 2)),
        ([COMPACTED, LEFT, SAID], [], ("tangent exit", 2)),
        ([COMPACTED, LEFT], [Tangent(name="t", undone=2)], ("compact", 1)),
        ([COMPACTED, LEFT, SAID, LEFT], [Tangent(name="t", undone=2)], ("tangent exit", 4)),
        (
            [COMPACTED, LEFT, SAID, LEFT],
            [Tangent(name="t", undone=2), Tangent(name="t", undone=4)],
            ("compact", 1),
        ),
        # An undone tangent leads back to the exits before it, so marks are in any order.
        (
            [COMPACTED, LEFT, SAID, LEFT],
            [Tangent(name="t", undone=4), Tangent(name="t", undone=2)],
            ("compact", 1),
        ),
        ([COMPACTED, CLEARED, Revert(cut="b", at=2, former=1)], [], ("compact", 1)),
        (
            [COMPACTED, CLEARED, Revert(cut="b", at=2, former=1), Revert(cut="a", at=1, former=0)],
            [],
            None,
        ),
        ([COMPACTED, Revert(cut="a", at=1, former=0), SAID, COMPACTED], [], ("compact", 4)),
        ([COMPACTED, Revert(cut="a", at=9, former=0)], [], ("compact", 1)),
        ([COMPACTED, Tangent(name="t", undone=9)], [], ("compact", 1)),
    ],
)
def test_undo_undoes_the_newest_operation_that_was_not_undone(
    entries: list[Entry], tangent: list[Entry], expected: tuple[str, int] | None
) -> None:
    assert undone_number(*entries, tangent=tangent) == expected


@pytest.mark.req("D5")
@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([COMPACTED, LEFT, Tangent(name="t", undone=2)], ("compact", 1)),
        ([COMPACTED, LEFT, Tangent(name="t", undone=2), LEFT], ("tangent exit", 4)),
    ],
)
def test_marks_that_older_versions_wrote_beside_the_exit_count(
    entries: list[Entry], expected: tuple[str, int]
) -> None:
    assert undone_number(*entries) == expected


@pytest.mark.req("D5")
def test_an_imported_summary_is_not_undone() -> None:
    assert undone_number(carried("a summary"), COMPACTED) == ("compact", 2)
    for entries in (
        [carried("a summary")],
        [carried("a summary"), COMPACTED, Revert(cut="a", at=2, former=1)],
    ):
        with pytest.raises(NothingToUndo, match="conversation c: the summary was imported"):
            undone(log_of(*entries))


@pytest.mark.req("D5")
def test_a_damaged_operation_is_skipped() -> None:
    log = log_of(COMPACTED, CLEARED)
    log.entries[1][1] = log.entries[1][1]._replace(entry=None)
    assert undone(log).result == "compact"


@pytest.mark.req("D5", "J2")
def test_undoing_an_exit_enters_the_tangent_and_marks_the_exit_there() -> None:
    log = log_of(SAID, LEFT)
    assert undone(log).result == "tangent exit"
    assert log.head.branch == 2
    assert [one.entry for one in log.entries[2]] == [BEGAN, Tangent(name="t", undone=2)]
    assert [one.entry for one in log.entries[1]] == [SAID, LEFT]
    assert undone(log).result == "tangent"
    assert log.head.branch == 1
    with pytest.raises(NothingToUndo):
        undone(log)


@pytest.mark.req("D5")
def test_undo_of_one_kind_only_refuses_any_other_and_changes_nothing() -> None:
    log = log_of(COMPACTED, CLEARED)
    before: list[Placed] = [*log.entries[1]]
    with pytest.raises(InputError, match="not a compact but a clear"):
        log.operate(undo("compact"), now=1)
    assert log.entries[1] == before
    assert log.operate(undo("clear"), now=1).result == "clear"


def test_only_a_restore_is_undone_as_one() -> None:
    log = log_of(SAID, tangent=[SAID])
    log.head = log.tip(2)
    for number in (1, 2):
        with pytest.raises(SessionError, match=rf"entry {number} is not a restore"):
            log.operate(undo_restore(number), now=1)
