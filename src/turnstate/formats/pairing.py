"""Calls and their answers: which answer belongs to which call, where it goes, and under which id.

Providers repeat ids across batches and omit them; most require that nothing comes between a batch of
calls and its answers. ``Answers`` resolves the ids of a document: the core's own id first, then the
provider's id in the newest open batch, then, without an id, name and order. ``gathered`` moves answers
after the calls that they answer. ``wire_ids`` picks the ids that are sent to a provider.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache

from ..ids import CallId, derived_call_id, named_call
from ..message import Message, ToolCallRequest, ToolCallResult

LONGEST_NAME = 64
"""The longest tool name that every provider accepts."""

_OWN_ID = re.compile(r"call_[0-9a-f]{12}[78][0-9a-f]{3}[89ab][0-9a-f]{15}")
_FOREIGN_IN_NAME = re.compile(r"[^a-zA-Z0-9_-]")
_FOREVER = sys.maxsize

_Key = tuple[str, str]
_NAMELESS: _Key = ("neither", "")
"""The key for calls without an id whose results have none either; they are matched in order."""


def is_native(message: Message, format: str | None) -> bool:
    """Return True if the message comes from a document of that format."""
    return message.native is not None and message.native.format == format


def core_id(provider_id: str | None, position: int, taken: set[CallId]) -> CallId:
    """Return the core's id for a call in a document: its own if the core minted it, else a derived one."""
    if provider_id and _OWN_ID.fullmatch(provider_id) and provider_id not in taken:
        call = CallId(provider_id)
    else:
        call = derived_call_id(position, (provider_id or "").encode(), len(taken).to_bytes(8, "big"))
    taken.add(call)
    return call


class Answers:
    """Matches answers to calls while a document is read from its start."""

    def __init__(self) -> None:
        self._open: set[CallId] = set()
        self._batches: dict[_Key, list[deque[CallId]]] = {}
        self._newest: dict[str, CallId] = {}
        self._unknown: set[CallId] = set()

    def ask(self, calls: tuple[ToolCallRequest, ...]) -> None:
        """Record a batch of calls."""
        if not calls:
            return
        batch: dict[_Key, deque[CallId]] = {}
        for call in calls:
            self._open.add(call.id)
            for key in _keys(call):
                batch.setdefault(key, deque()).append(call.id)
            self._newest[call.provider_id or call.id] = self._newest[call.id] = call.id
        for key, waiting in batch.items():
            self._batches.setdefault(key, []).append(waiting)

    def answer(self, position: int, provider_id: str | None, name: str | None = None) -> CallId:
        """Return the id of the call that a result answers; an unknown call gets an id of its own."""
        if provider_id is None:
            found = self._newest_open(("name", name or ""))
        else:
            key = ("without id", name or "") if provider_id else _NAMELESS
            found = self._newest_open(("id", provider_id)) or self._newest_open(key)
            found = found or self._newest.get(provider_id)
        if found is None:
            if provider_id is None and name is not None:
                return named_call(name)
            return self._outside(provider_id, position)
        self._open.discard(found)
        return found

    def _outside(self, provider_id: str | None, position: int) -> CallId:
        """Return the provider's id for a call outside the document, so that whoever has the call knows it."""
        if not provider_id or provider_id in self._unknown:
            return core_id(provider_id, position, self._unknown)
        self._unknown.add(CallId(provider_id))
        return CallId(provider_id)

    def _newest_open(self, key: _Key) -> CallId | None:
        batches = self._batches.get(key, [])
        while batches:
            waiting = batches[-1]
            while waiting:
                if waiting[0] in self._open:
                    return waiting[0]
                waiting.popleft()
            batches.pop()
        return None


def _keys(call: ToolCallRequest) -> set[_Key]:
    """Return the keys by which a result may refer to a call."""
    keys = {("name", call.name), ("id", call.id)}
    return keys | ({("id", call.provider_id)} if call.provider_id else {("without id", call.name), _NAMELESS})


def gathered(messages: Iterable[Message], *, format: str | None = None) -> list[Message]:
    """Move the first answer to each call directly after the call, or after the run that the call is part of.

    An answer stays in place if it, its call and everything between come from documents of that format.
    """
    order = _Order(format)
    for position, message in enumerate(messages):
        order.add(position, message)
    return [message for slot in order.slots for message in slot]


class _Order:
    """Messages in slots: each slot begins with a message that stays in place, followed by moved answers.

    A run is a sequence of assistant messages, identified by the position of its first message.
    """

    def __init__(self, format: str | None) -> None:
        self.slots: list[list[Message]] = []
        self._format = format
        self._asked: dict[CallId, int] = {}  # the run that made a call
        self._place: dict[int, int] = {}  # the slot that takes the answers to a run
        self._run = 0
        self._speaking = False
        self._foreign = -1  # the position of the newest message from elsewhere

    def add(self, position: int, message: Message) -> None:
        """Add the next message."""
        if not is_native(message, self._format):
            self._foreign = position
        if message.role == "tool":
            self._answer(message)
        else:
            if message.role == "assistant":
                self._ask(position, message)
            self.slots.append([message])
        self._speaking = message.role == "assistant"

    def _ask(self, position: int, message: Message) -> None:
        self._run = self._run if self._speaking else position
        self._place[self._run] = len(self.slots)
        self._asked.update((call.id, self._run) for call in message.tool_calls)

    def _answer(self, message: Message) -> None:
        shares: dict[int | None, list[tuple[int, ToolCallResult]]] = {}
        for place, result in enumerate(message.tool_results):
            run = self._asked.pop(result.tool_call_id, None)
            if run is not None and run > self._foreign:
                self._place[run] = len(self.slots)
                run = None
            shares.setdefault(run, []).append((place, result))
        for run, results in shares.items():
            share = message if len(shares) == 1 else message.with_results(results)
            if run is None:
                self.slots.append([share])
            else:
                self.slots[self._place[run]].append(share)


def wire_ids(
    messages: Sequence[Message], accepts: Callable[[str], object], *, unique: bool, format: str | None = None
) -> dict[CallId, str]:
    """Pick an id that the provider accepts for every call; the same calls always get the same ids.

    The provider gets its own ids back unchanged, unless a window mended the message. If ids need not be
    unique, an id may be reused once nothing refers to its former call.
    """
    spoken_of = {one.tool_call_id: at for at, message in enumerate(messages) for one in message.tool_results}
    busy: dict[str, int] = {}  # the last position at which an id is in use
    chosen: dict[CallId, str] = {}
    for at, message in enumerate(messages):
        own = message.native is not None and is_native(message, format) and not message.native.mended
        for call in message.tool_calls:
            if call.id in chosen:
                continue
            free = (one for one in _candidates(call.id, call.provider_id) if busy.get(one, -1) < at)
            wire = next(one for one in free if accepts(one) or (own and one == call.provider_id))
            chosen[call.id] = wire
            busy[wire] = _FOREVER if unique else max(at, spoken_of.get(call.id, at))
    for unknown in spoken_of:
        if unknown not in chosen:
            wire = next(one for one in _candidates(unknown) if accepts(one) and one not in busy)
            chosen[unknown] = wire
            busy[wire] = _FOREVER
    return chosen


def _candidates(call: str, provider_id: str | None = None) -> Iterator[str]:
    if provider_id:
        yield provider_id
    yield call
    for attempt in range(256):
        digest = hashlib.blake2b(call.encode(), digest_size=16, salt=bytes([attempt]))
        yield f"call_{digest.hexdigest()}"


@lru_cache(maxsize=1_024)
def wire_name(name: str, longest: int = LONGEST_NAME) -> str:
    """Return a tool's name in the alphabet that all providers accept, and within their length limit.

    A name of up to `longest` characters, which is at least `LONGEST_NAME`, stays as it is. A changed name has
    at most `LONGEST_NAME` characters, even where more are accepted: so no provider has to change it again,
    and the tool has the same name with each of them.
    """
    if len(name) <= longest and not _FOREIGN_IN_NAME.search(name):
        return name
    mark = "_" + hashlib.blake2b(name.encode(), digest_size=4).hexdigest()
    return _FOREIGN_IN_NAME.sub("_", name)[: LONGEST_NAME - len(mark)] + mark
