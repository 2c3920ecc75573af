"""Carries out a restore: writes a journal, stages every new file, then puts all of them in place.

The journal is durable before the first file changes and is removed when all changes are durable. A
process that finds a journal finishes the restore; every step can be repeated. A journal that cannot be
read is set aside: every file that it could have named is in the snapshot taken before the restore.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from .. import files
from ..errors import CheckpointError, CheckpointsDamaged, NewerFormat, RestoreFailed
from ..own_files import kind_of
from .contents import split
from .git import Git, Objects
from .plan import Mode, Put, RestorePlan
from .protected import IN_USE, OURS, Owned
from .values import STAGED, KeptPath
from .work_tree import ParallelSync, PathState, SafeTree

NAME = "restore.journal"
_FORMAT = 1


class Journal(Struct, frozen=True, kw_only=True):
    """A restore in progress."""

    format: int = _FORMAT
    id: str
    name: str
    target: str
    undo: str
    hard: bool
    plan: RestorePlan
    kept: tuple[KeptPath, ...] = ()  # paths that the plan leaves alone
    tag: str = ""  # of the snapshot taken before the restore
    undoes: str = ""  # the undo tag of the restore that this one undoes
    rules: bool = False  # whether ignore rules are replaced


def write(journal: Journal, folder: Path) -> None:
    """Write the journal durably."""
    payload = msgspec.json.encode(journal)
    data = hashlib.sha256(payload).hexdigest().encode() + b"\n" + payload
    files.replace(folder / NAME, data)


def read(folder: Path) -> Journal | None:
    """Return the journal of a restore that was interrupted, or None."""
    path = folder / NAME
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    checksum, _, payload = data.partition(b"\n")
    try:
        if hashlib.sha256(payload).hexdigest().encode() != checksum:
            raise ValueError("its checksum does not match")
        if msgspec.json.decode(payload, type=_Version).format > _FORMAT:
            raise NewerFormat(
                f"{path} was written by a newer Turnstate; update this one to finish the restore"
            )
        return msgspec.json.decode(payload, type=Journal)
    except NewerFormat:
        raise
    except ValueError:
        os.replace(path, path.with_suffix(".damaged"))
        files.sync_folder(folder)
        return None


def remove(folder: Path) -> None:
    """Remove the journal: the restore is complete."""
    (folder / NAME).unlink(missing_ok=True)
    files.sync_folder(folder)


class _Version(Struct, frozen=True):
    format: int = _FORMAT


# Errors that the next file would meet, too: the first attempt ends before any file has changed. All others
# concern one file, which is left as it is and reported.
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS}
_WRITING = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
_CHANGED = "it changed after the restore began"
_UNKNOWN = "a file that no snapshot holds is there"
_REASONS = {"own": OURS, "database": IN_USE}


def perform(
    work_tree: Path, git: Git, journal: Journal, *, again: bool, most: int, owned: Owned
) -> tuple[KeptPath, ...]:
    """Carry out a journal, for the first time or ``again``; return the paths that were left alone."""
    with SafeTree.opened(work_tree, owned) as tree:
        work = _RestoreRun(tree, journal, most=most)
        if again:
            work.unstage()
        try:
            work.stage(git.objects, again=again)
        except (OSError, CheckpointError) as error:
            if again:
                raise
            work.unstage()
            raise RestoreFailed(
                f"{journal.name} was not restored and no file was changed: {_reason(error)}"
            ) from error
        # From here on files change, so nothing raises for a single path: what cannot be done is reported. A
        # crash is repaired with `again`, which finds from the disk itself which steps are done.
        work.clear()
        work.place()
        work.unstage()
        work.set_modes()
        work.sync()
        return tuple(sorted(work.kept.values(), key=lambda one: one.path))


class _RestoreRun:
    def __init__(self, tree: SafeTree, journal: Journal, *, most: int) -> None:
        self._tree, self._journal, self._plan, self._most = tree, journal, journal.plan, most
        self._staged = dict[int, bytes]()  # from the number of a put to the folder of its staged file
        self._databases = set[int]()  # puts of SQLite databases
        self._touched = set[bytes]()
        self.kept = dict[bytes, KeptPath]()

    def stage(self, objects: Objects, *, again: bool) -> None:
        """Write the new files under temporary names and sync them."""
        with ParallelSync() as syncing:
            for number, put in enumerate(self._plan.puts):
                # The run before this one got that far; its object may even be damaged by now.
                if again and self._state_of(put.path).matches(put.entry):
                    continue
                # The folder of the file may not exist yet; a rename is atomic from any folder of this disk.
                folder = self._tree.nearest(split(put.path)[0])
                try:
                    data = objects.read(put.entry.blob)
                    kind = "file" if put.entry.link else kind_of(data, put.path)
                    if kind == "store":  # the journal of an older version may name one
                        self._keep(put.path, OURS)
                        continue
                    if kind == "database":
                        self._databases.add(number)
                    self._write(number, put, data, self._tree.enter(folder), syncing)
                except (OSError, CheckpointsDamaged) as error:
                    if not again and (isinstance(error, CheckpointsDamaged) or error.errno in _NO_ROOM):
                        raise
                    self._keep(put.path, f"it could not be written: {_reason(error)}")
                    continue
                self._staged[number] = folder

    def clear(self) -> None:
        """Remove the files that must go or are in the way."""
        for removal in self._plan.removals:
            found = self._state_of(removal.path)
            if found.matches(removal.before):
                self._attempt(removal.path, self._unlink, removal.path)
            elif found.kind != "nothing":
                self._keep(removal.path, _REASONS.get(found.kind, _CHANGED))
        for path in self._plan.emptied:
            with suppress(OSError):  # it is not empty
                folder, name = split(path)
                os.rmdir(name, dir_fd=self._tree.enter(folder))
                self._touched.add(folder)
        self._tree.leave()

    def place(self) -> None:
        """Create the folders and rename the new files into place."""
        for path in self._plan.folders:
            self._attempt(path, self._tree.make_folder, path)
        for number, put in enumerate(self._plan.puts):
            if number in self._staged:
                found = self._state_of(put.path)
                if number in self._databases and self._tree.is_in_use(put.path):
                    self._keep(put.path, IN_USE)
                # Checked again just before the rename: another program may have written since it was planned.
                elif found.kind == "nothing" or found.matches(put.before) or found.matches(put.entry):
                    self._attempt(put.path, self._rename, number, put.path)
                else:
                    self._keep(put.path, _REASONS.get(found.kind, _CHANGED if put.before else _UNKNOWN))

    def set_modes(self) -> None:
        """Set the modes of files whose bytes are already right, then the modes of folders."""
        with ParallelSync() as syncing:
            for one in self._plan.modes:
                if reason := self._tree.refusal(one.path):
                    self._keep(one.path, reason)
                else:
                    self._attempt(one.path, self._set_mode, one, syncing)
        for one in self._plan.folder_modes:
            self._attempt(one.path, self._tree.set_folder_mode, one.path, one.mode)
            self._touched.add(one.path)

    def sync(self) -> None:
        """Sync all folders that changed."""
        self._tree.leave()
        with ParallelSync(files.sync_folder) as syncing:
            for folder in sorted(self._touched):
                with suppress(FileNotFoundError, NotADirectoryError):
                    syncing.add(os.dup(self._tree.enter(folder)))

    def unstage(self) -> None:
        """Remove staged files that were not put in place, even those of another process."""
        for number, put in enumerate(self._plan.puts):
            # It was staged in the nearest folder that existed then, which may be any of those above.
            folder = split(put.path)[0]
            while True:
                with suppress(OSError):
                    os.unlink(self._name(number), dir_fd=self._tree.enter(folder))
                if not folder:
                    break
                folder = split(folder)[0]
        self._tree.leave()

    def _write(self, number: int, put: Put, data: bytes, folder: int, syncing: ParallelSync) -> None:
        name = self._name(number)
        if put.entry.link:
            os.symlink(data, name, dir_fd=folder)
            return
        file = os.open(name, _WRITING, files.FILE_MODE, dir_fd=folder)
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(file, rest) :]
            self._keep_owner(file, put)
            os.fchmod(file, put.entry.mode)
        except BaseException:  # also if interrupted: half a file must not stay
            os.close(file)
            with suppress(OSError):
                os.unlink(name, dir_fd=folder)
            raise
        syncing.add(file)

    def _keep_owner(self, file: int, put: Put) -> None:
        """Keep the owner and group of a replaced file if permitted; the mode is set afterwards."""
        folder, name = split(put.path)
        with suppress(OSError):
            old = os.stat(name, dir_fd=self._tree.enter(folder), follow_symlinks=False)
            if (old.st_uid, old.st_gid) != (os.geteuid(), os.getegid()):
                os.fchown(file, old.st_uid, old.st_gid)

    def _rename(self, number: int, path: bytes) -> None:
        waiting = self._staged[number]
        folder, name = split(path)
        source = os.dup(self._tree.enter(waiting))
        try:
            inside = self._tree.enter(folder)
            os.rename(self._name(number), name, src_dir_fd=source, dst_dir_fd=inside)
        finally:
            os.close(source)
        self._touched |= {waiting, folder}

    def _set_mode(self, one: Mode, syncing: ParallelSync) -> None:
        syncing.add(self._tree.set_mode(one.path, one.mode))

    def _unlink(self, path: bytes) -> None:
        folder, name = split(path)
        os.unlink(name, dir_fd=self._tree.enter(folder))

    def _attempt(self, path: bytes, act: Callable[..., None], *arguments: object) -> None:
        try:
            act(*arguments)
            self._touched.add(split(path)[0])
        except OSError as error:
            self._keep(path, f"it could not be changed: {error.strerror}")

    def _state_of(self, path: bytes) -> PathState:
        return self._tree.state_of(path, most=self._most)

    def _keep(self, path: bytes, reason: str) -> None:
        self.kept.setdefault(path, KeptPath(path, reason))

    def _name(self, number: int) -> bytes:
        return b"%b%b-%d" % (STAGED, self._journal.id.encode(), number)


def _reason(error: OSError | CheckpointError) -> str:
    return str(error.strerror if isinstance(error, OSError) else error)
