"""Verification: checks every session by the shared rules, then the data that belongs to no session.

A session is checked in a snapshot, so other clients continue to read and write. To repair its faults, it is
locked and checked again, and everything is repaired in that one transaction. If a page is damaged so that
PostgreSQL itself cannot read it, the finding contains PostgreSQL's message.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import partial

from ...entry import Entry
from ...errors import StoreDamaged
from ...message import Message
from ...search_terms import words_of
from ..values import Address, Finding, Recount
from ..verify.descriptions import (
    inspect_counter,
    inspect_keys,
    inspect_meta,
    inspect_orphans,
    inspect_parcels,
)
from ..verify.entries import Seen, inspect_entries
from ..verify.inspection import Check, Inspection, asked
from ..verify.lineage import inspect_head, inspect_lineage
from .connections import LONG, Connections, Work
from .rows import checksum, content_sum, kept, marks, quoted

SESSIONS_AT_ONCE = 12


async def findings(
    connections: Connections, *, repair: bool, recount: Recount | None = None
) -> AsyncIterator[Finding]:
    """Check everything in a store."""
    after = 0
    while keys := [
        key for (key,) in await connections.read("session_keys", after=after, limit=SESSIONS_AT_ONCE)
    ]:
        for key in keys:
            check = partial(_inspect_session, session=key)
            for finding in await _inspected(connections, check, repair=repair, session=key, recount=recount):
                yield finding
        after = keys[-1]
    orphans = partial(inspect_orphans, tables=("entry", "branch", "key"))
    for rest in (orphans, inspect_parcels, _inspect_index):
        for finding in await _inspected(connections, rest, repair=repair):
            yield finding


async def _inspected(
    connections: Connections,
    check: Callable[[Inspection], Check[None]],
    *,
    repair: bool,
    session: int = 0,
    recount: Recount | None = None,
) -> list[Finding]:
    try:
        async with connections.transaction(frozen=True, patience=LONG) as work:
            case = Inspection(_checksum, mends=False, recount=recount)
            await _answer(work, check(case))
        if case.findings and repair:
            async with connections.transaction(patience=LONG) as work:
                case = Inspection(_checksum, mends=True, recount=recount)
                await work.rows("lock_session", key=session)
                await _answer(work, check(case))
    except StoreDamaged as error:
        where = f"session number {session}" if session else "what belongs to no session"
        return [Finding(fault=f"{where} cannot be read: {error}")]
    return case.findings


async def _answer(work: Work, check: Check[None]) -> None:
    """Run a rule: execute the statements that it yields, and send it their rows."""
    answer: object = None
    while True:
        try:
            name, given = check.send(answer)
        except StopIteration:
            return
        answer = await work.rows(name, **given)


def _inspect_session(case: Inspection, session: int) -> Check[None]:
    """Check a session, unless it was removed in the meantime."""
    for tenant, id, user, counter, meta, kept_marks in (yield from asked("described", key=session)):
        case.at, own = Address(tenant, id), marks(tenant, user)
        inspect_counter(case, session, counter)
        inspect_meta(case, session, meta)
        if kept_marks != quoted(own) and case.found("its marks for search are wrong", done="set again"):
            case.mend("set_marks", key=session, marks=quoted(own))
        lineage = yield from inspect_lineage(case, session)
        for branch in lineage.lines:
            stretch = yield from lineage.stretch(case, branch)
            while not stretch.walked:
                look = partial(_compare_words, case, branch, own)
                stretch = yield from inspect_entries(case, stretch, look)
        yield from inspect_head(case, session)
        yield from inspect_keys(case, session)


def _compare_words(case: Inspection, branch: int, own: list[str], seen: Seen, entry: Entry) -> None:
    if seen.words is None:
        return
    words = list(kept(words_of(entry))) if isinstance(entry, Message) else []
    wanted = {*words, *own} if words else set()
    if wanted == set(seen.words):
        return
    fault, done = "search would not find it by its words", "indexed again"
    if case.found(fault, done=done, branch=branch, seq=seen.seq, id=str(seen.id)):
        if isinstance(entry, Message):
            case.mend("word_entry", entry=seen.key, words=quoted(sorted(wanted)) if wanted else None)
        else:
            case.mend("unword_entry", entry=seen.key)


def _inspect_index(case: Inspection) -> Check[None]:
    """Check that the search index has no words of missing entries, and does not end after the last key."""
    ((count,),) = yield from asked("stray_words")
    if count and case.found(f"the search index has words of {count:,} missing entries", done="deleted"):
        case.mend("drop_stray_words")
    ((rows, through, newest),) = yield from asked("index_end")
    if rows != 1 or through > newest:
        fault = "the record of what is indexed is wrong"
        if case.found(fault, done="reset; the next search indexes what is missing"):
            case.mend("reset_index_end")
    yield from case.mended()


def _checksum(session: int, branch: int, seq: int, id: str, kind: str, tokens: int, body: bytes) -> int:
    return checksum(session, branch, seq, content_sum(tokens, kind, id, body))
