"""Documents of version 1, which listed timelines instead of branches, as documents of version 2.

A timeline held the entries after those of its parent, or all entries if a restore had created it; a list
beside the entries said on which timeline each tangent was left. Undo went no further back than the entry
``created``: in a document of a part of a log, what the cuts before it cover is not there.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ..errors import InvalidPayload


class _Timeline(msgspec.Struct, frozen=True):
    entries: list[str | tuple[str, dict[str, Any]]]
    parent: int | None = None
    at: int = 0
    begun: int = 0
    created: int = 0
    name: str = ""
    restores: int | None = None
    shared: int = 0
    operation: str = "restore"
    left: list[tuple[int, int]] = []


class _VersionOne(msgspec.Struct, frozen=True):
    version: int
    head: int
    timelines: list[_Timeline]


def from_timelines(document: Any, at: str) -> dict[str, Any]:
    """Return the branches of a document of version 1; raise `InvalidPayload` if it is invalid."""
    try:
        part = msgspec.convert(document, _VersionOne)
    except msgspec.ValidationError as error:
        raise InvalidPayload(f"not the timelines of a conversation: {error}", path=at) from None
    if not 0 <= part.head < len(part.timelines):
        raise InvalidPayload("no timeline has that number", path=f"{at}.head")
    whole = list[list[Any]]()
    for number, one in enumerate(part.timelines):
        _check(one, number, whole, f"{at}.timelines[{number}]")
        before = whole[one.parent][: one.at] if one.parent is not None else []
        recalled = max(0, one.created - len(before))
        whole.append([*before, *map(_recalled, one.entries[:recalled]), *one.entries[recalled:]])
    branches = list[dict[str, Any]]()
    for number, one in enumerate(part.timelines):
        entries = whole[number]
        for place, tangent in one.left:
            if not 0 <= tangent < len(whole):
                raise InvalidPayload("no timeline has that number", path=f"{at}.timelines[{number}].left")
            if 0 <= place < len(entries):
                entries[place] = _left(entries[place], tangent + 1)
        branches.append(_branch(one, entries, branches))
    return {"version": 2, "head": part.head + 1, "branches": branches}


def _check(one: _Timeline, number: int, whole: list[list[Any]], at: str) -> None:
    """Raise `InvalidPayload` if a timeline does not follow from those before it."""
    if one.parent is not None and not 0 <= one.parent < number:
        raise InvalidPayload("a timeline must come after its parent", path=f"{at}.parent")
    if one.parent is not None and not 0 <= one.at <= len(whole[one.parent]):
        raise InvalidPayload("its parent has no such entry", path=f"{at}.at")
    if one.restores is not None and not 0 <= one.restores < number:
        raise InvalidPayload("a timeline must come after the one that it restores", path=f"{at}.restores")
    length = len(one.entries) + one.at
    if one.restores is not None and not 0 <= one.shared <= min(len(whole[one.restores]), length):
        raise InvalidPayload("the timelines share fewer entries than that", path=f"{at}.shared")


def _branch(one: _Timeline, entries: list[Any], known: list[dict[str, Any]]) -> dict[str, Any]:
    if one.restores is not None:
        parent = known[one.restores]
        number = one.restores + 1
        while "parent" in parent and one.shared <= parent["at"]:  # it led out of a tangent
            number = parent["parent"]
            parent = known[number - 1]
        place = {"parent": number, "former": one.restores + 1, "at": one.shared}
        return {**place, "operation": one.operation, "entries": entries[one.shared :]}
    if one.parent is not None:
        place = {"parent": one.parent + 1, "former": one.parent + 1, "at": one.at}
        created = next((started for entry in entries[one.at :] if (started := _started(entry))), 0)
        names = {"operation": "tangent", "name": one.name, "created": created}
        return {**place, **names, "entries": entries[one.at :]}
    return {"entries": entries}


def _recalled(entry: Any) -> Any:
    """Return a cut from before the part that a document has so that undo does not revert it."""
    if not isinstance(entry, tuple) or entry[0] != "compaction":
        return entry
    asked = entry[1].get("asked")
    if isinstance(asked, dict) and asked.get("operation") == "clear":
        return "note", {"text": ""}  # what it hid is not there
    return entry[0], {**entry[1], "kept_from": None, "covers": ["", ""]}


def _started(entry: Any) -> int:
    started = entry[1].get("started") if isinstance(entry, tuple) and entry[0] == "tangent" else 0
    return started if isinstance(started, int) else 0


def _left(entry: Any, branch: int) -> Any:
    """Return the end of a tangent with the branch on which it was left."""
    if not isinstance(entry, tuple) or entry[0] != "tangent":
        return entry
    return entry[0], {**entry[1], "branch": branch}
