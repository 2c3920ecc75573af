"""The walk through a work tree: what is there to be kept, and what is left out, and why.

Nothing is read but folders, and no link is followed: a folder is opened as what the one above it said
it is, or not at all. `.git` of any repository is passed over, its files are not. A level of the tree is
listed at a time, so that git judges all names of it at once, and ignored folders are never entered.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from ..errors import WorkTreeRefused
from .ignore import RULES, Rules
from .protected import Owned, is_shadow_repository
from .values import STAGED, LeftOut, Limits

__all__ = ["Scan", "Stamp", "stamp", "walk"]

_REPOSITORY = b".git"
_SPECIAL = {
    stat.S_IFIFO: "it is a FIFO",
    stat.S_IFSOCK: "it is a socket",
    stat.S_IFCHR: "it is a device",
    stat.S_IFBLK: "it is a device",
}
_ELSEWHERE = "the rules on the other side of a restore ignore it; it is kept again once you change the rules"
_INTO = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


class Stamp(Struct, frozen=True, array_like=True, gc=False):
    """What the file system says of a file; while it says the same, the bytes are the same."""

    mode: int
    size: int
    modified: int
    changed: int
    inode: int
    device: int


class Scan(NamedTuple):
    """A work tree at one moment: for each folder its mode and its files, parents before children."""

    begun: int  # nanoseconds by the system's clock
    folders: dict[bytes, tuple[int, dict[bytes, Stamp]]]
    left_out: list[LeftOut]
    own: set[bytes]  # paths that belong to Turnstate

    @property
    def entries(self) -> int:
        """How many files and folders there are."""
        return len(self.folders) + sum(len(files) for _, files in self.folders.values())


def stamp(status: os.stat_result) -> Stamp:
    """Take what matters of a file's status."""
    return Stamp(
        status.st_mode,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
        status.st_ino,
        status.st_dev,
    )


def walk(work_tree: Path, rules: Rules, *, limits: Limits, owned: Owned) -> Scan:
    """Look at a work tree, and pass over what belongs to Turnstate."""
    scan = Scan(time.time_ns(), {}, [], set())
    top = stamp(os.stat(work_tree))
    level = {b"": top}
    while level:
        listed = dict(_listed(work_tree, level, rules, scan, owned))
        every = {path: found for names in listed.values() for path, found in names.items()}
        ignored = rules.ignored([*every], [path for path, found in every.items() if stat.S_ISDIR(found.mode)])
        below = dict[bytes, Stamp]()
        for folder, names in listed.items():
            wanted = {path: found for path, found in names.items() if path not in ignored}
            scan.folders[folder] = (level[folder].mode, _files(wanted, scan.left_out, limits))
            below |= {path: found for path, found in wanted.items() if stat.S_ISDIR(found.mode)}
        if scan.entries > limits.entries:
            raise WorkTreeRefused(
                f"{work_tree} holds more than {limits.entries:,} files and folders that are not ignored; "
                f"list what need not be kept in {work_tree / os.fsdecode(RULES)}, or raise the limit"
            )
        level = below
    scan.left_out.extend(LeftOut(path, _ELSEWHERE) for path in sorted(rules.elsewhere))
    if b"" not in scan.folders:
        raise WorkTreeRefused(f"{work_tree}: {scan.left_out[0].reason if scan.left_out else 'it went away'}")
    return scan


def _listed(
    work_tree: Path, level: dict[bytes, Stamp], rules: Rules, scan: Scan, owned: Owned
) -> Iterator[tuple[bytes, dict[bytes, Stamp]]]:
    """List the folders of a level: the path of everything in each that could be kept."""
    for folder, expected in level.items():
        try:
            names = _names(os.fsencode(work_tree), folder, expected)
        except FileNotFoundError:
            continue
        except OSError as error:
            scan.left_out.append(LeftOut(folder, f"it cannot be listed: {error.strerror}"))
            continue
        if is_shadow_repository(os.path.join(os.fsencode(work_tree), folder), names.keys()):
            scan.own.add(folder)
            continue
        if _hides_rules(names):
            scan.left_out.append(LeftOut(folder, f"what {RULES.decode()} in it ignores cannot be read"))
            continue
        if _REPOSITORY in names:
            rules.enter(folder)
        before = folder + b"/" if folder else b""
        paths = {
            before + name: found
            for name, found in names.items()
            if name != _REPOSITORY and not name.startswith(STAGED)
        }
        own = {path for path, found in paths.items() if owned.is_at(path, found.device, found.inode)}
        scan.own.update(own)
        yield folder, {path: found for path, found in paths.items() if path not in own}


def _names(work_tree: bytes, folder: bytes, expected: Stamp) -> dict[bytes, Stamp]:
    descriptor = os.open(os.path.join(work_tree, folder), _INTO)
    try:
        status = os.fstat(descriptor)
        if (status.st_dev, status.st_ino) != (expected.device, expected.inode):
            raise FileNotFoundError  # another folder stands there now; the next snapshot has it
        names = dict[bytes, Stamp]()
        with os.scandir(descriptor) as entries:
            for entry in entries:
                try:
                    names[os.fsencode(entry.name)] = stamp(entry.stat(follow_symlinks=False))
                except FileNotFoundError:
                    continue
        return names
    finally:
        os.close(descriptor)


def _hides_rules(names: dict[bytes, Stamp]) -> bool:
    """Tell whether git would wait for ever to read the rules of a folder."""
    return RULES in names and stat.S_IFMT(names[RULES].mode) in _SPECIAL


def _files(names: dict[bytes, Stamp], left_out: list[LeftOut], limits: Limits) -> dict[bytes, Stamp]:
    """Take the files and links that can be kept, by their paths, and note the others."""
    files = dict[bytes, Stamp]()
    for path, found in names.items():
        kind = stat.S_IFMT(found.mode)
        if kind == stat.S_IFREG and found.size > limits.file_bytes:
            reason = f"it has {found.size:,} bytes; at most {limits.file_bytes:,} are kept"
            left_out.append(LeftOut(path, reason))
        elif kind in (stat.S_IFREG, stat.S_IFLNK):
            files[path] = found
        elif kind != stat.S_IFDIR:
            left_out.append(LeftOut(path, _SPECIAL.get(kind, "it is neither file, link nor folder")))
    return files
