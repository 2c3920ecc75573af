"""Snapshots read back: commits, trees, and what a commit holds with all its modes.

Every object is checked against its name when it is read, so a damaged index of a pack cannot pass one
object off as another. A reader parses each tree once, whatever number of snapshots share it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from ..errors import CheckpointsDamaged
from .capturing import FILES, LEFT, MODES
from .git import Git, Objects
from .modes import Modes, parents
from .objects import AROUND, EXECUTABLE, FOLDER, LINK, Leaf
from .values import Entry, Listing

__all__ = ["Commit", "Reader", "left_databases", "listing", "tree_of"]


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
            path: Entry(
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
