"""What a restore aims at: which of the newer files may go, and which folders must not be cleared.

A hard restore removes a newer file only if a checkpoint holds its path; what the user made since is
kept, whether or not the snapshot of an undo has seen it, and so is a database that was in use when the
snapshot was taken. An undo removes what the restore put there, if it is still the same. A folder in the
way of a file is cleared only if all that is in it would be undone.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence, Set
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Self

from msgspec import structs

from .. import files as durable
from ..errors import CheckpointsDamaged
from .capture import Captured
from .contents import Reader, left_databases, listing
from .git import Git, Objects
from .objects import FOLDER, parents
from .plan import Plan, Put, blocking_folders, newer, plan
from .protected import IN_USE, OURS, SIDES, Kind, Owned, kind_of, main_file, side_files
from .refs import TAGS, references
from .restore import Record
from .safe_tree import SafeTree
from .values import FileEntry, Kept, Listing

__all__ = ["planned", "planned_undo", "without_what_is_there"]

_CHANGED = "it was changed after the restore that put it there"

_PAGE = 512
_SUSPECT = (*SIDES, b".jsonl", b".new", b".torn")  # what is told by content and has no pages


def planned(
    git: Git, work_tree: Path, captured: Captured, owned: Owned, *, target: str, base: str, hard: bool
) -> tuple[Plan, tuple[Kept, ...]]:
    """Plan a restore, and say which places it cannot take; ``base`` is the newest checkpoint."""
    live = captured.listing()
    owned = owned.with_paths(captured.own)
    wanted = owned.without(listing(git, target))
    unwanted, unwanted_folders = set[bytes](), set[bytes]()
    if hard:
        files, folders = newer(live, wanted), live.folders.keys() - wanted.folders.keys()
        before = listing(git, base) if base and (files or folders) else Listing({}, {})
        unwanted = files & before.files.keys()
        if unsure := files - unwanted:
            unwanted |= unsure & _ever_kept(git, base)
        unwanted -= left_databases(git, target) if unwanted else set()
        unwanted_folders = folders & before.folders.keys()
    return _allowed(git, work_tree, owned, live, wanted, unwanted, unwanted_folders)


def planned_undo(
    git: Git, work_tree: Path, captured: Captured, owned: Owned, *, target: str, record: Record, most: int
) -> tuple[Plan, tuple[Kept, ...]]:
    """Plan the undo of a restore, and say which of the files that it put there have changed since."""
    live = captured.listing()
    live = Listing(dict(live.files), dict(live.folders))
    owned = owned.with_paths(captured.own)
    wanted = owned.without(listing(git, target))
    for path, entry in record.removed.items():
        wanted.files.setdefault(path, entry)
        for folder in parents(path):
            wanted.folders.setdefault(folder, durable.FOLDER_MODE)
    with SafeTree.opened(work_tree, owned) as ground:
        for path, entry in record.put.items():  # also what is ignored, and so not in the snapshot of now
            if path not in live.files and ground.standing(path, most=most).is_(entry):
                live.files[path] = entry
    there = {path: entry for path, entry in record.put.items() if path in live.files.keys() - wanted.files}
    changed = [path for path, entry in there.items() if live.files[path] != entry]
    unwanted = there.keys() - set(changed)
    unwanted -= left_databases(git, target) if unwanted else set()
    unwanted_folders = set(record.folders) - wanted.folders.keys()
    steps, kept = _allowed(git, work_tree, owned, live, wanted, unwanted, unwanted_folders)
    return steps, (*kept, *(Kept(path, _CHANGED) for path in sorted(changed)))


def without_what_is_there(work_tree: Path, planned: Plan, owned: Owned, *, most: int) -> Plan:
    """Leave files alone that no snapshot of now holds, and that have the bytes they are to have."""
    with SafeTree.opened(work_tree, owned) as ground:
        puts = tuple(
            put
            for put in planned.puts
            if put.before is not None or not ground.standing(put.path, most=most).is_(put.entry)
        )
    return structs.replace(planned, puts=puts)


def _allowed(
    git: Git,
    work_tree: Path,
    owned: Owned,
    live: Listing,
    wanted: Listing,
    unwanted: Set[bytes],
    unwanted_folders: Set[bytes],
) -> tuple[Plan, tuple[Kept, ...]]:
    """Plan the way from what is there to what is wanted, but for the places that must be left alone."""
    held = {path for path in blocking_folders(live, wanted) if _holds_more(work_tree, path, live)}
    kept = [Kept(path, "a folder with files that no snapshot holds stands there") for path in sorted(held)]

    def steps(untouchable: Set[bytes]) -> Plan:
        return plan(
            live, wanted, unwanted=unwanted, unwanted_folders=unwanted_folders, untouchable=untouchable
        )

    first = steps(held)
    refused = _refused(git, work_tree, first.puts, wanted, owned)
    if not refused:
        return first, tuple(kept)
    kept += [Kept(path, reason) for path, reason in refused.items() if reason]
    return steps(held | refused.keys()), tuple(sorted(kept, key=lambda one: one.path))


def _refused(
    git: Git, work_tree: Path, puts: Sequence[Put], wanted: Listing, owned: Owned
) -> dict[bytes, str]:
    """Say which files must not be put, and why: they are or meet a store, or a database in use.

    Older snapshots hold such files. The reason is empty for a store in the snapshot, which nobody misses.
    What is in the place of a file that was captured a moment ago need not be asked for.
    """
    refused = dict[bytes, str]()
    mains = {main for put in puts if (main := main_file(put.path)) in wanted.files}
    blobs = {put.entry.blob for put in puts} | {wanted.files[main].blob for main in mains}
    with SafeTree.opened(work_tree, owned) as ground, _Kinds(git, blobs) as kinds:
        for put in puts:
            kind, main = kinds.of(put.path, put.entry), main_file(put.path)
            beside = kinds.of(main, wanted.files[main]) if main in wanted.files else "file"
            met = ground.refusal(put.path) if put.before is None else ""
            if "store" in (kind, beside) or (met == OURS and (kind != "file" or main is not None)):
                refused[put.path] = ""
            elif met:
                refused[put.path] = met
            elif "database" in (kind, beside) and (
                beside != "file"
                or ground.is_in_use(put.path)
                or not wanted.files.keys().isdisjoint(side_files(put.path))
            ):
                refused[put.path] = IN_USE
    return refused


class _Kinds:
    """What files of a snapshot are, by their first bytes; few have to be read for that."""

    def __init__(self, git: Git, blobs: Iterable[str]) -> None:
        names = "".join(f"{blob}\n" for blob in blobs).encode()
        said = git.run("cat-file", "--batch-check=%(objectname) %(objectsize)", input=names) if names else b""
        self._sizes = {name: size for name, _, size in (line.partition(b" ") for line in said.splitlines())}
        self._git, self._stack = git, ExitStack()
        self._objects: Objects | None = None

    def of(self, path: bytes, entry: FileEntry) -> Kind:
        """Tell what a file is; pages of a database have 512 bytes or a multiple."""
        size = self._sizes.get(entry.blob.encode(), b"")
        if entry.link or not size.isdigit() or not int(size):
            return "file"
        if int(size) % _PAGE and not path.endswith(_SUSPECT):
            return "file"
        if self._objects is None:
            self._objects = self._stack.enter_context(self._git.objects())
        try:
            return kind_of(self._objects.read(entry.blob), path)
        except CheckpointsDamaged:
            return "file"  # which cannot be written, and is told when that is tried

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


def _ever_kept(git: Git, base: str) -> set[bytes]:
    """Name the files that any checkpoint holds, as far as they can be read.

    Those before a damaged one are found by their tags.
    """
    found, seen = set[bytes](), set[tuple[bytes, str]]()
    with Reader.opened(git) as reader:
        commits = reader.ordered([base, *references(git, TAGS).values()]).values()
        for commit in commits:
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


def _holds_more(work_tree: Path, folder: bytes, live: Listing) -> bool:
    """Tell whether there is something in a folder that the snapshot of this moment does not hold."""
    try:
        names = os.listdir(os.path.join(os.fsencode(work_tree), folder))
    except OSError:
        return True
    for name in names:
        path = folder + b"/" + name
        if path not in live.files and (path not in live.folders or _holds_more(work_tree, path, live)):
            return True
    return False
