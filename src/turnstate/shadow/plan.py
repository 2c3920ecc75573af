"""Plans a restore before anything changes, from the current files and those of the target.

Two rules apply. First, a restore replaces or removes only files that the snapshot taken just before holds,
so an undo can bring back all of them. Second, anything in the way of the target is removed, even in a soft
restore: a file where the target has a folder, or a folder where it has a file. Such a folder goes only if
everything in it can be undone. Other newer files stay. A hard restore removes those that a checkpoint
holds, except those that were in use or being written when the target was taken. An undo removes the files
that its restore created, if they are unchanged.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence, Set
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct, structs

from .. import files as durable
from ..errors import CheckpointsDamaged
from ..own_files import SIDES, Kind, kind_of, main_file, side_files
from .contents import TAGS, Reader, left_in_use, listing, parents, references
from .git import FOLDER, Git
from .history import ordered
from .new_snapshot import Captured
from .protected import IN_USE, OURS, Owned
from .values import Changes, FileEntry, KeptPath, Listing
from .work_tree import SafeTree

_CHANGED = "it was changed after the restore that put it there"
_PAGE = 512


class Put(Struct, frozen=True, array_like=True):
    """Write a file or a link; it may replace only ``before``."""

    path: bytes
    entry: FileEntry
    before: FileEntry | None


class Remove(Struct, frozen=True, array_like=True):
    """Remove a file or a link if it is still ``before``."""

    path: bytes
    before: FileEntry


class Mode(Struct, frozen=True, array_like=True):
    """Set the permission bits of a file or folder."""

    path: bytes
    mode: int


class RestorePlan(Struct, frozen=True, kw_only=True):
    """The steps of a restore, in their order."""

    removals: tuple[Remove, ...] = ()
    emptied: tuple[bytes, ...] = ()  # folders to remove if they are empty, the deepest first
    folders: tuple[bytes, ...] = ()  # folders to create, the topmost first
    puts: tuple[Put, ...] = ()
    modes: tuple[Mode, ...] = ()
    folder_modes: tuple[Mode, ...] = ()  # the deepest first: a folder's mode may forbid changes in it

    def __bool__(self) -> bool:
        return any(getattr(self, field) for field in self.__struct_fields__)

    @property
    def paths(self) -> list[bytes]:
        """The files that are written or removed."""
        return [*(one.path for one in self.puts), *(one.path for one in self.removals)]

    def changes(self, kept: Collection[KeptPath]) -> Changes:
        """Return what the plan changed, except for the paths that were left alone."""
        left = {one.path for one in kept}
        added = {put.path for put in self.puts if put.before is None} - left
        modified = ({put.path for put in self.puts if put.before} | {mode.path for mode in self.modes}) - left
        deleted = {removal.path for removal in self.removals} - left - added - modified
        return Changes(
            added=tuple(sorted(added)), modified=tuple(sorted(modified)), deleted=tuple(sorted(deleted))
        )


class RestoreRecord(Struct, frozen=True, kw_only=True):
    """The files that a restore created and those that it removed; an undo needs both."""

    put: dict[bytes, FileEntry] = {}
    removed: dict[bytes, FileEntry] = {}
    folders: tuple[bytes, ...] = ()

    @classmethod
    def of(cls, plan: RestorePlan, kept: Collection[KeptPath]) -> RestoreRecord:
        """Return the record of a plan that was carried out, except for the paths that were left alone."""
        left = {one.path for one in kept}
        return cls(
            put={one.path: one.entry for one in plan.puts if one.before is None and one.path not in left},
            removed={one.path: one.before for one in plan.removals if one.path not in left},
            folders=tuple(path for path in plan.folders if path not in left),
        )

    def encoded(self) -> bytes:
        """Return the record as bytes."""
        return msgspec.msgpack.encode(self)

    @classmethod
    def decoded(cls, data: bytes) -> RestoreRecord:
        """Parse a record. Raise CheckpointsDamaged if it is invalid."""
        try:
            return msgspec.msgpack.decode(data, type=cls)
        except msgspec.DecodeError as error:
            raise CheckpointsDamaged(f"the record of a restore cannot be read: {error}") from error


def restore_plan(
    git: Git, work_tree: Path, captured: Captured, owned: Owned, *, target: str, base: str, hard: bool
) -> tuple[RestorePlan, tuple[KeptPath, ...]]:
    """Plan a restore; return the plan and the paths that it leaves alone.

    ``base`` is the newest checkpoint.
    """
    live = captured.listing()
    owned = owned.with_paths(captured.own)
    wanted = owned.without(listing(git, target))
    unwanted, unwanted_folders = set[bytes](), set[bytes]()
    if hard:
        files, folders = newer(live, wanted), live.folders.keys() - wanted.folders.keys()
        before = listing(git, base) if base and (files or folders) else Listing({}, {})
        unwanted = files & before.files.keys()
        if unsure := files - unwanted:
            unwanted |= unsure & _paths_ever_kept(git, base)
        unwanted -= left_in_use(git, target) if unwanted else set()
        unwanted_folders = folders & before.folders.keys()
    return _allowed(git, work_tree, owned, live, wanted, unwanted, unwanted_folders)


def undo_plan(
    git: Git,
    work_tree: Path,
    captured: Captured,
    owned: Owned,
    *,
    target: str,
    record: RestoreRecord,
    most: int,
) -> tuple[RestorePlan, tuple[KeptPath, ...]]:
    """Plan the undo of a restore; return the plan and the paths that it leaves alone.

    These include the files that the restore created and that were changed since.
    """
    live = captured.listing()
    live = Listing(dict(live.files), dict(live.folders))
    owned = owned.with_paths(captured.own)
    wanted = owned.without(listing(git, target))
    for path, entry in record.removed.items():
        wanted.files.setdefault(path, entry)
        for folder in parents(path):
            wanted.folders.setdefault(folder, durable.FOLDER_MODE)
    with SafeTree.opened(work_tree, owned) as tree:
        for path, entry in record.put.items():  # also ignored files, which the current snapshot does not hold
            if path not in live.files and tree.state_of(path, most=most).matches(entry):
                live.files[path] = entry
    there = {path: entry for path, entry in record.put.items() if path in live.files.keys() - wanted.files}
    changed = [path for path, entry in there.items() if live.files[path] != entry]
    unwanted = there.keys() - set(changed)
    unwanted -= left_in_use(git, target) if unwanted else set()
    unwanted_folders = set(record.folders) - wanted.folders.keys()
    steps, kept = _allowed(git, work_tree, owned, live, wanted, unwanted, unwanted_folders)
    return steps, (*kept, *(KeptPath(path, _CHANGED) for path in sorted(changed)))


def without_unchanged(work_tree: Path, steps: RestorePlan, owned: Owned, *, most: int) -> RestorePlan:
    """Drop files that the current snapshot does not hold but that already have the bytes of the target."""
    with SafeTree.opened(work_tree, owned) as tree:
        puts = tuple(
            put
            for put in steps.puts
            if put.before is not None or not tree.state_of(put.path, most=most).matches(put.entry)
        )
    return structs.replace(steps, puts=puts)


def _allowed(
    git: Git,
    work_tree: Path,
    owned: Owned,
    live: Listing,
    wanted: Listing,
    unwanted: Set[bytes],
    unwanted_folders: Set[bytes],
) -> tuple[RestorePlan, tuple[KeptPath, ...]]:
    """Plan the steps from the live files to the wanted ones, except at paths that must be left alone."""
    held = {path for path in blocking_folders(live, wanted) if _holds_unknown_files(work_tree, path, live)}
    kept = [
        KeptPath(path, "a folder with files that no snapshot holds is in the way") for path in sorted(held)
    ]

    def steps(untouchable: Set[bytes]) -> RestorePlan:
        return plan(
            live, wanted, unwanted=unwanted, unwanted_folders=unwanted_folders, untouchable=untouchable
        )

    first = steps(held)
    refused = _refused(git, work_tree, first.puts, wanted, owned)
    if not refused:
        return first, tuple(kept)
    kept += [KeptPath(path, reason) for path, reason in refused.items() if reason]
    return steps(held | refused.keys()), tuple(sorted(kept, key=lambda one: one.path))


def newer(live: Listing, target: Listing) -> set[bytes]:
    """Return the files that exist now but not in the target."""
    return live.files.keys() - target.files.keys()


def blocking_folders(live: Listing, target: Listing) -> set[bytes]:
    """Return the folders that are where the target has a file."""
    return live.folders.keys() & target.files.keys()


def plan(
    live: Listing,
    target: Listing,
    *,
    unwanted: Collection[bytes] = (),
    unwanted_folders: Collection[bytes] = (),
    untouchable: Collection[bytes] = (),
) -> RestorePlan:
    """Plan the steps from the live files to the target.

    ``unwanted`` files are removed, and folders once they are empty. ``untouchable`` paths stay as they are.
    """
    wanted = {path: entry for path, entry in target.files.items() if path not in untouchable}
    blocked = blocking_folders(live, target) - set(untouchable)
    under = {path for path in live.files if blocked and not blocked.isdisjoint(parents(path))}
    gone = (set(unwanted) | under | (live.files.keys() & target.folders.keys())) - wanted.keys()
    folders_gone = {folder for path in gone for folder in parents(path)} | set(unwanted_folders) | blocked
    folders_gone |= {path for path in live.folders if blocked and not blocked.isdisjoint(parents(path))}
    fresh = target.folders.keys() - live.folders.keys()
    return RestorePlan(
        removals=tuple(Remove(path, live.files[path]) for path in sorted(gone)),
        emptied=tuple(sorted((folders_gone & live.folders.keys()) - target.folders.keys(), reverse=True)),
        folders=tuple(sorted(fresh)),
        puts=tuple(
            Put(path, entry, live.files.get(path))
            for path, entry in sorted(wanted.items())
            if not _same_bytes(entry, live.files.get(path))
        ),
        modes=tuple(
            Mode(path, entry.mode)
            for path, entry in sorted(wanted.items())
            if _same_bytes(entry, live.files.get(path)) and entry.mode != live.files[path].mode
        ),
        folder_modes=tuple(
            Mode(path, mode)
            for path, mode in sorted(target.folders.items(), reverse=True)
            if live.folders.get(path) != mode
        ),
    )


def _same_bytes(entry: FileEntry, other: FileEntry | None) -> bool:
    return other is not None and (entry.link, entry.blob) == (other.link, other.blob)


def _refused(
    git: Git, work_tree: Path, puts: Sequence[Put], wanted: Listing, owned: Owned
) -> dict[bytes, str]:
    """Return the files that must not be written, and why: a store or a database in use is or would be there.

    Older snapshots hold such files. The reason is empty for a store in the snapshot, because leaving it out
    needs no report. If the current file at a path was captured just now, it needs no check.
    """
    refused = dict[bytes, str]()
    mains = {main for put in puts if (main := main_file(put.path)) in wanted.files}
    blobs = {put.entry.blob for put in puts} | {wanted.files[main].blob for main in mains}
    kinds = _Kinds(git, blobs)
    with SafeTree.opened(work_tree, owned) as tree:
        for put in puts:
            kind, main = kinds.of(put.path, put.entry), main_file(put.path)
            beside = kinds.of(main, wanted.files[main]) if main in wanted.files else "file"
            met = tree.refusal(put.path) if put.before is None else ""
            if "store" in (kind, beside) or (met == OURS and (kind != "file" or main is not None)):
                refused[put.path] = ""
            elif met:
                refused[put.path] = met
            elif "database" in (kind, beside) and (
                beside != "file"
                or tree.is_in_use(put.path)
                or not wanted.files.keys().isdisjoint(side_files(put.path))
            ):
                refused[put.path] = IN_USE
    return refused


class _Kinds:
    """Finds the kinds of a snapshot's files by their first bytes; the size rules out most without reading."""

    def __init__(self, git: Git, blobs: Iterable[str]) -> None:
        names = "".join(f"{blob}\n" for blob in blobs).encode()
        said = git.run("cat-file", "--batch-check=%(objectname) %(objectsize)", input=names) if names else b""
        self._sizes = {name: size for name, _, size in (line.partition(b" ") for line in said.splitlines())}
        self._objects = git.objects

    def of(self, path: bytes, entry: FileEntry) -> Kind:
        """Return the kind of a file.

        The size of a database is a multiple of 512 bytes; that of its side files can be any.
        """
        size = self._sizes.get(entry.blob.encode(), b"")
        if entry.link or not size.isdigit() or not int(size):
            return "file"
        if int(size) % _PAGE and not path.endswith(SIDES):
            return "file"
        try:
            return kind_of(self._objects.read(entry.blob), path)
        except CheckpointsDamaged:
            return "file"  # writing it fails and reports the damage


def _paths_ever_kept(git: Git, base: str) -> set[bytes]:
    """Return the paths of all files in readable checkpoints.

    Checkpoints before a damaged one are found by their tags.
    """
    found, seen, reader = set[bytes](), set[tuple[bytes, str]](), Reader(git)
    for commit in ordered(reader, [base, *references(git, TAGS).values()]).values():
        with suppress(CheckpointsDamaged):
            waiting = [(b"", reader.parts(commit.tree)[0])] if commit.is_checkpoint else []
            while waiting:
                before, tree = waiting.pop()
                if (before, tree) in seen:
                    continue
                seen.add((before, tree))
                with suppress(CheckpointsDamaged):
                    for leaf in reader.tree(tree):
                        if leaf.mode == FOLDER:
                            waiting.append((before + leaf.name + b"/", leaf.id))
                        else:
                            found.add(before + leaf.name)
    return found


def _holds_unknown_files(work_tree: Path, folder: bytes, live: Listing) -> bool:
    """Return True if a folder has files that the current snapshot does not hold."""
    try:
        names = os.listdir(os.path.join(os.fsencode(work_tree), folder))
    except OSError:
        return True
    for name in names:
        path = folder + b"/" + name
        if path not in live.files and (
            path not in live.folders or _holds_unknown_files(work_tree, path, live)
        ):
            return True
    return False
