"""The journal of a restore: what is to be done, on the disk before the first file is touched.

It appears whole or not at all, and goes when everything is done and on the disk. Whoever finds one
finishes what it says; each step can be done again. One that cannot be read is set aside, since every
file it could have spoken of is in the snapshot that was taken before.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from .. import files
from ..errors import CheckpointError, CheckpointsDamaged, NewerFormat, RestoreFailed
from .git import Git, Objects
from .objects import split
from .plan import Mode, Plan, Put
from .protected import IN_USE, OURS, Owned, kind_of
from .safe_tree import PathState, SafeTree, Syncing
from .values import STAGED, FileEntry, Kept

__all__ = ["NAME", "Journal", "Record", "perform", "read", "remove", "write"]

NAME = "restore.journal"
_FORMAT = 1


class Journal(Struct, frozen=True, kw_only=True):
    """A restore that is under way."""

    format: int = _FORMAT
    id: str
    name: str
    target: str
    undo: str
    hard: bool
    plan: Plan
    kept: tuple[Kept, ...] = ()  # what the plan leaves alone from the start
    tag: str = ""  # of the snapshot that was taken before
    undoes: str = ""  # the tag of the restore that this one takes back
    rules: bool = False  # whether ignore rules are replaced


class Record(Struct, frozen=True, kw_only=True):
    """What a restore put where nothing was, and what it took away; whoever undoes it needs both."""

    put: dict[bytes, FileEntry] = {}
    removed: dict[bytes, FileEntry] = {}
    folders: tuple[bytes, ...] = ()

    @classmethod
    def of(cls, journal: Journal, kept: Collection[Kept]) -> Record:
        """Record what a journal's restore did, if these paths were left alone."""
        left, plan = {one.path for one in kept}, journal.plan
        return cls(
            put={one.path: one.entry for one in plan.puts if one.before is None and one.path not in left},
            removed={one.path: one.before for one in plan.removals if one.path not in left},
            folders=tuple(path for path in plan.folders if path not in left),
        )

    def encoded(self) -> bytes:
        """Write the record down."""
        return msgspec.msgpack.encode(self)

    @classmethod
    def decoded(cls, data: bytes) -> Record:
        """Read a record that was written down."""
        try:
            return msgspec.msgpack.decode(data, type=cls)
        except msgspec.DecodeError as error:
            raise CheckpointsDamaged(f"the record of a restore cannot be read: {error}") from error


def new_id() -> str:
    """Make a name for a restore, which the files that it stages carry."""
    return secrets.token_hex(8)


def write(journal: Journal, folder: Path) -> None:
    """Put the journal on the disk."""
    payload = msgspec.json.encode(journal)
    data = hashlib.sha256(payload).hexdigest().encode() + b"\n" + payload
    files.replace(folder / NAME, data)


def read(folder: Path) -> Journal | None:
    """Read the journal of a restore that was cut off, if there is one."""
    path = folder / NAME
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    checksum, _, payload = data.partition(b"\n")
    try:
        if hashlib.sha256(payload).hexdigest().encode() != checksum:
            raise ValueError("its checksum does not match")
        if msgspec.json.decode(payload, type=_Any).format > _FORMAT:
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
    """Let the restore be done."""
    (folder / NAME).unlink(missing_ok=True)
    files.sync_folder(folder)


class _Any(Struct, frozen=True):
    format: int = _FORMAT


# A restore as it happens: every file is made ready first, then everything is put in place.


_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS}
_WRITING = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
_CHANGED = "it changed after the restore began"
_UNKNOWN = "something stands there that no snapshot holds"
_REASONS = {"own": OURS, "database": IN_USE}


def perform(
    work_tree: Path, git: Git, journal: Journal, *, again: bool, most: int, owned: Owned
) -> tuple[Kept, ...]:
    """Do what a journal says, for the first time or again; say what was left as it was."""
    with SafeTree.opened(work_tree, owned) as ground:
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
    def __init__(self, ground: SafeTree, journal: Journal, *, most: int) -> None:
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
        with Syncing(files.sync_folder) as syncing:
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
        file = os.open(name, _WRITING, files.FILE_MODE, dir_fd=folder)
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

    def _standing(self, path: bytes) -> PathState:
        return self._ground.standing(path, most=self._most)

    def _keep(self, path: bytes, reason: str) -> None:
        self.kept.setdefault(path, Kept(path, reason))

    def _name(self, number: int) -> bytes:
        return b"%b%b-%d" % (STAGED, self._journal.id.encode(), number)


def _reason(error: OSError | CheckpointError) -> str:
    return str(error.strerror if isinstance(error, OSError) else error)
