"""Values of the shadow repository: snapshots, diffs, and the results of restores.

Paths are bytes, relative to the work tree, with slashes: a file name need not be valid text. `shown`
returns a path for people, quoted as git does if a terminal could not show it.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from msgspec import Struct

from ..plain_text import harmless

STAGED = b".turnstate-restoring-"
"""The prefix of files that a restore has written and not yet put in place."""

_PLAIN = re.compile(r'[^\x00-\x1f"\\\x7f-\x9f]*')
_ESCAPES = {7: "\\a", 8: "\\b", 9: "\\t", 10: "\\n", 11: "\\v", 12: "\\f", 13: "\\r", 34: '\\"', 92: "\\\\"}


class SnapshotLimits(Struct, frozen=True, kw_only=True):
    """The limits of a snapshot; larger files are left out and reported, a larger work tree is refused."""

    file_bytes: int = 100 * 1024 * 1024
    entries: int = 500_000


class LeftOut(Struct, frozen=True):
    """A file or folder that a snapshot does not hold, and why.

    ``moving`` is True if it was being written; that may concern any file, and another time it would be held.
    """

    path: bytes
    reason: str
    moving: bool = False


class KeptPath(Struct, frozen=True):
    """A path that a restore left as it was, and why."""

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
    """A snapshot of the files."""

    commit: str
    tag: str = ""
    message: str = ""
    seconds: int = 0
    changes: Changes = Changes()
    left_out: tuple[LeftOut, ...] = ()


class FileDiff(Struct, frozen=True, kw_only=True):
    """How one file changed; without line counts if it is binary or only its mode changed."""

    path: bytes
    status: Literal["added", "modified", "deleted"]
    lines_added: int = 0
    lines_removed: int = 0
    binary: bool = False


class Diff(Struct, frozen=True, kw_only=True):
    """How two snapshots differ."""

    files: tuple[FileDiff, ...] = ()
    text: str = ""

    @property
    def changes(self) -> Changes:
        """The paths that differ."""
        by_status = {
            status: tuple(file.path for file in self.files if file.status == status)
            for status in ("added", "modified", "deleted")
        }
        return Changes(**by_status)


class RestoredFiles(Struct, frozen=True, kw_only=True):
    """What a restore did: ``undo`` is the snapshot before it, ``commit`` the one after.

    ``kept`` are paths that it could not restore; ``left_out`` are paths that no snapshot holds.
    """

    name: str
    target: str
    undo: str
    commit: str
    hard: bool = False
    changes: Changes = Changes()
    kept: tuple[KeptPath, ...] = ()
    left_out: tuple[LeftOut, ...] = ()


class FileEntry(NamedTuple):
    """A file or a link in a snapshot: its permission bits and the blob with its bytes."""

    link: bool
    mode: int
    blob: str


class Listing(NamedTuple):
    """The contents of a snapshot: files and links, and the permission bits of folders."""

    files: dict[bytes, FileEntry]
    folders: dict[bytes, int]


def shown(path: bytes) -> str:
    """Return a path for people, on one line: as it is, or C-quoted if it is not printable text."""
    try:
        text = path.decode()
        if _PLAIN.fullmatch(text) and harmless(text) == text:
            return text
    except UnicodeDecodeError:
        pass
    return '"' + "".join(_escaped(byte) for byte in path) + '"'


def _escaped(byte: int) -> str:
    if byte in _ESCAPES:
        return _ESCAPES[byte]
    return chr(byte) if 0x20 <= byte < 0x7F else f"\\{byte:03o}"
