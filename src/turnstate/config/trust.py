"""Trust: what a workspace asks to run is not run until the user has approved exactly that content.

A project may bring its own MCP servers, hooks and agents, and anyone may have written them. An approval is a
hash of a file's path and content, kept in the installation's own folder. A changed byte, or the same file in
another folder, must be approved again. The configuration is parsed from the bytes that were hashed, so
changing the file after the check has no effect.

An approval covers the content of the file, not the programs that it names: those are read when they run.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from ..errors import InputError
from ..home import Home, HomeDocument


class NotTrusted(InputError):
    """A file of the workspace asks for something that the user has not approved."""


class Trust:
    """The contents that the user has approved, by the path of the file."""

    def __init__(self, home: Home) -> None:
        self._kept = HomeDocument(home, "trusted.json", dict[str, list[str]])

    def approves(self, path: Path, content: bytes) -> bool:
        """Return True if the user approved this content at this path."""
        place = canonical(path)
        return _digest(place, content) in self._kept.read().get(place, ())

    def approve(self, path: Path, content: bytes) -> None:
        """Record that the user approved this content at this path."""
        place = canonical(path)
        digest = _digest(place, content)
        self._kept.change(lambda kept: {**kept, place: sorted({*kept.get(place, ()), digest})})

    def revoke(self, path: Path) -> bool:
        """Forget all approvals of a path; return False if there was none."""
        place = canonical(path)
        known = place in self._kept.read()
        if known:
            self._kept.change(lambda kept: {name: one for name, one in kept.items() if name != place})
        return known


def canonical(path: Path) -> str:
    """Return the real path as a string that JSON can hold, whatever bytes it contains."""
    return os.fsencode(os.path.realpath(path)).decode("utf-8", "backslashreplace")


def _digest(place: str, content: bytes) -> str:
    name = place.encode()
    return hashlib.sha256(len(name).to_bytes(8, "big") + name + content).hexdigest()
