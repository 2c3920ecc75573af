"""Removes the bytes and names of files that are ignored now from every snapshot.

All snapshots are rewritten without these files. The conversation log keeps the old ids, so a reference
named after each old id points to the new snapshot. Then all objects that are still in use go into one
pack, and all other packs are removed. An interrupted purge can be repeated: it creates the same snapshots
again, and old packs are removed last.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from msgspec import Struct, structs

from .. import folder_gate
from ..files import sync_folder
from .contents import (
    FILES,
    LEFT,
    MODES,
    RECORDS,
    REFS,
    RULES,
    TAGS,
    WAS,
    Commit,
    Modes,
    Reader,
    parents,
    references,
    store_pack,
    update_references,
)
from .folder import ASIDE
from .git import BLOB, COMMIT, FOLDER, TREE, Git, Leaf, Pack, tree
from .history import ordered
from .ignore import MAX_RULES_BYTES, Rules
from .ignore import RULES as IGNORE
from .new_snapshot import STAMPS, ShadowSettings
from .packs import remove_pack
from .plan import RestoreRecord


class Purged(Struct, frozen=True, kw_only=True):
    """The result of a purge: the removed paths, how many snapshots changed, and the bytes freed."""

    paths: tuple[bytes, ...]
    snapshots: int
    freed: int


def ignored_now(settings: ShadowSettings, git: Git) -> tuple[bytes, ...]:
    """Return the files in snapshots that the rules in the work tree ignore now."""
    reader = Reader(git)
    files, _ = _ignored(settings, git, reader, [one.tree for one in _commits(git, reader).values()])
    return tuple(sorted(files))


def purge(settings: ShadowSettings, git: Git) -> Purged:
    """Remove the files that are ignored now from all snapshots, so that no object holds a byte of them."""
    before, reader = _size(git.folder), Reader(git)
    with Pack(settings.folder) as pack:
        commits = _commits(git, reader)
        files, folders = _ignored(settings, git, reader, [one.tree for one in commits.values()])
        rewriter = _Rewriter(reader, pack, files, folders)
        new = {id: rewriter.commit(commit) for id, commit in commits.items()}
        records = {
            RECORDS + tag: rewriter.record(blob) for tag, blob in references(git, RECORDS).items() if blob
        }
        store_pack(git, pack)
    moved = {old: commit for old, commit in new.items() if old != commit}
    was = {**{old: new.get(id, id) for old, id in references(git, WAS).items()}, **moved}
    update_references(git, {WAS + old: commit for old, commit in was.items()})
    names = {
        under + name: new.get(id, id)
        for under in (REFS, TAGS, RULES)
        for name, id in references(git, under).items()
        if id
    }
    update_references(git, names | records)
    _repack(git)
    (settings.folder / STAMPS).unlink(missing_ok=True)  # it names objects that may be gone
    shutil.rmtree(settings.folder / ASIDE, ignore_errors=True)
    sync_folder(settings.folder)
    return Purged(paths=tuple(sorted(files)), snapshots=len(moved), freed=max(0, before - _size(git.folder)))


class _Rewriter:
    """Rewrites snapshots without some paths; unchanged objects keep their ids."""

    def __init__(self, reader: Reader, pack: Pack, files: set[bytes], folders: set[bytes]) -> None:
        self._reader, self._pack, self._files, self._folders = reader, pack, files, folders
        self._done = dict[tuple[bytes, str], tuple[str, tuple[bytes, ...]]]()
        self._new = dict[str, str]()

    def commit(self, commit: Commit) -> str:
        """Rewrite a commit; its parents must have been rewritten before."""
        root, modes = self._reader.parts(commit.tree)
        files, emptied = self._tree(b"", root)
        written = {FILES.encode(): files, MODES.encode(): self._modes(modes, emptied)}
        if left := [one for one in self._reader.left_in_use(commit.tree) if not self._is_out(one)]:
            written[LEFT.encode()] = self._pack.add(BLOB, b"".join(path + b"\0" for path in sorted(left)))
        leaves = [
            Leaf(leaf.name, leaf.mode, written[leaf.name])
            for leaf in self._reader.tree(commit.tree)
            if leaf.name in written
        ]
        head, _, message = self._reader.objects.read(commit.id).partition(b"\n\n")
        lines = head.split(b"\n")
        lines[0] = b"tree " + self._pack.add(TREE, tree(leaves)).encode()
        above = [b"parent " + self._new.get(one, one).encode() for one in commit.parents]
        rest = [line for line in lines[1:] if not line.startswith(b"parent ")]
        data = b"\n".join([lines[0], *above, *rest]) + b"\n\n" + message
        self._new[commit.id] = self._pack.add(COMMIT, data)
        return self._new[commit.id]

    def record(self, blob: str) -> str:
        """Rewrite the record of a restore."""
        record = RestoreRecord.decoded(self._reader.objects.read(blob))
        kept = structs.replace(
            record,
            put={path: entry for path, entry in record.put.items() if not self._is_out(path)},
            removed={path: entry for path, entry in record.removed.items() if not self._is_out(path)},
            folders=tuple(path for path in record.folders if not self._is_out(path)),
        )
        return self._pack.add(BLOB, kept.encoded())

    def _tree(self, before: bytes, id: str) -> tuple[str, tuple[bytes, ...]]:
        """Rewrite a tree; return its id and the folders that became empty."""
        if (before, id) not in self._done:
            leaves, emptied = list[Leaf](), list[bytes]()
            for leaf in self._reader.tree(id):
                path = before + leaf.name
                if path in self._files or path in self._folders:
                    continue
                if leaf.mode != FOLDER:
                    leaves.append(leaf)
                    continue
                inner, more = self._tree(path + b"/", leaf.id)
                emptied += more
                if inner:
                    leaves.append(Leaf(leaf.name, leaf.mode, inner))
                elif not more:
                    emptied.append(path)
            written = self._pack.add(TREE, tree(leaves)) if leaves or not before else ""
            self._done[before, id] = written, tuple(emptied)
        return self._done[before, id]

    def _modes(self, blob: str, emptied: tuple[bytes, ...]) -> str:
        modes = Modes.decoded(self._reader.objects.read(blob))
        kept = modes._replace(
            files={path: mode for path, mode in modes.files.items() if not self._is_out(path)},
            folders={path: mode for path, mode in modes.folders.items() if not self._is_out(path)},
            empty=tuple(sorted({path for path in modes.empty if not self._is_out(path)} | {*emptied})),
        )
        return self._pack.add(BLOB, kept.encoded())

    def _is_out(self, path: bytes) -> bool:
        return path in self._files or not self._folders.isdisjoint((path, *parents(path)))


def _commits(git: Git, reader: Reader) -> dict[str, Commit]:
    """Return all commits that references lead to, parents first. Raise CheckpointsDamaged if one is bad."""
    tips = {id for under in (REFS, TAGS, RULES, WAS) for id in references(git, under).values() if id}
    commits = ordered(reader, sorted(tips))
    for id in {*tips, *(one for commit in commits.values() for one in commit.parents)} - commits.keys():
        reader.commit(id)  # raises an error that says what is wrong
    return commits


def _ignored(
    settings: ShadowSettings, git: Git, reader: Reader, trees: list[str]
) -> tuple[set[bytes], set[bytes]]:
    """Return the files and the folders of these trees that are ignored now, whether or not they exist."""
    inside = dict[bytes, set[bytes]]()  # the files of each folder
    below = dict[bytes, set[bytes]]()  # the folders of each folder
    for folder, files, folders in _folders(reader, trees):
        inside.setdefault(folder, set()).update(files)
        below.setdefault(folder, set()).update(folders)
    ignored_files, ignored_folders = set[bytes](), set[bytes]()
    with Rules.opened(git, settings.work_tree, force=settings.force) as rules:
        rules.also(dict(_live_rules(settings.work_tree, inside)), instead=True)
        level = {b""}
        while level:
            for folder in level:
                if os.path.lexists(settings.work_tree / os.fsdecode(folder) / ".git"):
                    rules.enter(folder)
            files = {path for folder in level for path in inside[folder]}
            folders = {path for folder in level for path in below[folder]}
            found = rules.ignored([*files, *folders], folders)
            ignored_files |= found & files
            ignored_folders |= found & folders
            level = folders - found
    under = {
        path
        for folder, files in inside.items()
        if not ignored_folders.isdisjoint((folder, *parents(folder)))
        for path in files
    }
    return ignored_files | under, ignored_folders


def _folders(reader: Reader, trees: list[str]) -> Iterator[tuple[bytes, set[bytes], set[bytes]]]:
    """Yield every folder of the snapshots once, with the files and folders in it."""
    seen = set[tuple[bytes, str]]()
    waiting = [(b"", reader.parts(one)[0]) for one in trees]
    for one in trees:
        for path in Modes.decoded(reader.objects.read(reader.parts(one)[1])).empty:
            yield path.rpartition(b"/")[0], set(), {path}
            yield path, set(), set()
    while waiting:
        folder, id = waiting.pop()
        if (folder, id) in seen:
            continue
        seen.add((folder, id))
        before = folder + b"/" if folder else b""
        leaves = reader.tree(id)
        folders = {before + leaf.name: leaf.id for leaf in leaves if leaf.mode == FOLDER}
        waiting += folders.items()
        yield folder, {before + leaf.name for leaf in leaves if leaf.mode != FOLDER}, {*folders}


def _live_rules(work_tree: Path, folders: dict[bytes, set[bytes]]) -> Iterator[tuple[bytes, bytes]]:
    """Yield the ignore rules in these folders, without following links."""
    top = os.fsencode(work_tree)
    for folder in folders:
        path = os.path.join(folder, IGNORE)
        full = os.path.join(top, path)
        if os.path.isfile(full) and os.path.realpath(full) == full:
            with suppress(folder_gate.OpenHere), folder_gate.stream(full) as file:
                yield path, file.read(MAX_RULES_BYTES)


def _repack(git: Git) -> None:
    """Put all objects that are in use into one pack and remove the others."""
    folder = git.folder / "objects"
    made = git.run("pack-objects", "--all", "--delta-base-offset", "--quiet", str(folder / "pack" / "pack"))
    sync_folder(folder / "pack")
    for pack in (folder / "pack").glob("pack-*.pack"):
        if pack.stem != f"pack-{made.decode().strip()}":
            remove_pack(pack)
    for loose in folder.glob("[0-9a-f][0-9a-f]"):
        shutil.rmtree(loose)
    sync_folder(folder / "pack")


def _size(folder: Path) -> int:
    return sum(path.lstat().st_size for path in (folder / "objects").rglob("*") if path.is_file())
