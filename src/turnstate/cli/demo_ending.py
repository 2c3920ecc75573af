"""The end of the demo's story: everything that was ever acknowledged is looked for in the store.

The tangent and the turn that was taken back are on no path that the agent sees any more; they are asked
for like the rest, by their ids, and compared by their bytes.
"""

from __future__ import annotations

from ..session import SessionManager
from ..session.loading import message_of
from ..stores.values import Address
from . import demo_script
from .demo_claims import Claims
from .demo_life import Life
from .demo_picture import fingerprint
from .demo_script import LOG_JOB, LOG_LINES, SESSION

__all__ = ["tell"]

SOUGHT = "billing pool"


async def tell(
    sessions: SessionManager, claims: Claims, *, lives: list[Life], acknowledged: dict[str, str]
) -> None:
    """Compare what was acknowledged with what is there."""
    address = Address(sessions.tenant, SESSION)
    rows = await sessions.store.find(address, list(acknowledged))
    stored = {str(message.id): fingerprint(message) for row in rows if (message := message_of(row))}
    lost = sum(stored.get(id) != mark for id, mark in acknowledged.items())
    claims.make(
        f"{len(acknowledged)} messages were acknowledged, on all branches: {lost} lost or changed.",
        holds=not lost,
    )
    await _tell_of_the_log(sessions, claims)
    requests, refused, too_full = (
        sum(counts)
        for counts in zip(*((one.requests, one.refused, one.too_full) for one in lives), strict=True)
    )
    claims.make(
        f"{requests} requests: {too_full} over the budget, {refused} refused by the rules of five providers.",
        holds=not refused and not too_full,
    )
    hits = [hit async for hit in sessions.search(SOUGHT, limit=3)]
    damaged = [finding async for finding in sessions.store.verify(repair=False)]
    claims.make(
        f"Search for “{SOUGHT}”: found at entry {hits[0].seq if hits else 'none'}.",
        holds=bool(hits) and all(word in hits[0].message.text for word in SOUGHT.split()),
    )
    claims.make(f"Every entry checked against its checksum: {len(damaged)} damaged.", holds=not damaged)


async def _tell_of_the_log(sessions: SessionManager, claims: Claims) -> None:
    log = demo_script.output(LOG_JOB)
    session = await sessions.open(SESSION)
    kept = [result.result for message in await session.messages() for result in message.tool_results]
    claims.make(
        f"The log of job {LOG_JOB} is kept whole: {LOG_LINES:,} lines, {len(log.encode()):,} bytes.",
        holds=log in kept,
    )
