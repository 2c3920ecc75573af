"""Going back: to an earlier message, to a checkpoint, or to before the newest operation.

Nothing is deleted: the head moves to another branch, or a revert says that a cut no longer holds. Undo
searches the branch of the head, from its newest entry back to where the branch began:

- A compaction or a clearing is undone by a revert; messages since then stay.
- A tangent that was exited is entered again, on the branch on which it was exited. A mark there says which
  exit was undone, so that undo skips it from then on.
- If there is neither, the operation that created the branch (a rewind, a fork, a restore or a tangent) is
  undone: the head returns to the branch on which it was before.

Operations that are already undone are skipped, with everything on top of them. Cuts of the collector are not
operations of the user and stay. The search reads entries by their kind, never messages.
"""

from __future__ import annotations

from typing import NamedTuple

from ..codec import kind_of
from ..entry import RAN, UNDONE, Answer, Checkpoint, Cut, Entry, Restore, Revert, Tangent
from ..errors import InputError, NothingToUndo, SessionError
from ..stores.values import BranchRow, Fork, Position, Span
from .fold import open_calls
from .operations import (
    Effect,
    Here,
    Operation,
    Steps,
    branches,
    cut_in_force,
    end_of,
    last_round,
    newest,
    of_kind,
    tip,
)
from .path import END, between, spans
from .tangents import TANGENT, Branches, branch_left, innermost

BRANCHING = ("rewind", "fork", "tangent", "restore")
"""The operations that create a branch and that undo can undo."""

UNDO_KINDS = ("compaction", "revert", TANGENT)
"""The kinds of entries that determine what undo undoes."""

IMPORTED = (
    "the summary was imported, and the messages that it covers are not in this log; "
    "undoing would lose it and bring nothing back"
)
"""Why the compaction of an imported conversation cannot be undone."""


def fork(at: str | None = None, name: str = "") -> Operation:
    """Continue on a new branch from the head, or from a message of any branch; reads the message's round."""

    def steps(here: Here) -> Steps[Effect]:
        place = here.head if at is None else (yield from end_of(here, at))
        return _branched("fork", place, name)

    return steps


def rewind(to: str, *, exact: bool = False, before: bool = False) -> Operation:
    """Make a message the last one of the path; reads its round.

    Between calls and their results, the path goes back to before the calls; with `exact` it ends at the
    message. With `before`, the path ends before the message.
    """

    def steps(here: Here) -> Steps[Effect]:
        place = yield from end_of(here, to, exact=exact or before)
        return _branched("rewind", Position(place.branch, place.seq - 1) if before else place)

    return steps


def _branched(operation: str, place: Position, name: str = "", *entries: Entry) -> Effect:
    made = Fork(parent=place.branch, seq=place.seq, name=name, operation=operation)
    return Effect(fork=made, entries=entries, after=place)


def restore(number: int, checkpoint: Checkpoint, mark: Restore) -> Operation:
    """Go back to a checkpoint of the path by its number, answer the calls that were open then, and say so.

    Reads the last round before the checkpoint.
    """

    def steps(here: Here) -> Steps[Effect]:
        path = spans((yield from branches()).values(), here.head)
        earlier = between(path, 1, number)
        place = Position(earlier[0].branch, number)
        answers = [
            Answer.give(call.id, RAN, is_error=False)
            if call.id in checkpoint.ran
            else Answer.give(call.id, UNDONE)
            for call in open_calls((yield from last_round(earlier)))
        ]
        return _branched("restore", place, "", *answers, mark)

    return steps


def undo_restore(number: int) -> Operation:
    """Move the head to where it was before the restore whose mark has this number, whatever came since."""

    def steps(here: Here) -> Steps[Effect]:
        known = yield from branches()
        for span in between(spans(known.values(), here.head), number, number):
            branch = known[span.branch]
            if branch.operation == "restore" and branch.former is not None:
                return Effect(select=branch.former)
        raise SessionError(f"session {here.id}: entry {number} is not a restore that created a branch")

    return steps


def undo(only: str | None = None) -> Operation:
    """Undo the newest operation and return its name; with `only`, raise `InputError` if it is another."""

    def steps(here: Here) -> Steps[Effect]:
        known = yield from branches()
        branch = known[here.head.branch]
        found = yield from _newest_operation(here, known, branch)
        if found is None:
            effect = yield from _undone_branch(here, known, branch)
        elif isinstance(found, _Exit):
            effect = Effect(
                result="tangent exit",
                # One change: the tangent is entered again and its exit is marked as undone, or neither.
                entries=(Tangent(name=found.name, undone=found.number),),
                select=found.branch,
            )
        else:
            effect = yield from _reverted(here, known, found)
        if only is not None and effect.result != only:
            raise InputError(
                f"the newest operation is not a {only} but a {effect.result}; undo it with undo()"
            )
        return effect

    return steps


class _Exit(NamedTuple):
    """A tangent exit: the number of its entry, the tangent, and the branch on which it was left."""

    number: int
    name: str
    branch: int


class _Compaction(NamedTuple):
    """A compaction or a clearing, and the number of its entry."""

    number: int
    cut: Cut


def _newest_operation(here: Here, known: Branches, branch: BranchRow) -> Steps[_Exit | _Compaction | None]:
    """Return the newest operation on a branch since it was created that was not undone."""
    last, inside = here.head.seq, innermost(known, branch.id)
    while (span := Span(branch.id, branch.fork_seq + 1, last)).first <= span.last:
        marks = yield from newest([span], *UNDO_KINDS)
        one = max(marks.values(), key=lambda one: one.seq, default=None)
        if one is None:
            return None
        last = one.seq - 1
        match one.entry:
            case Revert(at=at):
                last = min(last, at - 1)  # in a damaged document, a mark may name a later entry
            case Tangent(undone=at) if at and (inside is None or inside.name != one.entry.name):
                last = min(last, at - 1)  # older versions wrote the mark beside the exit
            case Tangent(started=0, undone=0) as exit:
                again = _branch_left(known, exit)
                if again is not None and not (yield from _is_undone(known, again, exit, one.seq)):
                    return _Exit(one.seq, exit.name, again.id)
            case Cut() if kind_of(one.entry) == "compaction":
                if one.entry.imported:
                    raise NothingToUndo(f"conversation {here.id}: {IMPORTED}")
                return _Compaction(one.seq, one.entry)
    return None


def _branch_left(known: Branches, exit: Tangent) -> BranchRow | None:
    """Return the branch that a tangent was left on."""
    named = (one for one in known.values() if one.operation == TANGENT and one.name == exit.name)
    tangent = next(named, None)
    return known[branch_left(known, tangent, exit)] if tangent else None


def _is_undone(known: Branches, branch: BranchRow, exit: Tangent, number: int) -> Steps[bool]:
    """Return True if the tangent that was left with this exit has a mark that it was entered again."""
    tangent = innermost(known, branch.id)
    if tangent is None:
        return False
    end = yield from tip(branch)
    own = between(spans(known.values(), end), tangent.fork_seq + 1, END)
    # All marks, since they are not in the order of the exits: undo may lead back to earlier ones.
    marks = yield from of_kind(own, TANGENT)
    return any(
        isinstance(one.entry, Tangent) and (one.entry.name, one.entry.undone) == (exit.name, number)
        for one in marks
    )


def _reverted(here: Here, known: Branches, found: _Compaction) -> Steps[Effect]:
    path, cut = spans(known.values(), here.head), found.cut
    former = yield from cut_in_force(between(path, 1, found.number - 1))
    revert = Revert(cut=cut.id, at=found.number, former=former.seq if former else 0)
    return Effect(result=str(cut.asked.get("operation", "compact")), entries=(revert,))


def _undone_branch(here: Here, known: Branches, branch: BranchRow) -> Steps[Effect]:
    if branch.operation not in BRANCHING or branch.former is None:
        standing = yield from cut_in_force(spans(known.values(), here.head))
        is_imported = standing is not None and isinstance(standing.entry, Cut) and standing.entry.imported
        reason = f"; {IMPORTED}" if is_imported else ""
        raise NothingToUndo(f"conversation {here.id}: there is nothing to undo{reason}")
    return Effect(result=branch.operation, select=branch.former)
