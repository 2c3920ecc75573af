"""Appending: what may be added to a conversation, and how a race about it ends.

Words are added wherever the head is. Results are added only on the path on which they were found to
answer something. Most answer what this handle wrote itself, so they are tried on the path as it is known;
where somebody else wrote, it is read and they are looked at again. A request that comes again under its
key gets the first answer, before anything else is asked of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..context.rounds import KnownCalls, fresh, unknown_calls
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

__all__ = ["Appender"]


class Appender:
    """Adds to one session."""

    def __init__(self, scribe: SessionWriter, windows: WindowMaker) -> None:
        self._scribe, self._windows = scribe, windows

    async def append(
        self, messages: Sequence[Message], *, expected_version: int | None, key: str | None
    ) -> Receipt:
        """Add messages, all of them or none."""
        _check(messages)
        messages = await _owned(messages)  # what is shown later is what is written now
        request = Key(checked(key, "a key"), await _digest(messages)) if key is not None else None
        if not any(message.role == "tool" for message in messages):
            return await self.write(messages, expected_version=expected_version, key=request)
        return await self._append_answers(messages, expected_version, request)

    async def write(
        self,
        entries: Sequence[Entry],
        *,
        expected_version: int | None = None,
        expected_head: Position | None = None,
        key: Key | None = None,
    ) -> Receipt:
        """Write entries at the head."""
        records = await self._scribe.records(entries)
        receipt = await self._scribe.commit(
            records=records, expected_version=expected_version, expected_head=expected_head, key=key
        )
        self._windows.grow(receipt, entries, records)
        return receipt

    async def _append_answers(
        self, messages: Sequence[Message], expected_version: int | None, key: Key | None
    ) -> Receipt:
        if receipt := await self._append_unread(messages, expected_version, key):
            return receipt
        while True:
            loaded = await self._windows.loaded()
            head = loaded.head  # as looked at: another task of this handle may write meanwhile
            try:
                taken = await _fresh(await self._exchange(loaded, messages), messages)
            except InvalidMessage as refusal:
                return await self._first_answer(key, refusal)
            if not taken and key is None:
                return self._nothing_new(loaded)
            try:
                return await self.write(taken, expected_version=expected_version, expected_head=head, key=key)
            except Conflict as conflict:
                if expected_version is not None and conflict.version != expected_version:
                    raise

    async def _append_unread(
        self, messages: Sequence[Message], expected_version: int | None, key: Key | None
    ) -> Receipt | None:
        """Add results that are new on the path as it is known, if the store knows no other."""
        known = self._windows.known
        if known is None:
            return None
        head = known.head
        try:
            taken = await _fresh(known.fold.known_calls(messages), messages)
            if taken:
                return await self.write(taken, expected_version=expected_version, expected_head=head, key=key)
        except (InvalidMessage, Conflict):
            return None
        return None

    async def _exchange(self, loaded: Loaded, messages: Sequence[Message]) -> KnownCalls:
        """Know the calls that are spoken of, those that left the window long ago included."""
        exchange = loaded.fold.known_calls(messages)
        if unknown_calls(exchange, messages) and not loaded.whole:
            await self._look_back(loaded, exchange, messages)
        return exchange

    async def _look_back(self, loaded: Loaded, exchange: KnownCalls, messages: Sequence[Message]) -> None:
        earlier = between(loaded.path, 1, loaded.first - 1)
        async for row in rows_backwards(self._scribe.log, self._scribe.at, earlier):
            for message in await messages_of([row]):
                exchange.recall(message)
                if message.tool_calls and not unknown_calls(exchange, messages):
                    return

    async def _first_answer(self, key: Key | None, refusal: InvalidMessage) -> Receipt:
        """Give what a repeated request came to; one that was never accepted stays refused."""
        if key is None:
            raise refusal
        try:
            return await self._scribe.commit(key=key, expected_version=_NEVER)
        except Conflict:
            raise refusal from None

    def _nothing_new(self, loaded: Loaded) -> Receipt:
        row = self._scribe.row
        return Receipt(
            epoch=row.epoch,
            version=row.version,
            branch=loaded.head.branch,
            first=loaded.head.seq + 1,
            last=loaded.head.seq,
            repeated=True,
        )


_NEVER = -1
"""A version that no session has: a request under it can only be a repetition."""


async def _owned(messages: Sequence[Message]) -> Sequence[Message]:
    return await off_loop(lambda: [message.owned() for message in messages], large=is_large(*messages))


async def _digest(messages: Sequence[Message]) -> bytes:
    return await off_loop(lambda: digest(messages), large=is_large(*messages))


async def _fresh(exchange: KnownCalls, messages: Sequence[Message]) -> list[Message]:
    return await off_loop(lambda: fresh(exchange, messages), large=is_large(*messages))


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
