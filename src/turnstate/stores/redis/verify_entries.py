"""The entries of a branch: without gaps, each with its bytes as they were, the totals adding up.

A branch is walked a page at a time. An entry whose bytes are not what was written is set aside and a note
takes its place, under its id, since decisions may name it, and with its tokens, so that the totals behind
it hold. A gap is filled with notes. A wrong total is worked out anew.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from msgspec import Struct, structs

from ... import ids
from ...codec import encode
from ...entry import Note
from ..values import MESSAGE, Address, Finding, Recount
from .layout import moment, named, session_keys, text
from .log import MOST_BYTES
from .rows import Description, checksum, described
from .server import Server, script

__all__ = ["Edit", "Inspection", "Seen", "Stretch", "Sum", "inspect_entries", "page_of"]

# An inspection: where one looks, what is found, and whether it is mended on the spot.


Edit = tuple[bytes, ...]
"""A command, the kind of its key (`entry`, `index` and so on), and what follows the key."""


class Inspection:
    """The check of one session, or of what belongs to none."""

    def __init__(
        self,
        server: Server,
        *,
        repair: bool,
        at: Address | None = None,
        keys: Sequence[bytes] = (),
        recount: Recount | None = None,
    ) -> None:
        self.server, self.repair, self.recount = server, repair, recount
        self.at = at or Address("", "")
        self.keys = session_keys(self.at) if at else list(keys)
        self.born, self.head = b"", b""

    async def found(
        self,
        fault: str,
        *,
        done: str = "",
        edits: Sequence[Edit] = (),
        branch: int = 0,
        seq: int = 0,
        id: str = "",
        of_head: bool = False,
    ) -> Finding:
        """Mend a fault if asked to, and give what was found; ``of_head`` guards what appends change."""
        mended = self.repair and bool(edits) and await self._mended(edits, of_head=of_head)
        return Finding(
            tenant=self.at.tenant,
            session=self.at.session,
            branch=branch,
            seq=seq,
            id=id,
            fault=fault,
            done=done if mended else "",
        )

    def key(self, kind: bytes) -> bytes:
        """Give the key of a kind."""
        return self.keys[self._number(kind) - 1]

    async def _mended(self, edits: Sequence[Edit], *, of_head: bool) -> bool:
        arguments = [self.born, self.head if of_head and self.born else b""]
        for command, kind, *rest in edits:
            arguments += (command, b"%d" % len(rest), b"%d" % self._number(kind), *rest)
        return bool(await self.server.run(script("mend"), self.keys, arguments, twice=True))

    def _number(self, kind: bytes) -> int:
        return next(n for n, key in enumerate(self.keys, 1) if key.split(b":", 3)[2] == kind)


PAGE = 500


class Stretch(Struct, frozen=True, kw_only=True):
    """A branch that is to be walked: from behind its fork to its tip."""

    branch: int
    seq: int
    tip: int
    user: str | None = None
    counter: str = ""


class Sum(Struct):
    """The total up to where a walk has come."""

    total: int


class Seen(Struct, frozen=True):
    """An entry as it stands."""

    place: bytes
    line: bytes | None
    body: bytes | None
    told: Description | None


async def inspect_entries(case: Inspection, stretch: Stretch, sum: Sum) -> AsyncIterator[Finding]:
    """Walk a branch, tell what is wrong on the way, and add up its tokens."""
    seq = stretch.seq
    while seq < stretch.tip:
        page = await page_of(case, stretch.branch, seq + 1, min(stretch.tip, seq + PAGE))
        if page is None:  # removed meanwhile
            return
        sound = list[Description]()
        for seen in page:
            seq += 1
            if fault := _fault(case.at, seen):
                note = _note(stretch.branch, seq, seen.told, sum.total)
                yield await _replaced(case, stretch, seen, note, fault)
                sum.total = note.total
            elif seen.told:
                told, miscount = await _recounted(case, stretch, seen.told, seen.body or b"")
                if miscount:
                    yield miscount
                sum.total += told.tokens
                sound.append(told)
                if told.total != sum.total:
                    yield await _summed(case, told, sum.total)
        async for finding in _unlisted(case, stretch, sound):
            yield finding


async def page_of(case: Inspection, branch: int, first: int, last: int) -> list[Seen] | None:
    """Read entries of a branch; nothing where the session was removed."""
    places = [b"%d:%d" % (branch, seq) for seq in range(first, last + 1)]
    found = list[Seen]()
    while places:
        answer = await case.server.run(script("places"), case.keys, [b"%d" % MOST_BYTES, *places], twice=True)
        if answer[0] != b"there":
            return None
        found += [Seen(place, line, body, described(line or b"")) for place, line, body in answer[1]]
        places = places[len(answer[1]) :]
    return found


def _fault(at: Address, seen: Seen) -> str:
    told = seen.told
    if seen.line is None and seen.body is None:
        return "the entry is missing"
    if told is None or seen.line is None:
        return "its description cannot be read"
    if seen.body is None:
        return "its bytes are missing"
    if told.place != seen.place:
        return f"it says that it stands at {told.place.decode()}"
    sum = checksum(at, told.id, told.kind, b"%d" % told.tokens, seen.body)
    return "" if sum == told.checksum else "its bytes do not match their checksum"


def _note(branch: int, seq: int, told: Description | None, before: int) -> Description:
    tokens = told.tokens if told and before + told.tokens == told.total else 0
    id = told.id if told else text(ids.message_id())
    return Description(branch, seq, tokens, before + tokens, 0, 0, 0, b"note", id)


async def _replaced(case: Inspection, stretch: Stretch, seen: Seen, note: Description, fault: str) -> Finding:
    """Set an entry aside, and put a note in its place."""
    body = encode(Note(f"What stood here was damaged: {fault}."))
    sum = checksum(case.at, note.id, note.kind, b"%d" % note.tokens, body)
    line = _line(structs.replace(note, checksum=sum, length=len(body)))
    edits = [*_set_aside(case, stretch, seen), *_put(seen.place, note, line, body)]
    kept = "" if seen.line is None and seen.body is None else "it is set aside, and "
    return await case.found(
        fault,
        done=f"{kept}a note stands in its place",
        edits=edits,
        branch=note.branch,
        seq=note.seq,
        id=_shown(seen.told),
    )


async def _recounted(
    case: Inspection, stretch: Stretch, told: Description, body: bytes
) -> tuple[Description, Finding | None]:
    """Compare the token count with the text; return the description that is in the store afterwards."""
    right = case.recount and case.recount(stretch.counter, told.kind.decode(), body, told.tokens)
    if right is None:
        return told, None
    sum = checksum(case.at, told.id, told.kind, b"%d" % right, body)
    again = structs.replace(told, tokens=right, checksum=sum)
    found = await case.found(
        f"its token count is {told.tokens:,}, and its text has {right:,} tokens",
        done="its tokens are counted again",
        edits=[(b"HSET", b"entry", told.place, _line(again))],
        branch=told.branch,
        seq=told.seq,
        id=_shown(told),
    )
    return (again if found.done else told), found


async def _summed(case: Inspection, told: Description, total: int) -> Finding:
    """Write the total that the entries before tell."""
    return await case.found(
        f"its running total is {told.total}, and {total} by the entries before it",
        done="worked out again",
        edits=[(b"HSET", b"entry", told.place, _line(structs.replace(told, total=total)))],
        branch=told.branch,
        seq=told.seq,
        id=_shown(told),
    )


def _line(told: Description) -> bytes:
    numbers = (told.branch, told.seq, told.tokens, told.total, told.checksum, told.length, told.stamp)
    return b"%s %d %s" % (b" ".join(b"%d" % one for one in numbers), len(told.kind), told.kind + told.id)


def _set_aside(case: Inspection, stretch: Stretch, seen: Seen) -> list[Edit]:
    """Give the edits that keep what is left of an entry, and take it out of the lists."""
    edits: list[Edit] = [(b"HDEL", b"word", seen.place)]
    for name, left in ((b"entry ", seen.line), (b"body ", seen.body)):
        if left is not None:
            edits.append((b"HSET", b"aside", name + seen.place, left))
    if seen.told:
        edits.append((b"ZREM", b"own", _of_kind(seen.told)))
        edits += [(b"ZREM", b"index", member) for member in _of_words(case.at, stretch.user, seen.told)]
    return edits


def _put(place: bytes, note: Description, line: bytes, body: bytes) -> list[Edit]:
    return [
        (b"HSET", b"entry", place, line),
        (b"HSET", b"body", place, body),
        (b"HSET", b"id", note.id, place),
        (b"ZADD", b"own", b"0", _of_kind(note)),
    ]


async def _unlisted(
    case: Inspection, stretch: Stretch, page: Sequence[Description]
) -> AsyncIterator[Finding]:
    """Look for entries that cannot be found by their id, their kind or their words."""
    if not page:
        return
    places = await case.server.ask("HMGET", case.key(b"id"), *(told.id for told in page))
    for told, place in zip(page, places, strict=True):
        if place != told.place:
            edit = (b"HSET", b"id", told.id, told.place)
            yield await _listed_anew(case, told, "it is not found by its id", edit)
    for kind, members in (
        (b"own", [(told, _of_kind(told)) for told in page if told.kind != MESSAGE.encode()]),
        (b"index", [(told, one) for told in page for one in _of_words(case.at, stretch.user, told)]),
    ):
        names = [member for _, member in members]
        missing = await case.server.run(script("missing"), [case.key(kind)], names, twice=True)
        for told, member in (members[n] for n in missing):
            fault = "it is not found by its kind" if kind == b"own" else "it is not found by its words"
            yield await _listed_anew(case, told, fault, (b"ZADD", kind, b"0", member))


async def _listed_anew(case: Inspection, told: Description, fault: str, edit: Edit) -> Finding:
    return await case.found(
        fault, done="listed again", edits=[edit], branch=told.branch, seq=told.seq, id=_shown(told)
    )


def _of_kind(told: Description) -> bytes:
    return b"k%d:%s%s%s" % (len(told.kind), told.kind, moment(told.branch), moment(told.seq))


def _of_words(at: Address, user: str | None, told: Description) -> list[bytes]:
    if not told.stamp:
        return []
    rest = b"%s:%s:%s" % (moment(told.stamp), told.place, text(at.session))
    found = [b"w" + named(at.tenant) + rest]
    return found if user is None else [*found, b"v" + named(at.tenant) + named(user) + rest]


def _shown(told: Description | None) -> str:
    return told.id.decode(errors="replace") if told else ""
