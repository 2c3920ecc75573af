"""Trust: what a workspace asks to run is not run until the user has approved exactly that content.

A project may bring MCP servers, hooks and agents of its own, and anyone may have written them. An approval is
a hash of where the content is and what it says, kept in the installation's own folder; a changed byte, or the
same file in another folder, has to be approved again.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from ..home import Home, HomeDocument

__all__ = ["Trust"]


class Trust:
    """The contents that the user has approved."""

    def __init__(self, home: Home) -> None:
        self._kept = HomeDocument(home, "trusted.json", list[str])

    def approves(self, path: Path, content: bytes) -> bool:
        """Return True if the user approved this content at this path."""
        return _digest(path, content) in self._kept.read()

    def approve(self, path: Path, content: bytes) -> None:
        """Record that the user approved this content at this path."""
        self._kept.change(lambda approved: sorted({*approved, _digest(path, content)}))


def _digest(path: Path, content: bytes) -> str:
    place = os.fsencode(os.path.realpath(path))
    return hashlib.sha256(len(place).to_bytes(8, "big") + place + content).hexdigest()
