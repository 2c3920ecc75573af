"""Verification of everything on a server: every session by the shared rules, then the lists of every bucket.

This module checks what only this store has: the fields of a session's hash, the stored ends of branches, and
the lists by which sessions and entries are found.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any, TypeVar

from ...entry import Entry
from ...errors import NotFound
from ..values import MESSAGE, Address, Finding, Recount
from ..verify.descriptions import DEFAULT_COUNTER, inspect_counter, inspect_keys, parsed
from ..verify.entries import Seen, Stretch, inspect_entries
from ..verify.inspection import Check, Inspection, Statement, asked, is_text
from ..verify.lineage import Lineage, inspect_head, inspect_lineage, inspect_missing_branches
from .layout import BUCKETS, index_key, moment, parcel_key, text
from .log import sweep
from .rows import Description, packed_words
from .server import Server, script
from .verify_lists import BucketInspection, inspect_bucket
from .verify_session import Edit, SessionView, kind_member, word_members

T = TypeVar("T")

PAUSE = 0.2
"""Seconds after which a removal that makes no progress counts as interrupted."""

_DEFAULTS = dict.fromkeys((b"title", b"holder", b"reason"), b"") | {b"tags": b"[]", b"meta": b"{}"}
_DEFAULTS |= dict.fromkeys((b"created", b"active", b"idle", b"version", b"fence", b"lease_until"), b"0")
_DEFAULTS |= dict.fromkeys((b"epoch", b"branch", b"branches", b"born"), b"1")
_DEFAULTS |= dict.fromkeys((b"seq", b"total"), b"0") | {b"counter": text(DEFAULT_COUNTER)}
_NUMBERS = frozenset(name for name, value in _DEFAULTS.items() if value.isdigit()) | {b"ended"}
_SIGNED = (b"total", b"version")  # a session that is still being imported may begin below zero
_JSON: dict[bytes, Any] = {b"tags": list[str], b"meta": dict[str, Any]}
_ONLY = 0  # a view has only one session, so rules need no number for it

_SCANNED = 500
_KEY = re.compile(rb"\{ts:(\d+)\}:(row|branch|entry|body|id|asked|word|own|aside|gone):(\d+):(.*)", re.DOTALL)


async def verified(server: Server, *, repair: bool, recount: Recount | None = None) -> AsyncIterator[Finding]:
    """Check everything, and yield what is wrong."""
    for node in await server.nodes():
        cursor = 0
        while True:
            cursor, keys = await server.ask("SCAN", cursor, "MATCH", "{ts:*}:*", "COUNT", _SCANNED, node=node)
            for key in keys:
                async for finding in _inspect_key(server, key, repair=repair, recount=recount):
                    yield finding
            cursor = int(cursor)
            if cursor == 0:
                break
    for bucket in await _filled(server):
        keys = [index_key(bucket), parcel_key(bucket), b"{ts:%d}:lost" % bucket]
        case = BucketInspection(server, keys, repair=repair)
        async for finding in inspect_bucket(case, bucket):
            yield finding


async def _filled(server: Server) -> list[int]:
    """Return the buckets that have a list or an outbox; in a small store most have neither."""
    counts = await server.ask_all(
        [("EXISTS", key(bucket)) for bucket in range(BUCKETS) for key in (index_key, parcel_key)]
    )
    return [bucket for bucket in range(BUCKETS) if counts[2 * bucket] or counts[2 * bucket + 1]]


async def _inspect_key(
    server: Server, key: bytes, *, repair: bool, recount: Recount | None
) -> AsyncIterator[Finding]:
    found = _KEY.fullmatch(key)
    if found is None:
        return
    bucket, kind, length, rest = found.groups()
    try:
        at = Address(rest[: int(length)].decode(), rest[int(length) :].decode())
    except UnicodeDecodeError:
        return
    if kind == b"row":
        for finding in await _session_findings(SessionView(server, at), repair=repair, recount=recount):
            yield finding
        return
    if kind == b"gone":
        if await _is_at_rest(server, key):
            if repair:
                await sweep(server, at)
            fault, done = "its removal was interrupted", "completed" if repair else ""
            yield Finding(tenant=at.tenant, session=at.session, fault=fault, done=done)
        return
    keys = [b"{ts:%s}:%s:%s:%s" % (bucket, name, length, rest) for name in (b"row", kind, b"lost-" + kind)]
    asked = [b"repair" if repair else b"look"]
    if await server.run(script("orphan"), keys, asked, twice=True):
        yield Finding(
            tenant=at.tenant,
            session=at.session,
            fault=f"`{kind.decode()}` of a session that does not exist",
            done=f"it is set aside as {keys[-1].decode(errors='replace')!r}" if repair else "",
        )


async def _is_at_rest(server: Server, key: bytes) -> bool:
    """Return True if no process is sweeping the remains of a removal."""
    before = await server.ask("HLEN", key)
    await asyncio.sleep(PAUSE)
    return bool(before) and before == await server.ask("HLEN", key)


async def _session_findings(view: SessionView, *, repair: bool, recount: Recount | None) -> list[Finding]:
    """Check a session; one that is removed in the meantime has no faults."""
    findings = list[Finding]()

    async def inspect(rule: Callable[[Inspection], Check[T]]) -> T:
        result, found = await view.inspect(rule, repair=repair, recount=recount)
        findings.extend(found)
        return result

    try:
        await inspect(partial(_inspect_fields, at=view.at))
        lineage = await inspect(partial(inspect_lineage, session=_ONLY))
        await inspect(partial(inspect_missing_branches, lineage=lineage))
        for branch in lineage.lines:
            stretch = await inspect(partial(lineage.stretch, branch=branch))
            while not stretch.walked:
                stretch = await inspect(partial(_inspect_page, stretch=stretch, view=view))
        await inspect(partial(inspect_head, session=_ONLY))
        for rule in (_inspect_ends, _inspect_ids, _inspect_listing):
            await inspect(rule)
        await inspect(partial(inspect_keys, session=_ONLY))
    except NotFound:  # removed, or its row cannot be read, which is among the findings
        pass
    return findings if findings and await view.is_same() else []


def _inspect_fields(case: Inspection, at: Address) -> Check[None]:
    """Check that the fields of a session exist and can be read; its counter has its own rule."""
    fields = dict((yield from asked("fields")))
    whose = {b"tenant": text(at.tenant), b"id": text(at.session)}
    for name, default in (_DEFAULTS | whose).items() if fields else ():
        value, shown = fields.get(name), f"set to {default.decode(errors='replace')!r:.40}"
        edits: list[Edit] = [(b"HSET", b"row", name, default)]
        if value is None:
            if case.found(f"its {name.decode()} is missing", done=shown):
                case.mend("edit", edits=edits)
        elif not _fits(name, value) or (name in whose and value != default):
            if case.found(f"its {name.decode()} cannot be read", done=shown):
                case.mend("edit", edits=[_set_aside(name, value), *edits])
        elif name == b"counter":
            inspect_counter(case, _ONLY, value)
    for name in (b"user", b"ended"):
        value = fields.get(name)
        if value is None or _fits(name, value):
            continue
        if case.found(f"its {name.decode()} cannot be read", done="removed"):
            case.mend("edit", edits=[_set_aside(name, value), (b"HDEL", b"row", name)])
    yield from case.mended()


def _fits(name: bytes, value: bytes) -> bool:
    if name in _NUMBERS:
        return value.isdigit() or (name in _SIGNED and value.removeprefix(b"-").isdigit())
    return is_text(value) and (name not in _JSON or parsed(value, _JSON[name]) is not None)


def _set_aside(name: bytes, value: bytes) -> Edit:
    return b"HSET", b"aside", b"row " + name, value


def _inspect_page(case: Inspection, stretch: Stretch, view: SessionView) -> Check[Stretch]:
    """Check a page of entries, and that each of them can be found by its id, its kind and its words."""
    readable = list[Description]()

    own_words = list[bytes]()

    def look(seen: Seen, _: Entry) -> None:
        if known := view.described(b"%d:%d" % (stretch.branch, seen.seq)):
            readable.append(known)
            own_words.append(moment(known.stamp) + packed_words(known.kind.decode(), seen.body))

    left = yield from inspect_entries(case, stretch, look)
    user = view.row.user if view.row else None
    ids = [line.id for line in readable]
    places = yield from asked("places_of", ids=ids)
    for line, place in zip(readable, places, strict=True):
        if place != line.place:
            _relist(case, line, "it is not found by its id", (b"HSET", b"id", line.id, line.place))
    stored = yield from asked("words_of", places=[line.place for line in readable])
    for line, right, found in zip(readable, own_words, stored, strict=True):
        if found not in (None, right):
            _relist(case, line, "its words are wrong", (b"HDEL", b"word", line.place))
    kinds = [(line, kind_member(line)) for line in readable if line.kind != text(MESSAGE)]
    words = [(line, member) for line in readable for member in word_members(case.at, user, line)]
    for kind, members, fault in (
        (b"own", kinds, "it is not found by its kind"),
        (b"index", words, "it is missing from the feed or from search"),
    ):
        for n in (yield Statement("missing", {"kind": kind, "members": [member for _, member in members]})):
            _relist(case, members[n][0], fault, (b"ZADD", kind, b"0", members[n][1]))
    yield from case.mended()
    return left


def _relist(case: Inspection, line: Description, fault: str, edit: Edit) -> None:
    id = line.id.decode(errors="replace")
    if case.found(fault, done="listed again", branch=line.branch, seq=line.seq, id=id):
        case.mend("edit", edits=[edit])


def _inspect_ends(case: Inspection) -> Check[None]:
    """Check the stored ends of all branches but the head's, and the number of branches."""
    lineage = yield from Lineage.read(_ONLY)
    ends = yield from lineage.ends()
    for branch, tip in (yield from asked("tips", key=_ONLY)):
        seq, total = ends[branch]
        if total is None or tip == (seq, total):
            continue
        claimed = "nowhere" if tip is None else f"at entry {tip[0]} with {tip[1]} tokens"
        fault = f"branch {branch} ends {claimed}, and its last entry is {seq} with {total} tokens"
        if case.found(fault, done=f"it ends at entry {seq}", branch=branch, seq=seq):
            case.mend("set_tip", branch=branch, seq=seq, total=total)
    for count, last in (yield from asked("count", key=_ONLY)):
        fault = f"it counts {count} branches, and has {last}"
        if count != last and case.found(fault, done="counted again"):
            case.mend("set_count", count=last)
    yield from case.mended()


def _inspect_ids(case: Inspection) -> Check[None]:
    """Check that no id belongs to a missing entry; that each entry has its id was checked before."""
    ids, entries = yield from asked("sizes")
    for id, place in (yield from asked("hash", kind=b"id")) if ids > entries else ():
        line = yield from asked("line", place=place)
        if [one.id for one in line] != [id]:
            fault, shown = "an id belongs to an entry that does not exist", id.decode(errors="replace")
            if case.found(fault, done="it is set aside", id=shown):
                edits = [(b"HSET", b"aside", b"id " + id, place), (b"HDEL", b"id", id)]
                case.mend("edit", edits=edits)
    yield from case.mended()


def _inspect_listing(case: Inspection) -> Check[None]:
    """Check twice that a session is listed, since the time at which it expires may change at any moment."""
    missing = set((yield from asked("unlisted")))
    for member in missing & set((yield from asked("unlisted")) if missing else ()):
        if case.found("it is missing from a list of sessions", done="listed again"):
            case.mend("list_session", member=member)
    yield from case.mended()
