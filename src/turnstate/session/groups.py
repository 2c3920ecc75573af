"""Where a path may end: behind a message, but not between calls and their answers."""

from __future__ import annotations

from ..errors import NotFound
from ..ids import CallId
from ..stores.port import Log
from ..stores.values import Address, Position, Row
from .loading import path_to, rows_backwards, shown_of

__all__ = ["end_of", "found"]


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
        message = shown_of(earlier)
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
