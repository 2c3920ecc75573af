"""What undo takes back next: the newest operation that was not undone, by one rule for every reader."""

from __future__ import annotations

import pytest

from turnstate import Message
from turnstate.context.cut import carried
from turnstate.entry import Cut, Entry, Revert, Tangent
from turnstate.errors import NothingToUndo
from turnstate.ids import MessageId
from turnstate.log.undo import UndoSearch

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


def taken_back(*entries: Entry | None) -> tuple[str, int] | None:
    """Return the name and the number of what undo takes back on a branch with these entries."""
    search = UndoSearch("c", len(entries))
    for number in range(len(entries), 0, -1):
        if found := search.check(number, entries[number - 1]):
            return found.name, found.number
    return None


COMPACTED, CLEARED = cut("a", before=1), cut("b", operation="clear")
LEFT = Tangent(name="t", branch=2)


@pytest.mark.req("D5")
def test_undo_takes_back_the_newest_operation_that_was_not_undone() -> None:
    said, began, collected = Message.user("hello"), Tangent(name="t", started=1), cut("c")
    for entries, expected in [
        ((), None),
        ((said, None, began, collected), None),
        ((COMPACTED, said, collected), ("compact", 1)),
        ((COMPACTED, CLEARED, said), ("clear", 2)),
        ((COMPACTED, LEFT, said), ("tangent exit", 2)),
        ((COMPACTED, LEFT, Tangent(name="t", undone=2)), ("compact", 1)),
        ((COMPACTED, LEFT, Tangent(name="t", undone=2), LEFT), ("tangent exit", 4)),
        ((COMPACTED, CLEARED, Revert(cut="b", at=2, former=1)), ("compact", 1)),
        ((COMPACTED, CLEARED, Revert(cut="b", at=2, former=1), Revert(cut="a", at=1, former=0)), None),
        ((COMPACTED, Revert(cut="a", at=1, former=0), said, COMPACTED), ("compact", 4)),
    ]:
        assert taken_back(*entries) == expected, entries


@pytest.mark.req("D5")
def test_an_imported_summary_is_not_taken_back() -> None:
    assert taken_back(carried("a summary"), COMPACTED) == ("compact", 2)
    with pytest.raises(NothingToUndo, match="conversation c: the summary was imported"):
        taken_back(carried("a summary"), COMPACTED, Revert(cut="a", at=2, former=1))
