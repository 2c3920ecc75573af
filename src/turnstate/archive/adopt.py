"""Adopts a conversation from another program as a session, and reads a session as a transcript.

A session is written in one transaction. Ids are derived from the document and its position in the file,
so that the same file always yields the same sessions.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from itertools import takewhile
from typing import Any

from msgspec import Struct, structs

from .. import ids, strict_json
from ..context.calls import answered
from ..context.cut import carried
from ..context.manager import StateManager
from ..context.policy import Budget, Policy, Reduction
from ..context.preface import Preface, incoming
from ..context.window import Window
from ..conversation import ConversationState
from ..entry import Entry, ModelChange, Prompt
from ..errors import AlreadyExists
from ..ids import wall_clock
from ..log.fold import Fold
from ..log.path import path_to, read_entry, rows_forwards
from ..log.records import counter_of
from ..log.records import records as make_records
from ..message import Message
from ..session import SessionInfo, SessionManager
from ..session.names import checked
from ..stores.memory import MemoryStore
from ..stores.port import Log, Store
from ..stores.values import Address, Change, Fork, Position, Record, Row, SessionRow
from ..tokens import Counter
from ..tokens import counter as counter_named
from .export import archive
from .format import encode_line
from .read import bundles
from .restore import ImportResult, restore


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
) -> ImportResult:
    """Create a session from messages; leading system messages become its prompt, and summaries are kept."""
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
            return ImportResult(row.id, "known", len(records))
        if skip_existing:
            return ImportResult(row.id, "skipped", len(records))
        raise AlreadyExists(
            f"another session {row.id} exists already; pass --skip-existing to skip it"
        ) from None
    return ImportResult(row.id, "imported", len(records))


async def adopt_state(
    store: Store,
    tenant: str,
    state: ConversationState,
    *,
    title: str = "",
    user: str | None = None,
    skip_existing: bool = False,
) -> ImportResult:
    """Turn a conversation state into a session with the same id, all or nothing.

    The state first becomes a session in memory, whose archive is then restored.
    """
    async with SessionManager(MemoryStore(), tenant=tenant) as sessions:
        session = await sessions.create(
            id=state.conversation_id, title=title, user=user, counter=state.default_counter
        )
        await _write_log(sessions.store, session.info, state)
        lines = [
            encode_line(line).encode()
            async for line in archive(sessions.store, _only(Address(sessions.tenant, session.id)))
        ]
    for bundle in bundles(lines):  # only one; its entries are read while it is restored
        restored = await restore(store, tenant, bundle, now=wall_clock(), skip_existing=skip_existing)
    return restored


async def _write_log(store: Store, info: SessionInfo, state: ConversationState) -> None:
    """Write the log of a conversation to a new session, branch by branch."""
    state.record_settings()
    log, at, now = state.log, Address(info.tenant, info.id), wall_clock()
    head = Position(1, 0)
    for branch in log.branches.values():
        fork = None
        if branch.id > 1:
            if branch.former is not None and branch.former != head.branch:
                head = (await store.commit(Change(at=at, now=now, select=branch.former))).head
            fork = Fork(
                parent=branch.parent, seq=branch.fork_seq, name=branch.name, operation=branch.operation
            )
        path = log.path(Position(branch.id, branch.fork_seq))
        known = next(
            (one.entry for one in reversed(log.walk(path)) if isinstance(one.entry, ModelChange)), None
        )
        counter = counter_of(known) if known else counter_named(info.counter)
        entries = [one.entry for one in log.entries[branch.id] if one.entry is not None]
        records = await make_records(entries, counter, state.policy)
        created = branch.created or now
        change = Change(at=at, now=created, fork=fork, records=tuple(records))
        if fork is not None or records:
            head = (await store.commit(change)).head
    if head.branch != log.head.branch:
        await store.commit(Change(at=at, now=now, select=log.head.branch))


async def _only(address: Address) -> AsyncIterator[Address]:
    yield address


async def _records(messages: Sequence[Message], counter: str) -> list[Record]:
    leading = list(takewhile(lambda message: message.role == "system", messages))
    prompts, summary = incoming(leading, Policy().summary_template)
    entries: list[Entry] = [carried(summary)] if summary else []
    entries += messages[len(leading) :]
    if prompts:
        entries.insert(0, Prompt("\n\n".join(message.text for message in prompts)))
    records = await make_records(entries, counter_named(counter), Policy())
    return [_named(record, place) for place, record in enumerate(records)]


def _named(record: Record, place: int) -> Record:
    """Return the record with an id that is the same every time; messages keep their own."""
    if record.kind == "message":
        return record
    return structs.replace(record, id=ids.derived_id(place, record.body))


async def _is_same(store: Store, row: SessionRow, records: Sequence[Record]) -> bool:
    """Return True if the stored session begins with the same entries."""
    found = await store.find(row.address, [record.id for record in records])
    return [one.body for one in found] == [record.body for record in records]


_UNLIMITED = 1 << 62  # tokens: outputs are not shortened


class Transcript(Struct, frozen=True):
    """The messages from the root to the head, with the prompt and bootstrap before them.

    ``counts`` has the token counts of the messages that were counted with the counter in force at the head.
    """

    preface: Preface
    messages: list[Message]
    counts: list[tuple[Message, int]]
    counter: Counter

    @property
    def all_messages(self) -> list[Message]:
        """Prompt, bootstrap and messages as in the log; calls without a result are answered."""
        return [*(message for _, message in self.preface.system_messages()), *answered(self.messages)]

    def valid_messages(self) -> list[Message]:
        """Return all messages in a form that every provider accepts."""
        return list(self.window().messages)

    def window(self) -> Window:
        """Return the window with all messages, and a report of what had to be repaired."""
        policy = Policy(reduction=Reduction(soft_tokens=_UNLIMITED, hard_tokens=_UNLIMITED, share=1.0))
        manager, budget = StateManager(self.counter, policy), Budget.UNLIMITED
        tally = manager.tally(self.messages, budget, counts=self.counts)
        return manager.window(tally, budget, preface=self.preface)


async def conversation(log: Log, row: SessionRow) -> Transcript:
    """Read the path to the head of a session."""
    messages, counts = list[Message](), list[tuple[Message, int]]()
    fold, counter = Fold(messages), counter_named(row.counter)
    async for one in rows_of(log, row):
        entry = await read_entry(one)
        if isinstance(entry, ModelChange) and entry.counter != counter.name:
            counter, counts = counter_of(entry), []
        if entry is not None and (shown := fold.add(entry)):
            counts.append((shown, one.tokens))
    preface = Preface(system=fold.prompt, bootstrap=fold.bootstrap)
    return Transcript(preface, messages, counts, counter)


async def rows_of(log: Log, row: SessionRow) -> AsyncIterator[Row]:
    """Yield the rows from the root to the head, page by page."""
    async for one in rows_forwards(log, row.address, await path_to(log, row.address, row.head)):
        yield one
