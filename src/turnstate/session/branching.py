"""Branches of a session: where a path may end, the next epoch, and undo of the newest operation.

`log.undo` decides what undo takes back, for sessions and states alike. Nothing is deleted: undoing a fork, a
rewind, a restore or a tangent moves the head back, and undoing a compaction writes a revert.
"""

from __future__ import annotations

from ..entry import Bootstrap, Cut, Entry, Prompt, Revert, Tangent
from ..errors import Busy, Conflict, NotFound, SessionError
from ..log.path import between, cut_in_force, entry_of, path_to, rows_backwards, shown_messages
from ..log.undo import BRANCHING, UNDO_KINDS, LastRound, UndoSearch
from ..stores.port import Log
from ..stores.values import FOREVER, Address, BranchRow, Fork, Position, Row, SessionRow, Span
from .memory import UserMemory
from .names import checked_prompt
from .windows import WindowMaker
from .writer import SessionWriter


async def entry_row(log: Log, at: Address, id: str) -> Row:
    """Return the entry with an id, or raise `NotFound`."""
    for row in await log.find(at, [id]):
        return row
    raise NotFound(f"session {at.session} has no entry {id}")


async def place_of(log: Log, at: Address, id: str) -> Position:
    """Return the place of a message, even if it is between calls and their results."""
    row = await entry_row(log, at, id)
    return Position(row.branch, row.seq)


async def end_of(log: Log, at: Address, id: str) -> Position:
    """Return the place after a message; inside a group of calls and answers, the place before the group."""
    row = await entry_row(log, at, id)
    place, group = Position(row.branch, row.seq), LastRound[Position]()
    async for earlier in rows_backwards(log, at, await path_to(log, at, place)):
        before = Position(earlier.branch, earlier.seq - 1)
        if not all(group.add(before, message) for message in await shown_messages([earlier])):
            break
    return group.open_from or place


async def begin_epoch(
    writer: SessionWriter, windows: WindowMaker, memory: UserMemory | None, system: str | None
) -> bool:
    """Begin the next epoch; return False if another process wrote after the head was read."""
    row = await writer.refresh()
    if row.lease_until == FOREVER:
        raise Busy(f"session {row.id} is being imported; wait for it, or import its archive again")
    fold = (await windows.loaded()).fold
    prompt = fold.prompt if system is None else checked_prompt(system)
    profile = await memory.profile(writer.counter(fold.model)) if memory else None
    entries: list[Entry] = [fold.model] if fold.model else []
    entries += [Prompt(prompt)] if prompt is not None else []
    entries += [Bootstrap(profile)] if profile else []
    try:
        await writer.commit(
            records=await writer.records(entries),
            expected_head=row.head,
            fork=Fork(parent=None, seq=0, operation="reset"),
            parcels=await writer.ending("reset"),
            next_epoch=True,
        )
    except Conflict:
        return False
    return True


async def undo(writer: SessionWriter) -> str:
    """Undo the newest operation, and return its name."""
    while True:
        row = await writer.refresh()
        branch = await _branch(writer, row.branch)
        search = UndoSearch(row.id, row.seq)
        try:
            undone = await _undo_entry(writer, row, branch, search)
            undone = undone or await _undo_branch(writer, row, branch, search)
        except Conflict as conflict:
            if conflict.head[0] != row.branch:  # another operation would be undone
                raise
            continue
        writer.moved_head()
        return undone


async def undo_restore(writer: SessionWriter, restored: int) -> None:
    """Move the head to where it was before the restore that created a branch, whatever came since."""
    row, branch = await writer.refresh(), await _branch(writer, restored)
    if branch.operation != "restore" or branch.former is None:
        raise SessionError(f"session {row.id}: branch {restored} was not created by a restore")
    await writer.commit(select=branch.former, expected_head=row.head)
    writer.moved_head()


async def _branch(writer: SessionWriter, id: int) -> BranchRow:
    return next(branch for branch in await writer.log.branches(writer.at) if branch.id == id)


async def _undo_entry(
    writer: SessionWriter, row: SessionRow, branch: BranchRow, search: UndoSearch
) -> str | None:
    """Undo the newest operation on this branch since it was created, if there is one."""
    while (span := Span(branch.id, branch.fork_seq + 1, search.last)).first <= span.last:
        rows = await writer.log.newest(writer.at, [span], UNDO_KINDS)
        found = max(rows.values(), key=lambda row: row.seq, default=None)
        if found is None:
            return None
        operation = search.check(found.seq, entry_of(found))
        if operation is None:
            continue
        if isinstance(operation.entry, Cut):
            await _revert(writer, row, found, operation.entry)
            return operation.name
        if tangent := await _tangent(writer, operation.entry):
            again = Tangent(name=operation.entry.name, undone=operation.number)
            await _reenter(writer, row, again, tangent.id)
            return operation.name
    return None


async def _revert(writer: SessionWriter, row: SessionRow, found: Row, cut: Cut) -> None:
    path = await path_to(writer.log, writer.at, row.head)
    former = await cut_in_force(writer.log, writer.at, between(path, 1, found.seq - 1))
    revert = Revert(cut=cut.id, at=found.seq, former=former.seq if former else 0)
    await writer.commit(records=await writer.records([revert]), expected_head=row.head)


async def _tangent(writer: SessionWriter, left: Tangent) -> BranchRow | None:
    """Return the branch that a tangent was left on."""
    branches = await writer.log.branches(writer.at)
    named = [one for one in branches if one.id == left.branch or (not left.branch and one.name == left.name)]
    return named[0] if named else None


async def _reenter(writer: SessionWriter, row: SessionRow, again: Tangent, tangent: int) -> None:
    """Write an entry that says that leaving a tangent was undone, and go back into the tangent."""
    receipt = await writer.commit(records=await writer.records([again]), expected_head=row.head)
    head = receipt.head
    while True:
        try:
            await writer.commit(select=tangent, expected_head=head)
        except Conflict as conflict:
            if conflict.head[0] != head.branch:  # the head is now on another branch
                raise
            head = Position(*conflict.head)  # messages that were added meanwhile stay where they are
        else:
            return


async def _undo_branch(writer: SessionWriter, row: SessionRow, branch: BranchRow, search: UndoSearch) -> str:
    if branch.operation not in BRANCHING or branch.former is None:
        path = await path_to(writer.store, writer.at, row.head)
        standing = await cut_in_force(writer.store, writer.at, path)
        cut = entry_of(standing) if standing else None
        raise search.nothing(cut if isinstance(cut, Cut) else None)
    await writer.commit(select=branch.former, expected_head=row.head)
    return branch.operation
