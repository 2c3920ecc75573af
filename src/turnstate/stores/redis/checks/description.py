"""The row of a session: fields that are there and can be read.

What cannot be read is set aside and gets a plain value: a title is less than the conversation under it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from ...checks.description import parsed
from ...checks.inspection import is_text
from ...values import Finding
from ..layout import text
from .inspection import Edit, Inspection

__all__ = ["inspect_description"]

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
