"""Search on the server: scans entries from the newest backwards, and compares the words of each.

There is no index of words, which would need more memory than the conversations. One search scans the newest
10,000 entries of the tenant, or of the user, after its mark, and no more.

An append writes no words. The first search that reaches an entry reads it, splits it into words, and writes
them for later searches; an entry has no words yet if it has no field in `word`. The script that writes them
checks again that the entry exists, so nothing is left of a session that was removed in the meantime. If the
server takes no writes, the hits are the same. A damaged entry without words is a damaged hit.

A mark combines the stamp that the server gave the entry, which only grows within a bucket, and the number
of the bucket. 2**62 is subtracted, so that every mark is negative and any mark >= 0 means "from the start".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from functools import partial

from ...errors import NotFound, StoreUnavailable
from ...threads import INLINE, off_loop
from ..values import Address, Hit, Row
from .layout import BUCKETS, bucket_of, moment, named, session_key, session_keys, text
from .lists import MergedList
from .log import MAX_BYTES, rows_at
from .rows import described, entry, packed_words
from .server import Call, Server, script

MAX_SCANNED = 10_000
"""The most entries that one search scans."""

STEP = 250
"""Entries that one script compares: a few milliseconds, during which the server does nothing else."""

_AHEAD = 2**62


class _Candidate:
    """An entry whose words are compared: its place and its mark."""

    __slots__ = ("bucket", "mark", "place", "session", "stamp")

    def __init__(self, rest: bytes, bucket: int) -> None:
        self.stamp, branch, seq, session = rest.split(b":", 3)
        self.bucket, self.mark = bucket, int(self.stamp) * BUCKETS + bucket - _AHEAD
        self.place, self.session = branch + b":" + seq, session.decode()

    def is_of(self, line: bytes | None) -> bool:
        """Return True unless the line is missing or of another entry, because the session was removed."""
        known = described(line or b"")
        return line is not None and (known is None or moment(known.stamp) == self.stamp)


async def search(
    server: Server,
    tenant: str,
    words: Sequence[str],
    *,
    user: str | None,
    session: str | None,
    before: int | None,
    limit: int,
) -> list[Hit]:
    """Return the entries that contain all the words, newest first, starting after a mark.

    Only the newest 10,000 entries after the mark are scanned.
    """
    wanted = {text(word) for word in words}
    hits = list[Hit]()
    if not wanted or limit < 1 or any(b"\n" in word for word in wanted):
        return hits
    name = b"w" + named(tenant) if user is None else b"v" + named(tenant) + named(user)
    # Entries of several buckets may have the same stamp, some of them before the mark and some after it.
    after = None if before is None else moment((before + _AHEAD) // BUCKETS + 1)
    buckets = range(BUCKETS) if session is None else [bucket_of(Address(tenant, session))]
    newest = MergedList(server, name, after=after, newest=True, by_time=True, buckets=buckets)
    scanned = 0
    while scanned < MAX_SCANNED and len(hits) < limit:
        members = await newest.some(STEP)
        if not members:
            break
        some = [one for one in (_Candidate(*member) for member in members) if session in (None, one.session)]
        scanned += len(some)
        after_mark = [one for one in some if before is None or one.mark < before]
        hits += await _matching(server, tenant, wanted, after_mark, limit - len(hits))
    return hits


async def _matching(
    server: Server, tenant: str, words: set[bytes], some: list[_Candidate], limit: int
) -> list[Hit]:
    """Have the server compare the words of entries, and fetch the entries that contain all of them."""
    groups = server.grouped(dict.fromkeys(seen.bucket for seen in some))
    parts = [[seen for seen in some if seen.bucket in group] for group in groups]
    calls = [_match_call(tenant, words, part) for part in parts]
    answers = await server.run_all(script("matches"), calls, twice=True)
    found, missing = list[_Candidate](), list[_Candidate]()
    for part, (matching, unindexed) in zip(parts, answers, strict=True):
        found += [part[at] for at in matching]
        missing += [part[at] for at in unindexed]
    found += await _index(server, tenant, words, missing)
    found.sort(key=lambda seen: seen.mark, reverse=True)
    return await _hits(server, tenant, found[:limit])


async def _index(
    server: Server, tenant: str, words: set[bytes], some: Sequence[_Candidate]
) -> list[_Candidate]:
    """Write the words of entries that have none yet, and return the entries that contain all ``words``."""
    found = list[_Candidate]()
    async for seen in _read(server, tenant, some):
        found += [one for one, row in seen if row.damaged]
        sound = [(one, row) for one, row in seen if not row.damaged]
        large = sum(len(row.body) for _, row in sound) > INLINE
        indexed = await off_loop(partial(_cut, sound), large=large)
        found += [one for one, own in indexed if all(b"\n%s\n" % word in own for word in words)]
        await _write(server, tenant, indexed)
    return found


async def _read(
    server: Server, tenant: str, some: Sequence[_Candidate]
) -> AsyncIterator[list[tuple[_Candidate, Row]]]:
    """Yield entries as they are read, as many at a time as fit into the answers."""
    rest = _by_session(some)
    while rest:
        most = b"%d" % (MAX_BYTES // len(rest))
        calls = [
            (session_keys(Address(tenant, name)), [most, *(one.place for one in those)])
            for name, those in rest.items()
        ]
        seen, later = list[tuple[_Candidate, Row]](), dict[str, list[_Candidate]]()
        answers = await server.run_all(script("places"), calls, twice=True)
        for (name, those), answer in zip(rest.items(), answers, strict=True):
            read = answer[1] if answer[0] == b"there" else []  # or it was removed since
            for one, columns in zip(those, read, strict=False):
                if one.is_of(columns[1]):
                    seen.append((one, entry(Address(tenant, name), *columns)))
            if 0 < len(read) < len(those):
                later[name] = those[len(read) :]
        yield seen
        rest = later


def _cut(sound: Sequence[tuple[_Candidate, Row]]) -> list[tuple[_Candidate, bytes]]:
    return [(one, packed_words(row.kind, row.body)) for one, row in sound]


async def _write(server: Server, tenant: str, indexed: Sequence[tuple[_Candidate, bytes]]) -> None:
    """Write the words of entries; if the server takes no writes, the next search splits them again."""
    arguments = defaultdict[str, list[bytes]](list)
    for one, own in indexed:
        arguments[one.session] += (one.place, one.stamp, own)
    calls = [(session_keys(Address(tenant, name)), given) for name, given in arguments.items()]
    with suppress(StoreUnavailable):
        await server.run_all(script("words"), calls, twice=True)


async def _hits(server: Server, tenant: str, seen: list[_Candidate]) -> list[Hit]:
    """Fetch entries, session by session, and return them newest first."""
    hits = list[Hit]()
    for session, those in _by_session(seen).items():
        try:
            rows = await rows_at(server, Address(tenant, session), [one.place for one in those])
        except NotFound:  # removed since
            continue
        hits += [Hit(session=session, row=row, mark=one.mark) for row, one in zip(rows, those, strict=True)]
    return sorted(hits, key=lambda hit: hit.mark, reverse=True)


def _by_session(some: Sequence[_Candidate]) -> dict[str, list[_Candidate]]:
    found = defaultdict[str, list[_Candidate]](list)
    for one in some:
        found[one.session].append(one)
    return dict(found)


def _match_call(tenant: str, words: set[bytes], some: Sequence[_Candidate]) -> Call:
    sessions = {name: n for n, name in enumerate(dict.fromkeys(seen.session for seen in some), start=1)}
    keys = [session_key(Address(tenant, name), b"word") for name in sessions]
    asked = [b"%d" % len(words), *(b"\n%s\n" % word for word in words)]
    for seen in some:
        asked += (b"%d" % sessions[seen.session], seen.place, seen.stamp)
    return keys, asked
