"""Takes snapshots: reads what changed in the work tree, stores it and moves the references.

Files that have not changed since the last snapshot are not read again: their stat is remembered with
the blob that they became. Objects that the repository lacks go into a pack; without a pack only their
names are computed, which is enough to see whether anything changed.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import msgspec
from msgspec import Struct, structs
from msgspec.structs import replace

from ..errors import CheckpointsDamaged, GitFailed
from .contents import FILES, LEFT, MODES, Modes, difference, is_program, permissions, tree_of
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
from .ignore import Rules, other_rules, rules_of
from .protected import (
    InUse,
    Opened,
    OwnFile,
    OwnPlaces,
    UnreadableFile,
    check_main_file,
    kind_of,
    main_file,
    read_regular,
)
from .refs import (
    RECORDS,
    RULES,
    SEEN,
    TAGS,
    join_packs,
    newest_checkpoint,
    newest_snapshot,
    references,
    store_pack,
    update_references,
)
from .values import Changes, Diff, FileEntry, LeftOut, Listing, Snapshot, SnapshotLimits
from .work_tree import FileStat, Scan, scan_work_tree

__all__ = [
    "STAMPS",
    "Captured",
    "KnownFile",
    "ShadowSettings",
    "StatCache",
    "capture",
    "current_tree",
    "examine",
    "is_settled",
    "other_rules_of",
    "remembered",
    "take",
]
STAMPS = "stamps"
"""The file of the stat cache."""
_MAGIC = b"turnstate stamps 2\n"  # version 1 may remember a store as a plain file
_TICK = 100_000_000  # nanoseconds; kernel clocks tick every 1 to 10 ms
_LONG_TICK = 2_000_000_000  # for file systems that store times in steps of one or two seconds


class ShadowSettings(NamedTuple):
    """What snapshots are taken of, where they are kept, and how."""

    folder: Path
    work_tree: Path
    limits: SnapshotLimits
    belongings: OwnPlaces
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

    A snapshot that is not a ``checkpoint`` is taken before or after a restore; it also leaves out what the
    rules of the snapshot ``beside`` it ignore. ``names`` are references that change in the same step, and
    ``record`` is a blob with the reference to store it under.
    """
    base, history, seconds = newest_snapshot(git), newest_checkpoint(git), int(settings.clock())
    others = other_rules_of(settings, git, base, trusted=names is not None)
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
    captured.memory(made).save(settings.folder / STAMPS)
    with suppress(GitFailed, OSError):  # the snapshot is durable; joining packs can wait
        join_packs(git)
    changes = Changes() if same else _changes(git, base, captured)
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
    others: Collection[str],
    beside: str = "",
) -> tuple[Captured, bool]:
    """Capture the work tree; return it, and whether it is the same as the last snapshot.

    Objects that the repository lacks go into the pack. The rules of ``others`` apply, too, if they can be
    read; those of the snapshot ``beside`` this one must be readable.
    """
    memory = StatCache.load(settings.folder / STAMPS)
    owned = settings.belongings.now()
    with Rules.opened(git, settings.work_tree, force=settings.force) as rules:
        if beside:
            rules.also(rules_of(git, beside, rules))
        for other in sorted({*others} - {beside}):
            with suppress(CheckpointsDamaged):
                rules.also(rules_of(git, other, rules))
        scan = scan_work_tree(settings.work_tree, rules, limits=settings.limits, owned=owned)
    with _known_objects(git, base, memory) as known:
        captured = capture(settings.work_tree, scan, memory, known=known, pack=pack, limits=settings.limits)
    return captured, bool(base) and captured.tree == (
        memory.tree if memory.commit == base else tree_of(git, base)
    )


def other_rules_of(settings: ShadowSettings, git: Git, base: str, *, trusted: bool = False) -> dict[str, str]:
    """Return the snapshots whose ignore rules count as well, by their tags."""
    return other_rules(git, settings.work_tree, base, most=settings.limits.file_bytes, trusted=trusted)


@contextmanager
def _known_objects(git: Git, base: str, memory: StatCache) -> Iterator[Callable[[str], bool]]:
    """Yield a function that says whether the repository has an object, from memory or by asking git."""
    if not base:
        yield lambda _: False
        return
    remembered, asked = memory.known(), list[Objects]()
    with ExitStack() as stack:

        def known(id: str) -> bool:
            if id in remembered:
                return True
            if not asked:
                asked.append(stack.enter_context(git.objects(only_ask=True)))
            return asked[0].has(id)

        yield known


@contextmanager
def current_tree(settings: ShadowSettings, git: Git) -> Iterator[tuple[Git, str]]:
    """Store a tree of the current files outside of the repository, and remove it afterwards."""
    with TemporaryDirectory(dir=git.folder, prefix="live-") as folder, Pack(settings.folder) as pack:
        (Path(folder) / "pack").mkdir()
        apart = git.apart(Path(folder))
        base = newest_snapshot(git)
        captured, _ = examine(
            settings, git, base, pack=pack, others=other_rules_of(settings, git, base).values()
        )
        store_pack(apart, pack)
        yield apart, captured.tree


class KnownFile(Struct, frozen=True, array_like=True, gc=False):
    """The stat of a file and its blob; a ``database`` is checked for use before it counts as unchanged."""

    stamp: FileStat
    blob: str
    database: bool = False


class StatCache(Struct, frozen=True, kw_only=True):
    """The files of the last snapshot and their stats; all objects named are in the repository."""

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
        """Save the cache. It need not survive a power cut; the checksum detects a torn file."""
        payload = msgspec.msgpack.encode(self)
        temporary = path.with_name(f"{path.name}.{secrets.token_hex(8)}.tmp")
        try:
            temporary.write_bytes(_MAGIC + hashlib.sha256(payload).digest() + payload)
            os.replace(temporary, path)
        except OSError:
            with suppress(OSError):
                temporary.unlink()

    @classmethod
    def load(cls, path: Path) -> StatCache:
        """Load the cache; it is empty if the file is missing or damaged."""
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


def remembered(stamp: FileStat, blob: str, *, begun: int, database: bool = False) -> KnownFile:
    """Return what to remember of a file; one that changed too recently is never found unchanged."""
    return KnownFile(stamp if is_settled(stamp, begun) else replace(stamp, changed=-1), blob, database)


def is_settled(stamp: FileStat, begun: int) -> bool:
    """Return True if a later change of the file would show in its stat."""
    # The change time cannot be set by programs, but two changes in one tick of the clock have the same.
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

    def memory(self, commit: str) -> StatCache:
        """Return the cache for when these objects are stored under a commit."""
        return StatCache(commit=commit, tree=self.tree, files=self.files, frame=self.frame)

    def listing(self) -> Listing:
        """Return the files and folders."""
        return Listing({path: _entry(file) for path, file in self.files.items()}, self.folders)


class _ObjectWriter:
    """Computes object ids, and adds the objects that the repository lacks to the pack."""

    def __init__(self, known: Callable[[str], bool], pack: Pack | None) -> None:
        self._known, self._pack = known, pack
        self.frame = set[str]()

    def keep(self, kind: str, data: bytes) -> str:
        id = object_id(kind, data)
        if self._pack is not None and not self._known(id):
            self._pack.add(kind, data, id)
        return id

    def keep_frame(self, kind: str, data: bytes) -> str:
        """Add an object that is not a file of the user."""
        id = self.keep(kind, data)
        self.frame.add(id)
        return id


def capture(
    work_tree: Path,
    scan: Scan,
    memory: StatCache,
    *,
    known: Callable[[str], bool],
    pack: Pack | None,
    limits: SnapshotLimits,
) -> Captured:
    """Read the files that changed since the last snapshot, and build the tree of a new one."""
    keeper, found = _ObjectWriter(known, pack), _Found(list(scan.left_out), set(), [])
    files = dict(_files(os.fsencode(work_tree), scan, memory, keeper, limits, found))
    folders = {path: permissions(mode) for path, (mode, _) in scan.folders.items() if path}
    root = _root(files, folders, found.in_use, keeper)
    found.left_out.sort(key=lambda one: one.path)
    return Captured(
        tree=root,
        files=files,
        folders=folders,
        frame=frozenset(keeper.frame),
        left_out=tuple(found.left_out),
        own=frozenset(scan.own),
        stores=frozenset(found.stores),
    )


class _Found(NamedTuple):
    """Files that are not captured."""

    left_out: list[LeftOut]
    stores: set[bytes]
    in_use: list[bytes]


def _files(
    work_tree: bytes,
    scan: Scan,
    memory: StatCache,
    keeper: _ObjectWriter,
    limits: SnapshotLimits,
    found: _Found,
) -> Iterator[tuple[bytes, KnownFile]]:
    for _, stamps in scan.folders.values():
        for path, stamp in stamps.items():
            known = memory.found(path, stamp)
            if known is not None and not known.database and main_file(path) is None:
                yield path, known
                continue
            full = os.path.join(work_tree, path)
            try:
                kept = (
                    _unchanged_database(full, known)
                    if known
                    else _read(full, stamp, keeper, limits, scan.begun)
                )
            except FileNotFoundError:
                continue
            except OSError as error:
                found.left_out.append(LeftOut(path, f"it cannot be read: {error.strerror}"))
            except OwnFile:
                found.stores.add(path)
            except InUse as error:
                found.in_use.append(path)
                found.left_out.append(LeftOut(path, str(error)))
            except UnreadableFile as error:
                found.left_out.append(LeftOut(path, str(error)))
            else:
                yield path, kept


def _unchanged_database(path: bytes, known: KnownFile) -> KnownFile:
    """Return the remembered file of a database. Raise InUse if it is in use."""
    if not _is_link(known):
        check_main_file(path)
        with Opened(path) as file:
            file.check()
    return known


def _read(
    path: bytes, stamp: FileStat, keeper: _ObjectWriter, limits: SnapshotLimits, begun: int
) -> KnownFile:
    if stat.S_ISLNK(stamp.mode):
        return remembered(stamp, keeper.keep(BLOB, os.readlink(path)), begun=begun)
    data, status = read_regular(path, most=limits.file_bytes)
    if (status.st_dev, status.st_ino) != (stamp.device, stamp.inode):
        raise UnreadableFile("it was replaced while it was read; the next snapshot will have it")
    database = kind_of(data) == "database"
    return remembered(stamp, keeper.keep(BLOB, data), begun=begun, database=database)


def _entry(file: KnownFile) -> FileEntry:
    return (
        FileEntry(True, 0, file.blob)
        if _is_link(file)
        else FileEntry(False, permissions(file.stamp.mode), file.blob)
    )


def _root(
    files: dict[bytes, KnownFile], folders: dict[bytes, int], in_use: list[bytes], keeper: _ObjectWriter
) -> str:
    modes = {path: permissions(file.stamp.mode) for path, file in files.items() if not _is_link(file)}
    filled = {path.rpartition(b"/")[0] for paths in (files, folders) for path in paths}
    written = Modes.of(modes, folders, empty=folders.keys() - filled).encoded()
    lines = [
        Leaf(FILES.encode(), FOLDER, _files_tree(files, folders, keeper)),
        Leaf(MODES.encode(), FILE, keeper.keep_frame(BLOB, written)),
    ]
    if in_use:
        names = b"".join(path + b"\0" for path in sorted(in_use))
        lines.append(Leaf(LEFT.encode(), FILE, keeper.keep_frame(BLOB, names)))
    return keeper.keep_frame(TREE, tree(lines))


def _files_tree(files: dict[bytes, KnownFile], folders: dict[bytes, int], keeper: _ObjectWriter) -> str:
    """Build the trees of all folders, the deepest first; git has no tree for an empty folder."""
    leaves: dict[bytes, list[Leaf]] = {b"": [], **{folder: [] for folder in folders}}
    for path, file in files.items():
        folder, _, name = path.rpartition(b"/")
        leaves[folder].append(Leaf(name, _git_mode(file.stamp.mode), file.blob))
    for path in reversed(folders):
        if leaves[path]:
            folder, _, name = path.rpartition(b"/")
            leaves[folder].append(Leaf(name, FOLDER, keeper.keep_frame(TREE, tree(leaves[path]))))
    return keeper.keep_frame(TREE, tree(leaves[b""]))


def _is_link(file: KnownFile) -> bool:
    return stat.S_ISLNK(file.stamp.mode)


@cache
def _git_mode(mode: int) -> bytes:
    return LINK if stat.S_ISLNK(mode) else EXECUTABLE if is_program(mode) else FILE
