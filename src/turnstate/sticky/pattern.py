"""Patterns with ``*``, ``?``, ``[…]`` and ``**``, matched one name at a time, and the workspace of paths.

A path is a base, everything before the first part with a wildcard, and the parts from there on. ``**``
matches any number of folders, and at the end every file below. As in a shell, a name that begins with a
dot is matched only by a part that begins with one. A name always matches a part that equals it, so
``[id].tsx`` finds the file of that name.

Each folder is read once, whatever the pattern: a set of positions says which parts its names may match.
"""

from __future__ import annotations

import fnmatch
import os
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from msgspec import Struct

from ..errors import InputError

ANY_FILE = ("*",)
"""The pattern that a folder stands for: the files in it."""

_ANY_DEPTH = "**"
_WILDCARD = re.compile(r"[*?\[]")

Positions = frozenset[int]


class Split(Struct, frozen=True):
    """A path as the user wrote it: where to start, and the pattern from there."""

    absolute: bool
    base: tuple[str, ...]
    parts: tuple[str, ...]


def split(path: str) -> Split:
    """Split a path before its first part with a wildcard; without one there are no parts."""
    names = tuple(name for name in path.split("/") if name not in ("", "."))
    first = next((i for i, name in enumerate(names) if _WILDCARD.search(name)), len(names))
    parts = names[first:]
    once = tuple(
        name for i, name in enumerate(parts) if parts[i - 1 : i] != (_ANY_DEPTH,) or name != _ANY_DEPTH
    )
    return Split(path.startswith("/"), names[:first], once)


def comparable(path: str) -> str:
    """Return the form in which ``docs``, ``docs/`` and ``./docs`` are one path."""
    names = "/".join(name for name in path.split("/") if name not in ("", "."))
    return f"/{names}" if path.startswith("/") else names


class Glob:
    """The parts of a pattern, matched folder by folder."""

    def __init__(self, parts: tuple[str, ...]) -> None:
        self._parts = parts
        self._expressions = [_expression(part) for part in parts]

    @property
    def start(self) -> Positions:
        """The positions in the base folder."""
        return self._reached([0])

    def takes(self, positions: Positions, name: str) -> bool:
        """Return True if a file with this name matches."""
        last = len(self._parts) - 1
        return last in positions and self._matches(last, name)

    def into(self, positions: Positions, name: str) -> Positions:
        """Return the positions in a subfolder that a part other than ``**`` matches."""
        return self._reached(
            i + 1 for i in positions if self._parts[i] != _ANY_DEPTH and self._matches(i, name)
        )

    def below(self, positions: Positions, name: str) -> Positions:
        """Return the positions in a subfolder that a ``**`` passes through."""
        return self._reached(i for i in positions if self._parts[i] == _ANY_DEPTH and self._matches(i, name))

    def _matches(self, position: int, name: str) -> bool:
        part, expression = self._parts[position], self._expressions[position]
        if name == part:
            return True
        hidden = name.startswith(".") and not part.startswith(".")
        return not hidden and expression is not None and expression.match(name) is not None

    def _reached(self, positions: Iterable[int]) -> Positions:
        """Add the position after each ``**``, since it may match no folder; drop those past the last part."""
        reached = {i for i in positions if i < len(self._parts)}
        reached |= {i + 1 for i in reached if self._parts[i] == _ANY_DEPTH and i + 1 < len(self._parts)}
        return frozenset(reached)


def _expression(part: str) -> re.Pattern[str] | None:
    try:
        return re.compile(fnmatch.translate(part))
    except re.error:
        return None


class Workspace(Struct, frozen=True, kw_only=True):
    """The folder that relative paths start from, the home for ``~``, and further allowed folders."""

    root: Path
    home: Path | None = None
    roots: tuple[Path, ...] = ()
    clock: Callable[[], int] = time.time_ns

    def __post_init__(self) -> None:
        for folder in (self.root, *self.roots, *([self.home] if self.home else [])):
            if not folder.is_absolute():
                raise InputError(f"the folders of a workspace must be absolute; {str(folder)!r:.80} is not")

    def locate(self, path: Split) -> tuple[str, str]:
        """Return the location of a path's base, and the path as shown."""
        if not path.absolute and path.base[:1] == ("~",) and self.home:
            return self._outside(str(self.home.joinpath(*path.base[1:])))
        if path.absolute:
            return self._outside("/" + "/".join(path.base))
        return os.path.join(self.root, *path.base), "/".join(path.base)

    def real_roots(self) -> tuple[str, ...]:
        """Return the real paths of the allowed folders."""
        return tuple(os.path.realpath(folder) for folder in (self.root, *self.roots))

    def holds(self, place: str) -> bool:
        """Return True if a location is in an allowed folder by name, wherever its links lead."""
        named = os.path.normpath(place)
        folders = (*map(os.path.normpath, (self.root, *self.roots)), *self.real_roots())
        return any(is_inside(named, folder) for folder in folders)

    def _outside(self, place: str) -> tuple[str, str]:
        """Return a location and the path as shown: relative to the root if it is below it, else in full."""
        root = str(self.root)
        if place == root:
            return place, ""
        return place, os.path.relpath(place, root) if is_inside(place, root) else place


def is_inside(place: str, folder: str) -> bool:
    """Return True if a location is the folder or below it; both must be normalized."""
    return place == folder or place.startswith(folder.rstrip("/") + "/")
