"""Verification of a file: its pages and schema first, then every session by the shared rules.

If SQLite finds damaged pages or indexes, nothing is repaired in that file, since writing may make it worse;
whatever can be read is copied to another file (`rescue`). A sound file is checked in many short snapshots, so
others can keep reading and writing, and repaired in short transactions. Some rules are only for a file: texts
that are valid UTF-8 (a text that cannot be read is set aside and replaced: a title matters less than the
conversation), tags, expiry, promised entries, and the search index.
"""

from __future__ import annotations

import asyncio
import os
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from functools import cache, partial
from typing import TypeVar

import apsw
import msgspec
from msgspec import Struct, structs

from ...errors import NotFound, StoreDamaged, StoreError
from ...search_terms import entry_words
from ..values import Address, Finding, Recount, Span
from ..verify.descriptions import (
    inspect_counter,
    inspect_keys,
    inspect_meta,
    inspect_orphans,
    inspect_parcels,
    parsed,
)
from ..verify.entries import PAGE, inspect_entries
from ..verify.inspection import Check, Inspection, asked, is_text, text
from ..verify.lineage import inspect_head, inspect_lineage, inspect_missing_branches
from .connection import foreign_objects
from .faults import UNREADABLE, translated
from .queries import MIGRATIONS, SQL
from .read_only import readers_of
from .readers import Readers
from .rows import SessionPlace, checksum
from .salvage import Salvaged, publish, rows_around, salvage, salvage_path
from .search import newest_indexed, rebuild_some
from .writer import Writer

MAX_FAULTS = 20
"""Maximum number of faults in the file to report."""

_NOT_FAULTS = ("ok", "*** in database main ***")

_OF_THE_INDEX = ("malformed inverted index", "unable to validate the inverted index")


class FileStructure(Struct, frozen=True):
    """What is wrong with the file, and whether the search index is damaged."""

    faults: tuple[str, ...]
    index_is_broken: bool

    @property
    def sound(self) -> bool:
        """True if it is safe to write to the file."""
        return not self.faults


def inspect_structure(db: apsw.Connection) -> FileStructure:
    """Let SQLite check all its pages, and compare the schema with the expected one."""
    lines = [*_integrity_faults(db), *_schema_faults(db)]
    about_index = [line for line in lines if line.startswith(_OF_THE_INDEX)]
    return FileStructure(tuple(line for line in lines if line not in about_index), bool(about_index))


def _integrity_faults(db: apsw.Connection) -> list[str]:
    lines = list[str]()
    try:
        for (line,) in db.execute(f"PRAGMA integrity_check({MAX_FAULTS})"):
            lines += [piece for piece in str(line).splitlines() if piece not in _NOT_FAULTS]
    except (*UNREADABLE, apsw.IOError, apsw.SQLError) as error:
        lines = lines or [str(error)]
    return lines[:MAX_FAULTS]


def _schema_faults(db: apsw.Connection) -> list[str]:
    try:
        there = {name: rest for _, name, *rest in db.execute(SQL["schema"])}
    except UNREADABLE as error:
        return [f"the schema cannot be read: {error}"]
    wanted = _schema(MIGRATIONS)
    changed = [f"the schema of `{name}` was changed" for name in wanted if there.get(name) != wanted[name]]
    return [*changed, *(f"{one} does not belong to Turnstate" for one in foreign_objects(db))]


@cache
def _schema(steps: tuple[str, ...]) -> dict[str, list[object]]:
    db = apsw.Connection(":memory:")
    try:
        for step in steps:
            db.execute(step)
        return {name: rest for _, name, *rest in db.execute(SQL["schema"])}
    finally:
        db.close()


_TEXTS = ("title", "holder", "reason")
_REPLACED = "set aside, and invalid characters replaced"


def address_of(db: apsw.Connection, session: int) -> Address | None:
    """Return the address of a session by its number, or None if it was removed."""
    for tenant, id in db.execute(SQL["address"], {"key": session}):
        return Address(text(tenant), text(id))
    return None


def inspect_description(case: Inspection, session: int) -> Check[None]:
    """Check everything about a session except its log."""
    for *texts, counter, tags, meta, expires, rightly in (yield from asked("description", key=session)):
        for name, raw in zip(_TEXTS, texts, strict=True):
            _inspect_text(case, session, name, raw)
        inspect_counter(case, session, counter)
        inspect_meta(case, session, meta)
        yield from _inspect_tags(case, session, tags)
        if expires != rightly and case.found("its time of expiry is wrong", done="computed again"):
            case.mend("set_expiry", key=session, expires=rightly)
    yield from _inspect_names(case, session)
    yield from case.mended()


def _inspect_text(case: Inspection, session: int, name: str, raw: bytes) -> None:
    fault = f"its {name} is not valid UTF-8"
    if not is_text(raw) and case.found(fault, done=_REPLACED):
        case.mend("set_aside", key=session, kind=name, body=raw, fault=fault)
        case.mend(f"set_{name}", key=session, **{name: text(raw)})


def _inspect_names(case: Inspection, session: int) -> Check[None]:
    for id, name, operation in (yield from asked("branch_names", key=session)):
        fault = f"the name of branch {id} is not valid UTF-8"
        sound = is_text(name) and is_text(operation)
        if not sound and case.found(fault, done=_REPLACED, branch=id):
            raw = name + b"\0" + operation
            case.mend("set_aside", key=session, kind="branch", body=raw, fault=fault)
            columns = {"name": text(name), "operation": text(operation)}
            case.mend("set_branch_names", key=session, id=id, **columns)


def _inspect_tags(case: Inspection, session: int, tags: bytes) -> Check[None]:
    own = parsed(tags, list[str])
    listed = [text(name) for (name,) in (yield from asked("tags", key=session))]
    if own is None:
        fault = "its tags are not a list of texts"
        if case.found(fault, done="restored from the list of tags"):
            case.mend("set_aside", key=session, kind="tags", body=tags, fault=fault)
            case.mend("set_tags", key=session, tags=msgspec.json.encode(listed))
    elif sorted(own) != sorted(listed) and case.found("it is listed under other tags", done="listed again"):
        case.mend("drop_tags", key=session)
        for name in dict.fromkeys(own):
            case.mend("add_tag", key=session, name=name)


# The search index contains the words of every message up to the newest in it, and nothing else. To check
# that, a sum over the words in the index is compared with a sum over the words of the messages.


def indexed_words(db: apsw.Connection) -> tuple[int, int]:
    """Return a sum over the words in the index, and the key of its newest message."""
    last = newest_indexed(db)
    db.execute(SQL["make_vocabulary"])
    return sum(_sum(entry, word) for word, entry in db.execute(SQL["vocabulary"])), last


def expected_words(db: apsw.Connection, after: int, last: int) -> tuple[int, int | None]:
    """Return a sum over the words of a page of entries, and where the next page begins."""
    total, entry, count = 0, after, 0
    for entry, kind, body in db.execute(SQL["bodies"], {"after": after, "last": last, "limit": PAGE}):
        total += sum(_sum(entry, word) for word in entry_words(kind, body))
        count += 1
    return total, entry if count == PAGE else None


def is_index_complete(db: apsw.Connection) -> bool:
    """Return True if index and messages agree in one snapshot; this takes long in a large store."""
    total, last = indexed_words(db)
    after: int | None = 0
    while after is not None:
        summed, after = expected_words(db, after, last)
        total -= summed
    return total == 0


def empty_index(db: apsw.Connection) -> None:
    """Delete all words from the index."""
    db.execute(SQL["empty_words"])


def _sum(entry: int, word: str) -> int:
    return zlib.crc32(word.encode(), entry & 0xFFFFFFFF)


def inspect_parcel_texts(case: Inspection) -> Check[None]:
    """Check that the texts of parcels are valid UTF-8."""
    for texts in (yield from asked("parcel_texts")):
        if all(map(is_text, texts)):
            continue
        id, tenant, session, *_ = texts
        case.at, fault = Address(text(tenant), text(session)), "a parcel has a text that is not valid UTF-8"
        if case.found(fault, done="it is set aside", id=text(id)):
            case.mend("set_parcel_aside", id=id, fault=fault)
    yield from case.mended()


def inspect_lost_commits(case: Inspection) -> Check[None]:
    """Report WAL files that were damaged when the store was opened."""
    for key, fault in (yield from asked("lost_commits")):
        if case.found(fault, done="cannot be repaired; not reported again"):
            case.mend("told_of_lost_commits", key=key)
    yield from case.mended()


def inspect_promises(case: Inspection, session: int) -> Check[None]:
    """Check that the rows of a session and of its branches promise the entries that exist."""
    for branch, promised, found in (yield from asked("promises", key=session)):
        if promised == found:
            continue
        fault = f"branch {branch} should end at entry {promised}, but its last entry is {found}"
        if not branch:
            fault = "its entries other than messages are not those that its row promises"
        case.found(fault, done="the row is corrected", branch=branch)
    yield from case.mended()


T = TypeVar("T")

SESSIONS_AT_ONCE = 24
"""Number of sessions to check in one snapshot."""

_TABLES = ("entry", "branch", "key", "tag")
_OF_NO_SESSION = (
    inspect_lost_commits,
    partial(inspect_orphans, tables=_TABLES),
    inspect_parcels,
    inspect_parcel_texts,
)


class FileCheck:
    """The check of everything in a sound file."""

    def __init__(
        self, readers: Readers, writer: Writer, *, repair: bool, recount: Recount | None = None
    ) -> None:
        self._readers, self._writer, self._repair, self._recount = readers, writer, repair, recount
        self._found = list[Finding]()
        self._count = 0
        self._entries_are_sound = True

    async def findings(self, *, index_is_broken: bool = False) -> AsyncIterator[Finding]:
        """Yield faults as they are found."""
        after: int | None = 0
        while after is not None:
            odd, after = await self._readers.run(partial(_suspects, after=after, recount=self._recount))
            for session in odd:
                async for finding in self._session(session):
                    yield finding
        for check in _OF_NO_SESSION:
            await self._inspect(check)
            for finding in self._new_findings():
                yield finding
        if index_is_broken or (self._entries_are_sound and not await self._index_agrees()):
            yield await self._index_is_wrong()

    async def rebuild_index(self) -> None:
        """Rebuild the search index from the messages, some per transaction."""
        await self._writer.run(empty_index)
        after: int | None = 0
        while after is not None:
            after = await self._writer.run(partial(rebuild_some, after=after))

    async def _session(self, session: int) -> AsyncIterator[Finding]:
        at = await self._readers.run(partial(address_of, session=session))
        if at is None:
            return
        try:
            async for _ in self._looks(session, at):
                for finding in self._new_findings():
                    yield finding
        except NotFound:  # it was removed in the meantime
            return

    async def _looks(self, session: int, at: Address) -> AsyncIterator[None]:
        """Check a session step by step; its promises are checked only if nothing else is wrong."""
        before = self._count

        async def inspect(check: Callable[[Inspection], Check[T]]) -> T:
            return await self._inspect(partial(_only_if_there, check=check, session=session, at=at), at)

        await inspect(partial(inspect_description, session=session))
        lineage = await inspect(partial(inspect_lineage, session=session))
        await inspect(partial(inspect_missing_branches, lineage=lineage))
        yield
        for branch in lineage.lines:
            stretch = await inspect(partial(lineage.stretch, branch=branch))
            while not stretch.walked:
                stretch = await inspect(partial(inspect_entries, stretch=stretch))
                yield
        await inspect(partial(inspect_head, session=session))
        await inspect(partial(inspect_keys, session=session))
        if self._count == before:
            await inspect(partial(inspect_promises, session=session))
        if self._count > before and self._repair:
            await self._writer.run(lambda db: db.execute(SQL["set_promises"], {"key": session}) and None)
        yield

    async def _inspect(self, check: Callable[[Inspection], Check[T]], at: Address | None = None) -> T:
        """Run a rule in a snapshot; if it finds faults to repair, run it again in a transaction."""

        def run(db: apsw.Connection, *, mends: bool) -> tuple[T, list[Finding]]:
            case = Inspection(checksum, mends=mends, at=at, recount=self._recount)
            return _answered(db, check(case)), case.findings

        result, found = await self._readers.run(partial(run, mends=False))
        if found and self._repair:
            result, found = await self._writer.run(partial(run, mends=True))
        self._found += found
        self._count += len(found)
        return result

    def _new_findings(self) -> Iterator[Finding]:
        """Return the findings since the last call, and note whether unrepaired entries are left."""
        found, self._found = self._found, []
        self._entries_are_sound &= not any(finding.seq and not finding.done for finding in found)
        return iter(found)

    async def _index_agrees(self) -> bool:
        """Compare index and entries by page and, if they differ (as after a removal), in one snapshot."""
        try:
            kept, last = await self._readers.run(indexed_words)
            after: int | None = 0
            while after is not None:
                summed, after = await self._readers.run(partial(expected_words, after=after, last=last))
                kept -= summed
            return kept == 0 or await self._readers.run(is_index_complete)
        except StoreDamaged:
            return False

    async def _index_is_wrong(self) -> Finding:
        fault = "the search index does not contain the words of the messages"
        if self._repair:
            await self.rebuild_index()
        return Finding(fault=fault, done="rebuilt" if self._repair else "")


def session_keys(db: apsw.Connection, after: int) -> list[int]:
    """Return the numbers of the next sessions."""
    return [key for (key,) in db.execute(SQL["session_keys"], {"after": after, "limit": SESSIONS_AT_ONCE})]


def _answered(db: apsw.Connection, check: Check[T]) -> T:
    """Run a rule: execute the statements that it yields, and send it their rows."""
    answer: object = None
    while True:
        try:
            name, given = check.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result
        answer = db.execute(SQL[name], given)


def _suspects(db: apsw.Connection, after: int, recount: Recount | None) -> tuple[list[int], int | None]:
    """Check some short sessions; return those that need a closer check, and where to continue."""
    keys = session_keys(db, after)
    odd = [key for key in keys if not _answered(db, _is_short_and_sound(key, recount))]
    return odd, keys[-1] if len(keys) == SESSIONS_AT_ONCE else None


def _is_short_and_sound(session: int, recount: Recount | None) -> Check[bool]:
    case = Inspection(checksum, mends=False, recount=recount)
    yield from inspect_description(case, session)
    lineage = yield from inspect_lineage(case, session)
    yield from inspect_missing_branches(case, lineage)
    for branch in lineage.lines:
        stretch = yield from lineage.stretch(case, branch)
        if stretch.tip - stretch.seq >= PAGE:
            return False
        yield from inspect_entries(case, stretch)
    yield from inspect_head(case, session)
    yield from inspect_keys(case, session)
    yield from inspect_promises(case, session)
    return not case.findings


def _only_if_there(
    case: Inspection, check: Callable[[Inspection], Check[T]], session: int, at: Address
) -> Check[T]:
    """Run a rule, or raise `NotFound` if the session was removed in the meantime."""
    here = yield from asked("address", key=session)
    if [Address(text(tenant), text(id)) for tenant, id in here] != [at]:
        raise NotFound(f"session {at.session} was removed")
    return (yield from check(case))


_END = 2**62


async def findings(
    path: str, writer: Writer, *, repair: bool, recount: Recount | None = None
) -> AsyncGenerator[Finding, None]:
    """Check a store's file and everything in it."""
    readers = readers_of(path)
    try:
        structure = await readers.run(inspect_structure)
        for fault in structure.faults:
            yield Finding(fault=f"the file is damaged: {fault}")
        if structure.sound:
            check = FileCheck(readers, writer, repair=repair, recount=recount)
            found = check.findings(index_is_broken=structure.index_is_broken)
        else:
            found = rescue(path) if repair else _unreadable(readers)
        async for finding in found:
            yield finding
    finally:
        readers.abandon()


async def _unreadable(readers: Readers) -> AsyncIterator[Finding]:
    """Report how much of each session cannot be read."""
    after: int | None = 0
    while after is not None:
        try:
            keys = await readers.run(partial(session_keys, after=after))
        except StoreError as error:
            yield Finding(fault=f"the sessions after number {after} cannot be read: {error}")
            return
        for key in keys:
            for finding in await readers.run(partial(_unreadable_in, session=key)):
                yield finding
        after = keys[-1] if keys else None


def _unreadable_in(db: apsw.Connection, session: int) -> list[Finding]:
    found, at = list[Finding](), address_of(db, session) or Address("", "")
    try:
        branches = [id for id, *_ in db.execute(SQL["branch_rows"], {"key": session})]
    except UNREADABLE as error:
        return [Finding(tenant=at.tenant, session=at.session, fault=f"its branches cannot be read: {error}")]
    place: SessionPlace | None = None
    for head, last, *_ in db.execute(SQL["head"], {"key": session}):
        place = SessionPlace(session, head, last)
    if place is None:  # a changed number of a row: a scan lists it, and a search does not find it
        return [Finding(fault=f"session number {session} is listed and cannot be found")]
    for branch in branches:
        try:
            rows = rows_around(db, place, Span(branch, 1, _END))
        except StoreDamaged as error:
            found.append(Finding(tenant=at.tenant, session=at.session, branch=branch, fault=str(error)))
            continue
        lost = [row.seq for row in rows if row.damaged]
        if lost:
            fault, seq = f"{len(lost)} entries cannot be read, the first is {min(lost)}", min(lost)
            found.append(Finding(tenant=at.tenant, session=at.session, branch=branch, seq=seq, fault=fault))
    return found


async def rescue(path: str) -> AsyncIterator[Finding]:
    """Copy what can be read into another file, then check and repair the copy.

    This also works with a file that cannot be opened as a store.
    """
    fault, target = "the damage cannot be repaired in place", salvage_path(path)
    if os.path.exists(target):
        done = f"nothing: {target} already exists; look at it, or move it away"
        yield Finding(fault=fault, done=done)
        return
    with translated(path):
        copy = await asyncio.to_thread(salvage, path)
    found = [finding async for finding in _repaired(copy)]
    await asyncio.to_thread(publish, path, copy.part)
    amount = f"{copy.entries:,} entries of {copy.sessions:,} sessions"
    advice = "stop all processes that use it, then replace it with the copy"
    yield Finding(fault=fault, done=f"{amount} were copied to {target}; {path} is unchanged: {advice}")
    for finding in found:
        yield structs.replace(finding, done=f"in {target}: {finding.done}" if finding.done else "")


async def _repaired(copy: Salvaged) -> AsyncIterator[Finding]:
    readers, writer = Readers(copy.part), Writer(copy.part)
    try:
        check = FileCheck(readers, writer, repair=True)
        await check.rebuild_index()
        async for finding in check.findings():
            yield finding
    finally:
        await asyncio.to_thread(readers.close)
        await asyncio.to_thread(writer.close)
