"""The difference between two JSON values, as edits that turn one into the other.

This is how a format keeps what Turnstate does not model: after parsing, our rendering of a message
is compared with the original, and only the differences are kept with the message. So a document is
reproduced exactly *by construction*, whatever fields its provider may invent. JSON is compared
strictly: ``1``, ``1.0`` and ``true`` are three values, ``0.0`` and ``-0.0`` are two.

One object in a list of ours may be several in the original, such as a result with blank text beside it. A
format groups them in a tuple, and the edit of that object is a list, whose items take its place. So each
object keeps its own edits, whichever of its neighbors are sent with it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import UNSET

from ..part import Edit

_Path = tuple[str | int, ...]

_encoded = msgspec.json.Encoder().encode
_sorted = msgspec.json.Encoder(order="deterministic").encode


def difference(ours: Any, theirs: Any) -> tuple[Edit, ...]:
    """List the edits that turn `ours` into `theirs`."""
    found: list[Edit] = []
    if _encoded(ours) == _encoded(theirs):  # true for nearly all, and decided at the speed of C
        return ()
    if _sorted(ours) != _sorted(theirs):
        _compare(ours, theirs, (), found)
    return tuple(found)


def apply(value: Any, edits: Iterable[Edit]) -> Any:
    """Apply edits to a copy of `value`; skip an edit whose path no longer exists."""
    listed = list(edits)
    return _edited(value, listed, 0) if listed else value


def put(value: Any, changes: Iterable[tuple[_Path, Any]]) -> Any:
    """Return a copy with the given values set at their paths; UNSET removes a value."""
    copy = msgspec.to_builtins(value)
    for path, item in changes:
        parent = value_at(copy, path[:-1])
        if isinstance(parent, dict) and item is UNSET:
            parent.pop(path[-1], None)
        elif isinstance(parent, dict):
            parent[path[-1]] = item
    return copy


def value_at(value: Any, path: _Path) -> Any:
    """Return the value at a path, or None."""
    for step in path:
        value = _item(value, step)
    return value


def _item(parent: Any, step: str | int) -> Any:
    if isinstance(parent, dict):
        return parent.get(step)
    return parent[step] if isinstance(parent, list) and isinstance(step, int) else None


def _compare(ours: Any, theirs: Any, path: _Path, found: list[Edit]) -> None:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        found += [Edit((*path, key)) for key in ours if key not in theirs]
        for key, value in theirs.items():
            if key in ours:
                _compare(ours[key], value, (*path, key), found)
            else:
                found.append(Edit((*path, key), value))
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        pairs = list(enumerate(zip(ours, theirs, strict=True)))
        if any(isinstance(one, dict) and isinstance(other, list) for _, (one, other) in pairs):
            found.append(Edit(path, theirs))  # an edit of one object that is a list would mean a group
            return
        for index, (one, other) in pairs:
            _compare(one, list(other) if isinstance(other, tuple) else other, (*path, index), found)
    elif not _identical(ours, theirs):
        found.append(Edit(path, theirs))


def _identical(one: Any, other: Any) -> bool:
    return type(one) is type(other) and one == other and (one != 0 or str(one) == str(other))


def _edited(value: Any, edits: list[Edit], depth: int) -> Any:
    """Apply the edits at one place, and group those further down by their next step."""
    deeper: dict[str | int, list[Edit]] = {}
    for edit in edits:
        if len(edit.at) == depth:
            value, deeper = edit.to, {}
        else:
            deeper.setdefault(edit.at[depth], []).append(edit)
    if isinstance(value, dict):
        return _edited_object(value, deeper, depth + 1)
    if isinstance(value, list):
        return _edited_list(value, deeper, depth + 1)
    return value


def _edited_object(value: dict[str, Any], edits: dict[str | int, list[Edit]], depth: int) -> dict[str, Any]:
    result = dict(value)
    for step, group in edits.items():
        if isinstance(step, str):
            item = _edited(result.get(step, UNSET), group, depth)
            if item is UNSET:
                result.pop(step, None)
            else:
                result[step] = item
    return result


def _edited_list(value: list[Any], edits: dict[str | int, list[Edit]], depth: int) -> list[Any]:
    result: list[Any] = []
    for step, item in enumerate(value):
        edited = _edited(item, edits[step], depth) if step in edits else item
        if isinstance(item, dict) and isinstance(edited, list):
            result += edited
        else:
            result.append(item if edited is UNSET else edited)
    return result
