"""A restore as it happens: every file is made ready first, then everything is put in place.

Making ready changes nothing that the user has: new bytes go to the disk under names of their own, beside
the places they are meant for. If that fails for want of room, the restore is off. Then old files go and
new ones take their names, each in one step: a file is the old one or the new one, whenever the power
goes. All of it can be done again from the start, which is what the next one does who finds the journal.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from .. import durable
from ..errors import CheckpointError, CheckpointsDamaged, RestoreFailed
from .belongings import Owned
from .databases import IN_USE, OURS, kind_of
from .git import Git, Objects
from .ground import Ground, Standing
from .journal import Journal
from .modes import split
from .planning import Mode, Put
from .syncing import Syncing
from .values import STAGED, Kept

__all__ = ["perform"]

_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS}
_WRITING = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
_CHANGED = "it changed after the restore began"
_UNKNOWN = "something stands there that no snapshot holds"
_REASONS = {"own": OURS, "database": IN_USE}


def perform(
    work_tree: Path, git: Git, journal: Journal, *, again: bool, most: int, owned: Owned
) -> tuple[Kept, ...]:
    """Do what a journal says, for the first time or again; say what was left as it was."""
    with Ground.opened(work_tree, owned) as ground:
        work = _Work(ground, journal, most=most)
        if again:
            work.unstage()
        try:
            with git.objects() as objects:
                work.stage(objects, again=again)
        except (OSError, CheckpointError) as error:
            if again:
                raise
            work.unstage()
            raise RestoreFailed(
                f"{journal.name} was not restored, and no file was changed: {_reason(error)}"
            ) from error
        work.clear()
        work.place()
        work.unstage()
        work.set_modes()
        work.sync()
        return tuple(sorted(work.kept.values(), key=lambda one: one.path))


class _Work:
    def __init__(self, ground: Ground, journal: Journal, *, most: int) -> None:
        self._ground, self._journal, self._plan, self._most = ground, journal, journal.plan, most
        self._staged = dict[int, bytes]()  # the folder that the file of a put waits in
        self._databases = set[int]()  # puts of which SQLite reads the files beside them, too
        self._touched = set[bytes]()
        self.kept = dict[bytes, Kept]()

    def stage(self, objects: Objects, *, again: bool) -> None:
        """Write the new files under names of their own, and wait until the disk has them."""
        with Syncing() as syncing:
            for number, put in enumerate(self._plan.puts):
                if again and self._standing(put.path).is_(put.entry):
                    continue
                folder = self._ground.nearest(split(put.path)[0])
                try:
                    data = objects.read(put.entry.blob)
                    kind = "file" if put.entry.link else kind_of(data, put.path)
                    if kind == "store":  # a journal that an older version left may name one
                        self._keep(put.path, OURS)
                        continue
                    if kind == "database":
                        self._databases.add(number)
                    self._write(number, put, data, self._ground.enter(folder), syncing)
                except (OSError, CheckpointsDamaged) as error:
                    if not again and (isinstance(error, CheckpointsDamaged) or error.errno in _NO_ROOM):
                        raise
                    self._keep(put.path, f"it could not be written: {_reason(error)}")
                    continue
                self._staged[number] = folder

    def clear(self) -> None:
        """Remove what is not to be there, or stands in the way."""
        for removal in self._plan.removals:
            found = self._standing(removal.path)
            if found.is_(removal.before):
                self._attempt(removal.path, self._unlink, removal.path)
            elif found.kind != "nothing":
                self._keep(removal.path, _REASONS.get(found.kind, _CHANGED))
        for path in self._plan.emptied:
            with suppress(OSError):  # whatever is still in it is not ours to remove
                folder, name = split(path)
                os.rmdir(name, dir_fd=self._ground.enter(folder))
                self._touched.add(folder)
        self._ground.leave()

    def place(self) -> None:
        """Make the folders and give the new files their names."""
        for path in self._plan.folders:
            self._attempt(path, self._ground.make_folder, path)
        for number, put in enumerate(self._plan.puts):
            if number in self._staged:
                found = self._standing(put.path)
                if number in self._databases and self._ground.is_in_use(put.path):
                    self._keep(put.path, IN_USE)
                elif found.kind == "nothing" or found.is_(put.before) or found.is_(put.entry):
                    self._attempt(put.path, self._rename, number, put.path)
                else:
                    self._keep(put.path, _REASONS.get(found.kind, _CHANGED if put.before else _UNKNOWN))

    def set_modes(self) -> None:
        """Set the modes of files that have their bytes already, then those of folders."""
        with Syncing() as syncing:
            for one in self._plan.modes:
                if reason := self._ground.refusal(one.path):
                    self._keep(one.path, reason)
                else:
                    self._attempt(one.path, self._set_mode, one, syncing)
        for one in self._plan.folder_modes:
            self._attempt(one.path, self._ground.set_folder_mode, one.path, one.mode)
            self._touched.add(one.path)

    def sync(self) -> None:
        """Wait until the disk has all names."""
        self._ground.leave()
        with Syncing(durable.sync_folder) as syncing:
            for folder in sorted(self._touched):
                with suppress(FileNotFoundError, NotADirectoryError):
                    syncing.add(os.dup(self._ground.enter(folder)))

    def unstage(self) -> None:
        """Remove files that were made ready and not put in place, by whoever began this restore."""
        for number, put in enumerate(self._plan.puts):
            folder = split(put.path)[0]
            while True:
                with suppress(OSError):
                    os.unlink(self._name(number), dir_fd=self._ground.enter(folder))
                if not folder:
                    break
                folder = split(folder)[0]
        self._ground.leave()

    def _write(self, number: int, put: Put, data: bytes, folder: int, syncing: Syncing) -> None:
        name = self._name(number)
        if put.entry.link:
            os.symlink(data, name, dir_fd=folder)
            return
        file = os.open(name, _WRITING, durable.FILE_MODE, dir_fd=folder)
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(file, rest) :]
            self._give_to_the_owner(file, put)
            os.fchmod(file, put.entry.mode)
        except BaseException:
            os.close(file)
            with suppress(OSError):
                os.unlink(name, dir_fd=folder)
            raise
        syncing.add(file)

    def _give_to_the_owner(self, file: int, put: Put) -> None:
        """Let a file that is replaced keep its owner and group, where we may; the mode comes after that."""
        folder, name = split(put.path)
        with suppress(OSError):
            old = os.stat(name, dir_fd=self._ground.enter(folder), follow_symlinks=False)
            if (old.st_uid, old.st_gid) != (os.geteuid(), os.getegid()):
                os.fchown(file, old.st_uid, old.st_gid)

    def _rename(self, number: int, path: bytes) -> None:
        waiting = self._staged[number]
        folder, name = split(path)
        source = os.dup(self._ground.enter(waiting))
        try:
            inside = self._ground.enter(folder)
            os.rename(self._name(number), name, src_dir_fd=source, dst_dir_fd=inside)
        finally:
            os.close(source)
        self._touched |= {waiting, folder}

    def _set_mode(self, one: Mode, syncing: Syncing) -> None:
        syncing.add(self._ground.set_mode(one.path, one.mode))

    def _unlink(self, path: bytes) -> None:
        folder, name = split(path)
        os.unlink(name, dir_fd=self._ground.enter(folder))

    def _attempt(self, path: bytes, act: Callable[..., None], *arguments: object) -> None:
        try:
            act(*arguments)
            self._touched.add(split(path)[0])
        except OSError as error:
            self._keep(path, f"it could not be changed: {error.strerror}")

    def _standing(self, path: bytes) -> Standing:
        return self._ground.standing(path, most=self._most)

    def _keep(self, path: bytes, reason: str) -> None:
        self.kept.setdefault(path, Kept(path, reason))

    def _name(self, number: int) -> bytes:
        return b"%b%b-%d" % (STAGED, self._journal.id.encode(), number)


def _reason(error: OSError | CheckpointError) -> str:
    return str(error.strerror if isinstance(error, OSError) else error)
