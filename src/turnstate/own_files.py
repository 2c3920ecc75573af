"""What identifies a file of Turnstate, or of an SQLite database, by its first bytes and its name.

The worker process imports this module, so it imports almost nothing.
"""

from __future__ import annotations

import sys
from typing import Literal

APPLICATION = 0x5475726E
"""The application id in the header of a store in SQLite: "Turn"."""

MEMORY_APPLICATION = 0x5475726D
"""The id for files of the built-in memory engine, "Turm": they are Turnstate's own, too, but not stores."""

SNAPSHOT_FOLDER = ".openstarry/snapshots"
"""The folder in a workspace that holds session snapshots; checkpoints ignore it."""

SHADOW_NAMES = frozenset({b"about.json", b"lock", b"repository"})
"""The names in every shadow repository."""

HEAD = 4096
"""Bytes at the start of a file that identify it."""

SIDES = (b"-wal", b"-shm", b"-journal")
"""The suffixes of the side files of an SQLite database."""

Kind = Literal["file", "database", "store"]

_DATABASE = b"SQLite format 3\0"
_APPLICATION = slice(68, 72)
_OUR_APPLICATIONS = {number.to_bytes(4, "big") for number in (APPLICATION, MEMORY_APPLICATION)}
_SIDE_STARTS = (
    b"\x37\x7f\x06\x82",
    b"\x37\x7f\x06\x83",
    b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7",
    (3_007_000).to_bytes(4, sys.byteorder),
)


def kind_of(head: bytes, name: bytes = b"") -> Kind:
    """Return the kind of a file by its first bytes; the name matters only for side files of a database."""
    if head.startswith(_DATABASE):
        return "store" if head[_APPLICATION] in _OUR_APPLICATIONS else "database"
    return "database" if name.endswith(SIDES) and head.startswith(_SIDE_STARTS) else "file"


def main_file(path: bytes) -> bytes | None:
    """Return the path of the database that a file belongs to by its name, or None."""
    return path.rpartition(b"-")[0] if path.endswith(SIDES) else None


def side_files(path: bytes) -> tuple[bytes, ...]:
    """Return the paths of the side files of a database."""
    return tuple(path + side for side in SIDES)
