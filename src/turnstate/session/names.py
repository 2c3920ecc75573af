"""What people give a session beside messages: names, prompts, notes. One rule for every store."""

from __future__ import annotations

from typing import Any

import msgspec

from .. import strict_json
from ..errors import InputError, TooLarge

__all__ = ["LARGEST_META", "LONGEST", "checked", "checked_meta", "checked_prompt"]

LONGEST = 500
"""Characters; a key of an index on any store holds them."""

LARGEST_META = 100_000
"""Bytes; it is read with every look at the session."""


def checked(name: object, what: str, *, empty: bool = False) -> str:
    """Give a name that every store keeps as it is, or say what is wrong with it."""
    if not isinstance(name, str):
        raise InputError(f"{what} is text, not {type(name).__name__}")
    strict_json.check_text(name, at=what)
    if "\0" in name:
        raise InputError(f"{what} holds a NUL character")
    if len(name) > LONGEST or not (name or empty):
        raise InputError(f"{what} has 1 to {LONGEST} characters, not {len(name)}")
    return name


def checked_prompt(text: object) -> str:
    """Give a system prompt that every store keeps as it is; it may have any length."""
    strict_json.check_text(text, at="system")
    return str(text)


def checked_meta(meta: object) -> dict[str, Any]:
    """Give a copy of what is noted of a session, a JSON object, or say what is wrong with it."""
    if not isinstance(meta, dict):
        raise InputError(f"meta is an object, not {type(meta).__name__}")
    plain: dict[str, Any] = strict_json.plain(meta, at="meta")
    if (size := len(msgspec.json.encode(plain))) > LARGEST_META:
        raise TooLarge(f"meta has {size:,} bytes; at most {LARGEST_META:,} are kept with a session")
    return plain
