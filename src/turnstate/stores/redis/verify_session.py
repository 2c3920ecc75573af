"""One session on the server, as the rules of `stores/verify` see it.

The rules ask for rows by the names of SQL statements; `SessionView` answers from hashes. The row and the
branches are read atomically, and the log is append-only, so the entries up to there belong to the same
state, even if they are read later. A repair is one script, which does nothing if the session was removed
or, for repairs of branches and head, if the head has moved in the meantime.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from msgspec import Struct, structs

from ...errors import NotFound, StoreDamaged
from ..values import MESSAGE, Address, Finding, Recount, SessionRow
from ..verify.inspection import Check, Inspection
from ..verify.lineage import MAX_LOST
from .layout import moment, named, session_keys, text
from .log import MAX_BYTES
from .rows import Description, branch, checksum, described, known_key, session
from .server import Server, script

T = TypeVar("T")

Edit = tuple[bytes, ...]
"""A command, the kind of its key (`entry`, `index` and so on), and the arguments after the key."""

_SCANNED = 1_000
_NO_CHECKSUM = -1
_OF_HEAD = frozenset(
    ("set_head", "set_tip", "set_count", "remake_branch", "set_origin", "set_former", "list_session")
)
"""Repairs that a concurrent append could contradict."""


class _Extent(Struct):
    """The first and the last entry of a branch."""

    first: int
    last: int


class SessionView:
    """Answers the questions of rules about one session, and applies their repairs."""

    def __init__(self, server: Server, at: Address) -> None:
        self.server, self.at, self.keys = server, at, session_keys(at)
        self.fields: dict[bytes, bytes] = {}
        self.row: SessionRow | None = None
        self._branches: dict[bytes, bytes] = {}
        self._extents: dict[int, _Extent] = {}
        self._lines: dict[bytes, bytes | None] = {}  # of the entries that were read last, by place
        self._bodies: dict[bytes, bytes | None] = {}
        self._asked: dict[bytes, bytes] = {}
        self._refused, self._first_born = False, b""

    async def inspect(
        self, check: Callable[[Inspection], Check[T]], *, repair: bool, recount: Recount | None = None
    ) -> tuple[T, list[Finding]]:
        """Run a rule; if it finds faults and ``repair`` is set, run it again and repair them."""

        async def run(*, mends: bool) -> tuple[T, list[Finding]]:
            case = Inspection(self._checksum, mends=mends, at=self.at, recount=recount)
            self._refused = False
            result = await self._answered(check(case))
            undone = [structs.replace(one, done="") for one in case.findings]
            return result, undone if self._refused else case.findings

        result, found = await run(mends=False)
        return await run(mends=True) if found and repair else (result, found)

    async def is_same(self) -> bool:
        """Return True if the session was neither removed nor created again since it was first read."""
        born = await self.server.ask("HGET", self._key(b"row"), b"born")
        return born is not None and (not self._first_born or born == self._first_born)

    async def refresh(self) -> None:
        """Read the row and the branches, and find out which entries exist.

        The entries are listed first. Entries appended before the row was read are added afterwards, so an
        entry beyond the end that the row names is a fault, and not a concurrent append.
        """
        self._extents = await self._scanned()
        await self.read_row()
        for id, last in self._promised().items():
            extent = self._extents.get(id)
            seq = extent.last if extent else self._origin(id)[1]
            while seq < last:
                places = [b"%d:%d" % (id, n) for n in range(seq + 1, min(last, seq + _SCANNED) + 1)]
                lines = await self.server.ask("HMGET", self._key(b"entry"), *places)
                there = next((n for n, line in enumerate(lines) if line is None), len(lines))
                if there:
                    extent = self._extents.setdefault(id, _Extent(seq + 1, seq + 1))
                    extent.last = seq = seq + there
                if there < len(lines):
                    break

    async def read_row(self) -> None:
        """Read the row and the branches atomically."""
        keys = [self._key(b"row"), self._key(b"branch")]
        row, branches = await self.server.run(script("hashes"), keys, twice=True)
        self.fields, self._branches = _pairs(row), _pairs(branches)
        self._first_born = self._first_born or self._born
        try:
            self.row = session(self.at, row) if row else None
        except StoreDamaged:
            self.row = None

    async def _answered(self, check: Check[T]) -> T:
        answer: Any = None
        while True:
            try:
                name, given = check.send(answer)
            except StopIteration as end:
                result: T = end.value
                return result
            if edits := getattr(self, f"_{name}_edits", None):
                done = await mend(
                    self.server, self.keys, edits(**given), born=self._born, head=self._guard(name)
                )
                self._refused |= not done
                answer = ()
            else:
                answer = await getattr(self, f"_{name}")(**given)

    @property
    def _born(self) -> bytes:
        return self.fields.get(b"born", b"")

    def _guard(self, name: str) -> bytes:
        if name not in _OF_HEAD:
            return b""
        return self.fields.get(b"branch", b"") + b":" + self.fields.get(b"seq", b"")

    def _key(self, kind: bytes) -> bytes:
        return key_of(self.keys, kind)

    def _checksum(self, _: int, _branch: int, _seq: int, id: str, kind: str, tokens: int, body: bytes) -> int:
        return checksum(self.at, text(id), text(kind), b"%d" % tokens, body)

    # What rules read

    async def _branch_rows(self, key: int) -> list[tuple[int, int | None, int, int | None]]:
        await self.refresh()
        self._known_row()
        origins = {int(id): self._origin(int(id)) for id in self._numbers()}
        return [(id, parent, fork, former) for id, (parent, fork, former, known) in origins.items() if known]

    async def _branch_ends(self, key: int) -> list[tuple[int, int, int, int, int]]:
        found = list[tuple[int, int, int, int, int]]()
        for id, extent in sorted(self._extents.items()):
            places = [b"%d:%d" % (id, seq) for seq in (extent.first, extent.last)]
            lines = await self.server.ask("HMGET", self._key(b"entry"), *places)
            first, last = (described(line or b"") for line in lines)
            base = first.total - first.tokens if first else 0
            found.append((id, extent.first, base, extent.last, last.total if last else 0))
        return found

    async def _head(self, key: int) -> list[tuple[int, int, int, str]]:
        row = self._known_row()
        return [(row.branch, row.seq, row.total, row.counter)]

    async def _total(self, key: int, branch: int, seq: int) -> list[tuple[int]]:
        line = described(await self.server.ask("HGET", self._key(b"entry"), b"%d:%d" % (branch, seq)) or b"")
        return [(line.total,)] if line else []

    async def _walked(self, key: int, branch: int, after: int, tip: int, limit: int) -> list[tuple[Any, ...]]:
        self._lines, self._bodies, found = {}, {}, list[tuple[Any, ...]]()
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
                    self._lines[place], self._bodies[place] = line, body
                    found.append(_columns(place, line, body))
            seq += len(answer[1])
        return found

    async def _stray_keys(self, key: int, limit: int) -> list[tuple[bytes, int, int]]:
        (flat,) = await self.server.run(script("hashes"), [self._key(b"asked")], twice=True)
        await self.read_row()  # after the keys, so that it covers the entries in their receipts
        self._known_row()
        self._asked, found = _pairs(flat), list[tuple[bytes, int, int]]()
        promised = self._promised()
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

    async def _tips(self, key: int) -> list[tuple[int, tuple[int, int] | None]]:
        """Return the stored ends of all branches but the head's."""
        ids, own = sorted(map(int, self._numbers())), self._known_row().branch
        return [(id, _tip(self._branches.get(b"t%d" % id, b""))) for id in ids if id != own]

    async def _count(self, key: int) -> list[tuple[int, int]]:
        """Return the number of branches in the row, and the number of the newest branch."""
        return [(int(self.fields.get(b"branches", b"0")), max(map(int, self._numbers()), default=1))]

    async def _fields(self) -> list[tuple[bytes, bytes]]:
        await self.read_row()
        return list(self.fields.items())

    async def _sizes(self) -> list[int]:
        """Return the number of ids and of entries, read in this order: entries never become fewer."""
        return [await self.server.ask("HLEN", self._key(kind)) for kind in (b"id", b"entry")]

    async def _unlisted(self) -> list[bytes]:
        """Return the missing list members that should lead to the session."""
        await self.read_row()
        row, tenant, id = self._known_row(), named(self.at.tenant), text(self.at.session)
        members = [b"d" + tenant + moment(row.created) + id, b"a" + tenant + moment(row.active) + id]
        if row.user is not None:
            members.append(b"u" + tenant + named(row.user) + moment(row.created) + id)
        if row.expires is not None:
            members.append(b"e" + tenant + moment(row.expires) + id)
        return [members[n] for n in await self._missing(b"index", members)]

    async def _hash(self, kind: bytes) -> list[tuple[bytes, bytes]]:
        (flat,) = await self.server.run(script("hashes"), [self._key(kind)], twice=True)
        return list(_pairs(flat).items())

    async def _line(self, place: bytes) -> list[Description]:
        line = described(await self.server.ask("HGET", self._key(b"entry"), place) or b"")
        return [line] if line else []

    async def _places_of(self, ids: Sequence[bytes]) -> list[bytes | None]:
        return list(await self.server.ask("HMGET", self._key(b"id"), *ids)) if ids else []

    async def _words_of(self, places: Sequence[bytes]) -> list[bytes | None]:
        return list(await self.server.ask("HMGET", self._key(b"word"), *places)) if places else []

    async def _missing(self, kind: bytes, members: Sequence[bytes]) -> list[int]:
        absent: list[int] = await self.server.run(script("missing"), [self._key(kind)], members, twice=True)
        return absent

    def described(self, place: bytes) -> Description | None:
        """Return the description of one of the entries that were read last."""
        return described(self._lines.get(place) or b"")

    def _promised(self) -> dict[int, int]:
        """Return the last sequence number of every branch, according to the row and the branches."""
        tips = {id: _tip(self._branches.get(b"t%d" % id, b"")) for id in map(int, self._numbers())}
        ends = {id: tip[0] for id, tip in tips.items() if tip}
        return ends | ({self.row.branch: self.row.seq} if self.row else {})

    def _known_row(self) -> SessionRow:
        if self.row is None:
            raise NotFound(f"session {self.at.session} was removed, or its row cannot be read")
        return self.row

    def _numbers(self) -> list[bytes]:
        return [id for id in self._branches if id.isdigit()]

    def _origin(self, id: int) -> tuple[int | None, int, int | None, bool]:
        """Return parent, fork and former of a branch, and whether its row can be read."""
        try:
            one = branch(id, self._branches.get(b"%d" % id, b""))
        except StoreDamaged:
            return None, 0, None, False
        return one.parent, one.fork_seq, one.former, True

    async def _scanned(self) -> dict[int, _Extent]:
        extents, cursor = dict[int, _Extent](), b"0"
        while True:
            asked = [cursor, b"%d" % _SCANNED]
            cursor, flat = await self.server.run(script("scanned"), [self._key(b"entry")], asked, twice=True)
            for place in flat[::2]:
                id, colon, seq = place.partition(b":")
                if colon and id.isdigit() and seq.isdigit():
                    extent = extents.setdefault(int(id), _Extent(int(seq), int(seq)))
                    extent.first, extent.last = min(extent.first, int(seq)), max(extent.last, int(seq))
            if cursor == b"0":
                return extents

    # How rules repair

    def _edit_edits(self, edits: Sequence[Edit]) -> Sequence[Edit]:
        return edits

    def _list_session_edits(self, member: bytes) -> list[Edit]:
        return [(b"ZADD", b"index", b"0", member)]

    def _set_aside_edits(self, key: int, kind: str, body: bytes, fault: str) -> list[Edit]:
        return [(b"HSET", b"aside", b"row " + text(kind), body)]

    def _set_counter_edits(self, key: int, counter: str) -> list[Edit]:
        return [(b"HSET", b"row", b"counter", text(counter))]

    def _set_head_edits(self, key: int, branch: int, seq: int, total: int) -> list[Edit]:
        return [(b"HSET", b"row", b"branch", b"%d" % branch, b"seq", b"%d" % seq, b"total", b"%d" % total)]

    def _set_tip_edits(self, branch: int, seq: int, total: int) -> list[Edit]:
        return [(b"HSET", b"branch", b"t%d" % branch, b"%d %d" % (seq, total))]

    def _set_count_edits(self, count: int) -> list[Edit]:
        return [(b"HSET", b"row", b"branches", b"%d" % count)]

    def _remake_branch_edits(
        self, key: int, id: int, parent: int | None, fork_seq: int, former: int | None
    ) -> list[Edit]:
        name, kept = b"%d" % id, self._branches.get(b"%d" % id)
        aside: list[Edit] = [] if kept is None else [(b"HSET", b"aside", b"branch " + name, kept)]
        made = b"%s|%d|0|%s|0:repair" % (_optional(parent), fork_seq, _optional(former))
        return [*aside, (b"HSET", b"branch", name, made)]

    def _remove_branch_edits(self, key: int, id: int) -> list[Edit]:
        name = b"%d" % id
        return [(b"HSET", b"aside", b"branch " + name, self._branches[name]), (b"HDEL", b"branch", name)]

    def _set_origin_edits(self, key: int, id: int, parent: int | None, fork_seq: int) -> list[Edit]:
        _, _, *rest = self._branches[b"%d" % id].split(b"|", 2)
        return [(b"HSET", b"branch", b"%d" % id, b"%s|%d|%s" % (_optional(parent), fork_seq, rest[0]))]

    def _set_former_edits(self, key: int, id: int, former: int | None) -> list[Edit]:
        parent, fork, created, _, rest = self._branches[b"%d" % id].split(b"|", 4)
        value = b"|".join((parent, fork, created, _optional(former), rest))
        return [(b"HSET", b"branch", b"%d" % id, value)]

    def _put_note_edits(self, entry: bytes, fault: str, **note: Any) -> list[Edit]:
        return [*self._aside(entry), *self._add_note_edits(**note)]

    def _add_note_edits(
        self,
        key: int,
        branch: int,
        seq: int,
        id: str,
        kind: str,
        body: bytes,
        tokens: int,
        total: int,
        checksum: int,
    ) -> list[Edit]:
        made = Description(branch, seq, tokens, total, checksum, len(body), 0, text(kind), text(id))
        self._lines[made.place] = made.line
        return [
            (b"HSET", b"entry", made.place, made.line),
            (b"HSET", b"body", made.place, body),
            (b"HSET", b"id", made.id, made.place),
            (b"ZADD", b"own", b"0", kind_member(made)),
        ]

    def _set_entry_aside_edits(self, entry: bytes, fault: str) -> list[Edit]:
        edits: list[Edit] = [(b"HDEL", b"entry", entry), (b"HDEL", b"body", entry)]
        return [*self._aside(entry), *edits]

    def _total_entry_edits(self, entry: bytes, total: int) -> list[Edit]:
        return self._changed(entry, total=total)

    def _count_entry_edits(self, entry: bytes, tokens: int) -> list[Edit]:
        return self._changed(entry, tokens=tokens)

    def _recount_entry_edits(self, entry: bytes, tokens: int, checksum: int) -> list[Edit]:
        return self._changed(entry, tokens=tokens, checksum=checksum)

    def _set_key_aside_edits(self, key: int, name: bytes, fault: str) -> list[Edit]:
        kept = self._asked[name]
        return [(b"HSET", b"aside", b"asked " + name, kept), (b"HDEL", b"asked", name)]

    def _changed(self, place: bytes, **fields: int) -> list[Edit]:
        known = self.described(place)
        if known is None:
            return []
        line = self._lines[place] = structs.replace(known, **fields).line
        return [(b"HSET", b"entry", place, line)]

    def _aside(self, place: bytes) -> list[Edit]:
        """Return the edits that keep what is left of an entry, and remove it from the lists."""
        edits: list[Edit] = [(b"HDEL", b"word", place)]
        for name, left in ((b"entry ", self._lines.get(place)), (b"body ", self._bodies.get(place))):
            if left is not None:
                edits.append((b"HSET", b"aside", name + place, left))
        if known := self.described(place):
            edits.append((b"ZREM", b"own", kind_member(known)))
            user = self.row.user if self.row else None
            edits += [(b"ZREM", b"index", member) for member in word_members(self.at, user, known)]
        return edits


async def mend(
    server: Server, keys: Sequence[bytes], edits: Sequence[Edit], *, born: bytes = b"", head: bytes = b""
) -> bool:
    """Apply edits in one script; return False if the session is another one by now, or its head has moved."""
    arguments = [born, head if born else b""]
    for command, kind, *rest in edits:
        number = keys.index(key_of(keys, kind)) + 1
        arguments += (command, b"%d" % len(rest), b"%d" % number, *rest)
    return bool(await server.run(script("mend"), keys, arguments, twice=True))


def key_of(keys: Sequence[bytes], kind: bytes) -> bytes:
    """Return the key of a kind."""
    return next(key for key in keys if key.split(b":", 3)[2] == kind)


def kind_member(line: Description) -> bytes:
    """Return the member of a session's own list that leads to an entry by its kind."""
    return b"k%d:%s%s%s" % (len(line.kind), line.kind, moment(line.branch), moment(line.seq))


def word_members(at: Address, user: str | None, line: Description) -> list[bytes]:
    """Return the members of a bucket's lists that lead to an entry; a repair's note is in no list."""
    if not line.stamp:
        return []
    rest = b"%s:%s:%s" % (moment(line.stamp), line.place, text(at.session))
    found = [b"w" + named(at.tenant) + rest]
    return found if user is None else [*found, b"v" + named(at.tenant) + named(user) + rest]


def _columns(place: bytes, line: bytes | None, body: bytes | None) -> tuple[Any, ...]:
    """Return an entry as rules expect it; anything that is not an entry of that place matches no checksum."""
    known, (id, seq) = described(line or b""), map(int, place.split(b":"))
    if known is None:
        return place, seq, f"unreadable-{id}-{seq}", MESSAGE, body or b"", 0, 0, _NO_CHECKSUM
    sum = known.checksum if body is not None and known.place == place else _NO_CHECKSUM
    return place, seq, known.id, known.kind, body or b"", known.tokens, known.total, sum


def _pairs(flat: Sequence[bytes]) -> dict[bytes, bytes]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _tip(value: bytes) -> tuple[int, int] | None:
    try:
        seq, total = map(int, value.split(b" "))
    except ValueError:
        return None
    return seq, total


def _optional(number: int | None) -> bytes:
    return b"" if number is None else b"%d" % number
