"""Search on the server: entries are scanned from the newest backwards, comparing the words of each.

There is no index of words, which would need more memory than the conversations. One search looks at the
newest 10,000 entries of the tenant, or of the user, after its mark, and no further.

A mark combines the stamp that the server gave the entry, which only grows within a bucket, and the number
of the bucket. 2**62 is subtracted, so that every mark is negative and any mark >= 0 means "from the start".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from ...errors import NotFound
from ..values import Address, Hit
from .layout import BUCKETS, bucket_of, moment, named, session_key, text
from .lists import MergedList
from .log import rows_at
from .server import Call, Server, script

__all__ = ["MAX_SCANNED", "search"]

MAX_SCANNED = 10_000
"""Entries that one search looks at, at most."""

STEP = 250
"""Entries that one script looks at: a few milliseconds, in which the server does nothing else."""

_AHEAD = 2**62


class _Candidate:
    """An entry that has words: its place and its mark."""

    __slots__ = ("bucket", "mark", "place", "session", "stamp")

    def __init__(self, rest: bytes, bucket: int) -> None:
        self.stamp, branch, seq, session = rest.split(b":", 3)
        self.bucket, self.mark = bucket, int(self.stamp) * BUCKETS + bucket - _AHEAD
        self.place, self.session = branch + b":" + seq, session.decode()


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

    Only the newest 10,000 entries after the mark are looked at.
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
    """Let the server compare the words of some entries, and fetch those that contain all of them."""
    groups = server.grouped(dict.fromkeys(seen.bucket for seen in some))
    parts = [[seen for seen in some if seen.bucket in group] for group in groups]
    calls = [_match_call(tenant, words, part) for part in parts]
    answers = await server.run_all(script("matches"), calls, twice=True)
    found = [part[at] for part, places in zip(parts, answers, strict=True) for at in places]
    found.sort(key=lambda seen: seen.mark, reverse=True)
    return await _hits(server, tenant, found[:limit])


async def _hits(server: Server, tenant: str, seen: list[_Candidate]) -> list[Hit]:
    """Fetch entries, session by session, and return them newest first."""
    by_session = defaultdict[str, list[_Candidate]](list)
    for one in seen:
        by_session[one.session].append(one)
    hits = list[Hit]()
    for session, those in by_session.items():
        try:
            rows = await rows_at(server, Address(tenant, session), [one.place for one in those])
        except NotFound:  # removed since
            continue
        hits += [Hit(session=session, row=row, mark=one.mark) for row, one in zip(rows, those, strict=True)]
    return sorted(hits, key=lambda hit: hit.mark, reverse=True)


def _match_call(tenant: str, words: set[bytes], some: Sequence[_Candidate]) -> Call:
    sessions = {name: n for n, name in enumerate(dict.fromkeys(seen.session for seen in some), start=1)}
    keys = [session_key(Address(tenant, name), b"word") for name in sessions]
    asked = [b"%d" % len(words), *(b"\n%s\n" % word for word in words)]
    for seen in some:
        asked += (b"%d" % sessions[seen.session], seen.place, seen.stamp)
    return keys, asked
