"""The folder of a shadow repository: made whole or not at all, locked at work, swept after a crash.

It holds `repository`, a bare git repository that we lay out ourselves, so that no template has a say;
`about.json`, which names the work tree; and files that come and go. What a killed process left half
done is swept by the next one that has the lock: git's lock files, and packs without an index.
"""

from __future__ import annotations

import fcntl
import glob
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from .. import durable
from ..errors import CheckpointError, CheckpointsBusy, CheckpointsDamaged, NewerFormat

__all__ = ["HISTORY", "About", "locked", "make", "read_about", "remove", "sweep", "sync"]

HISTORY = "refs/heads/history"
"""The newest checkpoint; the first parents of it are the checkpoints before."""

_FORMAT = 1
_PATIENCE = 30.0  # seconds to wait for another process; a snapshot takes less
_FILES = {
    "HEAD": b"ref: " + HISTORY.encode() + b"\n",
    "config": b"[core]\n\trepositoryformatversion = 0\n\tbare = true\n\tlogAllRefUpdates = false\n",
    "info/attributes": b"* -text -eol -ident -filter -working-tree-encoding\n",
    "info/exclude": b"",
}
_FOLDERS = ("objects/info", "objects/pack", "refs/heads", "refs/tags", "info")


class About(msgspec.Struct, frozen=True, kw_only=True):
    """Whose checkpoints these are."""

    format: int = _FORMAT
    work_tree: bytes


def make(folder: Path, work_tree: Path) -> None:
    """Make a shadow repository, on the disk and whole before it has its name; of two at once, one wins."""
    durable.make_folder(folder.parent)
    draft = folder.parent / f".{folder.name}.{secrets.token_hex(8)}.tmp"
    about = msgspec.json.encode(About(work_tree=os.fsencode(work_tree)))
    files = {f"repository/{name}": data for name, data in _FILES.items()} | {"about.json": about, "lock": b""}
    try:
        for name in _FOLDERS:
            durable.make_folder(draft / "repository" / name)
        for name, data in files.items():
            with _open_folder((draft / name).parent) as descriptor:
                durable.write_new(Path(name).name, data, folder=descriptor)
        for one in sorted({(draft / name).parent for name in files}):
            sync(one)
        os.rename(draft, folder)  # fails where another one stands, since that is not empty
        sync(folder.parent)
    except OSError as error:
        if (folder / "about.json").exists():
            return
        raise CheckpointError(f"no checkpoints can be kept in {folder}: {error}") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def read_about(folder: Path) -> About:
    """Read whose checkpoints stand in a folder."""
    try:
        about = msgspec.json.decode((folder / "about.json").read_bytes(), type=About)
    except (OSError, msgspec.DecodeError) as error:
        raise CheckpointsDamaged(f"{folder} holds no checkpoints that can be read: {error}") from error
    if about.format > _FORMAT:
        raise NewerFormat(f"the checkpoints in {folder} were written by a newer Holdfast; update this one")
    return about


@contextmanager
def locked(folder: Path) -> Iterator[int]:
    """Be the only one at work on a shadow repository; the lock goes with its last holder, killed or not."""
    deadline = time.monotonic() + _PATIENCE
    while (lock := _lock(folder)) is None:
        if time.monotonic() > deadline:
            raise CheckpointsBusy(
                f"another process is at work on the checkpoints in {folder}; try again after it"
            )
        time.sleep(0.01)
    try:
        yield lock
    finally:
        os.close(lock)


def _lock(folder: Path) -> int | None:
    """Take the lock if it is free, and still that of this folder, which may have been removed meanwhile."""
    path = folder / "lock"
    try:
        lock = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    except OSError as error:
        raise CheckpointsDamaged(f"{folder} holds no checkpoints that can be locked: {error}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(lock), os.stat(path)):
            return lock
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(lock)
    return None


def sweep(folder: Path) -> None:
    """Remove what a killed process left half done; only the holder of the lock may."""
    repository = folder / "repository"
    packs = repository / "objects" / "pack"
    left = [*repository.glob("*.lock"), *(repository / "refs").rglob("*.lock"), *packs.glob("tmp_*")]
    left += [pack for pack in packs.glob("pack-*.pack") if not pack.with_suffix(".idx").exists()]
    left += [*repository.glob("objects/tmp_*"), *folder.glob("*.tmp")]
    for path in left:
        path.unlink(missing_ok=True)
    doomed = folder.parent.glob(f".{glob.escape(folder.name)}.*.tmp")
    for path in (*repository.glob("rules-*"), *repository.glob("live-*"), *doomed):
        shutil.rmtree(path, ignore_errors=True)


def remove(folder: Path) -> int:
    """Remove a shadow repository, unusable from the first moment on; say how many bytes it had."""
    size = sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir())
    doomed = folder.parent / f".{folder.name}.{secrets.token_hex(8)}.tmp"
    os.rename(folder, doomed)
    sync(folder.parent)
    shutil.rmtree(doomed, ignore_errors=True)
    return size


def sync(folder: Path) -> None:
    """Force the names in a folder to the disk."""
    with _open_folder(folder) as descriptor:
        durable.sync_folder(descriptor)


@contextmanager
def _open_folder(folder: Path) -> Iterator[int]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
