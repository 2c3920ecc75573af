"""The WAL next to a file: detect commits lost to damage, settle what a failed sync left, grow it to its size.

After a crash SQLite applies the WAL up to the first frame whose checksum fails, and reports nothing. That is
right for a write torn by a power cut, which was never acknowledged: it can only be the last commit, since
each is on disk before the next begins. If two or more commits follow a frame that fails, the WAL was damaged
and acknowledged commits are lost. That is recorded in the store, and `verify` reports it.

    header: magic, version, page size, number, salts (2), checksum (2)
    frame:  page, size of the file after a commit or 0, salts (2), checksum (2); then the page itself

Only the WAL is read without SQLite: opening and closing the database file would release SQLite's locks.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from struct import Struct as Layout
from typing import TYPE_CHECKING

import apsw
from msgspec import Struct

from .queries import SQL

if TYPE_CHECKING:
    from .connection import Connection

MIN_LOST = 2
"""Number of commits after a broken frame that a power cut cannot explain."""

FULL_SIZE = 1_000 * (24 + 4096)
"""Bytes of a WAL when SQLite checkpoints it and starts it over: a thousand pages."""

LEAST_FREE = 64 * 1024 * 1024
"""Bytes that must be free on the disk for a WAL to be grown; writers need the space more."""

_FAULT = "the WAL was damaged, and the last {} commits in it are lost"
_HEADER, _FRAME = Layout(">8I"), Layout(">6I")
_SUMMED = 8  # bytes of a frame's own header that its checksum covers
_MAGIC = 0x377F0682  # plus 1 if the checksum is computed over big-endian words
_PAGES = {1 << bits for bits in range(9, 17)}
_USUAL_PAGE = 4096
_AT_A_TIME = 64  # frames per read
_WORD = 0xFFFFFFFF
_CHUNK = 1 << 20


class Wal(Struct, frozen=True):
    """A WAL: its header and the header of every frame."""

    head: bytes
    frames: tuple[tuple[int, ...], ...]

    @property
    def page(self) -> int:
        """The size of a page."""
        size: int = _HEADER.unpack(self.head)[2]
        return size if size in _PAGES else _USUAL_PAGE

    @property
    def is_whole(self) -> bool:
        """True if the checksum of the header matches."""
        numbers = _HEADER.unpack(self.head)
        return numbers[0] in (_MAGIC, _MAGIC + 1) and self.summed(self.head[:24], (0, 0)) == numbers[6:]

    @property
    def salts(self) -> tuple[int, ...]:
        """The salts of this WAL; old frames left after its own have other salts."""
        return _HEADER.unpack(self.head)[4:6] if self.is_whole else self.frames[0][2:4]

    @property
    def commits(self) -> list[int]:
        """The numbers of the frames that end a commit, counted from 1."""
        salts = self.salts
        return [number for number, frame in enumerate(self.frames, 1) if frame[1] and frame[2:4] == salts]

    def summed(self, data: bytes, before: tuple[int, int]) -> tuple[int, int]:
        """Return the checksum of bytes as SQLite computes it."""
        order = ">" if _HEADER.unpack(self.head)[0] & 1 else "<"
        words = Layout(f"{order}{len(data) // 4}I").unpack(data)
        first, second = before
        for one, other in zip(words[0::2], words[1::2], strict=True):
            first = (first + one + second) & _WORD
            second = (second + other + first) & _WORD
        return first, second


def beside(path: str, side: str) -> str:
    """Return the path of a side file of a database; SQLite resolves links before it names them."""
    return os.path.realpath(path) + side


def has_log(path: str) -> bool:
    """Return True if there is a nonempty WAL next to a file."""
    with suppress(FileNotFoundError):
        return os.stat(beside(path, "-wal")).st_size > 0
    return False


def report_lost_commits(db: Connection, path: str) -> None:
    """Record what a damaged WAL lost; call it before any write, since that overwrites its frames."""
    log = read_log(path)
    if log and (lost := lost_commits(db, path, log)):
        note_lost_commits(db, log, lost)


def unnoted_fault(db: Connection, path: str) -> str:
    """Return what a damaged WAL lost if that is not recorded yet, or an empty text; nothing is written."""
    log = read_log(path)
    lost = lost_commits(db, path, log)
    if not log or not lost or db.execute(SQL["is_noted"], {"id": log.head.hex()}).fetchall():
        return ""
    return _FAULT.format(lost)


def read_log(path: str) -> Wal | None:
    """Read the headers of the WAL next to a file; return None if it is missing or empty."""
    with suppress(FileNotFoundError), Path(beside(path, "-wal")).open("rb") as file:
        log = Wal(file.read(_HEADER.size), ())
        if len(log.head) < _HEADER.size:
            return None
        size, frames = _FRAME.size + log.page, list[tuple[int, ...]]()
        some = bytearray(_AT_A_TIME * size)
        while (read := os.preadv(file.fileno(), [some], _HEADER.size + len(frames) * size)) >= size:
            frames += [_FRAME.unpack_from(some, place) for place in range(0, read - size + 1, size)]
        return Wal(log.head, tuple(frames))
    return None


def lost_commits(db: Connection, path: str, log: Wal | None) -> int:
    """Count the commits in a WAL that SQLite did not apply and that a power cut does not explain."""
    if log is None or not log.frames:
        return 0
    # It copies nothing, and says how many frames SQLite takes for whole.
    ((_, taken, _),) = db.execute("PRAGMA wal_checkpoint(NOOP)")
    lost = [number for number in log.commits if number > taken]
    broken = len(lost) >= MIN_LOST and (not log.is_whole or _is_broken(path, log, taken, lost[0]))
    return len(lost) if broken else 0


def note_lost_commits(db: Connection, log: Wal, lost: int) -> None:
    """Record that a WAL was damaged, once per WAL."""
    fault = _FAULT.format(lost)
    with suppress(apsw.ReadOnlyError), db.writing():
        db.execute(SQL["note_lost_commits"], {"id": log.head.hex(), "fault": fault})


def _is_broken(path: str, log: Wal, taken: int, last: int) -> bool:
    """Return True if a frame fails its checksum for a reason other than a concurrent write."""
    sums = log.frames[taken - 1][4:6] if taken else _HEADER.unpack(log.head)[6:]
    size = _FRAME.size + log.page
    with suppress(FileNotFoundError), Path(beside(path, "-wal")).open("rb") as file:
        if os.pread(file.fileno(), _HEADER.size, 0) != log.head:
            return False  # another process started the WAL again while it was read
        for number in range(taken + 1, last + 1):
            frame = os.pread(file.fileno(), size, _HEADER.size + (number - 1) * size)
            if len(frame) < size or _FRAME.unpack(frame[: _FRAME.size]) != log.frames[number - 1]:
                return False  # another process is writing
            sums = log.summed(frame[:_SUMMED] + frame[_FRAME.size :], (sums[0], sums[1]))
            if log.frames[number - 1][2:6] != (*log.salts, *sums):
                return True
    return False


def settle_log(db: Connection, path: str) -> None:
    """Write the frames of the WAL to the disk once more, before a commit follows them.

    A system that cannot write a page when it syncs reports that once. From then on it takes the page for
    written, and the next sync succeeds. A commit that failed this way is whole in memory: SQLite applies it
    when the file is opened again, and every later commit follows it, to be lost with it in a power cut.
    Pages that are written again are synced again. No one else can write in the meantime.
    """
    if not has_log(path):
        return
    with db.writing():
        db.execute("BEGIN IMMEDIATE")  # for the lock alone: it is rolled back
        _rewrite(path)


def _rewrite(path: str) -> None:
    if (log := read_log(path)) is None or not log.frames:
        return
    other = (number for number, frame in enumerate(log.frames) if frame[2:4] != log.salts)
    end = _HEADER.size + next(other, len(log.frames)) * (_FRAME.size + log.page)
    file = os.open(beside(path, "-wal"), os.O_RDWR)
    try:
        for place in range(0, end, _CHUNK):
            os.pwrite(file, os.pread(file, min(_CHUNK, end - place), place), place)
        os.fsync(file)  # the same bytes, but dirty pages again, which a sync cannot take for written
    finally:
        os.close(file)


def grow_log(db: Connection, path: str) -> None:
    """Fill the WAL with zeros while no one else can write."""
    with db.writing():
        db.execute("BEGIN IMMEDIATE")
        fill_log(path)


def fill_log(path: str) -> None:
    """Fill the WAL with zeros up to the size that it reaches anyway.

    A commit that does not extend its file takes half the time, since the file system has less to record.
    Zeros are not frames: their salts and checksums are wrong, so SQLite stops there, as it does at the old
    frames after the new ones in a WAL that was started over.
    """
    file = os.open(beside(path, "-wal"), os.O_WRONLY)
    try:
        missing = FULL_SIZE - (size := os.fstat(file).st_size)
        disk = os.fstatvfs(file)
        # An empty WAL gets its header from the first commit; zeros in its place would not be one.
        if size and missing > 0 and disk.f_bavail * disk.f_frsize > LEAST_FREE:
            os.pwrite(file, bytes(missing), size)
            os.fsync(file)
    finally:
        os.close(file)
