"""The base of all values that Turnstate writes: frozen, strict, and tolerant of unknown fields.

A value is checked when it is created, and owns what it holds: JSON passed to it is copied into plain dicts,
lists and scalars. So every value can be written, reads back as an equal value, and does not change when the
caller changes the objects it was created from.

Settings are checked in the same way: ``check_whole``, ``check_number``, ``check_string`` and ``check_kind``
raise an `InvalidSetting` that names the setting, the value and what is allowed.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NoReturn

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import force_setattr

from . import strict_json
from .errors import ForbiddenJSON, InvalidMessage, InvalidSetting

COUNT = 2**31 - 1
"""The largest count that a setting may have."""

TOKENS = 2**62
"""The largest budget in tokens: effectively no limit, and within the range of every store and format."""


class Extra(dict[str, Any]):
    """Fields that this version does not know, kept unchanged."""


class Value(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """A frozen value that keeps unknown fields (`codec` puts them back in their place).

    It is plain JSON, so it cannot be part of a reference cycle, and the garbage collector need not track the
    many thousands of values that a long conversation holds.
    """

    extra: Extra | UnsetType = UNSET


def settle(value: Value, *texts: str, optional: tuple[str, ...] = ()) -> None:
    """Copy the unknown fields, and make sure that the named ones are plain text with a UTF-8 form."""
    if value.extra is not UNSET:
        settle_extra(value)
    for field in texts + optional:
        text = getattr(value, field)
        if (type(text) is str and text.isascii()) or (text is None and field in optional):
            continue
        strict_json.check_text(text, at=field)
        if type(text) is not str:
            force_setattr(value, field, strict_json.plain(text))


def settle_extra(value: Value) -> None:
    """Copy the unknown fields, none of which may have the name of a declared field."""
    extra = _object(value.extra, at="extra")
    if taken := extra.keys() & wire_names(type(value)):
        raise InvalidMessage(
            f"{min(taken)} is a field of {type(value).__name__} and cannot be in extra", path="extra"
        )
    force_setattr(value, "extra", Extra(extra) if extra else UNSET)


def settle_object(value: Value, field: str) -> None:
    """Check and copy a field that is a JSON object."""
    given = getattr(value, field)
    force_setattr(value, field, dict(given) if strict_json.is_simple(given) else _object(given, at=field))


@cache
def wire_names(kind: type[Value]) -> frozenset[str]:
    """Return the names of the fields that a kind of value has on the wire."""
    tag = kind.__struct_config__.tag_field
    return frozenset({*kind.__struct_fields__, *([tag] if tag else [])} - {"extra"})


def _object(given: object, *, at: str) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise InvalidMessage(f"expected a JSON object, got {type(given).__name__}", path=at)
    plain: dict[str, Any] = strict_json.plain(given, at=at)
    return plain


def check_whole(setting: str, value: object, *, least: int = 0, most: int = COUNT) -> None:
    """Reject a setting that is not a whole number within its range."""
    if type(value) is not int or not least <= value <= most:
        refuse(setting, value, f"a whole number from {least:,} to {most:,}")


def check_number(
    setting: str, value: object, *, least: float, most: float, above: bool = False, below: bool = False
) -> None:
    """Reject a setting that is not a number within its range; `above` and `below` exclude the ends."""
    if (
        isinstance(value, int | float)
        and type(value) is not bool
        and (value > least if above else value >= least)
        and (value < most if below else value <= most)
    ):
        return
    lower, upper = "above" if above else "at least", "below" if below else "at most"
    refuse(setting, value, f"a number {lower} {least:g} and {upper} {most:,g}")


def check_string(setting: str, value: object, *, optional: bool = False) -> None:
    """Reject a setting that is not text with a UTF-8 form."""
    if optional and value is None:
        return
    check_kind(setting, value, str, optional=optional)
    try:
        strict_json.check_text(value, at=setting)
    except ForbiddenJSON:
        refuse(setting, value, "text without lone surrogates")


def check_kind(setting: str, value: object, kind: type, *, optional: bool = False) -> None:
    """Reject a setting of the wrong type."""
    if not (isinstance(value, kind) or (optional and value is None)):
        refuse(setting, value, f"{'None or ' if optional else ''}a value of type {kind.__name__}")


def refuse(setting: str, value: object, allowed: str) -> NoReturn:
    """Raise an `InvalidSetting` that shows the value and says what is allowed."""
    try:
        shown = repr(value)
    except Exception:  # a foreign type, or an integer that is too long to print
        shown = f"a value of type {type(value).__name__}"
    raise InvalidSetting(f"{setting} = {shown:.80} is not allowed: expected {allowed}", setting=setting)
