"""Search on the server: a walk from the newest entry backwards that looks at the words of each.

There is no index of words, which would cost more memory than the conversations. One search looks at the
newest 10,000 entries of the tenant, or of the user, behind its mark, and no further.

A mark is the number that the server gave the entry, from its clock and only growing within a bucket, and
the bucket. Marks are counted from far ahead, so that every number from zero on lies behind all of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from ...errors import NotFound
from ..values import Address, Hit
from .directory import Walk
from .layout import BUCKETS, moment, named, session_key, text
from .log import rows_at
from .server import Call, Server, script

__all__ = ["MOST_LOOKED_AT", "RedisSearch"]

MOST_LOOKED_AT = 10_000
"""Entries that one search looks at."""

AT_ONCE = 250
"""Entries that one script looks at: a few milliseconds, in which nobody else is served."""

_AHEAD = 2**62


class _Seen:
    """An entry that has words: where it stands, and its mark."""

    __slots__ = ("bucket", "mark", "place", "session", "stamp")

    def __init__(self, rest: bytes, bucket: int) -> None:
        self.stamp, branch, seq, session = rest.split(b":", 3)
        self.bucket, self.mark = bucket, int(self.stamp) * BUCKETS + bucket - _AHEAD
        self.place, self.session = branch + b":" + seq, session.decode()


class RedisSearch:
    """Finds entries by their words."""

    _server: Server

    async def search(
        self, tenant: str, words: Sequence[str], *, user: str | None, before: int | None, limit: int
    ) -> list[Hit]:
        """Return the entries that contain all the words, newest first, starting after a mark.

        It looks at the newest 10,000 entries that are behind the mark, and at no others.
        """
        wanted = {text(word) for word in words}
        hits = list[Hit]()
        if not wanted or limit < 1 or any(b"\n" in word for word in wanted):
            return hits
        name = b"w" + named(tenant) if user is None else b"v" + named(tenant) + named(user)
        # Buckets may share a moment: some of its entries are behind the mark, and some before it.
        after = None if before is None else moment((before + _AHEAD) // BUCKETS + 1)
        newest, looked_at = Walk(self._server, name, after=after, newest=True, by_time=True), 0
        while looked_at < MOST_LOOKED_AT and len(hits) < limit:
            some = [_Seen(*member) for member in await newest.some(AT_ONCE)]
            if not some:
                break
            looked_at += len(some)
            behind = [seen for seen in some if before is None or seen.mark < before]
            hits += await self._matching(tenant, wanted, behind, limit - len(hits))
        return hits

    async def _matching(self, tenant: str, words: set[bytes], some: list[_Seen], limit: int) -> list[Hit]:
        """Let the server look at the words of some entries, and fetch those that hold all of them."""
        groups = self._server.grouped(dict.fromkeys(seen.bucket for seen in some))
        parts = [[seen for seen in some if seen.bucket in group] for group in groups]
        calls = [_question(tenant, words, part) for part in parts]
        answers = await self._server.run_all(script("matches"), calls, twice=True)
        found = [part[at] for part, places in zip(parts, answers, strict=True) for at in places]
        found.sort(key=lambda seen: seen.mark, reverse=True)
        return await self._hits(tenant, found[:limit])

    async def _hits(self, tenant: str, seen: list[_Seen]) -> list[Hit]:
        """Fetch entries, session by session, and give them in their order."""
        by_session = defaultdict[str, list[_Seen]](list)
        for one in seen:
            by_session[one.session].append(one)
        hits = list[Hit]()
        for session, those in by_session.items():
            try:
                rows = await rows_at(self._server, Address(tenant, session), [one.place for one in those])
            except NotFound:  # removed since
                continue
            hits += [
                Hit(session=session, row=row, mark=one.mark) for row, one in zip(rows, those, strict=True)
            ]
        return sorted(hits, key=lambda hit: hit.mark, reverse=True)


def _question(tenant: str, words: set[bytes], some: Sequence[_Seen]) -> Call:
    sessions = {name: n for n, name in enumerate(dict.fromkeys(seen.session for seen in some), start=1)}
    keys = [session_key(Address(tenant, name), b"word") for name in sessions]
    asked = [b"%d" % len(words), *(b"\n%s\n" % word for word in words)]
    for seen in some:
        asked += (b"%d" % sessions[seen.session], seen.place, seen.stamp)
    return keys, asked
