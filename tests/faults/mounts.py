"""File systems for tests: one whose power can be cut, and one that is soon full.

They are mounted in a private mount namespace of the test process, so the mounts and their loop devices
end with it. Mounting needs root; `missing()` returns what else is not available.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import struct
import subprocess
from contextlib import suppress
from enum import IntEnum
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Self

from tests.harness.thoroughness import LONG

EXT4_IOC_SHUTDOWN = 0x8004587D
CLONE_NEWNS = 0x00020000
LATE = 600  # seconds between commits of the journal: nothing reaches the disk without a sync


class Cut(IntEnum):
    """What is written before the power is cut."""

    FLUSH_ALL = 0  # everything is written first: the mildest
    KEEP_JOURNAL = 1  # the journal is written, the data is not: files of the right length without content
    DROP_JOURNAL = 2  # nothing that was not synced is written


CUTS = tuple(Cut) if LONG else (Cut.KEEP_JOURNAL, Cut.DROP_JOURNAL)
"""What the tests try: the mildest cut only in the long version."""


def _run(*command: str) -> str:
    """Run a program of the system; return what went wrong, or an empty text."""
    done = subprocess.run(command, capture_output=True, text=True)
    return f"{command[0]}: {done.stderr.strip()}" if done.returncode else ""


@cache
def missing() -> str:
    """Enter the private namespace; return why nothing can be mounted here, or an empty text."""
    if os.geteuid() != 0:
        return "mounting needs root"
    for program in ("mount", "umount", "mkfs.ext4"):
        if not shutil.which(program, path=f"{os.environ.get('PATH', '')}:/sbin:/usr/sbin"):
            return f"{program} is not installed"
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNS):
        return f"no mount namespace: {os.strerror(ctypes.get_errno())}"
    return _run("mount", "--make-rprivate", "/") or _probe()


def _probe() -> str:
    """Mount a disk and cut its power once; return what does not work."""
    with TemporaryDirectory() as home:
        try:
            with Disk(Path(home), size=8 << 20) as disk:
                disk.cut(Cut.DROP_JOURNAL)
                disk.restart()
        except (AssertionError, OSError) as error:
            return f"no ext4 on a loop device that can be shut down: {error}"
    return ""


class Mount:
    """A mounted file system; leaving it unmounts."""

    def __init__(self, point: Path, *arguments: str) -> None:
        self.path = point
        self._arguments = arguments
        self._mounted = False

    def mount(self) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        problem = _run("mount", *self._arguments, str(self.path))
        assert not problem, problem
        self._mounted = True

    def unmount(self) -> None:
        if self._mounted:
            problem = _run("umount", str(self.path))
            assert not problem, problem
            self._mounted = False

    def __enter__(self) -> Self:
        self.mount()
        return self

    def __exit__(self, kind: type[BaseException] | None, _: object, __: TracebackType | None) -> None:
        if self._mounted and kind is not None:
            _run("umount", "--lazy", str(self.path))  # a worker may still have files open
            return
        self.unmount()


class SmallDisk(Mount):
    """A file system in memory that can be filled."""

    def __init__(self, point: Path, *, size: int) -> None:
        super().__init__(point, "-t", "tmpfs", "-o", f"size={size}", "tmpfs")
        self._ballast = point / "ballast"

    def fill(self, *, leave: int = 0) -> None:
        """Use up the space except for some bytes."""
        with self._ballast.open("wb") as file:
            while (size := self._room - leave) > 0:
                with suppress(OSError):  # a store used some of it meanwhile
                    os.posix_fallocate(file.fileno(), 0, size)
                    break

    @property
    def _room(self) -> int:
        room = os.statvfs(self.path)
        return room.f_bavail * room.f_frsize

    def free(self) -> None:
        """Free the space."""
        self._ballast.unlink()


class ReadOnlyView(Mount):
    """A folder that is mounted a second time, read-only."""

    def __init__(self, point: Path, folder: Path) -> None:
        super().__init__(point, "--bind", str(folder))

    def mount(self) -> None:
        super().mount()
        problem = _run("mount", "-o", "remount,ro,bind", str(self.path))
        assert not problem, problem


class Disk(Mount):
    """An ext4 file system in a file, with late writes, whose power can be cut."""

    def __init__(self, home: Path, *, size: int = 48 << 20) -> None:
        self._image = home / "disk.img"
        super().__init__(home / "disk", "-o", f"loop,commit={LATE}", str(self._image))
        home.mkdir(parents=True, exist_ok=True)
        with self._image.open("wb") as file:
            file.truncate(size)
        problem = _run("mkfs.ext4", "-q", "-F", str(self._image))
        assert not problem, problem

    def cut(self, how: Cut) -> None:
        """Stop every write to the disk at this moment; what follows fails until `restart`."""
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, EXT4_IOC_SHUTDOWN, struct.pack("I", how))
        finally:
            os.close(descriptor)

    def restart(self) -> None:
        """Mount the disk again, as after a reboot; no process may have files open."""
        self.unmount()
        self.mount()
