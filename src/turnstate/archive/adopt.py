"""Adopting: a conversation that somebody else kept, as a session of its own.

It is written in one transaction. Ids come from the document and its place in the file, so that the
same file makes the same sessions, however often it is read.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from itertools import takewhile
from typing import Any

from msgspec import Struct, structs

from .. import ids, strict_json
from ..context.calls import answered
from ..context.head import Head
from ..context.manager import StateManager
from ..context.policy import Budget, Policy, Reduction
from ..context.window import Window
from ..entry import Entry, Prompt
from ..errors import AlreadyExists
from ..log.fold import Fold
from ..log.path import path_to, read_entry, rows_forwards
from ..log.records import records as make_records
from ..message import Message
from ..session.names import checked
from ..stores.port import Log, Store
from ..stores.values import Record, Row, SessionRow
from ..tokens import counter as counter_named
from .restore import Restored

__all__ = ["Conversation", "adopt", "conversation", "rows_of"]


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
        meta=strict_json.plain(meta or {}, at="meta"),
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
    records = await make_records(entries, counter_named(counter), Policy())
    return [_named(record, place) for place, record in enumerate(records)]


def _named(record: Record, place: int) -> Record:
    """Return the prompt an id that is the same every time; messages have theirs."""
    if record.kind == "message":
        return record
    return structs.replace(record, id=ids.derived_id(place, record.body))


async def _is_same(store: Store, row: SessionRow, records: Sequence[Record]) -> bool:
    """Return True if a session began as this one does."""
    found = await store.find(row.address, [record.id for record in records])
    return [one.body for one in found] == [record.body for record in records]


# The head's path of a session, as a conversation: for people, and for the formats of providers.


_WHOLE = 1 << 62  # tokens of an output that is shown whole: any


class Conversation(Struct, frozen=True):
    """The messages from the root to the head, with what stands before them."""

    head: Head
    messages: list[Message]
    tokens: list[int]
    counter: str

    @property
    def told(self) -> list[Message]:
        """Prompt, bootstrap and messages, as they stand in the log; calls left behind are answered."""
        return [*(message for _, message in self.head.system_messages()), *answered(self.messages)]

    def sound(self) -> list[Message]:
        """Return the messages such that every provider takes them: nothing left out, calls answered."""
        return list(self.window().messages)

    def window(self) -> Window:
        """Return the window that holds all of them, with a report of what had to be repaired."""
        policy = Policy(reduction=Reduction(soft_tokens=_WHOLE, hard_tokens=_WHOLE, share=1.0))
        manager, budget = StateManager(self.counter, policy), Budget.UNLIMITED
        counts = list(zip(self.messages, self.tokens, strict=True))
        tally = manager.tally(self.messages, budget, counts=counts)
        return manager.window(tally, budget, head=self.head)


async def conversation(log: Log, row: SessionRow) -> Conversation:
    """Read the conversation that a session has at its head."""
    messages, tokens = list[Message](), list[int]()
    fold = Fold(messages)
    async for one in rows_of(log, row):
        entry = await read_entry(one)
        if entry is not None and fold.add(entry):
            tokens.append(one.tokens)
    return Conversation(Head(system=fold.prompt, bootstrap=fold.bootstrap), messages, tokens, row.counter)


async def rows_of(log: Log, row: SessionRow) -> AsyncIterator[Row]:
    """Walk the path from the root to the head, page by page."""
    async for one in rows_forwards(log, row.address, await path_to(log, row.address, row.head)):
        yield one
