"""Git's objects as bytes: blobs, trees and commits, and a pack that carries many to the repository.

A tree of fifty thousand files goes to the disk as one file that is synced once, where as many loose
objects would each wait for the disk. The bytes were read by us, from a descriptor that was checked,
so no filter, no line ending and no odd name can come between. `index-pack` checks and keeps the pack.
"""

from __future__ import annotations

import hashlib
import os
import stat
import struct
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from tempfile import TemporaryFile
from types import TracebackType
from typing import BinaryIO, NamedTuple, Self

from msgspec import Struct

from ..errors import CheckpointsDamaged, NewerFormat

__all__ = [
    "AROUND",
    "BLOB",
    "COMMIT",
    "EXECUTABLE",
    "FILE",
    "FOLDER",
    "LINK",
    "TREE",
    "Leaf",
    "Modes",
    "Pack",
    "commit",
    "is_program",
    "object_id",
    "parents",
    "permissions",
    "split",
    "tree",
]

COMMIT, TREE, BLOB = "commit", "tree", "blob"
FILE, EXECUTABLE, LINK, FOLDER = b"100644", b"100755", b"120000", b"40000"

AROUND = "kind around"
"""The header of a snapshot that was taken before or after a restore."""

_NUMBERS = {COMMIT: 1, TREE: 2, BLOB: 3}
_FAST = 1
_CHUNK = 1 << 20
_AUTHOR = "Turnstate <turnstate@localhost>"


class Leaf(Struct, frozen=True, gc=False):
    """One line of a tree: what git knows of a file."""

    name: bytes
    mode: bytes
    id: str


def object_id(kind: str, data: bytes) -> str:
    """Give the name that git has for these bytes."""
    digest = hashlib.sha1(b"%b %d\0" % (kind.encode(), len(data)), usedforsecurity=False)
    digest.update(data)
    return digest.hexdigest()


def tree(leaves: Iterable[Leaf]) -> bytes:
    """Write a tree; git sorts a folder as though its name ended in a slash."""
    in_order = sorted(leaves, key=lambda leaf: leaf.name + b"/" if leaf.mode == FOLDER else leaf.name)
    return b"".join(b"%b %b\0%b" % (leaf.mode, leaf.name, bytes.fromhex(leaf.id)) for leaf in in_order)


def commit(
    root: str, *, parents: Iterable[str], seconds: int, message: str, checkpoint: bool = True
) -> bytes:
    """Write a commit of a tree; one that is no checkpoint says so in a header of its own."""
    when = f"{_AUTHOR} {seconds} +0000"
    lines = [f"tree {root}", *(f"parent {parent}" for parent in parents)]
    lines += [f"author {when}", f"committer {when}", *([] if checkpoint else [AROUND])]
    text = "\n".join([*lines, "", message.replace("\0", " ")])
    return text.encode("utf-8", "replace") + b"\n"


class Pack:
    """Objects on their way to a repository, in a file without a name."""

    def __init__(self, folder: os.PathLike[str]) -> None:
        self._file: BinaryIO = TemporaryFile(dir=folder)  # noqa: SIM115
        self._file.write(bytes(12))
        self._ids = set[str]()

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, id: str) -> bool:
        return id in self._ids

    def add(self, kind: str, data: bytes, id: str = "") -> str:
        """Put an object in, once, and give its name."""
        id = id or object_id(kind, data)
        if id not in self._ids:
            self._ids.add(id)
            self._file.write(_head(_NUMBERS[kind], len(data)))
            self._file.write(zlib.compress(data, _FAST))
        return id

    def finished(self) -> BinaryIO:
        """Give the whole pack to read from its start."""
        self._file.seek(0)
        self._file.write(b"PACK" + struct.pack(">II", 2, len(self._ids)))
        self._file.seek(0)
        digest = hashlib.sha1(usedforsecurity=False)
        while chunk := self._file.read(_CHUNK):
            digest.update(chunk)
        self._file.write(digest.digest())
        self._file.flush()
        os.lseek(self._file.fileno(), 0, os.SEEK_SET)  # git reads the descriptor, not the buffer
        return self._file

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: type[BaseException] | None, __: object, ___: TracebackType | None) -> None:
        self._file.close()


def _head(number: int, size: int) -> bytes:
    """Write kind and size as a pack does: four bits of the size, then seven in each byte that follows."""
    written, byte = bytearray(), (number << 4) | (size & 0x0F)
    size >>= 4
    while size:
        written.append(byte | 0x80)
        byte, size = size & 0x7F, size >> 7
    written.append(byte)
    return bytes(written)


# The permission bits that git does not keep, and the folders that hold nothing: one blob beside the files.


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
