"""Parcels: what a session leaves for the memory engine, written in the change that makes it due.

A parcel is small. It names a place in the log, which is never rewritten, and whoever delivers it reads
the messages there; so ending a session costs the same however long it was. The id says what happened
(this epoch of this session ended here, this cut was made), so the same event is one parcel however
often it is put in, and the id serves the engine as the idempotency key.
"""

from __future__ import annotations

from typing import ClassVar
from urllib.parse import quote

import msgspec
from msgspec import Struct

from ..entry import Cut
from ..errors import InvalidPayload, NewerFormat, UnknownName
from ..stores.values import Address, Parcel, Position

__all__ = ["ARCHIVE", "INGEST", "VERSION", "Contents", "Ending", "Eviction", "contents"]

VERSION = 1
"""Of the bodies; a newer one waits in the outbox for a newer worker."""

INGEST = "ingest"
ARCHIVE = "archive"


class Ending(Struct, frozen=True, kw_only=True):
    """An epoch ended with the entry ``last``, which is at (``branch``, ``seq``).

    Times are milliseconds of the clock that the session was kept by.
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
    """A cut took the messages from ``first`` to ``last`` out of the window.

    ``branch`` and ``seq`` are a place on the path after them, such as the cut's own. ``first`` is best
    the first message that the cut before had kept: earlier ones have a parcel of their own.
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

    @classmethod
    def of(cls, cut: Cut, *, epoch: int, head: Position, first: str, last: str) -> Eviction:
        """Describe what a cut evicts, as seen from a place on the path after it."""
        return cls(
            epoch=epoch,
            branch=head.branch,
            seq=head.seq,
            cut=cut.id,
            first=first,
            last=last,
            summary=cut.summary,
        )

    @property
    def head(self) -> Position:
        """A place on the path after the messages."""
        return Position(self.branch, self.seq)

    def parcel(self, at: Address, *, due: int) -> Parcel:
        """Wrap it up for the outbox."""
        return _wrapped(self, at, self.epoch, self.cut, due)


Contents = Ending | Eviction

_KINDS: dict[str, type[Contents]] = {INGEST: Ending, ARCHIVE: Eviction}


def contents(parcel: Parcel) -> Contents:
    """Unwrap a parcel; one that a newer Turnstate wrapped is refused."""
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
