"""Undo: finds the newest operation, by one rule for sessions and for conversation states.

Undo searches the branch of the head, from its newest entry back to where the branch began:

- A compaction or a clearing is undone by a revert; messages since then stay.
- A tangent that was exited is entered again, on the branch on which it was exited.
- If there is neither, the operation that created the branch (a rewind, a fork, a restore or a tangent) is
  undone: the head returns to the branch on which it was before.

Operations that are already undone are skipped, with everything on top of them. Cuts of the collector are not
operations of the user and stay.

Wherever the head goes, `LastRound` determines where a path may end.
"""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

from ..codec import kind_of
from ..entry import Cut, Entry, Revert, Tangent
from ..errors import NothingToUndo
from ..ids import CallId
from ..message import Message

T = TypeVar("T")

BRANCHING = ("rewind", "fork", "tangent", "restore")
"""The operations that create a branch and that undo can undo."""

UNDO_KINDS = ("compaction", "revert", "tangent")
"""The kinds of entries that determine what undo undoes."""

IMPORTED = (
    "the summary was imported, and the messages that it covers are not in this log; "
    "undoing would lose it and bring nothing back"
)
"""Why the compaction of an imported conversation cannot be undone."""


class Undoable(NamedTuple):
    """A compaction, a clearing, or a tangent exit, with the number of its entry."""

    number: int
    entry: Cut | Tangent

    @property
    def name(self) -> str:
        """The name of the operation, as undo reports it."""
        if isinstance(self.entry, Tangent):
            return "tangent exit"
        return str(self.entry.asked.get("operation", "compact"))


class UndoSearch:
    """A search for the newest operation on a branch of a conversation, from its newest entry back.

    ``last`` is the number of the newest entry that undo may still undo.
    """

    def __init__(self, id: str, last: int) -> None:
        self._id, self.last = id, last

    def check(self, number: int, entry: Entry | None) -> Undoable | None:
        """Check the next older entry; return it if it is an operation that was not undone.

        Raise `NothingToUndo` if it is an imported summary.
        """
        if number > self.last:
            return None
        self.last = number - 1
        match entry:
            case Revert(at=at):
                self.last = at - 1
            case Tangent(undone=at) if at:
                self.last = at - 1
            case Tangent(started=0):
                return Undoable(number, entry)
            case Cut() if kind_of(entry) == "compaction":
                if entry.imported:
                    raise NothingToUndo(f"conversation {self._id}: {IMPORTED}")
                return Undoable(number, entry)
        return None

    def nothing(self, cut: Cut | None) -> NothingToUndo:
        """Return the error for a conversation with nothing to undo; `cut` is the cut that holds."""
        reason = f"; {IMPORTED}" if cut is not None and cut.imported else ""
        return NothingToUndo(f"conversation {self._id}: there is nothing to undo{reason}")

    def not_loaded(self) -> NothingToUndo:
        """Return the error for a state that is not loaded far enough back to undo."""
        return NothingToUndo(
            f"conversation {self._id}: there is nothing to undo in the part that is loaded; "
            "commit the state, take older operations back with session.undo(), and load it again"
        )


class LastRound(Generic[T]):
    """Where a path may end: after any message, but not between calls and their answers.

    Pass the messages to `add` from the last one back, each with its position, until the round is complete: a
    run of assistant messages and the answers after it.
    """

    def __init__(self) -> None:
        self._first: T | None = None
        self._calls, self._answered = set[CallId](), set[CallId]()
        self._asked = False

    def add(self, place: T, message: Message) -> bool:
        """Add an earlier message; return False if it belongs to the previous round."""
        if message.role == "user" or (message.role == "tool" and self._asked):
            return False
        self._asked = message.role == "assistant"
        self._answered.update(result.tool_call_id for result in message.tool_results)
        if message.tool_calls:
            self._calls.update(call.id for call in message.tool_calls)
            self._first = place
        return True

    @property
    def open_from(self) -> T | None:
        """The position of the first message of the round that calls tools, if any call has no answer."""
        return None if self._calls <= self._answered else self._first
