"""A session from its row to its last entry, and the lists that it must stand in."""

from __future__ import annotations

from collections.abc import AsyncIterator

from ...checks.counters import SHORT, SOME, is_known, lost_counter
from ...values import MESSAGE, Finding
from ..layout import moment, named, text
from ..rows import described, known_key, session
from ..scripts import script
from .description import inspect_description
from .entries import Stretch, Sum, inspect_entries, page_of
from .inspection import Inspection
from .lineage import Tree, hashes, inspect_end, inspect_lineage, read_tree

__all__ = ["inspect_session"]


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
