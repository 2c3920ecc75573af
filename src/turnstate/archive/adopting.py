"""Adopting: a conversation that somebody else kept, as a session of its own.

It is written in one transaction. Ids come from the document and its place in the file, so that the
same file makes the same sessions, however often it is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Any

from msgspec import structs

from .. import ids, reader
from ..context.policy import Policy
from ..entry import Entry, Prompt
from ..errors import AlreadyExists
from ..message import Message
from ..session.names import checked
from ..session.records import Recorder
from ..stores.port import Store
from ..stores.values import Record, SessionRow
from ..tokens import counter as counter_named
from .restoring import Restored

__all__ = ["adopt"]


async def adopt(
    store: Store,
    tenant: str,
    messages: Sequence[Message],
    *,
    id: str,
    now: int,
    user: str | None = None,
    title: str = "",
    meta: dict[str, Any] | None = None,
    counter: str = "o200k_base",
    skip_existing: bool = False,
) -> Restored:
    """Make a session of messages; system messages that lead them become its prompt."""
    row = SessionRow(
        tenant=tenant,
        id=checked(id, "a session id"),
        user=checked(user, "a user") if user is not None else None,
        title=checked(title, "a title", empty=True),
        tags=(),
        counter=counter_named(counter).name,
        meta=reader.plain(meta or {}, at="meta"),
        created=now,
        active=now,
        version=1,
    )
    records = await _records(messages, row.counter)
    try:
        await store.create(row, records)
    except AlreadyExists:
        if await _is_same(store, row, records):
            return Restored(row.id, "known", len(records))
        if skip_existing:
            return Restored(row.id, "skipped", len(records))
        raise AlreadyExists(
            f"there is another session {row.id} already; --skip-existing passes over it"
        ) from None
    return Restored(row.id, "imported", len(records))


async def _records(messages: Sequence[Message], counter: str) -> list[Record]:
    leading = list(takewhile(lambda message: message.role == "system", messages))
    entries: list[Entry] = [*messages[len(leading) :]]
    if leading:
        entries.insert(0, Prompt("\n\n".join(message.text for message in leading)))
    records = await Recorder(counter_named(counter), Policy()).records(entries)
    return [_named(record, place) for place, record in enumerate(records)]


def _named(record: Record, place: int) -> Record:
    """Give the prompt an id that is the same every time; messages have theirs."""
    if record.kind == "message":
        return record
    return structs.replace(record, id=ids.derived_id(place, record.body))


async def _is_same(store: Store, row: SessionRow, records: Sequence[Record]) -> bool:
    """Tell whether a session began as this one does."""
    found = await store.find(row.address, [record.id for record in records])
    return [one.body for one in found] == [record.body for record in records]
