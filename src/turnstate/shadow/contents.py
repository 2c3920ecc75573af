"""What changed between two snapshots: which files, by how many lines, and the text of it for people.

Git compares the trees, with every outside program switched off. Modes that git does not know are
compared by us, and only where the blob that holds them differs; a folder is named with a slash.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Literal, NamedTuple

from ..errors import CheckpointsDamaged
from .capture import FILES, LEFT, MODES
from .git import Git, Objects
from .objects import AROUND, EXECUTABLE, FOLDER, LINK, Leaf, Modes, object_id, parents, tree
from .values import Diff, FileDiff, FileEntry, Listing, shown

__all__ = ["EMPTY", "Commit", "Reader", "diff", "difference", "left_databases", "listing", "tree_of"]

# Snapshots read back: commits, trees, and what a commit holds with all its modes.


class Commit(NamedTuple):
    """A snapshot as git holds it."""

    id: str
    tree: str
    parents: tuple[str, ...]
    seconds: int
    message: str
    is_checkpoint: bool


class Reader:
    """Reads commits and trees; `opened` returns one."""

    def __init__(self, objects: Objects) -> None:
        self.objects = objects
        self._trees = dict[str, tuple[Leaf, ...]]()

    @classmethod
    @contextmanager
    def opened(cls, git: Git) -> Iterator[Reader]:
        """Open a reader of a repository."""
        with git.objects() as objects:
            yield cls(objects)

    def commit(self, id: str) -> Commit:
        """Read a commit."""
        head, _, message = self.objects.read(id).decode(errors="replace").partition("\n\n")
        fields = [line.split(" ") for line in head.split("\n")]
        try:
            (tree,) = (value for name, value, *_ in fields if name == "tree")
            above = tuple(value for name, value, *_ in fields if name == "parent")
            (seconds,) = (int(words[-2]) for words in fields if words[0] == "committer")
        except (ValueError, IndexError):
            raise CheckpointsDamaged(f"object {id} is not a commit") from None
        is_checkpoint = AROUND not in head.split("\n")
        return Commit(id, tree, above, seconds, message.rstrip("\n"), is_checkpoint)

    def tree(self, id: str) -> tuple[Leaf, ...]:
        """Read a tree."""
        if id not in self._trees:
            self._trees[id] = _leaves(id, self.objects.read(id))
        return self._trees[id]

    def parts(self, tree: str) -> tuple[str, str]:
        """Return the names of a snapshot's files, which are a tree, and of its modes."""
        found = {leaf.name: leaf.id for leaf in self.tree(tree)}
        if not {FILES.encode(), MODES.encode()} <= found.keys():
            raise CheckpointsDamaged(f"tree {tree} is not that of a snapshot")
        return found[FILES.encode()], found[MODES.encode()]

    def files(self, tree: str, before: bytes = b"") -> Iterator[tuple[bytes, Leaf]]:
        """Walk through the files and links of a tree, with their paths."""
        for leaf in self.tree(tree):
            if leaf.mode == FOLDER:
                yield from self.files(leaf.id, before + leaf.name + b"/")
            else:
                yield before + leaf.name, leaf

    def listing(self, tree: str) -> Listing:
        """Read what the tree of a snapshot holds."""
        root, modes = self.parts(tree)
        kept = Modes.decoded(self.objects.read(modes))
        files = {
            path: FileEntry(
                leaf.mode == LINK,
                0 if leaf.mode == LINK else kept.file(path, program=leaf.mode == EXECUTABLE),
                leaf.id,
            )
            for path, leaf in self.files(root)
        }
        folders = {folder for path in (*files, *kept.empty) for folder in parents(path)} | {*kept.empty}
        return Listing(files, {folder: kept.folder(folder) for folder in sorted(folders)})

    def left_databases(self, tree: str) -> set[bytes]:
        """Name the files that a snapshot does not hold because they belonged to databases in use."""
        found = [leaf.id for leaf in self.tree(tree) if leaf.name == LEFT.encode()]
        return {path for id in found for path in self.objects.read(id).split(b"\0")[:-1]}

    def ordered(self, heads: Iterable[str]) -> dict[str, Commit]:
        """Read the commits that lead to the heads, each after its parents, as far as they can be read."""
        found, seen = dict[str, Commit](), set[str]()
        for head in heads:
            waiting: list[str | Commit] = [head]
            while waiting:
                match waiting.pop():
                    case Commit() as commit:
                        found[commit.id] = commit
                    case str(id) if id and id not in seen:
                        seen.add(id)
                        try:
                            commit = self.commit(id)
                        except CheckpointsDamaged:
                            continue
                        waiting += [commit, *reversed(commit.parents)]
        return found


def listing(git: Git, commit: str) -> Listing:
    """Read what a commit holds."""
    with Reader.opened(git) as reader:
        return reader.listing(reader.commit(commit).tree)


def left_databases(git: Git, commit: str) -> set[bytes]:
    """Name the files that a commit does not hold because they belonged to databases in use."""
    with Reader.opened(git) as reader:
        return reader.left_databases(reader.commit(commit).tree)


def tree_of(git: Git, commit: str) -> str:
    """Return the name of a commit's tree."""
    with Reader.opened(git) as reader:
        return reader.commit(commit).tree


def _leaves(id: str, data: bytes) -> tuple[Leaf, ...]:
    found, place = list[Leaf](), 0
    while place < len(data):
        end = data.find(b"\0", place)
        mode, _, name = data[place:end].partition(b" ")
        if end < 0 or not name or len(data) < end + 21:
            raise CheckpointsDamaged(f"object {id} is not a tree")
        found.append(Leaf(name, mode, data[end + 1 : end + 21].hex()))
        place = end + 21
    return tuple(found)


EMPTY = object_id("tree", tree([]))
"""The tree that holds nothing, which git knows without being told."""

_SAFE = ("--no-ext-diff", "--no-textconv", "--no-color", "--ignore-submodules=none")
_STATUS: dict[bytes, Literal["added", "modified", "deleted"]] = {b"A": "added", b"D": "deleted"}


def difference(git: Git, before: str, after: str) -> tuple[FileDiff, ...]:
    """Say which files differ between two trees of snapshots; nothing before the first one."""
    trees = _trees(before, after)
    lines = git.run("diff-tree", "-r", "-z", "--no-renames", "--name-status", *_SAFE, *trees).split(b"\0")[
        :-1
    ]
    found = {
        path: FileDiff(path=path, status=_STATUS.get(letter, "modified"))
        for letter, path in zip(lines[::2], lines[1::2], strict=True)
    }
    for file in _modes_differ(git, before, after):
        found.setdefault(file.path, file)
    return tuple(found[path] for path in sorted(found))


def diff(git: Git, before: str, after: str) -> Diff:
    """Compare two trees of snapshots, with lines counted and shown."""
    trees = _trees(before, after)
    counted = _lines(git.run("diff-tree", "-r", "-z", "--no-renames", "--numstat", *_SAFE, *trees))
    files = tuple(
        FileDiff(
            path=file.path,
            status=file.status,
            lines_added=counts[0] or 0,
            lines_removed=counts[1] or 0,
            binary=counts[0] is None,
        )
        for file in difference(git, before, after)
        for counts in [counted.get(file.path, (0, 0))]
    )
    text = git.run("diff-tree", "-r", "-p", "-M", *_SAFE, *trees).decode(errors="replace")
    silent = [file for file in files if file.path not in counted]
    return Diff(
        files=files, text=text + "".join(f"{file.status} mode: {shown(file.path)}\n" for file in silent)
    )


def _trees(before: str, after: str) -> tuple[str, str]:
    return f"{before}:{FILES}" if before else EMPTY, f"{after}:{FILES}"


def _lines(said: bytes) -> dict[bytes, tuple[int | None, int | None]]:
    found = dict[bytes, tuple[int | None, int | None]]()
    for line in said.split(b"\0")[:-1]:
        added, removed, path = line.split(b"\t", 2)
        found[path] = (None, None) if added == b"-" else (int(added), int(removed))
    return found


def _modes_differ(git: Git, before: str, after: str) -> list[FileDiff]:
    """Name what differs in its mode alone, and the folders without files that came and went."""
    with Reader.opened(git) as reader:
        if before and reader.parts(before)[1] == reader.parts(after)[1]:
            return []
        old, new = reader.listing(before) if before else Listing({}, {}), reader.listing(after)
    found = [
        FileDiff(path=path, status="modified")
        for path in old.files.keys() & new.files.keys()
        if old.files[path].mode != new.files[path].mode
    ]
    bare_old, bare_new = _bare(old), _bare(new)
    found += [
        FileDiff(path=path + b"/", status="modified")
        for path in old.folders.keys() & new.folders.keys()
        if old.folders[path] != new.folders[path]
    ]
    found += [FileDiff(path=path + b"/", status="added") for path in bare_new - old.folders.keys()]
    found += [FileDiff(path=path + b"/", status="deleted") for path in bare_old - new.folders.keys()]
    return found


def _bare(of: Listing) -> set[bytes]:
    return of.folders.keys() - {path.rpartition(b"/")[0] for paths in of for path in paths}
