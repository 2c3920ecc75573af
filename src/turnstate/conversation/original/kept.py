"""Fields as they came: what our values would write otherwise is kept beside them, word for word.

A field that is kept stands with a digest of what we would have written in its place. As long as we would
write the same, nobody has changed it, and it goes back as it came, or stays away if it was not there;
after a change our own words count. So unknown fields and odd spellings survive, and no change is lost.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

__all__ = ["differing", "digest", "put_back"]

_ABSENT = object()
_encode = msgspec.json.Encoder(order="deterministic").encode


def digest(value: Any) -> str:
    """Tell one JSON value from another, and from none at all."""
    if value is _ABSENT:
        return ""
    return hashlib.blake2b(_encode(value), digest_size=16).hexdigest()


def differing(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, Any]:
    """Give the fields of theirs that ours would write otherwise, or not at all, or that only ours has."""
    found = dict[str, Any]()
    for name in dict.fromkeys([*theirs, *ours]):
        own, other = ours.get(name, _ABSENT), theirs.get(name, _ABSENT)
        if digest(own) != digest(other):
            found[name] = {"for": digest(own)} | ({} if other is _ABSENT else {"is": other})
    return found


def put_back(ours: Mapping[str, Any], kept: Any) -> dict[str, Any]:
    """Give our fields, with those that were kept in the place of what they stand for."""
    result = dict(ours)
    for name, one in kept.items() if isinstance(kept, dict) else ():
        if not isinstance(one, dict) or one.get("for") != digest(ours.get(name, _ABSENT)):
            continue
        if "is" in one:
            result[name] = one["is"]
        else:
            result.pop(name, None)
    return result
