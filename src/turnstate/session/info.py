"""Public information about a session: its description, its branches, and search results.

Stores keep times as milliseconds; here they are `datetime` in UTC, and what only stores need is left out.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import AsyncIterator, Iterable
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct

from ..errors import InputError, StoreDamaged
from ..ids import utc
from ..log.entries import time_of
from ..log.path import message_of
from ..message import Message
from ..search_terms import query
from ..stores.port import Log
from ..stores.values import BranchRow, Hit, Order, PageMark, SessionRow
from ..threads import INLINE, off_loop
from ..value import check_kind, check_whole

PAGE = 100
"""How many hits a search reads at a time."""


class SessionInfo(Struct, frozen=True, kw_only=True):
    """Everything about a session except its log.

    ``active`` is when its last message was appended. It ends by itself at ``expires``, after ``idle``
    without a message; without an idle time it never does. While ``leased_until`` is set, only ``holder`` may
    write. ``version`` counts the changes to the path of messages, ``total`` the tokens on that path, and
    ``epoch`` the session's conversations: `reset` begins the next.
    """

    tenant: str
    id: str
    user: str | None
    title: str
    tags: tuple[str, ...]
    meta: dict[str, Any]
    counter: str
    created: datetime
    active: datetime
    idle: timedelta | None
    expires: datetime | None
    epoch: int
    branch: int
    seq: int
    version: int
    total: int
    leased_until: datetime | None
    holder: str
    ended: datetime | None
    reason: str


class Branch(Struct, frozen=True, kw_only=True):
    """A branch, which starts after ``fork_seq`` of its parent; a root has no parent.

    ``operation`` names what created it and ``former`` the branch that was the head before, which `undo`
    selects.
    """

    id: int
    parent: int | None
    fork_seq: int
    created: datetime
    name: str = ""
    operation: str = ""
    former: int | None = None


class SearchResult(Struct, frozen=True, kw_only=True):
    """A message that a search found, its place in its session, and when it was written."""

    session: str
    branch: int
    seq: int
    time: datetime | None
    message: Message


class SessionPage(tuple[SessionInfo, ...]):
    """A page of sessions; ``cursor`` leads to the next page, and is None if there is none."""

    cursor: str | None

    def __new__(cls, sessions: Iterable[SessionInfo], cursor: str | None) -> SessionPage:
        """Make a page."""
        page = super().__new__(cls, sessions)
        page.cursor = cursor
        return page


def page_cursor(mark: PageMark, order: Order) -> str:
    """Return the cursor of a page, which is opaque to its users."""
    packed = msgspec.json.encode([order, *mark])
    return urlsafe_b64encode(packed).decode().rstrip("=")


def page_mark(cursor: str, order: Order) -> PageMark:
    """Return the position of a cursor; raise `InputError` if it is not a cursor of a list in this order."""
    check_kind("cursor", cursor, str)
    try:
        packed = urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        known, moment, id = msgspec.json.decode(packed, type=tuple[str, int, str])
    except (ValueError, TypeError, msgspec.MsgspecError):
        raise InputError(
            f"{cursor!r:.60} is not a cursor of sessions.list; pass the `cursor` of a page"
        ) from None
    if known != order:
        raise InputError(f"this cursor belongs to a list with order={known!r:.20}, not {order!r}")
    return PageMark(moment, id)


def info_of(row: SessionRow) -> SessionInfo:
    """Return the description of a session."""
    return SessionInfo(
        tenant=row.tenant,
        id=row.id,
        user=row.user,
        title=row.title,
        tags=row.tags,
        meta=row.meta,
        counter=row.counter,
        created=utc(row.created),
        active=utc(row.active),
        idle=timedelta(milliseconds=row.idle) if row.idle else None,
        expires=None if row.expires is None else utc(row.expires),
        epoch=row.epoch,
        branch=row.branch,
        seq=row.seq,
        version=row.version,
        total=row.total,
        leased_until=utc(row.lease_until) if row.lease_until else None,
        holder=row.holder,
        ended=None if row.ended is None else utc(row.ended),
        reason=row.reason,
    )


def branch_of(row: BranchRow) -> Branch:
    """Return the description of a branch."""
    return Branch(
        id=row.id,
        parent=row.parent,
        fork_seq=row.fork_seq,
        created=utc(row.created),
        name=row.name,
        operation=row.operation,
        former=row.former,
    )


async def search(
    log: Log, tenant: str, text: str, *, user: str | None = None, session: str | None = None, limit: int
) -> AsyncIterator[SearchResult]:
    """Yield the messages that contain all the words, the newest first.

    If some of them are damaged, `StoreDamaged` is raised after the last intact one.
    """
    check_kind("text", text, str)
    check_whole("limit", limit)
    words, mark, lost = query(text), None, 0
    while limit > 0:
        page = min(limit, PAGE)
        hits = await log.search(tenant, words, user=user, session=session, before=mark, limit=page)
        for hit in hits:
            if found := await off_loop(partial(_result_of, hit), large=len(hit.row.body) > INLINE):
                yield found
            else:
                lost += 1
        if len(hits) < page:
            break
        limit, mark = limit - len(hits), hits[-1].mark
    if lost:
        raise StoreDamaged(
            f"{lost} messages that contain these words are damaged and left out; run `turnstate verify`"
        )


def _result_of(hit: Hit) -> SearchResult | None:
    """Return a hit as a search result; None if its message is damaged."""
    message, row = message_of(hit.row), hit.row
    if message is None:
        return None
    time = time_of(row.id, message)
    return SearchResult(session=hit.session, branch=row.branch, seq=row.seq, time=time, message=message)
