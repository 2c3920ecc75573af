"""What a session says of itself: texts that are texts, JSON that is JSON, tags and expiry as they follow.

What cannot be read is set aside and emptied: a title is less than the conversation under it.
"""

from __future__ import annotations

from typing import Any

import apsw
import msgspec

from ...values import Address
from ..queries import query
from .inspection import Inspection

__all__ = ["address_of", "inspect_description"]

_TEXTS = ("title", "counter", "holder", "reason")
_REPLACED = "what cannot be read of it is replaced"


def address_of(db: apsw.Connection, session: int) -> Address | None:
    """Name a session by its number; none where it has been removed."""
    for tenant, id in db.execute(query("address"), {"key": session}):
        return Address(tenant.decode(errors="replace"), id.decode(errors="replace"))
    return None


def inspect_description(case: Inspection, session: int) -> None:
    """Check what a session says of itself."""
    for columns in list(case.db.execute(query("description"), {"key": session})):
        row = dict(zip((*_TEXTS, "tags", "meta", "active", "idle", "ended", "expires"), columns, strict=True))
        _inspect_texts(case, session, row)
        _inspect_meta(case, session, row["meta"])
        _inspect_tags(case, session, row["tags"])
        _inspect_expiry(case, session, row)
    _inspect_names(case, session)


def _inspect_texts(case: Inspection, session: int, row: dict[str, Any]) -> None:
    for name in _TEXTS:
        text = row[name].decode(errors="replace")
        if text.encode() != row[name] and case.found(f"its {name} is no text", done=_REPLACED):
            _set_aside(case, session, name, row[name])
            case.db.execute(query(f"set_{name}"), {"key": session, name: text})


def _inspect_names(case: Inspection, session: int) -> None:
    for id, *raw in list(case.db.execute(query("branch_names"), {"key": session})):
        name, operation = (text.decode(errors="replace") for text in raw)
        sound = [name.encode(), operation.encode()] == raw
        if not sound and case.found(f"the name of branch {id} is no text", done=_REPLACED, branch=id):
            _set_aside(case, session, "branch", b"\0".join(raw))
            columns = {"key": session, "id": id, "name": name, "operation": operation}
            case.db.execute(query("set_branch_names"), columns)


def _inspect_meta(case: Inspection, session: int, meta: bytes) -> None:
    if _parsed(meta, dict[str, Any]) is None and case.found("its meta is no JSON object", done="emptied"):
        _set_aside(case, session, "meta", meta)
        case.db.execute(query("set_meta"), {"key": session, "meta": b"{}"})


def _inspect_tags(case: Inspection, session: int, tags: bytes) -> None:
    told = _parsed(tags, list[str])
    listed = [name.decode(errors="replace") for (name,) in case.db.execute(query("tags"), {"key": session})]
    if told is None:
        if case.found("its tags are no list of texts", done="taken from the list of tags"):
            _set_aside(case, session, "tags", tags)
            case.db.execute(query("set_tags"), {"key": session, "tags": msgspec.json.encode(listed)})
    elif sorted(told) != sorted(listed) and case.found("it is listed under other tags", done="listed anew"):
        case.db.execute(query("drop_tags"), {"key": session})
        for name in dict.fromkeys(told):
            case.db.execute(query("add_tag"), {"key": session, "name": name})


def _inspect_expiry(case: Inspection, session: int, row: dict[str, Any]) -> None:
    expires = row["active"] + row["idle"] if row["idle"] and row["ended"] is None else None
    if row["expires"] != expires and case.found("its time of expiry is wrong", done="worked out again"):
        case.db.execute(query("set_expiry"), {"key": session, "expires": expires})


def _parsed(data: bytes, kind: Any) -> Any:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _set_aside(case: Inspection, session: int, kind: str, body: bytes) -> None:
    columns = {"key": session, "kind": kind, "body": body, "fault": case.findings[-1].fault}
    case.db.execute(query("set_aside"), columns)
