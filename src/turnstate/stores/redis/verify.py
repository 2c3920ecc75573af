"""Checks everything on a server: every session by the shared rules, then the lists of every bucket.

Nothing is repaired in place. What can be read is exported, and imported into an empty database, where the
scripts that every append runs build all lists anew.

A session is checked in one state: its row, branches and keys are read in one script, and its log only grows,
so the entries up to there belong to that state even if they are read later. Lists and parcels change during
the check, so a fault there counts only if it is found twice.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from ...entry import Entry
from ...errors import NotFound, StoreDamaged
from ..values import MESSAGE, Address, Finding, Recount, SessionRow
from ..verify.descriptions import inspect_counter, inspect_keys, parsed
from ..verify.entries import Seen, Stretch, inspect_entries
from ..verify.inspection import Check, Inspection, is_text
from ..verify.lineage import MAX_LOST, Lineage, inspect_head, inspect_lineage, inspect_missing_branches
from .layout import BUCKETS, DIGITS, index_key, moment, named, parcel_key, session_key, session_keys, text
from .log import MAX_BYTES
from .rows import (
    NUMBERS,
    SIGNED,
    TEXTS,
    Description,
    branch,
    checksum,
    described,
    end,
    known_key,
    packed_words,
    parcel,
    session,
)
from .server import Server, script

T = TypeVar("T")

PAUSE = 0.2
"""Seconds after which a removal that makes no progress counts as interrupted."""

PAGE = 500
"""Keys, or members of a list, to ask for at a time."""

_SCANNED = 1_000
_ONLY = 0  # a check has only one session, so rules need no number for it
_NO_CHECKSUM = -1
_KEY = re.compile(rb"\{ts:\d+\}:(row|branch|entry|body|id|asked|word|own|aside|gone):(\d+):(.*)", re.DOTALL)

_JSON: dict[bytes, Any] = {b"tags": list[str], b"meta": dict[str, Any]}
_REQUIRED = [name.encode() for name in (*TEXTS, *NUMBERS, "tags", "meta", "branches", "born")]
_WHOLE = frozenset(name.encode() for name in (*NUMBERS, "branches", "born", "ended"))


async def verified(server: Server, *, recount: Recount | None = None) -> AsyncIterator[Finding]:
    """Check everything, and yield what is wrong."""
    async for kind, at in _keys(server, "{ts:*}:*"):
        for finding in await _inspect_key(server, kind, at, recount):
            yield finding
    for bucket in await _filled(server):
        for inspect in (_inspect_parcels, _inspect_lists):
            async for finding in inspect(server, bucket):
                yield finding


async def addresses(server: Server) -> AsyncIterator[Address]:
    """Yield the addresses of all sessions, found by their keys, since lists may be damaged."""
    seen = set[Address]()
    async for kind, at in _keys(server, "{ts:*}:row:*"):
        if kind == b"row" and at not in seen:  # SCAN may return a key twice
            seen.add(at)
            yield at


async def _keys(server: Server, pattern: str) -> AsyncIterator[tuple[bytes, Address]]:
    """Yield the kind and the session of every key of a session that matches a pattern."""
    for node in await server.nodes():
        cursor: int | None = None
        while cursor != 0:
            start = cursor or 0
            answer = await server.ask("SCAN", start, "MATCH", pattern, "COUNT", PAGE, node=node)
            cursor = int(answer[0])
            for found in filter(None, map(_KEY.fullmatch, answer[1])):
                kind, length, rest = found.groups()
                tenant, id = rest[: int(length)], rest[int(length) :]
                if is_text(tenant) and is_text(id):
                    yield kind, Address(tenant.decode(), id.decode())


async def _inspect_key(server: Server, kind: bytes, at: Address, recount: Recount | None) -> list[Finding]:
    key, fault = session_key(at, kind), ""
    if kind == b"row":
        return await SessionCheck(server, at, recount).findings()
    if kind == b"gone":
        before = await server.ask("HLEN", key)
        await asyncio.sleep(PAUSE)
        if before and before == await server.ask("HLEN", key):
            fault = "its removal was interrupted; remove it again to complete that"
    elif await server.run(script("orphan"), [session_key(at, b"row"), key], twice=True):
        fault = f"`{kind.decode()}` of a session that does not exist"
    return [Finding(tenant=at.tenant, session=at.session, fault=fault)] if fault else []


class SessionCheck:
    """The check of one session: answers what the shared rules ask for, and adds the rules of this store.

    A method that is named after a statement, like `_walked`, answers it with the columns that its SQL has.
    """

    _row: SessionRow

    def __init__(self, server: Server, at: Address, recount: Recount | None = None) -> None:
        self.server, self.at, self.keys = server, at, session_keys(at)
        self._case = Inspection(self._checksum, mends=False, at=at, recount=recount)
        self._fields: dict[bytes, bytes] = {}
        self._branches: dict[bytes, bytes] = {}
        self._asked: dict[bytes, bytes] = {}
        self._extents: dict[int, tuple[int, int]] = {}  # the first and the last entry of each branch
        self._lines: dict[bytes, bytes] = {}  # of the entries that were read last, by place

    async def findings(self) -> list[Finding]:
        """Return what is wrong; a session that is removed during the check has no faults."""
        # Entries first: one that is appended before the row is read must not seem to be beyond its end.
        await self._list_entries()
        row, branches, asked = await self._hashes(b"row", b"branch", b"asked")
        self._fields, self._branches, self._asked = _pairs(row), _pairs(branches), _pairs(asked)
        if not row:
            return []
        self._inspect_fields()
        with suppress(NotFound):
            try:
                self._row = session(self.at, row)
            except (
                StoreDamaged
            ):  # its fields are among the findings, and nothing else can be compared with it
                pass
            else:
                await self._inspect_log()
        born = await self.server.ask("HGET", self._key(b"row"), b"born")
        return self._case.findings if born == self._fields.get(b"born") else []

    async def _inspect_log(self) -> None:
        await self._list_newer_entries()
        lineage = await self._answered(inspect_lineage(self._case, _ONLY))
        await self._answered(inspect_missing_branches(self._case, lineage))
        for id in lineage.lines:
            stretch = await self._answered(lineage.stretch(self._case, id))
            while not stretch.walked:
                stretch = await self._inspect_page(stretch)
        await self._answered(inspect_head(self._case, _ONLY))
        await self._answered(inspect_keys(self._case, _ONLY))
        await self._inspect_ends()
        await self._inspect_ids()
        # An append moves a session in two of the lists, between the two commands that look there.
        if missing := set(await self._unlisted()):
            for _ in missing & set(await self._unlisted()):
                self._case.found("it is missing from a list of sessions")

    async def _list_entries(self) -> None:
        cursor = b""
        while cursor != b"0":
            asked = [cursor or b"0", b"%d" % _SCANNED]
            cursor, flat = await self.server.run(script("scanned"), [self._key(b"entry")], asked, twice=True)
            for id, _, seq in (place.partition(b":") for place in flat[::2]):
                if id.isdigit() and seq.isdigit():
                    self._extend(int(id), int(seq))

    async def _list_newer_entries(self) -> None:
        """Add the entries that were appended before the row was read."""
        for id, last in self._promised().items():
            _, seq = self._extents.get(id, (0, self._origin(id)[1]))
            lines = list[bytes | None]()
            while seq < last and None not in lines:
                places = [b"%d:%d" % (id, n) for n in range(seq + 1, min(last, seq + _SCANNED) + 1)]
                lines = await self.server.ask("HMGET", self._key(b"entry"), *places)
                there = lines.index(None) if None in lines else len(lines)
                if there:
                    self._extend(id, seq + 1)
                    self._extend(id, seq := seq + there)

    def _extend(self, branch: int, seq: int) -> None:
        first, last = self._extents.get(branch, (seq, seq))
        self._extents[branch] = min(first, seq), max(last, seq)

    # What the shared rules ask for

    async def _answered(self, check: Check[T]) -> T:
        """Run a rule: answer the statements that it yields."""
        answer: object = None
        while True:
            try:
                name, given = check.send(answer)
            except StopIteration as stop:
                result: T = stop.value
                return result
            answer = await getattr(self, f"_{name}")(**given)

    async def _branch_rows(self, key: int) -> list[tuple[int, int | None, int, int | None]]:
        origins = {id: self._origin(id) for id in self._numbers()}
        return [(id, parent, fork, former) for id, (parent, fork, former, known) in origins.items() if known]

    async def _branch_ends(self, key: int) -> list[tuple[int, int, int, int, int]]:
        found = list[tuple[int, int, int, int, int]]()
        for id, (first, last) in sorted(self._extents.items()):
            one, other = await self._described(id, first), await self._described(id, last)
            base = one.total - one.tokens if one else 0
            found.append((id, first, base, last, other.total if other else 0))
        return found

    async def _head(self, key: int) -> list[tuple[int, int, int, str]]:
        return [(self._row.branch, self._row.seq, self._row.total, self._row.counter)]

    async def _total(self, key: int, branch: int, seq: int) -> list[tuple[int]]:
        line = await self._described(branch, seq)
        return [(line.total,)] if line else []

    async def _walked(self, key: int, branch: int, after: int, tip: int, limit: int) -> list[tuple[Any, ...]]:
        self._lines, found = {}, list[tuple[Any, ...]]()
        seq, empty = after, 0
        while seq < tip and len(found) < limit and empty < MAX_LOST:
            count = min(tip - seq, limit - len(found))
            asked = [b"%d" % MAX_BYTES, *(b"%d:%d" % (branch, seq + n) for n in range(1, count + 1))]
            answer = await self.server.run(script("places"), self.keys, asked, twice=True)
            if answer[0] != b"there":
                raise NotFound(f"session {self.at.session} was removed")
            for place, line, body in answer[1]:
                is_missing = line is None and body is None
                empty = empty + 1 if is_missing else 0
                if not is_missing:
                    self._lines[place] = line or b""
                    found.append(_columns(place, line, body))
            seq += len(answer[1])
        return found

    async def _stray_keys(self, key: int, limit: int) -> list[tuple[bytes, int, int]]:
        found, promised = list[tuple[bytes, int, int]](), self._promised()
        for name, value in self._asked.items():
            try:
                receipt = known_key(value).receipt
            except ValueError:
                found.append((name, 0, 0))
                continue
            tip = promised.get(receipt.branch, -1)
            if not (1 <= receipt.first <= receipt.last + 1 and receipt.last <= tip):
                found.append((name, receipt.branch, receipt.last))
        return found[:limit]

    # The rules of this store

    def _inspect_fields(self) -> None:
        """Check that the fields of the session exist and can be read; its counter has a shared rule."""
        own = {b"tenant": text(self.at.tenant), b"id": text(self.at.session)}
        for name in (*_REQUIRED, b"user", b"ended"):
            value = self._fields.get(name)
            if value is None:
                if name in _REQUIRED:
                    self._case.found(f"its {name.decode()} is missing")
            elif not _fits(name, value) or value != own.get(name, value):
                self._case.found(f"its {name.decode()} cannot be read")
            elif name == b"counter":
                inspect_counter(self._case, _ONLY, value)

    async def _inspect_page(self, stretch: Stretch) -> Stretch:
        """Check a page of entries, and that each of them can be found by its id, its kind and its words."""
        readable = list[tuple[Description, bytes]]()  # with its words as a search stores them

        def look(seen: Seen, _: Entry) -> None:
            if isinstance(seen.key, bytes) and (line := described(self._lines[seen.key])):
                readable.append((line, moment(line.stamp) + packed_words(line.kind.decode(), seen.body)))

        left = await self._answered(inspect_entries(self._case, stretch, look))
        if not readable:
            return left
        lines = [line for line, _ in readable]
        places = await self.server.ask("HMGET", self._key(b"id"), *(line.id for line in lines))
        words = await self.server.ask("HMGET", self._key(b"word"), *(line.place for line in lines))
        for (line, own), place, stored in zip(readable, places, words, strict=True):
            if place != line.place:
                self._found("it is not found by its id", line)
            if stored not in (None, own):  # None: no search has read it yet
                self._found("its words are wrong", line)
        kinds = [(line, _kind_member(line)) for line in lines if line.kind != text(MESSAGE)]
        feed = [(line, member) for line in lines for member in _word_members(self._row, line)]
        for kind, members, fault in (
            (b"own", kinds, "it is not found by its kind"),
            (b"index", feed, "it is missing from the feed or from search"),
        ):
            for n in await self._missing(kind, [member for _, member in members]):
                self._found(fault, members[n][0])
        return left

    def _found(self, fault: str, line: Description) -> None:
        id = line.id.decode(errors="replace")
        self._case.found(fault, branch=line.branch, seq=line.seq, id=id)

    async def _inspect_ends(self) -> None:
        """Check the stored ends of all branches but the head's, and the number of branches."""
        lineage = await self._answered(Lineage.read(_ONLY))
        ends = await self._answered(lineage.ends())
        for id in self._numbers():
            tip, (seq, total) = end(self._branches, id), ends.get(id, (0, None))
            if id == self._row.branch or total is None or tip == (seq, total):
                continue
            claimed = "nowhere" if tip is None else f"at entry {tip[0]} with {tip[1]} tokens"
            fault = f"branch {id} ends {claimed}, and its last entry is {seq} with {total} tokens"
            self._case.found(fault, branch=id, seq=seq)
        count, last = self._fields.get(b"branches", b""), max(self._numbers(), default=1)
        if count.isdigit() and int(count) != last:
            self._case.found(f"it counts {int(count)} branches, and has {last}")

    async def _inspect_ids(self) -> None:
        """Check that no id belongs to a missing entry; that each entry has its id was checked before."""
        ids = await self.server.ask("HLEN", self._key(b"id"))
        if ids <= await self.server.ask(
            "HLEN", self._key(b"entry")
        ):  # in this order: entries only become more
            return
        (flat,) = await self._hashes(b"id")
        for id, place in _pairs(flat).items():
            line = described(await self.server.ask("HGET", self._key(b"entry"), place) or b"")
            if line is None or line.id != id:
                fault = "an id belongs to an entry that does not exist"
                self._case.found(fault, id=id.decode(errors="replace"))

    async def _unlisted(self) -> list[bytes]:
        """Return the members that should lead to the session, and are missing."""
        (flat,) = await self._hashes(b"row")
        if not flat:
            raise NotFound(f"session {self.at.session} was removed")
        row = session(self.at, flat)
        tenant, id, created = named(row.tenant), text(row.id), moment(row.created)
        members = [b"d" + tenant + created + id, b"a" + tenant + moment(row.active) + id]
        if row.user is not None:
            members.append(b"u" + tenant + named(row.user) + created + id)
        if row.expires is not None:
            members.append(b"e" + tenant + moment(row.expires) + id)
        return [members[n] for n in await self._missing(b"index", members)]

    # What is read

    def _key(self, kind: bytes) -> bytes:
        return next(key for key in self.keys if key.split(b":", 3)[2] == kind)

    async def _hashes(self, *kinds: bytes) -> list[list[bytes]]:
        keys = [self._key(kind) for kind in kinds]
        return list(await self.server.run(script("hashes"), keys, twice=True))

    async def _missing(self, kind: bytes, members: Sequence[bytes]) -> list[int]:
        absent: list[int] = await self.server.run(script("missing"), [self._key(kind)], members, twice=True)
        return absent

    async def _described(self, branch: int, seq: int) -> Description | None:
        return described(await self.server.ask("HGET", self._key(b"entry"), b"%d:%d" % (branch, seq)) or b"")

    def _checksum(self, _: int, _branch: int, _seq: int, id: str, kind: str, tokens: int, body: bytes) -> int:
        return checksum(self.at, text(id), text(kind), b"%d" % tokens, body)

    def _numbers(self) -> list[int]:
        return sorted(int(id) for id in self._branches if id.isdigit())

    def _promised(self) -> dict[int, int]:
        """Return the last sequence number of every branch, according to the row and the branches."""
        tips = {id: end(self._branches, id) for id in self._numbers()}
        return {id: tip[0] for id, tip in tips.items() if tip} | {self._row.branch: self._row.seq}

    def _origin(self, id: int) -> tuple[int | None, int, int | None, bool]:
        """Return parent, fork and former of a branch, and whether its row can be read."""
        try:
            one = branch(id, self._branches.get(b"%d" % id, b""))
        except StoreDamaged:
            return None, 0, None, False
        return one.parent, one.fork_seq, one.former, True


def _fits(name: bytes, value: bytes) -> bool:
    if name in _WHOLE:
        return value.isdigit() or (name.decode() in SIGNED and value.removeprefix(b"-").isdigit())
    return is_text(value) and (name not in _JSON or parsed(value, _JSON[name]) is not None)


def _columns(place: bytes, line: bytes | None, body: bytes | None) -> tuple[Any, ...]:
    """Return an entry as rules expect it; anything that is not an entry of that place matches no checksum."""
    known, (id, seq) = described(line or b""), map(int, place.split(b":"))
    if known is None:
        return place, seq, f"unreadable-{id}-{seq}", MESSAGE, body or b"", 0, 0, _NO_CHECKSUM
    sum = known.checksum if body is not None and known.place == place else _NO_CHECKSUM
    return place, seq, known.id, known.kind, body or b"", known.tokens, known.total, sum


def _pairs(flat: Sequence[bytes]) -> dict[bytes, bytes]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _kind_member(line: Description) -> bytes:
    """Return the member of a session's own list that leads to an entry by its kind."""
    return b"k%d:%s%s%s" % (len(line.kind), line.kind, moment(line.branch), moment(line.seq))


def _word_members(row: SessionRow, line: Description) -> list[bytes]:
    """Return the members of a bucket's lists that lead to an entry; one without a stamp is in no list."""
    if not line.stamp:
        return []
    rest = b"%s:%s:%s" % (moment(line.stamp), line.place, text(row.id))
    found = [b"w" + named(row.tenant) + rest]
    return found if row.user is None else [*found, b"v" + named(row.tenant) + named(row.user) + rest]


# The lists of a bucket, and its outbox


async def _filled(server: Server) -> list[int]:
    """Return the buckets that have a list or an outbox; in a small store most have neither."""
    counts = await server.ask_all(
        [("EXISTS", key(bucket)) for bucket in range(BUCKETS) for key in (index_key, parcel_key)]
    )
    return [bucket for bucket in range(BUCKETS) if counts[2 * bucket] or counts[2 * bucket + 1]]


async def _inspect_lists(server: Server, bucket: int) -> AsyncIterator[Finding]:
    """Check that every member of the lists leads to something."""
    start = b"-"
    while members := await server.ask("ZRANGEBYLEX", index_key(bucket), start, "+", "LIMIT", 0, PAGE):
        start = b"(" + members[-1]
        for member in await _stale(server, bucket, await _stale(server, bucket, members)):
            place = _place(bucket, member)
            at = place.at if place else Address("", "")
            if await server.ask("EXISTS", session_key(at, b"gone")):
                continue  # being removed, and swept from the lists
            if await server.ask("ZSCORE", index_key(bucket), member) is not None:
                fault = "a list names something that does not exist"
                yield Finding(tenant=at.tenant, session=at.session, fault=fault)


async def _stale(server: Server, bucket: int, members: Sequence[bytes]) -> list[bytes]:
    """Return the members that lead nowhere."""
    places = [_place(bucket, member) for member in members]
    answers = iter(await server.ask_all([place.question for place in places if place]))
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


async def _inspect_parcels(server: Server, bucket: int) -> AsyncIterator[Finding]:
    """Check that every parcel can be read, comes from a session that exists, and is in its lists."""
    (flat,) = await server.run(script("hashes"), [parcel_key(bucket)], twice=True)
    kept = _pairs(flat)
    for name in sorted({field[1:] for field in kept}):
        seen = kept.get(b"b" + name), kept.get(b"s" + name)
        at, fault = await _parcel_fault(server, bucket, name, *seen)
        # It may have been delivered, claimed or removed since it was read, and then nothing is wrong.
        if fault and seen == tuple(await server.ask("HMGET", parcel_key(bucket), b"b" + name, b"s" + name)):
            id = name.decode(errors="replace")
            yield Finding(tenant=at.tenant, session=at.session, id=id, fault=fault)


async def _parcel_fault(
    server: Server, bucket: int, name: bytes, packed: bytes | None, state: bytes | None
) -> tuple[Address, str]:
    """Return the session that sent a parcel, and what is wrong with it."""
    try:
        one = parcel(name, packed or b"", state or b"")
    except StoreDamaged:
        return Address("", ""), "a parcel cannot be read"
    at = Address(one.tenant, one.session)
    if not await server.ask("EXISTS", session_key(at, b"row")):
        return at, "a parcel waits for a session that does not exist"
    when, tenant = moment(one.due) + name, named(one.tenant)
    by_due, by_tenant = (b"q", b"r") if one.parked else (b"o", b"p")
    members = [by_due + when, by_tenant + tenant + when, b"s" + tenant + named(one.session) + name]
    missing = await server.run(script("missing"), [index_key(bucket)], members, twice=True)
    return at, "a parcel is missing from a list" if missing else ""


def _names(member: bytes, *, with_user: bool) -> tuple[str, str | None, bytes]:
    tenant, rest = _name(member[1:])
    if not with_user:
        return tenant.decode(), None, rest
    user, rest = _name(rest)
    return tenant.decode(), user.decode(), rest


def _name(packed: bytes) -> tuple[bytes, bytes]:
    length, _, rest = packed.partition(b":")
    return rest[: int(length)], rest[int(length) :]
