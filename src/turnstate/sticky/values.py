"""What sticky context tells: which files were kept, which were not and why, what a path stands for."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

__all__ = ["Dropped", "Gathered", "Kept", "Owner", "Reason", "Shown"]

Owner = Literal["agent", "session"]
"""Who asked for a path: the agent's configuration, or the user in this conversation."""

Reason = Literal["limit", "missing", "unreadable", "special", "huge", "binary", "outside", "stopped"]


class Kept(Struct, frozen=True):
    """A file that is sent: its path as shown, the tokens of its entry, the hash of its bytes."""

    path: str
    tokens: int
    sha256: str


class Dropped(Struct, frozen=True):
    """A file, folder or pattern that is not sent, or not wholly, and why."""

    path: str
    reason: Reason
    why: str


class Gathered(Struct, frozen=True, kw_only=True):
    """The sticky context at one moment; no text where no file is kept."""

    text: str | None = None
    files: tuple[Kept, ...] = ()
    dropped: tuple[Dropped, ...] = ()

    @property
    def length(self) -> int:
        """The characters of the text."""
        return len(self.text or "")

    @property
    def tokens(self) -> int:
        """The tokens of all entries."""
        return sum(file.tokens for file in self.files)


class Shown(Struct, frozen=True):
    """A path, whose it is, the files that it stands for now, and what there is to say about it."""

    path: str
    owner: Owner
    files: tuple[str, ...] = ()
    dropped: tuple[Dropped, ...] = ()
