"""Appending to a session: which messages are accepted, and how a race between writers ends.

Messages of users and assistants are added wherever the head is. A tool result is accepted only on the branch
that contains its call. Most results answer the newest calls, which this handle wrote itself, so they are
first compared with these. If another writer moved the head, or they name their calls otherwise, the path is
read back to the calls. A request that is repeated under its key gets the first receipt,
before anything else is checked.

Ids that a format derived from a document are valid within that document only, so messages and calls get new
ones here. The receipt maps the old ids to the new ones, and a result may still name its call by the old id.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from msgspec import UNSET, structs

from ..context.calls import KnownCalls, fresh
from ..entry import INTERRUPTED, Answer, Entry
from ..errors import Conflict, InvalidMessage
from ..formats.replies.reply import ReceivedMessage
from ..ids import is_derived
from ..log.fold import Loaded
from ..log.operations import known_calls
from ..log.path import messages_of, path_to
from ..log.records import digest
from ..message import Message, minted, not_a_message
from ..stores.port import Reads
from ..stores.values import Key, Position, Receipt, SessionRow, Span
from ..threads import INLINE, is_large, off_loop
from ..value import TOKENS, check_whole
from .names import checked
from .operate import answered
from .writer import SessionWriter

_NEVER = -1
"""A version that no session has: a request that expects it can only succeed as a repetition."""


async def append(
    writer: SessionWriter,
    messages: Sequence[Message],
    *,
    expected_version: int | None,
    key: str | None,
) -> Receipt:
    """Add messages, all of them or none."""
    _check(messages)
    if expected_version is not None:
        check_whole("expected_version", expected_version, most=TOKENS)
    name = None if key is None else checked(key, "a key")
    if large := _are_large(messages):
        given, new, request = await off_loop(partial(_prepared, messages, name), large=True)
    else:
        given, new, request = _prepared(messages, name)
    taken: Sequence[Message] = new
    if "tool" in [message.role for message in new]:
        adding = _AddingResults(writer, new, expected_version, request, large=large)
        receipt, taken = await adding.added(), adding.taken
    else:
        receipt = await write(
            writer, _entries(new), expected_version=expected_version, key=request, large=large
        )
    if receipt.repeated and request is not None:
        return structs.replace(receipt, ids=await _first_ids(writer, receipt, given))
    return structs.replace(receipt, ids=_ids(given, new, None if taken is new else taken))


def _prepared(
    messages: Sequence[Message], key: str | None
) -> tuple[list[Message], list[Message], Key | None]:
    """Return the messages as given and as stored, which no one else can change, and the key."""
    given = [message.owned() for message in messages]
    new = minted(given) if any(map(_is_derived, given)) else given
    return given, new, None if key is None else Key(key, digest(given))


def _are_large(messages: Sequence[Message]) -> bool:
    """Do what `is_large` does, without checking every field of ordinary messages."""
    size = 0
    args: list[Any] = []
    for message in messages:
        if type(message.content) is str:
            size += len(message.content)
        if type(message.content) is tuple or message.native is not None or message.extra is not UNSET:
            return is_large(*messages)
        for result in message.tool_results:
            if type(result.result) is str:
                size += len(result.result)
            else:
                args.append(result.result)
        if message.tool_calls:
            args += [call.args if call.raw is None else call.raw for call in message.tool_calls]
    return size > INLINE or (bool(args) and is_large(*args))


def _is_derived(message: Message) -> bool:
    """Return True if a message or a call has an id that was derived from a document."""
    if is_derived(message.id):
        return True
    return bool(message.tool_calls) and any(is_derived(call.id) for call in message.tool_calls)


async def write(
    writer: SessionWriter,
    entries: Sequence[Entry],
    *,
    expected_version: int | None = None,
    expected_head: Position | None = None,
    key: Key | None = None,
    large: bool = False,
) -> Receipt:
    """Write entries at the head, counted under the model there; if the head moved, count again and retry."""
    while True:
        head, model = writer.next_model or await writer.model()
        records = None if large else writer.small_records(entries, model)
        if records is None:
            records = await writer.records(entries, model, large=large)
            head, known = writer.next_model or await writer.model()  # other tasks wrote meanwhile
            if known != model:
                continue
        try:
            receipt = await writer.append(
                records,
                after=expected_head or head,
                model=model,
                expected_version=expected_version,
                key=key,
            )
        except Conflict as conflict:
            if expected_head is not None or expected_version not in (None, conflict.version):
                raise
        else:
            writer.wrote(receipt, entries, records)
            writer.latest_calls.add(receipt, entries)
            return receipt


class _AddingResults:
    """Adds messages with tool results to the log; ``taken`` are those that are new to it."""

    def __init__(
        self,
        writer: SessionWriter,
        messages: Sequence[Message],
        expected_version: int | None,
        key: Key | None,
        *,
        large: bool,
    ) -> None:
        self._writer, self._large = writer, large
        self._expected_version, self._key = expected_version, key
        self._messages = messages
        self.taken: Sequence[Message] = messages

    async def added(self) -> Receipt:
        """Add the messages where their calls are; retry if another writer moves the head."""
        latest, row = self._writer.latest_calls, self._writer.row
        if latest.head == (row.branch, row.seq) and latest.await_results(self._messages):  # nearly always
            with suppress(Conflict):  # another writer was faster: read what it wrote
                return await self._write(latest.head)
        while True:
            head, calls = await self._known()
            try:
                is_new = await self._resolve(calls)
            except InvalidMessage as refusal:
                return await _first_receipt(self._writer, self._key, refusal)
            if not is_new and self._key is None:
                return Receipt(
                    epoch=self._writer.row.epoch,
                    version=self._writer.row.version,
                    branch=head.branch,
                    first=head.seq + 1,
                    last=head.seq,
                    repeated=True,
                )
            try:
                return await self._write(head)
            except Conflict as conflict:
                expected = self._expected_version
                if expected is not None and conflict.version != expected:
                    raise

    async def _known(self) -> tuple[Position, KnownCalls]:
        """Return the head, and the calls that the messages refer to; reads back to the oldest of them."""

        async def job(row: SessionRow, log: Reads) -> tuple[Position, KnownCalls]:
            path = await path_to(log, row.address, row.head)
            return row.head, await answered(known_calls(path, self._messages), log, row.address)

        return await self._writer.read(job, small=True)

    async def _resolve(self, calls: KnownCalls) -> bool:
        """Leave out results that are already known; return False if nothing else is left."""
        if self._large:
            self.taken = await off_loop(partial(fresh, calls, self._messages), large=True)
        else:
            self.taken = fresh(calls, self._messages)
        return bool(self.taken)

    async def _write(self, head: Position) -> Receipt:
        return await write(
            self._writer,
            _entries(self.taken),
            expected_version=self._expected_version,
            expected_head=head,
            key=self._key,
            large=self._large,
        )


def _entries(messages: Sequence[Message]) -> Sequence[Entry]:
    """Return messages as entries; the usage that a provider reported with a message is an entry after it."""
    entries: list[Entry] = []
    for message in messages:
        if isinstance(message, ReceivedMessage):
            entries += [message.without_usage, *([message.usage] if message.usage else [])]
        else:
            entries.append(message)
    return entries


def _ids(
    given: Sequence[Message], kept: Sequence[Message], taken: Iterable[Message] | None = None
) -> dict[str, str]:
    """Return the stored ids of messages and calls by the ids under which they were given.

    `taken` are the messages that were stored; without it, all of them were.
    """
    stored = None if taken is None else {message.id for message in taken}
    ids: dict[str, str] = {}
    for one, other in zip(given, kept, strict=True):
        if stored is None or other.id in stored:
            ids[one.id] = other.id
            if one.tool_calls:
                for call, stored_call in zip(one.tool_calls, other.tool_calls, strict=True):
                    ids[call.id] = stored_call.id
    return ids


async def _first_ids(writer: SessionWriter, receipt: Receipt, given: Sequence[Message]) -> dict[str, str]:
    """Return the ids under which the first request with a key was stored, by the ids of its repetition.

    Both requests say the same in the same order; results that were known at the time were not stored.
    """
    rows = await writer.log.read(writer.at, Span(receipt.branch, receipt.first, receipt.last))
    stored = deque(await messages_of(rows))

    def found() -> dict[str, str]:
        pairs = list[tuple[Message, Message]]()
        for message in given:
            if stored and stored[0].role == message.role and _says(message, stored[0]):
                pairs.append((message, stored.popleft()))
        return _ids([message for message, _ in pairs], [kept for _, kept in pairs])

    return await off_loop(found, large=is_large(*given))


def _says(message: Message, stored: Message) -> bool:
    """Return True if each result of a stored message is also a result of the given message."""
    return all(any(one.says_same(other) for one in message.tool_results) for other in stored.tool_results)


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
            raise InvalidMessage(not_a_message("append", message))
        if message.role == "system":
            raise InvalidMessage(
                f"message {message.id}: a session writes its own system messages; use set_system()"
            )


def interrupted(loaded: Loaded) -> list[Answer]:
    """Return answers to the calls that were running when the process ended."""
    return [Answer.give(call.id, INTERRUPTED) for call in loaded.fold.open_calls]
