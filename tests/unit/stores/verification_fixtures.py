"""A store with a little of everything, ways to tamper with its file, and what a check says of it."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import apsw

from turnstate.codec import encode
from turnstate.entry import Note
from turnstate.ids import UNKNOWN_TIME
from turnstate.message import Message
from turnstate.stores.sqlite import SqliteStore
from turnstate.stores.sqlite.rows import checksum
from turnstate.stores.values import (
    Address,
    Change,
    Finding,
    Fork,
    Key,
    Parcel,
    Record,
    Recount,
    Row,
    SessionFilter,
    SessionRow,
    Span,
)

T = TypeVar("T")

NOW = 1_750_000_000_000
END = 2**31
LONG, SHORT, MANY = Address("acme", "long"), Address("other", "short"), Address("acme", "many")


def said(id: str, text: str, tokens: int = 3) -> Record:
    message = Message.user(text, id=id, timestamp=UNKNOWN_TIME)
    return Record(id=id, kind="message", body=encode(message), tokens=tokens)


def noted(id: str) -> Record:
    return Record(id=id, kind="note", body=encode(Note("n")))


def session(at: Address, **fields: Any) -> SessionRow:
    given = {"user": "u", "title": "", "tags": ("x", "y"), "counter": "o200k_base", "meta": {"k": [1]}}
    return SessionRow(**given, **fields, tenant=at.tenant, id=at.session, created=NOW, active=NOW)


async def index(store: SqliteStore) -> None:
    """Let the search index catch up, so that it is the same whenever the store is closed."""
    await store.search("acme", ["x"], user=None, before=None, limit=1)


async def furnish(store: SqliteStore) -> None:
    """Session `long`: branch 1 of six entries, branch 2 after the fourth, branch 3 after the fifth of 2."""
    await store.create(session(LONG, idle=5_000), [said("a1", "alpha one"), noted("n2")])
    await store.commit(
        Change(at=LONG, now=NOW, key=Key("k", b"d"), records=(said("a3", "disk full"), said("a4", "four", 5)))
    )
    await store.commit(Change(at=LONG, now=NOW, records=(said("a5", "five"), said("a6", "six", 7))))
    for fork, records in [
        (Fork(parent=1, seq=4, operation="fork"), (said("b5", "other five", 9), said("b6", "other six"))),
        (Fork(parent=2, seq=5, operation="rewind"), (said("c6", "third six", 4), noted("n7"))),
    ]:
        await store.commit(Change(at=LONG, now=NOW, fork=fork, records=records))
    waiting = Parcel(id="p", tenant=SHORT.tenant, session=SHORT.session, kind="ingest", body=b"{}", due=NOW)
    await store.create(session(SHORT), [said("s1", "short one")])
    await store.commit(Change(at=SHORT, now=NOW, records=(said("s2", "short two"),), parcels=(waiting,)))
    await index(store)


async def furnish_more(store: SqliteStore) -> None:
    """Add a session of many pages, so that the table of entries has inner pages; it is not indexed yet."""
    await furnish(store)
    await store.create(session(MANY))
    for number in range(40):
        texts = [said(f"m{number}-{one}", f"{number} {one} " + "lorem ipsum " * 20) for one in range(5)]
        await store.commit(Change(at=MANY, now=NOW, records=(*texts, noted(f"n{number}"))))


def run(path: Path, scene: Callable[[SqliteStore], Coroutine[Any, Any, T]]) -> T:
    """Open the store, run a coroutine on it, and close it."""

    async def opened() -> T:
        store = SqliteStore(str(path))
        try:
            return await scene(store)
        finally:
            await store.close()

    return asyncio.run(opened())


async def furnish_and_index(store: SqliteStore) -> None:
    """Do the same, and let the index catch up."""
    await furnish_more(store)
    await index(store)


def furnished(path: Path) -> Path:
    run(path, furnish)
    return path


def verified(path: Path, *, repair: bool = False, recount: Recount | None = None) -> list[Finding]:
    async def check(store: SqliteStore) -> list[Finding]:
        return [finding async for finding in store.verify(repair=repair, recount=recount)]

    return run(path, check)


def tamper(path: Path, *statements: str, **values: Any) -> None:
    """Change the file without the store."""
    db = apsw.Connection(str(path))
    try:
        for statement in statements:
            db.execute(statement, values)
    finally:
        db.close()


def tables(path: Path) -> dict[str, list[Any]]:
    """Return everything in the file as hex, since damaged texts may be invalid UTF-8."""
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)

    def shown(table: str) -> list[Any]:
        columns = [f"hex({name})" for _, name, *_ in db.execute(f"PRAGMA table_info({table})")]
        return sorted(db.execute(f"SELECT {', '.join(columns)} FROM {table}"))

    try:
        names = ("session", "branch", "entry", "damaged", "tag", "key", "outbox")
        words = sorted(db.execute("SELECT id FROM word_docsize"))
        return {name: shown(name) for name in names} | {"words": words}
    finally:
        db.close()


def rows(path: Path, at: Address = LONG) -> dict[int, list[Row]]:
    """Return all entries of a session as the store returns them, by branch."""

    async def read(store: SqliteStore) -> dict[int, list[Row]]:
        branches = await store.branches(at)
        return {one.id: await store.read(at, Span(one.id, 1, END)) for one in branches}

    return run(path, read)


async def everything(store: SqliteStore) -> dict[tuple[Address, int, int], Row]:
    """Return all entries that the store returns, by position."""
    found = dict[tuple[Address, int, int], Row]()
    for tenant in ("acme", "other"):
        for one in await store.page(tenant, SessionFilter()):
            for branch in await store.branches(one.address):
                for row in await store.read(one.address, Span(branch.id, 1, END)):
                    found[one.address, branch.id, row.seq] = row
    return found


def left_open(path: Path, scene: Callable[[SqliteStore], Coroutine[Any, Any, None]]) -> None:
    """Make a store that was never closed: its newest entries are only in the WAL."""
    origin = path.with_name("origin.db")

    async def copy(store: SqliteStore) -> None:
        await scene(store)
        for end in ("", "-wal"):
            shutil.copy(f"{origin}{end}", f"{path}{end}")

    run(origin, copy)
    origin.unlink()


def rewrite(path: Path, id: str, **columns: Any) -> None:
    """Change columns of an entry, with a checksum that matches."""
    db = apsw.Connection(str(path))
    try:
        names = ("session", "branch", "seq", "id", "kind", "tokens", "body")
        (row,) = db.execute(f"SELECT {', '.join(names)} FROM entry WHERE id = ?", (id,))
        *_, kind, _, body = row
        plain = {
            "kind": kind or "message",
            "body": body if body[:1] == b"{" else b'{"id":"%b",' % id.encode() + body,
        }
        values = dict(zip(names, row, strict=True)) | plain | columns
        sets = ", ".join(f"{name} = :{name}" for name in names)
        total = checksum(*(values[name] for name in names))
        values["kind"] = 0 if values["kind"] == "message" else values["kind"]
        db.execute(
            f"UPDATE entry SET {sets}, checksum = :checksum WHERE id = :old",
            values | {"checksum": total, "old": id},
        )
    finally:
        db.close()
