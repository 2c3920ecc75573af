"""Where a path may end: behind a message, but not between calls and their answers."""

from __future__ import annotations

from ..entry import IMPORTED, Cut, Revert, Tangent
from ..errors import Conflict, NotFound, SessionError
from ..ids import CallId
from ..log.path import between, cut_in_force, entry_of, path_to, rows_backwards, shown_messages
from ..stores.port import Log
from ..stores.values import Address, Branch, Position, Row, SessionRow, Span
from .windows import WindowMaker
from .writer import SessionWriter

__all__ = ["end_of", "found", "undo", "undo_restore"]


async def found(log: Log, at: Address, id: str) -> Row:
    """Give the entry with an id, or raise `NotFound`."""
    for row in await log.find(at, [id]):
        return row
    raise NotFound(f"session {at.session} has no entry {id}")


async def end_of(log: Log, at: Address, id: str) -> Position:
    """Give the place behind a message; inside a group of calls and answers, the place before the group.

    A group is a run of assistant messages, from the first that calls, and the answers behind it.
    """
    row = await found(log, at, id)
    place = before = Position(row.branch, row.seq)
    calls, answered = set[CallId](), set[CallId]()
    spoken = False
    async for earlier in rows_backwards(log, at, await path_to(log, at, place)):
        message = next(iter(await shown_messages([earlier])), None)
        if message is None:
            continue
        if message.role == "user" or (message.role == "tool" and spoken):
            break
        spoken = message.role == "assistant"
        answered.update(result.tool_call_id for result in message.tool_results)
        if message.tool_calls:
            calls.update(call.id for call in message.tool_calls)
            before = Position(earlier.branch, earlier.seq - 1)
    return place if calls <= answered else before


# Undoing: the newest thing that the user did to a conversation, taken back.


BRANCHING = ("rewind", "fork", "tangent", "restore")
_KINDS = ("compaction", "revert", "tangent")


async def undo(scribe: SessionWriter, windows: WindowMaker) -> str:
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


async def undo_restore(scribe: SessionWriter, windows: WindowMaker, restored: int) -> None:
    """Go back to where the conversation was before a restore, which began a branch, whatever came since."""
    row, branch = await scribe.refresh(), await _branch(scribe, restored)
    if branch.operation != "restore" or branch.former is None:
        raise SessionError(f"session {row.id}: branch {restored} is not that of a restore")
    await scribe.commit(select=branch.former, expected_head=row.head)
    windows.forget()


async def _branch(scribe: SessionWriter, id: int) -> Branch:
    return next(branch for branch in await scribe.log.branches(scribe.at) if branch.id == id)


async def _undo_entry(scribe: SessionWriter, row: SessionRow, branch: Branch) -> str | None:
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


async def _newest(scribe: SessionWriter, span: Span) -> Row | None:
    rows = await scribe.log.newest(scribe.at, [span], _KINDS)
    return max(rows.values(), key=lambda row: row.seq, default=None)


async def _revert(scribe: SessionWriter, row: SessionRow, found: Row, cut: Cut) -> str:
    path = await path_to(scribe.log, scribe.at, row.head)
    former = await cut_in_force(scribe.log, scribe.at, between(path, 1, found.seq - 1))
    revert = Revert(cut=cut.id, at=found.seq, former=former.seq if former else 0)
    await scribe.commit(records=await scribe.records([revert]), expected_head=row.head)
    return str(cut.asked.get("operation", "compact"))


async def _tangent(scribe: SessionWriter, left: Tangent) -> Branch | None:
    """Give the branch that a tangent was left on."""
    branches = await scribe.log.branches(scribe.at)
    named = [one for one in branches if one.id == left.branch or (not left.branch and one.name == left.name)]
    return named[0] if named else None


async def _take_up(scribe: SessionWriter, row: SessionRow, found: Row, tangent: Branch) -> str:
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


async def _undo_branch(scribe: SessionWriter, row: SessionRow, branch: Branch) -> str:
    if branch.operation not in BRANCHING or branch.former is None:
        path = await path_to(scribe.store, scribe.at, row.head)
        standing = await cut_in_force(scribe.store, scribe.at, path)
        cut = entry_of(standing) if standing else None
        reason = f"; {IMPORTED}" if isinstance(cut, Cut) and cut.imported else ""
        raise SessionError(f"session {row.id}: there is nothing to undo{reason}")
    await scribe.commit(select=branch.former, expected_head=row.head)
    return branch.operation
