"""The directory in SQLite: which sessions there are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import apsw
from msgspec import structs

from ...errors import AlreadyExists, NotFound, StoreUnavailable
from ..values import Address, Filter, Position, Record, Removed, SessionRow
from .log import add_entries
from .queries import query, scanning
from .readers import Readers
from .removal import remove, room
from .rows import marks, session_columns, session_place, session_row, sessions
from .soundness import expiry_is_indexed, list_is_indexed
from .writer import Writer

__all__ = ["SqliteDirectory"]


class SqliteDirectory:
    """Sessions as rows."""

    _writer: Writer
    _readers: Readers

    async def create(self, row: SessionRow, records: Sequence[Record] = ()) -> SessionRow:
        """Make a session with its root branch and first entries, or raise `AlreadyExists`."""
        return await self._writer.run(lambda db: _create(db, row, records))

    async def get(self, at: Address) -> SessionRow:
        """Give a session, or raise `NotFound`."""
        return await self._readers.run(lambda db: session_row(db, at)[1])

    async def page(
        self, tenant: str, which: Filter, *, after: SessionRow | None = None, limit: int = 100
    ) -> list[SessionRow]:
        """Give a page of sessions, newest first by creation, from behind the last one of a page on."""
        columns = structs.asdict(which) | {"tenant": tenant, "limit": limit}
        behind = {"created": after and after.created, "id": after and after.id}
        name = "page" if which.user is None else "page_of_user"
        return await self._readers.run(lambda db: _page(db, name, columns | behind))

    async def update(
        self,
        at: Address,
        *,
        title: str | None = None,
        tags: Sequence[str] | None = None,
        meta: dict[str, Any] | None = None,
        idle: int | None = None,
    ) -> SessionRow:
        """Change what is given and leave the rest."""
        changes: dict[str, Any] = {
            "title": title,
            "tags": None if tags is None else tuple(sorted(set(tags))),
            "meta": meta,
            "idle": idle,
        }
        given = {name: value for name, value in changes.items() if value is not None}
        return await self._writer.run(lambda db: _update(db, at, given))

    async def due(self, tenant: str, now: int, *, limit: int = 100) -> list[SessionRow]:
        """Return sessions that were left idle for too long: without a message and without a lease."""
        which = {"tenant": tenant, "now": now, "limit": limit}
        return await self._readers.run(lambda db: _due(db, which))

    async def remove(self, at: Address) -> Removed:
        """Delete a session with everything that hangs on it: no query finds it any more."""
        try:
            return await self._writer.run(lambda db: remove(db, at))
        except StoreUnavailable as error:
            if not isinstance(error.__cause__, apsw.FullError):
                raise
            raise StoreUnavailable(await self._readers.run(lambda db: room(db, at))) from error.__cause__


def _create(db: apsw.Connection, row: SessionRow, records: Sequence[Record]) -> SessionRow:
    total = sum(record.tokens for record in records)
    made = structs.replace(row, tags=tuple(sorted(set(row.tags))), branch=1, seq=len(records), total=total)
    if _is_there(db, row.address):
        raise AlreadyExists(f"there is a session {row.id} already")
    ((key,),) = db.execute(query("add_session"), session_columns(made) | {"marks": marks(records, behind=0)})
    root = {"key": key, "id": 1, "parent": None, "fork_seq": 0, "created": row.created}
    db.execute(query("add_branch"), root | {"name": "", "operation": "create", "former": None})
    _set_tags(db, key, made.tags)
    add_entries(db, key, Position(1, 0), 0, records)
    return made


def _is_there(db: apsw.Connection, at: Address) -> bool:
    try:
        session_place(db, at)
    except NotFound:
        return False
    return True


def _page(db: apsw.Connection, name: str, which: dict[str, Any]) -> list[SessionRow]:
    """Return a page of sessions, by their index or, if that is damaged, by a scan of their table."""
    sql = query(name) if list_is_indexed(db) else scanning(name, "session")
    return sessions(db.execute(sql, which))


def _due(db: apsw.Connection, which: dict[str, Any]) -> list[SessionRow]:
    """Return sessions that are overdue, by their index or, if that is damaged, by a scan of their table."""
    name = "due_sessions"
    return sessions(db.execute(query(name) if expiry_is_indexed(db) else scanning(name, "session"), which))


def _update(db: apsw.Connection, at: Address, given: dict[str, Any]) -> SessionRow:
    key, row = session_row(db, at)
    row = structs.replace(row, **given)
    db.execute(query("describe_session"), session_columns(row) | {"key": key})
    if "tags" in given:
        _set_tags(db, key, row.tags)
    return row


def _set_tags(db: apsw.Connection, key: int, tags: Sequence[str]) -> None:
    db.execute(query("drop_tags"), {"key": key})
    for name in tags:
        db.execute(query("add_tag"), {"key": key, "name": name})
