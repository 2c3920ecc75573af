"""Appending to a session: which messages are accepted, and how a race between writers ends.

Messages of users and assistants are added wherever the head is. A tool result is accepted only on the branch
that contains its call. Most results answer calls that this handle wrote itself, so they are tried on the path
as it is known; if another writer moved the head, the path is read and they are checked again. A request that
is repeated under its key gets the first receipt, before anything else is checked.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ..context.calls import KnownCalls, fresh, unknown_calls
from ..entry import Entry
from ..errors import Conflict, InvalidMessage
from ..log.path import between, messages_of, rows_backwards
from ..log.records import digest
from ..message import Message
from ..stores.values import Key, Position, Receipt
from ..tokens.exact import is_large, off_loop
from .loaded import Loaded
from .names import checked
from .windows import WindowMaker
from .writer import SessionWriter

__all__ = ["append", "write"]

_NEVER = -1
"""A version that no session has: a request that expects it can only succeed as a repetition."""


async def append(
    writer: SessionWriter,
    windows: WindowMaker,
    messages: Sequence[Message],
    *,
    expected_version: int | None,
    key: str | None,
) -> Receipt:
    """Add messages, all of them or none."""
    _check(messages)
    large = is_large(*messages)
    messages = await off_loop(lambda: [message.owned() for message in messages], large=large)
    request: Key | None = None
    if key is not None:
        request = Key(checked(key, "a key"), await off_loop(lambda: digest(messages), large=large))
    if not any(message.role == "tool" for message in messages):
        return await write(writer, windows, messages, expected_version=expected_version, key=request)
    if known := windows.known:
        head = known.head
        try:
            calls = known.fold.known_calls(messages)
            if taken := await off_loop(partial(fresh, calls, messages), large=large):
                return await write(
                    writer, windows, taken, expected_version=expected_version, expected_head=head, key=request
                )
        except (InvalidMessage, Conflict):
            pass  # the path may have changed: read it, and check again
    return await _append_results(writer, windows, messages, expected_version, request)


async def write(
    writer: SessionWriter,
    windows: WindowMaker,
    entries: Sequence[Entry],
    *,
    expected_version: int | None = None,
    expected_head: Position | None = None,
    key: Key | None = None,
) -> Receipt:
    """Write entries at the head."""
    records = await writer.records(entries)
    receipt = await writer.commit(
        records=records, expected_version=expected_version, expected_head=expected_head, key=key
    )
    windows.grow(receipt, entries, records)
    return receipt


async def _append_results(
    writer: SessionWriter,
    windows: WindowMaker,
    messages: Sequence[Message],
    expected_version: int | None,
    key: Key | None,
) -> Receipt:
    """Add messages with tool results on the path as it is now; retry if another writer moves the head."""
    large = is_large(*messages)
    while True:
        loaded = await windows.loaded()
        head = loaded.head  # as checked: another task of this handle may write meanwhile
        try:
            calls = await _known_calls(writer, loaded, messages)
            taken = await off_loop(partial(fresh, calls, messages), large=large)
        except InvalidMessage as refusal:
            return await _first_receipt(writer, key, refusal)
        if not taken and key is None:
            return Receipt(
                epoch=writer.row.epoch,
                version=writer.row.version,
                branch=head.branch,
                first=head.seq + 1,
                last=head.seq,
                repeated=True,
            )
        try:
            return await write(
                writer, windows, taken, expected_version=expected_version, expected_head=head, key=key
            )
        except Conflict as conflict:
            if expected_version is not None and conflict.version != expected_version:
                raise


async def _known_calls(writer: SessionWriter, loaded: Loaded, messages: Sequence[Message]) -> KnownCalls:
    """Return the calls that messages refer to, those that left the window long ago included."""
    known = loaded.fold.known_calls(messages)
    if loaded.whole or not unknown_calls(known, messages):
        return known
    async for row in rows_backwards(writer.log, writer.at, between(loaded.path, 1, loaded.first - 1)):
        for message in await messages_of([row]):
            known.recall(message)
            if message.tool_calls and not unknown_calls(known, messages):
                return known
    return known


async def _first_receipt(writer: SessionWriter, key: Key | None, refusal: InvalidMessage) -> Receipt:
    """Return the receipt of a repeated request; raise the refusal if it was never accepted."""
    if key is None:
        raise refusal
    try:
        return await writer.commit(key=key, expected_version=_NEVER)
    except Conflict:
        raise refusal from None


def _check(messages: Sequence[Message]) -> None:
    if not messages:
        raise InvalidMessage("nothing to append; give at least one message")
    for message in messages:
        if not isinstance(message, Message):
            raise InvalidMessage(f"append takes messages, not {type(message).__name__}")
        if message.role == "system":
            raise InvalidMessage(
                f"message {message.id}: a session writes its own system messages; use set_system()"
            )
