"""The fields of a provider's objects: which a request may have, and which only a response has.

A response contains more than the provider accepts in a request: usage, stop reasons, annotations, and
nulls where a request omits a field. ``Fields`` describes one kind of object; ``departures`` finds the
fields that do not belong in a request. A field that neither side declares is unknown, not wrong: servers
that are compatible with a provider have fields of their own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

from msgspec import UNSET

from ..edits import put

Path = tuple[str | int, ...]
Kind = Callable[[dict[str, Any]], "Fields | None"]
"""Picks the description of an object by its contents; None for an object of an unknown kind."""


class Departure(NamedTuple):
    """A field that does not belong in a request: only responses have it, or it is not declared."""

    path: Path
    reason: Literal["response", "null", "unknown"]

    @property
    def is_response(self) -> bool:
        """True if the field comes from a response, so that a request must omit it."""
        return self.reason != "unknown"

    @property
    def name(self) -> str:
        """The name of the field, with the names of the fields that lead to it within one message."""
        return ".".join(str(step) for step in self.path[1:] or self.path if not isinstance(step, int))

    def __str__(self) -> str:
        place = "".join(f"[{step}]" if isinstance(step, int) else f".{step!s:.80}" for step in self.path)
        match self.reason:
            case "response":
                return f"only responses hold the field {place.lstrip('.')}"
            case "null":
                return f"{place.lstrip('.')} is null, as in a response; a request leaves the field out"
            case _:
                return f"no request declares the field {place.lstrip('.')}"


class Fields:
    """The fields of one kind of object.

    ``request`` names the fields of a request, separated by spaces: ``name!`` is required, ``name?`` may be
    null, and a plain ``name`` is optional but not null: a null shows that it comes from a response.
    ``response`` names the fields that only responses have. ``inner`` describes the objects in a field, or in
    the list that it holds. An ``open`` object may have any other field. With ``snake``, each field may be
    spelled in camel case or snake case.
    """

    def __init__(
        self,
        request: str,
        *,
        response: str = "",
        inner: Mapping[str, Kind] | None = None,
        open: bool = False,
        snake: bool = False,
    ) -> None:
        listed = [(name.rstrip("!?"), name[-1]) for name in request.split()]
        spelled = _both if snake else _once
        self.request = frozenset(one for name, _ in listed for one in spelled(name))
        self.response = frozenset(one for name in response.split() for one in spelled(name))
        self.inner = {one: kind for name, kind in (inner or {}).items() for one in spelled(name)}
        self._open = open
        self._without_null = frozenset(
            one for name, mark in listed if mark not in "!?" for one in spelled(name)
        )

    def __call__(self, value: dict[str, Any]) -> Fields:
        """Return the same description for every object."""
        return self

    def reason(self, key: str, value: Any) -> Literal["response", "null", "unknown"] | None:
        """Return why a field does not belong in a request, or None if it does."""
        if value is None and key in self._without_null:
            return "null"
        if key in self.request:
            return None
        if key in self.response:
            return "response"
        return None if self._open else "unknown"


def by_type(kinds: Mapping[str, Fields], key: str = "type", *, default: str = "") -> Kind:
    """Return a function that picks the description of an object by its value under `key`."""

    def kind(value: dict[str, Any]) -> Fields | None:
        tag = value.get(key, default)
        return kinds.get(tag) if isinstance(tag, str) else None

    return kind


def departures(value: Any, kind: Kind, path: Path = ()) -> Iterator[Departure]:
    """Find the fields of an object, or of the objects in a list, that do not belong in a request."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            if isinstance(item, dict):
                yield from departures(item, kind, (*path, index))
        return
    fields = kind(value) if isinstance(value, dict) else None
    if fields is None:
        return
    for key, item in value.items():
        if reason := fields.reason(key, item):
            yield Departure((*path, key), reason)
        elif item and (inner := fields.inner.get(key)):
            yield from departures(item, inner, (*path, key))


def stripped(value: Any, kind: Kind) -> tuple[Any, list[Departure]]:
    """Return an object without the fields of a response, and the removed fields."""
    found = [one for one in departures(value, kind) if one.is_response]
    return (put(value, [(one.path, UNSET) for one in found]) if found else value), found


def _once(name: str) -> tuple[str, ...]:
    return (name,)


def _both(name: str) -> tuple[str, ...]:
    """Return a name in camel case and in snake case."""
    return (name, re.sub("([A-Z])", lambda letter: "_" + letter[1].lower(), name))
