"""The workspace: where paths are looked up, what may be looked at, and what time it is.

Everything that reading files takes from its surroundings is in this one value, so that nothing is
read from the process behind a caller's back.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from ..errors import InputError
from .pattern import Split

__all__ = ["Workspace", "is_inside"]


class Workspace(Struct, frozen=True, kw_only=True):
    """A folder that relative paths start from, the home that ``~`` stands for, further allowed folders."""

    root: Path
    home: Path | None = None
    roots: tuple[Path, ...] = ()
    clock: Callable[[], int] = time.time_ns

    def __post_init__(self) -> None:
        for folder in (self.root, *self.roots, *([self.home] if self.home else [])):
            if not folder.is_absolute():
                raise InputError(f"a workspace has absolute folders, and {str(folder)!r:.80} is not one")

    def locate(self, path: Split) -> tuple[str, str]:
        """Give the place of a path's base, and the words in which it is shown."""
        if not path.absolute and path.base[:1] == ("~",) and self.home:
            return self._outside(str(self.home.joinpath(*path.base[1:])))
        if path.absolute:
            return self._outside("/" + "/".join(path.base))
        return os.path.join(self.root, *path.base), "/".join(path.base)

    def real_roots(self) -> tuple[str, ...]:
        """Give the folders that may be looked at, all links followed."""
        return tuple(os.path.realpath(folder) for folder in (self.root, *self.roots))

    def holds(self, place: str) -> bool:
        """Tell whether a place lies in an allowed folder by its name, whatever links in it do."""
        named = os.path.normpath(place)
        folders = (*map(os.path.normpath, (self.root, *self.roots)), *self.real_roots())
        return any(is_inside(named, folder) for folder in folders)

    def _outside(self, place: str) -> tuple[str, str]:
        """Show a place in full, unless its name lies below the root."""
        root = str(self.root)
        if place == root:
            return place, ""
        return place, os.path.relpath(place, root) if is_inside(place, root) else place


def is_inside(place: str, folder: str) -> bool:
    """Tell whether a place is a folder or lies below it; both are written without detours."""
    return place == folder or place.startswith(folder.rstrip("/") + "/")
