"""Rules that only a file needs: texts that are valid UTF-8, tags, expiry, promised entries, the search index.

A text that cannot be read is set aside and replaced: a title matters less than the conversation.
"""

from __future__ import annotations

import zlib

import apsw
import msgspec

from ...search_terms import entry_words
from ..values import Address
from ..verify.descriptions import inspect_counter, inspect_meta, parsed
from ..verify.inspection import Check, Inspection, asked, is_text, text
from .queries import SQL
from .search import newest_indexed

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


PAGE = 500
_START: int | None = 0


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
    (total, last), after = indexed_words(db), _START
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
