"""What a session says of itself: texts that are texts, JSON that is JSON, tags and expiry as they follow.

What cannot be read is set aside and emptied: a title is less than the conversation under it.
"""

from __future__ import annotations

import zlib

import apsw
import msgspec

from ...codec import decode_entry
from ...errors import TurnstateError
from ...message import Message
from ...search_terms import words_of
from ..values import MESSAGE, Address
from ..verify.descriptions import inspect_counter, inspect_meta, parsed
from ..verify.inspection import Check, Inspection, asked, is_text, text
from .queries import SQL

__all__ = [
    "PAGE",
    "add_missing_words",
    "address_of",
    "agrees",
    "empty_index",
    "indexed",
    "inspect_description",
    "inspect_logs",
    "inspect_parcel_texts",
    "inspect_promises",
    "spoken",
]

_TEXTS = ("title", "holder", "reason")
_REPLACED = "what cannot be read of it is replaced"


def address_of(db: apsw.Connection, session: int) -> Address | None:
    """Name a session by its number; none where it has been removed."""
    for tenant, id in db.execute(SQL["address"], {"key": session}):
        return Address(text(tenant), text(id))
    return None


def inspect_description(case: Inspection, session: int) -> Check[None]:
    """Check what a session says of itself."""
    for *texts, counter, tags, meta, expires, rightly in (yield from asked("description", key=session)):
        for name, raw in zip(_TEXTS, texts, strict=True):
            _inspect_text(case, session, name, raw)
        yield from inspect_counter(case, session, counter)
        inspect_meta(case, session, meta)
        yield from _inspect_tags(case, session, tags)
        if expires != rightly and case.found("its time of expiry is wrong", done="worked out again"):
            case.mend("set_expiry", key=session, expires=rightly)
    yield from _inspect_names(case, session)
    yield from case.mended()


def _inspect_text(case: Inspection, session: int, name: str, raw: bytes) -> None:
    fault = f"its {name} is no text"
    if not is_text(raw) and case.found(fault, done=_REPLACED):
        case.mend("set_aside", key=session, kind=name, body=raw, fault=fault)
        case.mend(f"set_{name}", key=session, **{name: text(raw)})


def _inspect_names(case: Inspection, session: int) -> Check[None]:
    for id, name, operation in (yield from asked("branch_names", key=session)):
        fault = f"the name of branch {id} is no text"
        sound = is_text(name) and is_text(operation)
        if not sound and case.found(fault, done=_REPLACED, branch=id):
            raw = name + b"\0" + operation
            case.mend("set_aside", key=session, kind="branch", body=raw, fault=fault)
            columns = {"name": text(name), "operation": text(operation)}
            case.mend("set_branch_names", key=session, id=id, **columns)


def _inspect_tags(case: Inspection, session: int, tags: bytes) -> Check[None]:
    told = parsed(tags, list[str])
    listed = [text(name) for (name,) in (yield from asked("tags", key=session))]
    if told is None:
        fault = "its tags are no list of texts"
        if case.found(fault, done="taken from the list of tags"):
            case.mend("set_aside", key=session, kind="tags", body=tags, fault=fault)
            case.mend("set_tags", key=session, tags=msgspec.json.encode(listed))
    elif sorted(told) != sorted(listed) and case.found("it is listed under other tags", done="listed anew"):
        case.mend("drop_tags", key=session)
        for name in dict.fromkeys(told):
            case.mend("add_tag", key=session, name=name)


# The index for search: it holds the words of every message, and nothing else.


PAGE = 500
_START: int | None = 0


def indexed(db: apsw.Connection) -> tuple[int, int]:
    """Sum up what the index has, and give the newest entry that there is in this moment."""
    ((last,),) = db.execute(SQL["last_key"])
    db.execute(SQL["make_vocabulary"])
    return sum(_sum(entry, word) for word, entry in db.execute(SQL["vocabulary"])), last or 0


def spoken(db: apsw.Connection, after: int, last: int) -> tuple[int, int | None]:
    """Sum up what the index should have of a page of entries, and give where the next begins."""
    total, entry, count = 0, after, 0
    for entry, kind, body in db.execute(SQL["bodies"], {"after": after, "last": last, "limit": PAGE}):
        total += sum(_sum(entry, word) for word in _words(kind, body))
        count += 1
    return total, entry if count == PAGE else None


def agrees(db: apsw.Connection) -> bool:
    """Tell whether both sides are the same, in one moment: it takes long where there is much."""
    (total, last), after = indexed(db), _START
    while after is not None:
        summed, after = spoken(db, after, last)
        total -= summed
    return total == 0


def empty_index(db: apsw.Connection) -> None:
    """Forget all words."""
    db.execute(SQL["empty_words"])


def add_missing_words(db: apsw.Connection, after: int) -> int | None:
    """Add the words of a page of messages that are not in the index, and give where the next page begins."""
    page = list(db.execute(SQL["not_indexed"], {"after": after, "limit": PAGE}))
    for (entry,) in page:
        ((_, kind, body),) = db.execute(SQL["bodies"], {"after": entry - 1, "last": entry, "limit": 1})
        if found := _words(kind, body):
            db.execute(SQL["add_words"], {"key": entry, "words": " ".join(found)})
    return page[-1][0] if len(page) == PAGE else None


def _words(kind: str, body: bytes) -> list[str]:
    try:
        message = decode_entry(kind, body) if kind == MESSAGE else None
    except TurnstateError:
        return []
    return words_of(message) if isinstance(message, Message) else []


def _sum(entry: int, word: str) -> int:
    return zlib.crc32(word.encode(), entry & 0xFFFFFFFF)


# What only a file can have: a log of writes that was damaged, parcels with texts that are none, promises.


def inspect_parcel_texts(case: Inspection) -> Check[None]:
    """Check that parcels can be read."""
    for texts in (yield from asked("parcel_texts")):
        if all(map(is_text, texts)):
            continue
        id, tenant, session, *_ = texts
        case.at, fault = Address(text(tenant), text(session)), "a parcel has a text that is none"
        if case.found(fault, done="it is set aside", id=text(id)):
            case.mend("set_parcel_aside", id=id, fault=fault)
    yield from case.mended()


def inspect_logs(case: Inspection) -> Check[None]:
    """Tell of logs of writes that were damaged when the store was opened."""
    for key, fault in (yield from asked("lost_commits")):
        if case.found(fault, done="nothing can be; it is not told again"):
            case.mend("told_of_lost_commits", key=key)
    yield from case.mended()


def inspect_promises(case: Inspection, session: int) -> Check[None]:
    """Check that the rows of a session and of its branches promise the entries that there are."""
    rows = yield from asked("branch_rows", key=session)
    known = {id for id, *_ in rows}
    for id in sorted(set(range(1, max(known, default=0))) - known):
        if case.found(f"branch {id} is missing", done="made without entries", branch=id):
            case.mend("remake_branch", key=session, id=id, parent=None, fork_seq=0, former=1)
    for branch, told, found in (yield from asked("promises", key=session)):
        if told == found:
            continue
        fault = f"branch {branch} says that it ends at entry {told}, and its last one is {found}"
        if not branch:
            fault = "it has other entries beside its messages than its row says"
        case.found(fault, done="the row now says what is there", branch=branch)
    yield from case.mended()
