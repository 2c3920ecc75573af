"""Runs the operations of `log.operations` on the log of a session.

An operation reads the session in one snapshot if the store can, and its effect is written as one change at
the version that it saw. If another writer was faster, it runs again.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

from ..entry import Answer, ModelChange
from ..errors import Conflict
from ..log.operations import Branches, Effect, Find, Here, Newest, Operation, Placed, Read, Slice, Steps
from ..log.path import entries_of, path_to, read_entry
from ..message import Message
from ..stores.port import Reads
from ..stores.values import Address, BranchRow, Receipt, Row, SessionRow
from ..value import refuse
from .writer import MODEL, SessionWriter

T = TypeVar("T")


class Operated(NamedTuple):
    """What an operation returned, and the receipt of its change; None if there was nothing to write."""

    result: Any
    receipt: Receipt | None
    effect: Effect


async def ask(writer: SessionWriter, operation: Operation) -> Any:
    """Run an operation that only reads, and return its result."""
    effect, _ = await _effect(writer, operation)
    return effect.result


async def operate(writer: SessionWriter, operation: Operation, *, anywhere: bool = False) -> Operated:
    """Run an operation and write its effect; if another writer was faster, run it again.

    If the head is then on another branch, `Conflict` is raised, since the operation was not meant for that
    branch; with `anywhere`, it runs wherever the head is.
    """
    while True:
        effect, (row, model) = await _effect(writer, operation)
        if effect.is_nothing:
            return Operated(effect.result, None, effect)
        records = await writer.records(effect.entries, model) if effect.entries else ()
        try:
            receipt = await writer.commit(
                records=records, fork=effect.fork, select=effect.select, expected_head=row.head
            )
        except Conflict as conflict:
            if conflict.head[0] != row.branch and not anywhere:
                raise
            continue
        if effect.fork is None and effect.select is None:
            writer.wrote(receipt, effect.entries, records)
        else:
            writer.moved_head()
        if not effect.again:
            return Operated(effect.result, receipt, effect)


async def _effect(
    writer: SessionWriter, operation: Operation
) -> tuple[Effect, tuple[SessionRow, ModelChange | None]]:
    """Run an operation; return its effect, where it began, and the model under which its messages count."""
    if not callable(operation):
        refuse("operation", operation, "an operation of turnstate.log, such as tangents.begin()")

    async def job(row: SessionRow, log: Reads) -> tuple[Effect, tuple[SessionRow, ModelChange | None]]:
        now = writer.clock()
        effect = await answered(operation(Here(row.id, row.head, now)), log, row.address)
        model = None
        if any(isinstance(entry, Message | Answer) for entry in effect.entries):
            path = await path_to(log, row.address, effect.after or row.head)
            found = (await log.newest(row.address, path, [MODEL])).get(MODEL)
            entry = await read_entry(found) if found else None
            model = entry if isinstance(entry, ModelChange) else None
        return effect, (row, model)

    return await writer.read(job, small=True)


async def answered(steps: Steps[T], log: Reads, at: Address) -> T:
    """Answer the reads of an operation from a log, and return what it returns."""
    answer: Any = None
    while True:
        try:
            read = steps.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result
        answer = await _answer(read, log, at)


async def _answer(read: Read, log: Reads, at: Address) -> list[BranchRow] | list[Placed] | dict[str, Placed]:
    match read:
        case Branches():
            return await log.branches(at)
        case Slice(span, limit, newest, kinds):
            return await _placed(await log.read(at, span, limit=limit, newest=newest, kinds=kinds))
        case Newest(path, kinds):
            found = await log.newest(at, path, kinds)
            return dict(zip(found, await _placed(list(found.values())), strict=True))
        case Find(ids):
            return await _placed(await log.find(at, ids))


async def _placed(rows: list[Row]) -> list[Placed]:
    return [
        Placed(row.branch, row.seq, row.id, row.kind, entry)
        for row, entry in zip(rows, await entries_of(rows), strict=True)
    ]
