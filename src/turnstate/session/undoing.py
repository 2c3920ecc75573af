"""Undoing: the newest thing that the user did to a conversation, taken back.

What the user does is written down: a compaction or a clearing is an entry, a fork, rewind or tangent is
a branch, and leaving a tangent is an entry where the conversation goes on. A compaction is taken back by
an entry that says so; everything else by going back to the branch that was there before. Words that were
said since stay where they are. What the collector did by itself is not undone. A summary that was imported
is not undone either: the messages that it covers are in no log, so nothing could take its place.
"""

from __future__ import annotations

from ..decision import IMPORTED, Cut, Revert
from ..entry import Tangent
from ..errors import Conflict, SessionError
from ..stores.values import Branch, Position, Row, SessionRow, Span
from .loading import entry_of, path_to, standing_cut
from .path import between
from .scribe import Scribe
from .windows import Windows

__all__ = ["undo", "undo_restore"]

BRANCHING = ("rewind", "fork", "tangent", "restore")
_KINDS = ("compaction", "revert", "tangent")


async def undo(scribe: Scribe, windows: Windows) -> str:
    """Take the newest operation back, and say which it was."""
    while True:
        row = await scribe.refresh()
        branch = await _branch(scribe, row.branch)
        try:
            undone = await _undo_entry(scribe, row, branch) or await _undo_branch(scribe, row, branch)
        except Conflict as conflict:
            if conflict.head[0] != row.branch:  # it would be another operation that is undone
                raise
            continue
        windows.forget()
        return undone


async def undo_restore(scribe: Scribe, windows: Windows, restored: int) -> None:
    """Go back to where the conversation was before a restore, which began a branch, whatever came since."""
    row, branch = await scribe.refresh(), await _branch(scribe, restored)
    if branch.operation != "restore" or branch.former is None:
        raise SessionError(f"session {row.id}: branch {restored} is not that of a restore")
    await scribe.commit(select=branch.former, expected_head=row.head)
    windows.forget()


async def _branch(scribe: Scribe, id: int) -> Branch:
    return next(branch for branch in await scribe.log.branches(scribe.at) if branch.id == id)


async def _undo_entry(scribe: Scribe, row: SessionRow, branch: Branch) -> str | None:
    """Take back what was done on this branch since it began, if anything was."""
    span, found = Span(branch.id, branch.fork_seq + 1, row.seq), None
    while span.first <= span.last and (found := await _newest(scribe, span)):
        match entry_of(found):
            case Revert(at=at):
                span = span._replace(last=at - 1)
            case Tangent(undone=at) if at:
                span = span._replace(last=at - 1)
            case Tangent(started=0) as left if tangent := await _tangent(scribe, left):
                return await _take_up(scribe, row, found, tangent)
            case Cut() as cut:
                if cut.imported:
                    raise SessionError(f"session {row.id}: {IMPORTED}")
                return await _revert(scribe, row, found, cut)
            case _:  # a tangent's beginning, which is the branch itself; something damaged, or not there
                span = span._replace(last=found.seq - 1)
    return None


async def _newest(scribe: Scribe, span: Span) -> Row | None:
    rows = await scribe.log.newest(scribe.at, [span], _KINDS)
    return max(rows.values(), key=lambda row: row.seq, default=None)


async def _revert(scribe: Scribe, row: SessionRow, found: Row, cut: Cut) -> str:
    path = await path_to(scribe.log, scribe.at, row.head)
    former = await standing_cut(scribe.log, scribe.at, between(path, 1, found.seq - 1))
    revert = Revert(cut=cut.id, at=found.seq, former=former.seq if former else 0)
    await scribe.commit(records=await scribe.records([revert]), expected_head=row.head)
    return str(cut.asked.get("operation", "compact"))


async def _tangent(scribe: Scribe, left: Tangent) -> Branch | None:
    """Give the branch that a tangent was left on."""
    branches = await scribe.log.branches(scribe.at)
    named = [one for one in branches if one.id == left.branch or (not left.branch and one.name == left.name)]
    return named[0] if named else None


async def _take_up(scribe: Scribe, row: SessionRow, found: Row, tangent: Branch) -> str:
    """Go back into a tangent that was left; that it was left is undone first, where it was written."""
    again = Tangent(name=tangent.name, undone=found.seq)
    receipt = await scribe.commit(records=await scribe.records([again]), expected_head=row.head)
    head = receipt.head
    while True:
        try:
            await scribe.commit(select=tangent.id, expected_head=head)
        except Conflict as conflict:
            if conflict.head[0] != head.branch:  # the conversation is elsewhere by now
                raise
            head = Position(*conflict.head)  # words that were said meanwhile stay where they are
        else:
            return "tangent exit"


async def _undo_branch(scribe: Scribe, row: SessionRow, branch: Branch) -> str:
    if branch.operation not in BRANCHING or branch.former is None:
        path = await path_to(scribe.store, scribe.at, row.head)
        standing = await standing_cut(scribe.store, scribe.at, path)
        cut = entry_of(standing) if standing else None
        reason = f"; {IMPORTED}" if isinstance(cut, Cut) and cut.imported else ""
        raise SessionError(f"session {row.id}: there is nothing to undo{reason}")
    await scribe.commit(select=branch.former, expected_head=row.head)
    return branch.operation
