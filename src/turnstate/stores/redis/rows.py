"""Converts between values and what the server stores.

A session is a hash of its fields. An entry is a line that describes it (position, tokens, total, checksum,
length, stamp, kind and id) and, in another hash, its body. Numbers are decimal, texts UTF-8.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from ...errors import StoreDamaged
from ...search_terms import entry_words
from ..admission import KnownKey
from ..values import MESSAGE, Address, BranchRow, Parcel, Receipt, Record, Row, SessionRow
from ..verify.lineage import MAX_LOST
from .layout import integer, named, natural, text

TEXTS = ("tenant", "id", "title", "counter", "holder", "reason")
NUMBERS = ("created", "active", "idle", "epoch", "branch", "seq", "total", "version", "fence", "lease_until")
SIGNED = ("total", "version")  # a session that is still being imported may begin below zero
_LINE = re.compile(rb"(\d+) (\d+) (-?\d+) (-?\d+) (\d+) (\d+) (\d+) (\d+) (.*)", re.DOTALL)
_BRANCH = re.compile(rb"(\d*)\|(\d+)\|(\d+)\|(\d*)\|(\d+):(.*)", re.DOTALL)
_STATE = re.compile(rb"(\d+) (\d+) ([01]) (.*)", re.DOTALL)


def session_fields(row: SessionRow) -> list[bytes]:
    """Return the fields of a session as alternating names and values; None has no field."""
    texts = {name: text(getattr(row, name)) for name in TEXTS}
    numbers = {name: b"%d" % natural(getattr(row, name)) for name in NUMBERS if name not in SIGNED}
    lists = {"tags": msgspec.json.encode(row.tags), "meta": msgspec.json.encode(row.meta)}
    given = {name: b"%d" % integer(getattr(row, name)) for name in SIGNED}
    if row.user is not None:
        given["user"] = text(row.user)
    if row.ended is not None:
        given["ended"] = b"%d" % natural(row.ended)
    together = texts | numbers | lists | given
    return [piece for name, value in together.items() for piece in (name.encode(), value)]


def session(at: Address, flat: Sequence[bytes]) -> SessionRow:
    """Convert a hash to a session, or raise `StoreDamaged`."""
    kept = dict(zip(flat[::2], flat[1::2], strict=True))
    try:
        texts = {name: kept[name.encode()].decode() for name in TEXTS}
        numbers = {name: int(kept[name.encode()]) for name in NUMBERS}
        lists = {name: msgspec.json.decode(kept[name.encode()]) for name in ("tags", "meta")}
        user, ended = kept.get(b"user"), kept.get(b"ended")
        given = {
            "user": None if user is None else user.decode(),
            "ended": None if ended is None else int(ended),
        }
        return msgspec.convert(texts | numbers | lists | given, SessionRow)
    except (KeyError, ValueError, msgspec.MsgspecError) as error:
        shown = f"{at.session!r:.80} is damaged ({error!r:.100})"
        raise StoreDamaged(f"the description of session {shown}; run `turnstate verify`") from None


def born(flat: Sequence[bytes]) -> int:
    """Return the number that distinguishes a session from an earlier one with the same id."""
    number = dict(zip(flat[::2], flat[1::2], strict=True)).get(b"born", b"")
    return int(number) if number.isdigit() else 0


def checksum(at: Address, id: bytes, kind: bytes, tokens: bytes, body: bytes) -> int:
    """Return the checksum of an entry's content and of its session.

    It does not cover the position, which only the server knows at the time of the write. The position is
    stored twice: as the field of the hash, and in the line.
    """
    whose = b"\0".join((named(at.tenant), text(at.session), tokens, kind, id))
    return zlib.crc32(body, zlib.crc32(whose))


def packed_words(kind: str, body: bytes) -> bytes:
    """Return the words of an entry as they are stored, each between two newlines."""
    found = entry_words(kind, body)
    return b"\n%s\n" % text("\n".join(found)) if found else b""


def record_arguments(at: Address, records: Sequence[Record]) -> list[bytes]:
    """Return records as arguments of scripts."""
    arguments = list[bytes]()
    for record in records:
        id, kind, tokens = text(record.id), text(record.kind), b"%d" % integer(record.tokens)
        sum = b"%d" % checksum(at, id, kind, tokens, record.body)
        arguments += (id, kind, tokens, sum, record.body)
    return arguments


class Description(Struct, frozen=True):
    """The parsed line of an entry."""

    branch: int
    seq: int
    tokens: int
    total: int
    checksum: int
    length: int
    stamp: int
    kind: bytes
    id: bytes

    @property
    def place(self) -> bytes:
        """The position as a field of the hashes."""
        return b"%d:%d" % (self.branch, self.seq)

    @property
    def line(self) -> bytes:
        """The line as it is stored."""
        numbers = (self.branch, self.seq, self.tokens, self.total, self.checksum, self.length, self.stamp)
        return b"%s %d %s" % (b" ".join(b"%d" % one for one in numbers), len(self.kind), self.kind + self.id)


def described(line: bytes) -> Description | None:
    """Parse the line of an entry; return None if it is damaged."""
    if not (found := _LINE.fullmatch(line)):
        return None
    branch, seq, tokens, total, sum, length, stamp, cut = map(int, found.groups()[:-1])
    kind, id = found[9][:cut], found[9][cut:]
    return Description(branch, seq, tokens, total, sum, length, stamp, kind, id)


def entry(at: Address, place: bytes, line: bytes | None, body: bytes | None) -> Row:
    """Convert a line and a body to an entry; a damaged entry has what is left of it."""
    branch, seq = (int(number) for number in place.split(b":"))
    known = described(line or b"")
    if known is None:
        id = f"unreadable-{branch}-{seq}"
        return Row(
            branch=branch, seq=seq, id=id, kind=MESSAGE, body=body or b"", tokens=0, total=0, damaged=True
        )
    sum = checksum(at, known.id, known.kind, b"%d" % known.tokens, body or b"")
    return Row(
        branch=branch,
        seq=seq,
        id=known.id.decode(errors="replace"),
        kind=known.kind.decode(errors="replace"),
        body=body or b"",
        tokens=known.tokens,
        total=known.total,
        damaged=body is None or known.place != place or sum != known.checksum,
    )


def branch_rows(
    at: Address, flat: Sequence[bytes], *, head: bytes, seq: bytes, count: bytes, entries: int
) -> list[BranchRow]:
    """Convert a hash to branches in the order of their creation; its other fields are their ends.

    Nothing else tells that a branch is lost, or that entries come after an end, where no read finds them. So
    raise `StoreDamaged` unless branches are numbered without gaps and their ends lead to all entries. Those
    that are missing before an end are read as damaged, unless the end is so far away that it is wrong itself.
    """
    kept = dict(zip(flat[::2], flat[1::2], strict=True))
    ids = sorted(int(name) for name in kept if name.isdigit())
    found = [branch(id, kept[b"%d" % id]) for id in ids]
    shown = f"of session {at.session!r:.80}"
    if not count.isdigit() or not ids or ids != list(range(1, max(len(ids), int(count)) + 1)):
        raise StoreDamaged(f"branches {shown} are missing; run `turnstate verify`")
    ends = {one.id: end(kept, one.id) or (-1, 0) for one in found}
    if head.isdigit() and seq.isdigit():
        ends[int(head)] = int(seq), 0
    sizes = [ends[one.id][0] - one.fork_seq for one in found]
    if ends.keys() != set(ids) or min(sizes) < 0 or not sum(sizes) - MAX_LOST <= entries <= sum(sizes):
        raise StoreDamaged(f"the branches {shown} do not lead to its entries; run `turnstate verify`")
    return found


def end(kept: dict[bytes, bytes], id: int) -> tuple[int, int] | None:
    """Return the stored end of a branch and the total there; the head's branch has none of its own."""
    try:
        seq, total = map(int, kept.get(b"t%d" % id, b"").split(b" "))
    except ValueError:
        return None
    return seq, total


def branch(id: int, kept: bytes) -> BranchRow:
    """Parse a branch; raise `StoreDamaged` unless its parent is an earlier one (no cycles)."""
    found = _BRANCH.fullmatch(kept)
    try:
        parent, fork_seq, created, former, length, rest = found.groups() if found else ()
        name, operation = rest[: int(length)].decode(), rest[int(length) :].decode()
    except ValueError:
        raise StoreDamaged(f"branch {id} is damaged; run `turnstate verify`") from None
    if parent and not 0 < int(parent) < id:
        raise StoreDamaged(
            f"branch {id} is damaged: it forks from branch {int(parent)}; run `turnstate verify`"
        )
    return BranchRow(
        id=id,
        parent=int(parent) if parent else None,
        fork_seq=int(fork_seq),
        created=int(created),
        name=name,
        operation=operation,
        former=int(former) if former else None,
    )


def receipt(numbers: Sequence[bytes], *, repeated: bool = False) -> Receipt:
    """Convert numbers to a receipt."""
    epoch, version, at_branch, first, last = map(int, numbers)
    return Receipt(epoch=epoch, version=version, branch=at_branch, first=first, last=last, repeated=repeated)


def known_key(kept: bytes) -> KnownKey:
    """Parse the stored value of an idempotency key."""
    created, *numbers, digest = kept.split(b" ", 6)
    return KnownKey(digest, receipt(numbers), int(created))


def packed_parcel(one: Parcel) -> bytes:
    """Return the immutable part of a parcel as bytes."""
    return named(one.tenant) + named(one.session) + named(one.kind) + one.body


def parcel(id: bytes, packed: bytes, state: bytes) -> Parcel:
    """Convert the immutable part of a parcel and its state to a parcel."""
    found = _STATE.fullmatch(state)
    try:
        tenant, rest = _first_name(packed)
        of_session, rest = _first_name(rest)
        kind, body = _first_name(rest)
        due, tries, parked, error = found.groups() if found else ()
        return Parcel(
            id=id.decode(),
            tenant=tenant.decode(),
            session=of_session.decode(),
            kind=kind.decode(),
            body=body,
            due=int(due),
            tries=int(tries),
            error=error.decode(),
            parked=parked == b"1",
        )
    except ValueError:
        raise StoreDamaged(f"the parcel {id!r:.80} is damaged; run `turnstate verify`") from None


def _first_name(packed: bytes) -> tuple[bytes, bytes]:
    length, _, rest = packed.partition(b":")
    return rest[: int(length)], rest[int(length) :]
