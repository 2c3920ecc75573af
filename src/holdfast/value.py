"""The base of all values that Holdfast writes: frozen, strict, and kind to fields it does not know.

A value is checked when it is made, by whoever makes it, and owns what it holds: JSON that is handed
to it is copied into plain dicts, lists and scalars. So a value that exists can be written, reads back
as an equal one, and does not change when its maker changes what it was made from.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import force_setattr

from . import reader
from .errors import InvalidMessage

__all__ = ["Extra", "Value", "settle", "settle_extra", "settle_object", "wire_names"]


class Extra(dict[str, Any]):
    """Fields that this version does not know, kept as they came."""


class Value(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A frozen value that keeps unknown fields (`codec` puts them back where they stood)."""

    extra: Extra | UnsetType = UNSET


def settle(value: Value, *texts: str, optional: tuple[str, ...] = ()) -> None:
    """Own the unknown fields, and hold the named ones to plain text that has a UTF-8 form."""
    if value.extra is not UNSET:
        settle_extra(value)
    for field in texts + optional:
        text = getattr(value, field)
        if (type(text) is str and text.isascii()) or (text is None and field in optional):
            continue
        reader.check_text(text, at=field)
        if type(text) is not str:
            force_setattr(value, field, reader.plain(text))


def settle_extra(value: Value) -> None:
    """Own the unknown fields, none of which may pass for one that the value has."""
    extra = _object(value.extra, at="extra")
    if taken := extra.keys() & wire_names(type(value)):
        raise InvalidMessage(f"{min(taken)} is no extra field of {type(value).__name__}", path="extra")
    force_setattr(value, "extra", Extra(extra) if extra else UNSET)


def settle_object(value: Value, field: str) -> None:
    """Own a field that is a JSON object."""
    force_setattr(value, field, _object(getattr(value, field), at=field))


@cache
def wire_names(kind: type[Value]) -> frozenset[str]:
    """Name the fields that a kind of value has on the wire."""
    tag = kind.__struct_config__.tag_field
    return frozenset({*kind.__struct_fields__, *([tag] if tag else [])} - {"extra"})


def _object(given: object, *, at: str) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise InvalidMessage(f"expected a JSON object, got {type(given).__name__}", path=at)
    plain: dict[str, Any] = reader.plain(given, at=at)
    return plain
