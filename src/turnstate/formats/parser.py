"""Parse a growing document without reading the same items again.

A program without a session sends the whole conversation with every call, so the same messages are parsed
over and over. A parser remembers the last document and reads the next one only from the first item that
differs, so one additional message costs one message. Items are compared by content, never by identity: for
a document that was edited in place, shortened or reordered, the result is that of a fresh parser, including
ids and errors. A format's own `parse` uses a parser once.

An earlier message can depend on a later one in one way: through the ids and names in our rendering of it,
which is compared with the original. If a new item changes these, everything is read again.
"""

from __future__ import annotations

import marshal
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, Struct, UnsetType, structs
from msgspec.structs import force_setattr

from .. import strict_json
from ..errors import InvalidPayload
from ..ids import CallId
from ..message import Message
from ..part import Native
from .draft import Document, Draft, Settling
from .edits import difference
from .scope import Scope

if TYPE_CHECKING:
    from .adapter import Adapter

_Named = tuple[tuple[str | None, str | None], ...]


class _Seen(Struct):
    """What is known about the last document.

    ``prints`` are its items as bytes; ``beside`` is what becomes messages but is not in the list. For each
    message, ``ends`` is where its items end, and ``named`` is how the document names the calls it answers.
    """

    prints: list[bytes | None] = []
    beside: bytes | None = b""
    messages: list[Message] = []
    ends: list[int] = []
    named: list[_Named] = []
    ids: dict[CallId, str] = {}
    names: dict[CallId, str] = {}
    silent: set[CallId] = set()
    envelope: bytes | None = b""
    settling: list[Settling] = []  # at most one, for the first caller that continues

    def until(self, kept: int) -> _Seen:
        """Return what is known about the first `kept` messages."""
        if kept == len(self.messages):
            return self
        messages = self.messages[:kept]
        asked = {call.id for message in messages for call in message.tool_calls}
        spoken_of = asked | {one.tool_call_id for message in messages for one in message.tool_results}
        return _Seen(
            messages=messages,
            ends=self.ends[:kept],
            named=self.named[:kept],
            ids={id: wire for id, wire in self.ids.items() if id in spoken_of},
            names={id: name for id, name in self.names.items() if id in asked},
            silent=self.silent & asked,
            envelope=self.envelope,
        )

    def settled(self, native: Native) -> Settling:
        """Return the state after the last message; no two threads get the same object."""
        try:
            return self.settling.pop()
        except IndexError:
            settling = Settling(native)
            for index, (message, named) in enumerate(zip(self.messages, self.named, strict=True)):
                settling.pass_over(index, message, named)
            return settling


class Parser:
    """Reads the documents of a growing conversation; a format's `parser` creates one."""

    def __init__(self, format: Adapter) -> None:
        self._format = format
        self._plain = Native(format=format.name)
        self._seen = _Seen()

    def parse(self, payload: Any) -> list[Message]:
        """Read a document like the format's `parse`, reusing messages that have not changed.

        Equal items at the start of a document become the same message objects, so do not modify them.
        """
        return self._parse(payload)

    def _parse(self, payload: Any, *, is_plain: bool = False) -> list[Message]:
        document = self._opened(payload)
        items = document.items if isinstance(document.items, list) else []
        prints = list(map(_print, items))
        beside = _print([isinstance(payload, list), document.system])
        seen = self._seen if beside is not None and beside == self._seen.beside else _Seen()
        same = _shared(seen.prints, prints)
        if not is_plain and not self._is_plain(payload, items[same:]):
            return self._parse(strict_json.plain_document(payload), is_plain=True)
        messages = self._read(document, seen.until(self._kept(seen, same)), prints, beside)
        if messages is None:
            messages = self._read(document, _Seen(), prints, beside)
        return messages or []

    def _opened(self, payload: Any) -> Document:
        try:
            return self._format._open(payload)
        except InvalidPayload:
            strict_json.check(payload)  # if it is not JSON at all, raise that error instead
            raise

    def _is_plain(self, payload: Any, new: Sequence[Any]) -> bool:
        """Return True if a document is certainly JSON, checking only what is new or not in the list."""
        levels, key = strict_json.MAX_DEPTH - 1, self._format.list_key
        if isinstance(payload, dict):
            rest = {name: value for name, value in payload.items() if name != key or isinstance(value, str)}
            sure = strict_json.is_plain(rest, levels + 1)
            levels -= 1
        else:
            sure = True
        return sure and all(strict_json.is_plain(item, levels) for item in new)

    def _kept(self, seen: _Seen, same: int) -> int:
        """Return how many messages are final, whatever the next item is."""
        kept = bisect_right(seen.ends, same)
        if self._format.in_runs and kept and same and seen.messages[kept - 1].role == "assistant":
            kept -= seen.ends[kept - 1] == same
        return kept

    def _read(
        self, document: Document, seen: _Seen, prints: list[bytes | None], beside: bytes | None
    ) -> list[Message] | None:
        """Read what is new; return None if that changes how earlier messages are rendered."""
        format, kept = self._format, len(seen.messages)
        drafts = list(self._drafts(document, seen))
        settling, messages = seen.settled(self._plain), seen.messages.copy()
        messages += [settling.message(index, draft) for index, draft in enumerate(drafts, start=kept)]
        scope = format._scope(messages)
        if not _goes_on(seen, scope):
            return None
        scope.silent |= seen.silent
        self._add_native(messages, kept, drafts, scope)
        envelope = format._kept(document, messages)
        if messages and (not kept or seen.envelope is None or seen.envelope != _envelope_print(envelope)):
            native = messages[0].native or self._plain
            messages[0] = structs.replace(messages[0], native=structs.replace(native, envelope=envelope))
        self._seen = _Seen(
            prints=prints,
            beside=beside,
            messages=messages.copy(),
            ends=[*seen.ends, *(draft.end for draft in drafts)],
            named=[*seen.named, *map(_names, drafts)],
            ids=scope.ids,
            names=scope.names,
            silent=scope.silent,
            envelope=_envelope_print(envelope),
            settling=[settling],
        )
        return messages

    def _drafts(self, document: Document, seen: _Seen) -> Iterable[Draft]:
        format, start = self._format, seen.ends[-1] if seen.ends else 0
        before = seen.messages[-1].role if seen.messages else None
        system = (
            iter(()) if seen.messages or document.system is None else format._read_system(document.system)
        )
        return chain(system, format._read(document.items, start, before))

    def _add_native(self, messages: list[Message], kept: int, drafts: list[Draft], scope: Scope) -> None:
        """Store with each new message what its document contains and our rendering does not."""
        first = leading(messages)
        for index, draft in enumerate(drafts, start=kept):
            message = messages[index]
            scope.enter(message, index, leading=index < first)
            edits = difference(self._format._write(message, scope), draft.piece)
            if edits or draft.starts is not None:
                native = Native(format=self._format.name, edits=edits, starts=draft.starts)
                force_setattr(message, "native", native)  # no one else has the message yet


def leading(messages: Sequence[Message]) -> int:
    """Return the number of leading system messages."""
    return next((i for i, message in enumerate(messages) if message.role != "system"), len(messages))


def _print(value: Any) -> bytes | None:
    """Return bytes that identify a value and its types; None if `marshal` does not support the types.

    Version 2 of the format records neither references nor whether a string is interned.
    """
    try:
        return marshal.dumps(value, 2)
    except ValueError:
        return None


def _envelope_print(envelope: dict[str, Any] | UnsetType | None) -> bytes | None:
    return b"" if envelope is UNSET else _print(envelope)


def _shared(before: list[bytes | None], now: list[bytes | None]) -> int:
    """Return the length of the common prefix."""
    if before == now[: len(before)] and None not in before:
        return len(before)
    pairs = zip(before, now, strict=False)
    differing = (place for place, (one, other) in enumerate(pairs) if one != other or one is None)
    return next(differing, min(len(before), len(now)))


def _goes_on(seen: _Seen, scope: Scope) -> bool:
    """Return True if earlier calls keep their ids, and results without a call still have none."""
    without = seen.ids.keys() - seen.names.keys()
    return seen.ids.items() <= scope.ids.items() and without.isdisjoint(scope.names)


def _names(draft: Draft) -> _Named:
    return tuple((result.id, result.name) for result in draft.results)
