"""The permission bits that git does not keep, and the folders that hold nothing: one blob beside the files.

Git knows of a file only whether it can be executed. The blob names the three modes that most files,
programs and folders of the snapshot have, then whatever differs, then the folders that would be lost
for want of a file in them. So it is small, and the same again while no mode changes.
"""

from __future__ import annotations

import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from ..errors import CheckpointsDamaged, NewerFormat

__all__ = ["Modes", "is_program", "parents", "permissions", "split"]

_MAGIC = b"turnstate modes "
_VERSION = 1
_USUAL = (0o644, 0o755, 0o755)


def permissions(mode: int) -> int:
    """Give the bits that can be set: who may read, write and run, and the three special ones."""
    return stat.S_IMODE(mode)


def is_program(mode: int) -> bool:
    """Tell whether git would call a file of that mode executable."""
    return bool(mode & stat.S_IXUSR)


def split(path: bytes) -> tuple[bytes, bytes]:
    """Return the folder of a path, and its name there."""
    folder, _, name = path.rpartition(b"/")
    return folder, name


def parents(path: bytes) -> Iterator[bytes]:
    """Give the folders that a path stands in, the nearest first, without the work tree itself."""
    while b"/" in path:
        path = path.rpartition(b"/")[0]
        yield path


class Modes(NamedTuple):
    """The modes of the files and folders of a snapshot."""

    usual: tuple[int, int, int]  # of files, of programs, of folders
    files: dict[bytes, int]
    folders: dict[bytes, int]
    empty: tuple[bytes, ...]

    @classmethod
    def of(cls, files: Mapping[bytes, int], folders: Mapping[bytes, int], *, empty: Iterable[bytes]) -> Modes:
        """Take the modes of regular files and of folders, some of them with nothing in them."""
        counts = Counter(files.values())
        usual = (
            _most({mode: count for mode, count in counts.items() if not is_program(mode)}, _USUAL[0]),
            _most({mode: count for mode, count in counts.items() if is_program(mode)}, _USUAL[1]),
            _most(Counter(folders.values()), _USUAL[2]),
        )
        return cls(
            usual,
            {path: mode for path, mode in files.items() if mode not in usual[:2]},
            {path: mode for path, mode in folders.items() if mode != usual[2]},
            tuple(sorted(empty)),
        )

    def file(self, path: bytes, *, program: bool) -> int:
        """Give the mode of a file."""
        return self.files.get(path, self.usual[program])

    def folder(self, path: bytes) -> int:
        """Give the mode of a folder."""
        return self.folders.get(path, self.usual[2])

    def encoded(self) -> bytes:
        """Write the modes down, always the same way."""
        head = b"%b%d\n%o %o %o\n" % (_MAGIC, _VERSION, *self.usual)
        lines = [
            *(b"f %o %b\0" % (mode, path) for path, mode in sorted(self.files.items())),
            *(b"d %o %b\0" % (mode, path) for path, mode in sorted(self.folders.items())),
            *(b"e 0 %b\0" % path for path in self.empty),
        ]
        return head + b"".join(lines)

    @classmethod
    def decoded(cls, data: bytes) -> Modes:
        """Read modes that were written down."""
        try:
            magic, usual, lines = data.split(b"\n", 2)
            if not magic.startswith(_MAGIC):
                raise ValueError("it begins with something else")
            if int(magic.removeprefix(_MAGIC)) > _VERSION:
                raise NewerFormat(
                    "the modes of the snapshot were written by a newer Turnstate; update this one"
                )
            records = [line.split(b" ", 2) for line in lines.split(b"\0")[:-1]]
            plain, programs, folders = (int(mode, 8) for mode in usual.split())
            return cls(
                (plain, programs, folders),
                {path: int(mode, 8) for kind, mode, path in records if kind == b"f"},
                {path: int(mode, 8) for kind, mode, path in records if kind == b"d"},
                tuple(path for kind, _, path in records if kind == b"e"),
            )
        except ValueError as error:
            if isinstance(error, NewerFormat):
                raise
            raise CheckpointsDamaged(f"the modes of the snapshot cannot be read: {error}") from error


def _most(counts: Mapping[int, int], otherwise: int) -> int:
    """Choose the mode that occurs most, the lowest of several."""
    return min(counts, key=lambda mode: (-counts[mode], mode), default=otherwise)
