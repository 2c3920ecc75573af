"""The row of a session: fields that are there and can be read.

What cannot be read is set aside and gets a plain value: a title is less than the conversation under it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any

from ..values import MESSAGE, Address, Finding, Recount
from ..verify.descriptions import SHORT, SOME, is_known, lost_counter, parsed
from ..verify.inspection import is_text
from .directory import sweep
from .layout import BUCKETS, index_key, moment, named, parcel_key, text
from .rows import described, known_key, session
from .server import Server, script
from .verify_entries import Edit, Inspection, Stretch, Sum, inspect_entries, page_of
from .verify_lineage import Tree, hashes, inspect_end, inspect_lineage, read_tree
from .verify_lists import inspect_bucket

__all__ = ["inspect_description", "inspect_session", "verified"]

_PLAIN = dict.fromkeys((b"title", b"counter", b"holder", b"reason"), b"") | {b"tags": b"[]", b"meta": b"{}"}
_PLAIN |= dict.fromkeys((b"created", b"active", b"idle", b"version", b"fence", b"lease_until"), b"0")
_PLAIN |= dict.fromkeys((b"epoch", b"branch", b"branches", b"born"), b"1")
_PLAIN |= dict.fromkeys((b"seq", b"total"), b"0")
_NUMBERS = frozenset(name for name, plain in _PLAIN.items() if plain.isdigit()) | {b"ended"}
_SIGNED = (b"total", b"version")  # a session that is still being imported may begin below zero
_JSON: dict[bytes, Any] = {b"tags": list[str], b"meta": dict[str, Any]}


async def inspect_description(case: Inspection, kept: dict[bytes, bytes]) -> AsyncIterator[Finding]:
    """Check what a session says of itself."""
    whose = {b"tenant": text(case.at.tenant), b"id": text(case.at.session)}
    for name, plain in (_PLAIN | whose).items():
        value = kept.get(name)
        if value is None:
            edits: list[Edit] = [(b"HSET", b"row", name, plain)]
            yield await case.found(f"its {name.decode()} is missing", done=_told(plain), edits=edits)
        elif not _fits(name, value) or (name in whose and value != plain):
            edits = [_kept(name, value), (b"HSET", b"row", name, plain)]
            yield await case.found(f"its {name.decode()} cannot be read", done=_told(plain), edits=edits)
    for name in (b"user", b"ended"):
        if name in kept and not _fits(name, kept[name]):
            edits = [_kept(name, kept[name]), (b"HDEL", b"row", name)]
            yield await case.found(f"its {name.decode()} cannot be read", done="it has none now", edits=edits)


def _fits(name: bytes, value: bytes) -> bool:
    if name in _NUMBERS:
        return value.isdigit() or (name in _SIGNED and value.removeprefix(b"-").isdigit())
    return is_text(value) and (name not in _JSON or parsed(value, _JSON[name]) is not None)


def _kept(name: bytes, value: bytes) -> Edit:
    return b"HSET", b"aside", b"row " + name, value


def _told(plain: bytes) -> str:
    return f"it is set to {plain.decode(errors='replace')!r:.40}"


# A session from its row to its last entry, and the lists that it must stand in.


async def inspect_session(case: Inspection) -> AsyncIterator[Finding]:
    """Check a session; one that is removed meanwhile has no faults."""
    kept, _ = await hashes(case)
    if not kept:
        return
    async for finding in inspect_description(case, kept):
        yield finding
    if tree := await read_tree(case):
        async for finding in inspect_lineage(case, tree):
            yield finding
    if tree := await read_tree(case):
        for look in (_inspect_counter, _inspect_log):
            async for finding in look(case, tree):
                yield finding
        for inspect in (_inspect_ids, _inspect_keys, _inspect_lists):
            async for finding in inspect(case):
                yield finding


async def _inspect_counter(case: Inspection, tree: Tree) -> AsyncIterator[Finding]:
    """Check that Turnstate knows the counter; the branch with the most entries tells which it was."""
    name, extents = tree.row.counter, tree.extents
    if is_known(name):
        return
    said = list[tuple[bytes, int]]()
    if extents:
        branch, extent = max(extents.items(), key=lambda one: one[1].last - one[1].first)
        for seen in (
            await page_of(case, branch, extent.first, min(extent.last, extent.first + SOME - 1)) or ()
        ):
            if seen.told and seen.told.kind == MESSAGE.encode() and seen.body and len(seen.body) <= SHORT:
                said.append((seen.body, seen.told.tokens))
    lost = lost_counter(name, said)
    edits = [(b"HSET", b"aside", b"row counter", text(name)), (b"HSET", b"row", b"counter", text(lost.name))]
    yield await case.found(lost.fault, done=lost.done, edits=edits)


async def _inspect_log(case: Inspection, tree: Tree) -> AsyncIterator[Finding]:
    for id, one in sorted(tree.branches.items()):
        tip = tree.believed_tip(one) if one else None
        if one is None or tip is None:
            continue
        total = await _total_at(case, tree, one.parent, one.fork_seq)
        sum = Sum(total)
        stretch = Stretch(
            branch=id, seq=one.fork_seq, tip=tip[0], user=tree.row.user, counter=tree.row.counter
        )
        async for finding in inspect_entries(case, stretch, sum):
            yield finding
        async for finding in inspect_end(case, tree, id, sum.total):
            yield finding


async def _total_at(case: Inspection, tree: Tree, id: int | None, seq: int) -> int:
    """Give the total at a place of a path; earlier branches were checked before."""
    while id is not None and seq > 0:
        one = tree.branches.get(id)
        if one is None:
            return 0
        if seq > one.fork_seq:
            line = await case.server.ask("HGET", case.key(b"entry"), b"%d:%d" % (id, seq))
            told = described(line or b"")
            return told.total if told else 0
        id = one.parent
    return 0


async def _inspect_ids(case: Inspection) -> AsyncIterator[Finding]:
    """Check that no id is taken by an entry that is not there; that each entry has its id was seen."""
    taken = await case.server.ask("HLEN", case.key(b"id"))
    if taken <= await case.server.ask("HLEN", case.key(b"entry")):
        return
    (flat,) = await case.server.run(script("hashes"), [case.key(b"id")], twice=True)
    for id, place in zip(flat[::2], flat[1::2], strict=True):
        told = described(await case.server.ask("HGET", case.key(b"entry"), place) or b"")
        if told is None or told.id != id:
            edits = [(b"HSET", b"aside", b"id " + id, place), (b"HDEL", b"id", id)]
            shown = id.decode(errors="replace")
            fault = "an id is taken by an entry that is not there"
            yield await case.found(fault, done="it is set aside", edits=edits, id=shown)


async def _inspect_keys(case: Inspection) -> AsyncIterator[Finding]:
    """Check that the receipts under a session's keys name places that are there."""
    (flat,) = await case.server.run(script("hashes"), [case.key(b"asked")], twice=True)
    tree = await read_tree(case)  # after the keys: what was appended in between is in it
    for name, value in zip(flat[::2], flat[1::2], strict=True):
        fault = _stray(tree, value) if tree else ""
        if fault:
            yield await case.found(
                f"the key {name.decode(errors='replace')!r:.80} {fault}",
                done="it is set aside; a retry under it is a new request",
                edits=[(b"HSET", b"aside", b"asked " + name, value), (b"HDEL", b"asked", name)],
            )


def _stray(tree: Tree, value: bytes) -> str:
    try:
        receipt = known_key(value).receipt
    except ValueError:
        return "cannot be read"
    tip = tree.tip(receipt.branch)
    if tip is not None and 1 <= receipt.first <= receipt.last + 1 and receipt.last <= tip[0]:
        return ""
    return f"was answered with entry {receipt.last} of branch {receipt.branch}, which is not there"


async def _inspect_lists(case: Inspection) -> AsyncIterator[Finding]:
    """Check that a session is listed; when it expires may change at any moment, so that is asked twice."""
    missing = set(await _unlisted(case))
    for member in missing & set(await _unlisted(case)):
        yield await case.found(
            "it is missing from a list of sessions",
            done="listed again",
            edits=[(b"ZADD", b"index", b"0", member)],
            of_head=True,
        )


async def _unlisted(case: Inspection) -> list[bytes]:
    kept, _ = await hashes(case)
    if not kept:
        return []
    row = session(case.at, [piece for pair in kept.items() for piece in pair])
    tenant, id = named(case.at.tenant), text(case.at.session)
    members = [b"d" + tenant + moment(row.created) + id]
    if row.user is not None:
        members.append(b"u" + tenant + named(row.user) + moment(row.created) + id)
    if row.expires is not None:
        members.append(b"e" + tenant + moment(row.expires) + id)
    absent = await case.server.run(script("missing"), [case.key(b"index")], members, twice=True)
    return [members[n] for n in absent]


# All that a store holds, walked once: every key of every node, then the lists of every bucket.


A_WHILE = 0.2
"""Seconds in which whoever removes a session gets on with it."""

_SCANNED = 500
_KEY = re.compile(rb"\{ts:(\d+)\}:(row|branch|entry|body|id|asked|word|own|aside|gone):(\d+):(.*)", re.DOTALL)


async def verified(server: Server, *, repair: bool, recount: Recount | None = None) -> AsyncIterator[Finding]:
    """Give what is wrong with a store."""
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
    for bucket in range(BUCKETS):
        keys = [index_key(bucket), parcel_key(bucket), b"{ts:%d}:lost" % bucket]
        case = Inspection(server, repair=repair, keys=keys)
        async for finding in inspect_bucket(case, bucket):
            yield finding


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
        async for finding in inspect_session(Inspection(server, repair=repair, at=at, recount=recount)):
            yield finding
        return
    if kind == b"gone":
        if await _is_at_rest(server, key):
            if repair:
                await sweep(server, at)
            fault, done = "its removal was broken off", "completed" if repair else ""
            yield Finding(tenant=at.tenant, session=at.session, fault=fault, done=done)
        return
    keys = [b"{ts:%s}:%s:%s:%s" % (bucket, name, length, rest) for name in (b"row", kind, b"lost-" + kind)]
    asked = [b"repair" if repair else b"look"]
    if await server.run(script("orphan"), keys, asked, twice=True):
        yield Finding(
            tenant=at.tenant,
            session=at.session,
            fault=f"`{kind.decode()}` of a session that is not there",
            done=f"it is set aside as {keys[-1].decode(errors='replace')!r}" if repair else "",
        )


async def _is_at_rest(server: Server, key: bytes) -> bool:
    """Tell whether nobody sweeps what a removal left."""
    before = await server.ask("HLEN", key)
    await asyncio.sleep(A_WHILE)
    return bool(before) and before == await server.ask("HLEN", key)
