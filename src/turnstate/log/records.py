"""What a session writes: records of its entries, and parcels for the memory engine.

Records are entries ready for a store, encoded and counted once. A message is counted as it will be sent
(a long one after reduction), with the counter in force at its position: the one of the newest model change
before it, or else the session's own. The digest of a request omits what changes when a message is built
again, such as its id and timestamp, so a retry is recognized.

A parcel is small. It names a position in the log, which is never rewritten, and the worker that delivers it
reads the messages there, so ending a session takes the same time however long it was. The id identifies the
event (this epoch of this session ended here, this cut was made). So the same event is one parcel however
often it is enqueued, and the engine uses the id as the idempotency key.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, ClassVar
from urllib.parse import quote

import msgspec
from msgspec import Struct

from .. import codec, ids, long_json
from ..codec import decode_entry, encode, kind_of
from ..context.policy import COUNTED_WHOLE, Budget, OutputLimits, Policy
from ..context.reduction import output_id, reduced
from ..entry import Answer, Cut, Entry, ModelChange
from ..errors import InvalidPayload, NewerFormat, TurnstateError, UnknownName
from ..long_json import exceeds
from ..message import Message
from ..stores.values import Address, Parcel, Position, Record
from ..threads import INLINE, off_loop
from ..tokens import Counter, counter, counter_names
from ..tokens.cost import ExactCounter, message_tokens
from .fold import Fold

_encoder = msgspec.json.Encoder(order="sorted")
_ONE_IN = 16  # a sample recounts one in this many entries


def counter_of(model: ModelChange) -> Counter:
    """Return the counter of a model."""
    try:
        return counter(model.counter)
    except UnknownName:
        raise NewerFormat(
            f"the model {model.id!r:.80} is counted by {model.counter!r:.60}, which this Turnstate does not "
            "know; update it"
        ) from None


async def records(
    entries: Sequence[Entry], counter: Counter, policy: Policy, *, large: bool | None = None
) -> tuple[Record, ...]:
    """Return entries as records, encoded and counted; large entries are processed in a thread.

    `counter` is the one in force before the entries; a model change among them switches it. Pass `large` if
    the size is already known.
    """
    if large is None:
        large = exceeds(INLINE, *entries)
    is_counted = any(isinstance(entry, Message | Answer) for entry in entries)
    if not large and not is_counted:  # no vocabulary is needed
        return _records(entries, counter, policy, short=True)
    if not large and (made := small_records(entries, counter, policy)):
        return made
    return await off_loop(lambda: _records(entries, counter, policy, short=not large), large=True)


def small_records(entries: Sequence[Entry], counter: Counter, policy: Policy) -> tuple[Record, ...] | None:
    """Return entries that are not large as records; None if the counter has to be loaded first."""
    if isinstance(counter, ExactCounter) and not counter.is_loaded:
        return None
    return _records(entries, counter, policy, short=True)


def _records(
    entries: Sequence[Entry], counter: Counter, policy: Policy, *, short: bool
) -> tuple[Record, ...]:
    made: list[Record] = []
    for entry in entries:
        body = encode(entry, short=short)
        if type(entry) is Message and len(body) <= COUNTED_WHOLE:  # nearly all are
            made.append(Record(id=entry.id, kind="message", body=body, tokens=message_tokens(entry, counter)))
            continue
        if isinstance(entry, ModelChange):
            counter = counter_of(entry)
        made.append(_record(entry, body, counter, policy))
    return tuple(made)


def _record(entry: Entry, body: bytes, counter: Counter, policy: Policy) -> Record:
    """Return the record of any entry other than a short message."""
    if isinstance(entry, Answer) and (shown := entry.message):
        tokens = message_tokens(shown, counter)
        return Record(id=shown.id, kind=kind_of(entry), body=body, tokens=tokens)
    if not isinstance(entry, Message):
        return Record(id=ids.message_id(), kind=kind_of(entry), body=body)
    as_sent = entry
    if len(body) > COUNTED_WHOLE:
        limits = OutputLimits.of(policy.reduction, Budget.UNLIMITED.limit)
        as_sent = reduced(entry, counter, limits, handle=partial(output_id, entry))
    tokens = message_tokens(as_sent, counter)
    return Record(id=entry.id, kind="message", body=body, tokens=tokens)


def recount(name: str, kind: str, body: bytes, tokens: int) -> int | None:
    """Return the token count of an entry if the stored one is wrong.

    Only messages, and answers shown as messages, are checked: windows do not use other counts. A long tool
    message is not checked either: its stored count depends on how it was reduced, and no window relies on it.
    Other checks report unreadable entries and unknown counters.
    """
    try:
        entry = decode_entry(kind, body)
    except TurnstateError:
        return None
    shown = entry.message if isinstance(entry, Answer) else entry
    if not isinstance(shown, Message) or name not in counter_names():
        return None
    if shown.role == "tool" and len(body) > COUNTED_WHOLE:
        return None
    right = message_tokens(shown, counter(name))
    return right if right != tokens else None


def sampled_recount(name: str, kind: str, body: bytes, tokens: int) -> int | None:
    """Recount a fixed sample of the entries, and every message whose count is impossible."""
    is_odd = kind == "message" and not 0 < tokens <= len(body)
    return recount(name, kind, body, tokens) if is_odd or zlib.crc32(body) % _ONE_IN == 0 else None


def digest(messages: Iterable[Message]) -> bytes:
    """Return a digest of a request's content that distinguishes it from other requests."""
    summed, own = hashlib.blake2b(digest_size=16), dict[str, str]()
    for message in messages:
        own |= {call.id: f"{len(own) + place}" for place, call in enumerate(message.tool_calls)}
        body = long_json.encode(_content(codec.to_builtins(message), own), _encoder)
        summed.update(len(body).to_bytes(8, "big"))
        summed.update(body)
    return summed.digest()


def _content(plain: dict[str, Any], own: dict[str, str]) -> dict[str, Any]:
    """Omit what changes when a message is built again: its id, its time, and the ids of its calls.

    A result of a call in the same request refers to the call by its position. So does a result whose call id
    was derived from a document, since such an id depends on the rest of the document.
    """
    content = {key: value for key, value in plain.items() if key not in ("id", "timestamp")}
    if calls := content.get("tool_calls"):
        content["tool_calls"] = [
            {key: value for key, value in call.items() if key not in ("id", "parsed_id")} for call in calls
        ]
    if results := content.get("tool_results"):
        for result in results:
            if ids.is_derived(id := result["tool_call_id"]):
                own.setdefault(id, f"{len(own)} of a document")
        content["tool_results"] = [
            {**result, "tool_call_id": own.get(result["tool_call_id"], result["tool_call_id"])}
            for result in results
        ]
    return content


# Parcels: what a session leaves for the memory engine, written in the change that makes it due.

VERSION = 1
"""The version of parcel bodies; a parcel with a newer version waits in the outbox for a newer worker."""

INGEST = "ingest"
ARCHIVE = "archive"


class Ending(Struct, frozen=True, kw_only=True):
    """An epoch that ended with the entry ``last``, which is at (``branch``, ``seq``).

    Times are in milliseconds, by the clock of the session.
    """

    kind: ClassVar[str] = INGEST

    epoch: int
    branch: int
    seq: int
    last: str
    user: str | None = None
    reason: str
    started: int
    ended: int
    version: int = VERSION

    @property
    def head(self) -> Position:
        """The last entry of the path that ended."""
        return Position(self.branch, self.seq)

    def parcel(self, at: Address, *, due: int) -> Parcel:
        """Wrap it up for the outbox."""
        return _wrapped(self, at, self.epoch, self.last, due)


class Eviction(Struct, frozen=True, kw_only=True):
    """A cut that removed the messages from ``first`` to ``last`` from the window.

    ``branch`` and ``seq`` are a position on the path after them, such as the cut's own. ``first`` should be
    the first message that the previous cut kept: earlier messages have their own parcels.
    """

    kind: ClassVar[str] = ARCHIVE

    epoch: int
    branch: int
    seq: int
    cut: str
    first: str
    last: str
    summary: str = ""
    version: int = VERSION

    @property
    def head(self) -> Position:
        """A position on the path after the messages."""
        return Position(self.branch, self.seq)

    def parcel(self, at: Address, *, due: int) -> Parcel:
        """Wrap it up for the outbox."""
        return _wrapped(self, at, self.epoch, self.cut, due)


def eviction(
    fold: Fold, cut: Cut, at: Address, *, epoch: int, after: Position, due: int
) -> tuple[Parcel, ...]:
    """Return the parcel of the messages that leave with a cut and are in no parcel yet, if any.

    `after` is a position on the path after those messages.
    """
    found = fold.evicted(cut)
    if found is None:
        return ()
    first, last = found
    evicted = Eviction(
        epoch=epoch,
        branch=after.branch,
        seq=after.seq,
        cut=cut.id,
        first=first,
        last=last,
        summary=cut.summary,
    )
    return (evicted.parcel(at, due=due),)


Contents = Ending | Eviction

_KINDS: dict[str, type[Contents]] = {INGEST: Ending, ARCHIVE: Eviction}


def contents(parcel: Parcel) -> Contents:
    """Unwrap a parcel; raise an error if a newer Turnstate wrapped it."""
    kind = _KINDS.get(parcel.kind)
    if kind is None:
        raise UnknownName(f"parcel {parcel.id} is of an unknown kind {parcel.kind!r:.40}; update Turnstate")
    try:
        version = msgspec.json.decode(parcel.body, type=_Versioned).version
        if version > VERSION:
            raise NewerFormat(f"parcel {parcel.id} has version {version}; update Turnstate to deliver it")
        return msgspec.json.decode(parcel.body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidPayload(f"parcel {parcel.id} cannot be read: {error}") from None


class _Versioned(Struct, frozen=True):
    version: int = VERSION


def _wrapped(body: Contents, at: Address, epoch: int, event: str, due: int) -> Parcel:
    names = (body.kind, at.tenant, at.session, str(epoch), event)
    return Parcel(
        id=":".join(quote(name, safe="", errors="surrogatepass") for name in names),
        tenant=at.tenant,
        session=at.session,
        kind=body.kind,
        body=msgspec.json.encode(body),
        due=due,
    )
