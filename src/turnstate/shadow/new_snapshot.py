"""Takes snapshots: reads what changed in the work tree, stores it and moves the references.

Files that have not changed since the last snapshot are not read again: the stat of each file is cached
with the id of its blob. Objects that the repository lacks go into a pack; without a pack only their ids
are computed, which is enough to see whether anything changed.

A file that another program writes in place may be read half old and half new. So a read counts only if the
stat shows that nothing was written meanwhile; otherwise it is repeated a few times, and then left out.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache as cached
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import msgspec
from msgspec import Struct, structs
from msgspec.structs import replace

from ..errors import CheckpointsDamaged
from ..files import load_cache, save_cache
from ..own_files import kind_of, main_file
from .contents import (
    FILES,
    LEFT,
    MODES,
    RECORDS,
    RULES,
    SEEN,
    TAGS,
    Modes,
    is_program,
    newest_checkpoint,
    newest_snapshot,
    permissions,
    references,
    store_pack,
    tree_of,
    update_references,
)
from .folder import HISTORY
from .git import (
    BLOB,
    COMMIT,
    EXECUTABLE,
    FILE,
    FOLDER,
    LINK,
    TREE,
    Git,
    Leaf,
    Objects,
    Pack,
    commit,
    object_id,
    tree,
)
from .history import difference
from .ignore import Rules, other_rules, rules_of
from .protected import (
    InUse,
    Opened,
    OwnFile,
    OwnPlaces,
    UnreadableFile,
    check_main_file,
    read_regular,
)
from .values import Changes, Diff, FileEntry, LeftOut, Listing, Snapshot, SnapshotLimits
from .work_tree import FileStat, Scan, file_stat, scan_work_tree

STAMPS = "stamps"
"""The file of the stat cache."""

_MAGIC = b"turnstate stamps 2\n"  # version 1 may remember a store as a plain file
_TICK = 100_000_000  # nanoseconds; kernel clocks tick every 1 to 10 ms
_LONG_TICK = 2_000_000_000  # for file systems that store times in steps of one or two seconds
_SHORT_TICK = 20_000_000  # a kernel clock has surely advanced by then
_PAUSES = (0.025, 0.05, 0.1, 0.2)  # seconds before files that were being written are read again
_MOVING = (
    "it was written while it was read, several times; the next snapshot will have it, unless it never holds "
    "still: then list it in .gitignore"
)
_REPLACED = "it was replaced while it was read; the next snapshot will have it"


class _Moving(UnreadableFile):
    """A file that was written or replaced while it was read; it exists, so a restore must not remove it."""


class ShadowSettings(NamedTuple):
    """The work tree, the folder of its snapshots, and how they are taken."""

    folder: Path
    work_tree: Path
    limits: SnapshotLimits
    own: OwnPlaces
    force: bool
    clock: Callable[[], float]


def take(
    settings: ShadowSettings,
    git: Git,
    *,
    tag: str,
    message: str,
    checkpoint: bool = False,
    beside: str = "",
    names: Mapping[str, str] | None = None,
    record: tuple[str, bytes] | None = None,
) -> tuple[Snapshot, Captured]:
    """Take a snapshot of the files; it is durable when this returns.

    A snapshot that is not a ``checkpoint`` is taken before or after a restore: it does not report what
    changed since the previous one, and it also leaves out files that the rules of the snapshot ``beside`` it
    ignore. ``names`` are references that change in the same step, and ``record`` is a reference and the
    content of the blob to store under it.
    """
    base, history, seconds = newest_snapshot(git), newest_checkpoint(git), int(settings.clock())
    others = other_rules(
        git, settings.work_tree, base, most=settings.limits.file_bytes, trusted=names is not None
    )
    changed = {RULES + name: "" for name in references(git, RULES) if name not in others}
    with Pack(settings.folder) as pack:
        captured, same = examine(settings, git, base, pack=pack, others=others.values(), beside=beside)
        above = dict.fromkeys(one for one in ((history, base) if checkpoint else (base,)) if one)
        made = pack.add(
            COMMIT,
            commit(captured.tree, parents=above, seconds=seconds, message=message, checkpoint=checkpoint),
        )
        if record is not None:
            changed[record[0]] = pack.add(BLOB, record[1])
        store_pack(git, pack)
    changed |= {SEEN: made} | ({HISTORY: made} if checkpoint else {}) | dict(names or {})
    if tag:
        stale = [under + tag for under in (RECORDS, RULES) if tag in references(git, under)]
        changed |= dict.fromkeys(stale, "") | {TAGS + tag: made}
    update_references(git, changed)
    captured.cache(made).save(settings.folder / STAMPS)
    changes = _changes(git, base, captured) if checkpoint and not same else Changes()
    return (
        Snapshot(
            commit=made,
            tag=tag,
            message=message,
            seconds=seconds,
            changes=changes,
            left_out=captured.left_out,
        ),
        captured,
    )


def _changes(git: Git, base: str, captured: Captured) -> Changes:
    """Return what changed since the last snapshot; files that are left out do not count as deleted."""
    changes = Diff(files=difference(git, base and tree_of(git, base), captured.tree)).changes
    there = captured.own.union(captured.stores, (one.path for one in captured.left_out))
    return structs.replace(changes, deleted=tuple(path for path in changes.deleted if path not in there))


def examine(
    settings: ShadowSettings,
    git: Git,
    base: str,
    *,
    pack: Pack | None,
    others: Collection[str] | None = None,
    beside: str = "",
) -> tuple[Captured, bool]:
    """Capture the work tree; return it, and whether it is the same as the last snapshot.

    Objects that the repository lacks go into the pack. The rules of the snapshots ``others`` apply, too, if
    they can be read; the default is all snapshots whose rules still apply. The rules of the snapshot
    ``beside`` this one must be readable.
    """
    if others is None:
        others = other_rules(git, settings.work_tree, base, most=settings.limits.file_bytes).values()
    cache = StatCache.load(settings.folder / STAMPS)
    owned = settings.own.now()
    with Rules.opened(git, settings.work_tree, force=settings.force) as rules:
        if beside:
            rules.also(rules_of(git, beside, rules))
        for other in sorted({*others} - {beside}):
            with suppress(CheckpointsDamaged):
                rules.also(rules_of(git, other, rules))
        scan = scan_work_tree(settings.work_tree, rules, limits=settings.limits, owned=owned)
    captured = _Capture(settings, scan, cache, git.objects if base else None, pack).run()
    same = bool(base) and captured.tree == (cache.tree if cache.commit == base else tree_of(git, base))
    return captured, same


@contextmanager
def current_tree(settings: ShadowSettings, git: Git) -> Iterator[tuple[Git, str]]:
    """Store a tree of the current files outside of the repository, and remove it afterwards."""
    with (
        TemporaryDirectory(dir=git.folder, prefix="live-") as folder,
        Pack(settings.folder) as pack,
        git.apart(Path(folder)) as apart,
    ):
        (Path(folder) / "pack").mkdir()
        captured, _ = examine(settings, git, newest_snapshot(git), pack=pack)
        store_pack(apart, pack)
        yield apart, captured.tree


class KnownFile(Struct, frozen=True, array_like=True, gc=False):
    """The stat of a file and its blob; a ``database`` is checked for use before it counts as unchanged."""

    stamp: FileStat
    blob: str
    database: bool = False


class StatCache(Struct, frozen=True, kw_only=True):
    """The files of the last snapshot and their stats; all objects that it names are in the repository."""

    commit: str = ""
    tree: str = ""
    files: dict[bytes, KnownFile] = {}
    frame: frozenset[str] = frozenset()

    def found(self, path: bytes, now: FileStat) -> KnownFile | None:
        """Return the remembered file if its stat has not changed."""
        found = self.files.get(path)
        return found if found is not None and found.stamp == now else None

    def known(self) -> set[str]:
        """Return the ids of objects that need not be written again."""
        return {*self.frame, *(file.blob for file in self.files.values())}

    def save(self, path: Path) -> None:
        """Save the cache, if possible."""
        with suppress(OSError):
            save_cache(path, _MAGIC, msgspec.msgpack.encode(self))

    @classmethod
    def load(cls, path: Path) -> StatCache:
        """Load the cache; it is empty if the file is missing or damaged."""
        payload = load_cache(path, _MAGIC)
        with suppress(msgspec.DecodeError):
            return msgspec.msgpack.decode(payload, type=cls) if payload is not None else cls()
        return cls()


def known_file(stamp: FileStat, blob: str, *, begun: int, database: bool = False) -> KnownFile:
    """Return the cache entry of a file; if it changed too recently, it never counts as unchanged."""
    return KnownFile(stamp if is_settled(stamp, begun) else replace(stamp, changed=-1), blob, database)


def is_settled(stamp: FileStat, begun: int) -> bool:
    """Return True if a later change of the file would show in its stat."""
    # Programs cannot set the change time, but two changes within one tick of the clock get the same time.
    tick = _LONG_TICK if stamp.changed % 1_000_000_000 == 0 else _TICK
    return stamp.changed + tick < begun


class Captured(NamedTuple):
    """A work tree as git objects: the id of its tree, its files, and what was left out."""

    tree: str
    files: dict[bytes, KnownFile]
    folders: dict[bytes, int]
    frame: frozenset[str]
    left_out: tuple[LeftOut, ...]
    own: frozenset[bytes]  # paths that belong to Turnstate
    stores: frozenset[bytes]  # files that belong to Turnstate by their content
    users_rules: Path  # the file with the user's ignore rules for all repositories

    def cache(self, commit: str) -> StatCache:
        """Return the stat cache to save once these objects are stored under a commit."""
        return StatCache(commit=commit, tree=self.tree, files=self.files, frame=self.frame)

    def listing(self) -> Listing:
        """Return the files and folders."""
        files = dict[bytes, FileEntry]()
        for path, file in self.files.items():
            is_link = stat.S_ISLNK(file.stamp.mode)
            files[path] = FileEntry(is_link, 0 if is_link else permissions(file.stamp.mode), file.blob)
        return Listing(files, self.folders)


class _Capture:
    """Reads the files of a scan that changed since the last snapshot, and builds the tree of a new one.

    ``objects`` are those of the repository, or None if it has no snapshot yet.
    """

    def __init__(
        self,
        settings: ShadowSettings,
        scan: Scan,
        cache: StatCache,
        objects: Objects | None,
        pack: Pack | None,
    ) -> None:
        self._settings, self._scan, self._cache = settings, scan, cache
        self._objects, self._stored, self._pack = objects, cache.known() if objects else set[str](), pack
        self._frame, self._stores = set[str](), set[bytes]()
        self._left_out, self._in_use = list(scan.left_out), list[bytes]()
        self._earlier = dict[bytes, tuple[FileStat, str]]()  # files that may have been written: the last read

    def run(self) -> Captured:
        """Return the captured work tree; without a pack, object ids are computed and nothing is stored."""
        files = dict(self._files())
        folders = {path: permissions(mode) for path, (mode, _) in self._scan.folders.items() if path}
        root = self._root(files, folders)
        return Captured(
            tree=root,
            files=files,
            folders=folders,
            frame=frozenset(self._frame),
            left_out=tuple(sorted(self._left_out, key=lambda one: one.path)),
            own=frozenset(self._scan.own),
            stores=frozenset(self._stores),
            users_rules=self._scan.users_rules,
        )

    def _files(self) -> Iterator[tuple[bytes, KnownFile]]:
        """Yield the files that can be kept; those that are being written are read again after the others."""
        found: Iterable[tuple[bytes, FileStat]] = (
            pair for _, stamps in self._scan.folders.values() for pair in stamps.items()
        )
        for pause in (*_PAUSES, None):
            moving = list[bytes]()
            for path, stamp in found:
                known = self._cache.found(path, stamp)
                if known is not None and not known.database and main_file(path) is None:
                    yield path, known
                    continue
                try:
                    known = self._checked(path, stamp, known)
                except FileNotFoundError:
                    continue
                except OSError as error:
                    self._left_out.append(LeftOut(path, f"it cannot be read: {error.strerror}"))
                except OwnFile:
                    self._stores.add(path)
                except UnreadableFile as error:
                    if isinstance(error, _Moving) and pause is not None:
                        moving.append(path)
                        continue
                    if isinstance(error, InUse | _Moving):
                        self._in_use.append(path)
                    self._left_out.append(LeftOut(path, str(error), isinstance(error, _Moving)))
                else:
                    yield path, known
            if not moving or pause is None:
                return
            time.sleep(pause)
            found = self._stamped(moving)

    def _stamped(self, paths: Iterable[bytes]) -> Iterator[tuple[bytes, FileStat]]:
        """Yield files with their stat of now: an editor saves by replacing a file with a new one."""
        for path in paths:
            with suppress(OSError):  # it was deleted
                status = os.lstat(os.path.join(os.fsencode(self._settings.work_tree), path))
                if stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode):
                    yield path, file_stat(status)

    def _checked(self, path: bytes, stamp: FileStat, known: KnownFile | None) -> KnownFile:
        """Return the file as it is now; one that is ``known`` is unchanged, but may be in use by now."""
        full = os.path.join(os.fsencode(self._settings.work_tree), path)
        if known is None:
            return self._read(full, stamp)
        if not stat.S_ISLNK(stamp.mode):
            check_main_file(full)
            with Opened(full) as file:
                file.check()
        return known

    def _read(self, path: bytes, stamp: FileStat) -> KnownFile:
        if stat.S_ISLNK(stamp.mode):
            return known_file(stamp, self._add(BLOB, os.readlink(path)), begun=self._scan.begun)
        begun = time.time_ns()
        data, status = read_regular(path, most=self._settings.limits.file_bytes)
        if (status.st_dev, status.st_ino) != (stamp.device, stamp.inode):
            raise _Moving(_REPLACED)
        read = file_stat(status)
        if not self._held_still(path, data, read, begun):
            raise _Moving(_MOVING)
        database = kind_of(data) == "database"
        return known_file(read, self._add(BLOB, data), begun=self._scan.begun, database=database)

    def _held_still(self, path: bytes, data: bytes, read: FileStat, begun: int) -> bool:
        """Return True if the stat shows that a file was not written since ``begun``, when its read began.

        It shows that if it is the same as before the read, and the tick of the clock in which the file
        changed was over by then: two writes within one tick get the same time. If the second is not known,
        because the clock was set back or is coarse, two reads must agree.
        """
        if file_stat(os.stat(path, follow_symlinks=False)) != read:
            return False
        tick = _SHORT_TICK if read.changed % 1_000_000_000 else _LONG_TICK
        if read.changed + tick < begun:
            return True
        earlier, now = self._earlier.get(path), (read, object_id(BLOB, data))
        self._earlier[path] = now
        return earlier == now

    def _root(self, files: dict[bytes, KnownFile], folders: dict[bytes, int]) -> str:
        """Build the trees of all folders, the deepest first, and the tree of the snapshot."""
        leaves: dict[bytes, list[Leaf]] = {b"": [], **{folder: [] for folder in folders}}
        for path, file in files.items():
            folder, _, name = path.rpartition(b"/")
            leaves[folder].append(Leaf(name, _git_mode(file.stamp.mode), file.blob))
        for path in reversed(folders):
            if leaves[path]:  # git has no tree for an empty folder
                folder, _, name = path.rpartition(b"/")
                leaves[folder].append(Leaf(name, FOLDER, self._add_frame(TREE, tree(leaves[path]))))
        modes = {
            path: permissions(file.stamp.mode)
            for path, file in files.items()
            if not stat.S_ISLNK(file.stamp.mode)
        }
        filled = {path.rpartition(b"/")[0] for paths in (files, folders) for path in paths}
        written = Modes.of(modes, folders, empty=folders.keys() - filled).encoded()
        lines = [
            Leaf(FILES.encode(), FOLDER, self._add_frame(TREE, tree(leaves[b""]))),
            Leaf(MODES.encode(), FILE, self._add_frame(BLOB, written)),
        ]
        if self._in_use:
            names = b"".join(path + b"\0" for path in sorted(self._in_use))
            lines.append(Leaf(LEFT.encode(), FILE, self._add_frame(BLOB, names)))
        return self._add_frame(TREE, tree(lines))

    def _add(self, kind: str, data: bytes) -> str:
        """Return the id of an object, and add it to the pack if the repository lacks it."""
        id = object_id(kind, data)
        if self._pack is None or id in self._stored:
            return id
        if self._objects is None or not self._objects.has(id):
            self._pack.add(kind, data, id)
        return id

    def _add_frame(self, kind: str, data: bytes) -> str:
        """Add an object that is not one of the user's files."""
        id = self._add(kind, data)
        self._frame.add(id)
        return id


@cached
def _git_mode(mode: int) -> bytes:
    return LINK if stat.S_ISLNK(mode) else EXECUTABLE if is_program(mode) else FILE
