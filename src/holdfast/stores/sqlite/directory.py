"""The directory in SQLite: which sessions there are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import apsw
from msgspec import structs

from ...errors import AlreadyExists
from ..values import Address, Filter, Position, Record, Removed, SessionRow
from .log import add_entries
from .queries import query
from .readers import Readers
from .removal import remove
from .rows import session_columns, session_row, sessions
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
        sql = query("page" if which.user is None else "page_of_user")
        return await self._readers.run(lambda db: sessions(db.execute(sql, columns | behind)))

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
        return await self._readers.run(lambda db: sessions(db.execute(query("due_sessions"), which)))

    async def remove(self, at: Address) -> Removed:
        """Delete a session with everything that hangs on it: no query finds it any more."""
        return await self._writer.run(lambda db: remove(db, at))


def _create(db: apsw.Connection, row: SessionRow, records: Sequence[Record]) -> SessionRow:
    total = sum(record.tokens for record in records)
    made = structs.replace(row, tags=tuple(sorted(set(row.tags))), branch=1, seq=len(records), total=total)
    try:
        ((key,),) = db.execute(query("add_session"), session_columns(made))
    except apsw.ConstraintError:
        raise AlreadyExists(f"there is a session {row.id} already") from None
    root = {"key": key, "id": 1, "parent": None, "fork_seq": 0, "created": row.created}
    db.execute(query("add_branch"), root | {"name": "", "operation": "create", "former": None})
    _set_tags(db, key, made.tags)
    add_entries(db, key, Position(1, 0), 0, records)
    return made


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
