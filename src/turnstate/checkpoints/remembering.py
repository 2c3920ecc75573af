"""What the last snapshot saw of each file, so that a file that did not change is not read again.

A file whose status is the same in every field has the same bytes, with one exception: it may have been
written once more within the same tick of the clock. So a file that was changed shortly before it was
looked at is not remembered. What is remembered is a convenience: lost or damaged, all files are read.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from .walking import Stamp

__all__ = ["Memory", "Remembered", "is_settled", "remembered"]

_MAGIC = b"turnstate stamps 2\n"  # files of version 1 may remember a store as a file to be kept
_TICK = 100_000_000  # nanoseconds; clocks of kernels tick every 1 to 10 ms
_LONG_TICK = 2_000_000_000  # file systems that keep whole seconds, or every second one


class Remembered(Struct, frozen=True, array_like=True, gc=False):
    """A file's status and the blob that it was read to; a database is kept only while it is not in use."""

    stamp: Stamp
    blob: str
    database: bool = False


class Memory(Struct, frozen=True, kw_only=True):
    """The files of a commit, and the objects that frame them; all of them are in the repository."""

    commit: str = ""
    tree: str = ""
    files: dict[bytes, Remembered] = {}
    frame: frozenset[str] = frozenset()

    def found(self, path: bytes, now: Stamp) -> Remembered | None:
        """Give what is remembered of a file that has not changed since."""
        found = self.files.get(path)
        return found if found is not None and found.stamp == now else None

    def known(self) -> set[str]:
        """Name the objects that need not be written again."""
        return {*self.frame, *(file.blob for file in self.files.values())}

    def save(self, path: Path) -> None:
        """Write the memory down; it need not survive a power cut, only be told from a torn one."""
        payload = msgspec.msgpack.encode(self)
        temporary = path.with_name(f"{path.name}.{secrets.token_hex(8)}.tmp")
        try:
            temporary.write_bytes(_MAGIC + hashlib.sha256(payload).digest() + payload)
            os.replace(temporary, path)
        except OSError:
            with suppress(OSError):
                temporary.unlink()

    @classmethod
    def load(cls, path: Path) -> Memory:
        """Read what was written down, or remember nothing."""
        try:
            data = path.read_bytes()
        except OSError:
            return cls()
        start = len(_MAGIC) + 32
        payload = memoryview(data)[start:]
        if data[: len(_MAGIC)] != _MAGIC or hashlib.sha256(payload).digest() != data[len(_MAGIC) : start]:
            return cls()
        try:
            return msgspec.msgpack.decode(payload, type=cls)
        except msgspec.DecodeError:
            return cls()


def remembered(stamp: Stamp, blob: str, *, begun: int, database: bool = False) -> Remembered:
    """Remember a file that was read in a walk; one that is not settled is never found unchanged."""
    return Remembered(stamp if is_settled(stamp, begun) else replace(stamp, changed=-1), blob, database)


def is_settled(stamp: Stamp, begun: int) -> bool:
    """Tell whether a later change of a file would show in its status; times of change cannot be set."""
    tick = _LONG_TICK if stamp.changed % 1_000_000_000 == 0 else _TICK
    return stamp.changed + tick < begun
