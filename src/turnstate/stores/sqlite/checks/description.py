"""What a session says of itself: texts that are texts, JSON that is JSON, tags and expiry as they follow.

What cannot be read is set aside and emptied: a title is less than the conversation under it.
"""

from __future__ import annotations

import apsw
import msgspec

from ...checks.description import inspect_counter, inspect_meta, parsed
from ...checks.inspection import Check, Inspection, asked, is_text, text
from ...values import Address
from ..queries import query

__all__ = ["address_of", "inspect_description"]

_TEXTS = ("title", "holder", "reason")
_REPLACED = "what cannot be read of it is replaced"


def address_of(db: apsw.Connection, session: int) -> Address | None:
    """Name a session by its number; none where it has been removed."""
    for tenant, id in db.execute(query("address"), {"key": session}):
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
