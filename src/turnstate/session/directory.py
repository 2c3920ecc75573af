"""Finding sessions and what is written to them: lists, search, and following all of them.

Nothing here opens or changes a session. `SessionManager` is a directory that also does that.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime

from msgspec import structs

from .. import strict_json
from ..errors import InputError, NotFound
from ..ids import milliseconds
from ..log.entries import LogEntry, log_entries
from ..stores.port import Store
from ..stores.values import Address, Filter, Order, SessionRow
from ..value import check_kind, check_number, check_whole, refuse
from .info import SearchResult, SessionInfo, SessionPage, info_of, page_cursor, page_mark, search

PAGE = 100


class SessionDirectory:
    """The sessions of one tenant on one store."""

    def __init__(self, store: Store, tenant: str) -> None:
        self.store, self.tenant = store, tenant

    async def list(
        self,
        *,
        user: str | None = None,
        tag: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        live: bool | None = None,
        order: Order = "created",
        cursor: str | None = None,
        limit: int = PAGE,
    ) -> SessionPage:
        """Return a page of sessions, newest first by creation or by activity.

        Pass the cursor of a page for the next one. `since` and `until` bound the last activity.
        """
        check_whole("limit", limit)
        check_kind("live", live, bool, optional=True)
        if order not in ("created", "active"):
            refuse("order", order, '"created" or "active"')
        which = Filter(
            user=asked_name(user, "a user"),
            tag=asked_name(tag, "a tag"),
            since=_moment("since", since),
            until=_moment("until", until),
            live=live,
        )
        after = None if cursor is None else page_mark(cursor, order)
        rows = await self.store.page(self.tenant, which, order=order, after=after, limit=limit)
        more = page_cursor(rows[-1].mark(order), order) if rows and len(rows) == limit else None
        return SessionPage(map(info_of, rows), more)

    async def all(
        self, *, user: str | None = None, tag: str | None = None, order: Order = "created"
    ) -> AsyncIterator[SessionInfo]:
        """Iterate over all sessions, the newest first."""
        page = await self.list(user=user, tag=tag, order=order)
        while True:
            for info in page:
                yield info
            if page.cursor is None:
                return
            page = await self.list(user=user, tag=tag, order=order, cursor=page.cursor)

    async def search(
        self, text: str, *, user: str | None = None, session: str | None = None, limit: int = PAGE
    ) -> AsyncIterator[SearchResult]:
        """Find messages that contain all the words, in all sessions or in one, the newest first.

        If some of them are damaged, `StoreDamaged` is raised after the last intact one.
        """
        user = asked_name(user, "a user")
        if session is not None:
            await self._row(session, user)
        async for found in search(self.store, self.tenant, text, user=user, session=session, limit=limit):
            yield found

    async def follow(self, *, after: str | None = None, every: float = 0.5) -> AsyncIterator[LogEntry]:
        """Iterate over the entries of all sessions as they are written, by any process.

        It begins after the `cursor` of an entry, or with the first, and yields each entry once; entries of
        one session are in order. It polls the store every `every` seconds and does not end by itself.
        """
        check_kind("after", after, str, optional=True)
        check_number("every", every, least=0, most=86_400)
        cursor = after or ""
        while True:
            page = await self.store.feed(self.tenant, cursor, limit=PAGE)
            for item in page.items:
                (entry,) = await log_entries(Address(self.tenant, item.session), [item.row])
                yield structs.replace(entry, cursor=item.cursor)
            cursor = page.cursor
            if len(page.items) < PAGE:
                await asyncio.sleep(every)

    async def cursor(self) -> str:
        """Return the current cursor: following after it yields only what is written from now on."""
        return await self.store.feed_end(self.tenant)

    async def _row(self, id: str, user: str | None) -> SessionRow:
        row = await self.store.get(Address(self.tenant, asked_name(id, "a session id") or ""))
        if user is not None and row.user != user:
            raise NotFound(f"there is no session {id}")
        return row


def _moment(setting: str, given: datetime | None) -> int | None:
    """Return a time in milliseconds; raise `InvalidSetting` if it has no time zone."""
    check_kind(setting, given, datetime, optional=True)
    if given is not None and given.tzinfo is None:
        refuse(setting, given, "a time with a time zone, such as datetime.now(UTC)")
    return None if given is None else milliseconds(given)


def asked_name(name: str | None, what: str) -> str | None:
    """Return a name to look up; raise `InputError` if no store could have such a name."""
    if name is not None and not isinstance(name, str):  # some stores would treat a number as text
        raise InputError(f"{what} must be text, not {type(name).__name__}")
    if name is not None:
        strict_json.check_text(name, at=what)
    return name
