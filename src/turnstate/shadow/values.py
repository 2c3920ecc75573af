"""What checkpoints of files are told in: what was kept, what was left out, what changed, what came back.

Paths are bytes, relative to the work tree, with slashes: a file name need not be text. `shown` writes
one for people, quoted as git does where it holds what a terminal could not show.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from msgspec import Struct

__all__ = [
    "STAGED",
    "Changes",
    "Diff",
    "FileDiff",
    "FileEntry",
    "Kept",
    "LeftOut",
    "Limits",
    "Listing",
    "Restored",
    "Snapshot",
    "shown",
]

STAGED = b".turnstate-restoring-"
"""How the names of files begin that a restore has written and not yet put in place."""

_PLAIN = re.compile(r'[^\x00-\x1f"\\\x7f-\x9f]*')
_ESCAPES = {7: "\\a", 8: "\\b", 9: "\\t", 10: "\\n", 11: "\\v", 12: "\\f", 13: "\\r", 34: '\\"', 92: "\\\\"}


class Limits(Struct, frozen=True, kw_only=True):
    """How much a snapshot takes; what is beyond it is left out and told."""

    file_bytes: int = 100 * 1024 * 1024
    entries: int = 500_000


class LeftOut(Struct, frozen=True):
    """A file or folder that a snapshot does not hold, and why."""

    path: bytes
    reason: str


class Kept(Struct, frozen=True):
    """A path that a restore left as it found it, and why."""

    path: bytes
    reason: str


class Changes(Struct, frozen=True, kw_only=True):
    """The paths that differ between two snapshots."""

    added: tuple[bytes, ...] = ()
    modified: tuple[bytes, ...] = ()
    deleted: tuple[bytes, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.modified or self.deleted)


class Snapshot(Struct, frozen=True, kw_only=True):
    """The files of one moment."""

    commit: str
    tag: str = ""
    message: str = ""
    seconds: int = 0
    changes: Changes = Changes()
    left_out: tuple[LeftOut, ...] = ()


class FileDiff(Struct, frozen=True, kw_only=True):
    """How one file changed; without lines where it is binary or only its mode changed."""

    path: bytes
    status: Literal["added", "modified", "deleted"]
    lines_added: int = 0
    lines_removed: int = 0
    binary: bool = False


class Diff(Struct, frozen=True, kw_only=True):
    """How two moments differ."""

    files: tuple[FileDiff, ...] = ()
    text: str = ""

    @property
    def changes(self) -> Changes:
        """The paths alone."""
        by_status = {
            status: tuple(file.path for file in self.files if file.status == status)
            for status in ("added", "modified", "deleted")
        }
        return Changes(**by_status)


class Restored(Struct, frozen=True, kw_only=True):
    """What a restore did: ``undo`` is the moment before it, ``commit`` the one after.

    ``kept`` is what it could not bring back; ``left_out`` is what it did not have to, and no snapshot holds.
    """

    name: str
    target: str
    undo: str
    commit: str
    hard: bool = False
    changes: Changes = Changes()
    kept: tuple[Kept, ...] = ()
    left_out: tuple[LeftOut, ...] = ()


class FileEntry(NamedTuple):
    """A file or a link as a snapshot holds it: its permission bits and the blob with its bytes."""

    link: bool
    mode: int
    blob: str


class Listing(NamedTuple):
    """Everything that a snapshot holds: files and links, and the permission bits of folders."""

    files: dict[bytes, FileEntry]
    folders: dict[bytes, int]


def shown(path: bytes) -> str:
    """Write a path for people and for one line: as it is, or C-quoted where that would not do."""
    try:
        text = path.decode()
        if _PLAIN.fullmatch(text):
            return text
    except UnicodeDecodeError:
        pass
    return '"' + "".join(_escaped(byte) for byte in path) + '"'


def _escaped(byte: int) -> str:
    if byte in _ESCAPES:
        return _ESCAPES[byte]
    return chr(byte) if 0x20 <= byte < 0x7F else f"\\{byte:03o}"
