"""Checks the lists of a bucket and its outbox: what they name exists, and every parcel is listed.

Members that lead nowhere are removed, which loses nothing. Lists change during the check, so a member is
stale only if two checks find it so.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, NamedTuple

from ...errors import StoreDamaged
from ..values import Address, Finding
from .layout import DIGITS, index_key, moment, named, parcel_key, session_key
from .rows import described, parcel
from .server import Server, script
from .verify_session import Edit, mend

PAGE = 500


class BucketInspection:
    """The check of one bucket; ``at`` is the session that a fault concerns."""

    def __init__(self, server: Server, keys: Sequence[bytes], *, repair: bool) -> None:
        self.server, self.at = server, Address("", "")
        self._keys, self._repair = keys, repair

    async def found(self, fault: str, *, done: str, edits: Sequence[Edit], id: str = "") -> Finding:
        """Repair a fault if requested, and return the finding."""
        if not (self._repair and await mend(self.server, self._keys, edits)):
            done = ""
        return Finding(tenant=self.at.tenant, session=self.at.session, id=id, fault=fault, done=done)


async def inspect_bucket(case: BucketInspection, bucket: int) -> AsyncIterator[Finding]:
    """Check the lists of a bucket in both directions."""
    async for finding in _inspect_parcels(case, bucket):
        yield finding
    async for finding in _inspect_index(case, bucket):
        yield finding


async def _inspect_index(case: BucketInspection, bucket: int) -> AsyncIterator[Finding]:
    start = b"-"
    while members := await case.server.ask("ZRANGEBYLEX", index_key(bucket), start, "+", "LIMIT", 0, PAGE):
        start = b"(" + members[-1]
        stale = await _stale(case, bucket, members)
        for member in await _stale(case, bucket, stale):
            place = _place(bucket, member)
            case.at = place.at if place else Address("", "")
            if await case.server.ask("EXISTS", session_key(case.at, b"gone")):
                continue  # being removed, and swept from the lists
            if await case.server.ask("ZSCORE", index_key(bucket), member) is not None:
                edits: list[Edit] = [(b"ZREM", b"index", member)]
                fault = "a list names something that does not exist"
                yield await case.found(fault, done="removed", edits=edits)


async def _stale(case: BucketInspection, bucket: int, members: Sequence[bytes]) -> list[bytes]:
    """Return the members that lead nowhere."""
    places = [_place(bucket, member) for member in members]
    answers = iter(await case.server.ask_all([place.question for place in places if place]))
    return [
        member
        for member, place in zip(members, places, strict=True)
        if place is None or not place.holds(next(answers))
    ]


class _Place(NamedTuple):
    """Where a member leads: what to ask there, and whether the answer matches the member."""

    at: Address
    question: tuple[bytes | str, ...]
    holds: Callable[[Any], bool]


def _place(bucket: int, member: bytes) -> _Place | None:
    """Parse a member; return None if that is impossible."""
    try:
        match member[:1]:
            case b"d" | b"u" | b"a" | b"e":
                return _of_session(member)
            case b"w" | b"v":
                return _of_words(member)
            case b"o" | b"p" | b"q" | b"r" | b"s":
                return _of_parcel(bucket, member)
    except ValueError:
        return None
    return None


def _of_session(member: bytes) -> _Place:
    tenant, user, rest = _names(member, with_user=member[:1] == b"u")
    at, when = Address(tenant, rest[DIGITS:].decode()), int(rest[:DIGITS])
    letter = member[:1]

    def holds(answer: list[bytes | None]) -> bool:
        created, active, idle, ended, kept = answer
        if user is not None and kept != user.encode():
            return False
        if letter != b"e":
            listed = active if letter == b"a" else created
            return listed is not None and int(listed) == when
        return ended is None and int(active or 0) + int(idle or 0) == when

    question = ("HMGET", session_key(at, b"row"), "created", "active", "idle", "ended", "user")
    return _Place(at, question, holds)


def _of_words(member: bytes) -> _Place:
    tenant, _, rest = _names(member, with_user=member[:1] == b"v")
    stamp, branch, seq, id = rest.split(b":", 3)
    at, when = Address(tenant, id.decode()), int(stamp)

    def holds(line: bytes | None) -> bool:
        known = described(line or b"")
        return line is not None and (known is None or known.stamp == when)

    return _Place(at, ("HGET", session_key(at, b"entry"), branch + b":" + seq), holds)


def _of_parcel(bucket: int, member: bytes) -> _Place:
    letter, rest = member[:1], member[1:]
    if letter in b"prs":
        _, rest = _name(rest)
    if letter == b"s":
        _, rest = _name(rest)
        return _Place(Address("", ""), ("HEXISTS", parcel_key(bucket), b"b" + rest), bool)

    def holds(state: bytes | None) -> bool:
        due, _, parked, *_ = (state or b"-1 0 0 ").split(b" ", 3)
        return int(due) == int(rest[:DIGITS]) and (parked == b"1") == (letter in b"qr")

    return _Place(Address("", ""), ("HGET", parcel_key(bucket), b"s" + rest[DIGITS:]), holds)


async def _inspect_parcels(case: BucketInspection, bucket: int) -> AsyncIterator[Finding]:
    (flat,) = await case.server.run(script("hashes"), [parcel_key(bucket)], twice=True)
    kept = dict(zip(flat[::2], flat[1::2], strict=True))
    for name in sorted({field[1:] for field in kept}):
        packed, state = kept.get(b"b" + name), kept.get(b"s" + name)
        async for finding in _inspect_parcel(case, bucket, name, packed, state):
            yield finding


async def _inspect_parcel(
    case: BucketInspection, bucket: int, name: bytes, packed: bytes | None, state: bytes | None
) -> AsyncIterator[Finding]:
    shown = name.decode(errors="replace")
    aside: list[Edit] = [
        (b"HSET", b"lost", field + name, value)
        for field, value in ((b"b", packed), (b"s", state))
        if value is not None
    ]
    aside.append((b"HDEL", b"parcel", b"b" + name, b"s" + name))
    case.at = Address("", "")
    try:
        one = parcel(name, packed or b"", state or b"")
    except (StoreDamaged, ValueError):
        if await _is_unchanged(case, bucket, name, packed, state):
            yield await case.found("a parcel cannot be read", done="it is set aside", edits=aside, id=shown)
        return
    case.at = Address(one.tenant, one.session)
    if not await case.server.ask("EXISTS", session_key(case.at, b"row")):
        if await _is_unchanged(case, bucket, name, packed, state):
            fault = "a parcel waits for a session that does not exist"
            yield await case.found(fault, done="it is set aside", edits=aside, id=shown)
        return
    when, tenant = moment(one.due) + name, named(one.tenant)
    letters = (b"q", b"r") if one.parked else (b"o", b"p")
    of_session = b"s" + tenant + named(one.session) + name
    members = [letters[0] + when, letters[1] + tenant + when, of_session]
    missing = await case.server.run(script("missing"), [index_key(bucket)], members, twice=True)
    if missing and await _is_unchanged(case, bucket, name, packed, state):
        edits: list[Edit] = [(b"ZADD", b"index", b"0", members[n]) for n in missing]
        yield await case.found("a parcel is missing from a list", done="listed again", edits=edits, id=shown)


async def _is_unchanged(case: BucketInspection, bucket: int, name: bytes, *seen: bytes | None) -> bool:
    """Return True if a parcel is unchanged: it may have been delivered or removed during the check."""
    return tuple(await case.server.ask("HMGET", parcel_key(bucket), b"b" + name, b"s" + name)) == seen


def _names(member: bytes, *, with_user: bool) -> tuple[str, str | None, bytes]:
    tenant, rest = _name(member[1:])
    if not with_user:
        return tenant.decode(), None, rest
    user, rest = _name(rest)
    return tenant.decode(), user.decode(), rest


def _name(packed: bytes) -> tuple[bytes, bytes]:
    length, _, rest = packed.partition(b":")
    return rest[: int(length)], rest[int(length) :]
