"""The contents of a snapshot: how files and modes are kept as git objects, read back and compared.

The tree of a snapshot has two entries: `files`, the work tree as git would keep it, and `modes`, what git
does not keep: permission bits and empty folders. A third, `left`, names the databases that were in use,
if any: they existed, so no restore of this snapshot may remove them.

Git compares the trees, with every external program switched off. Modes are compared here, and only if
the blobs that hold them differ; the path of a folder ends in a slash.
"""

from __future__ import annotations

import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, NamedTuple

from ..errors import CheckpointsDamaged, NewerFormat
from .git import AROUND, EXECUTABLE, FOLDER, LINK, Git, Leaf, object_id, tree
from .values import Diff, FileDiff, FileEntry, Listing, shown

__all__ = [
    "EMPTY",
    "FILES",
    "LEFT",
    "MODES",
    "Commit",
    "Modes",
    "Reader",
    "diff",
    "difference",
    "is_program",
    "left_databases",
    "listing",
    "parents",
    "permissions",
    "split",
    "tree_of",
]

FILES, MODES, LEFT = "files", "modes", "left"
EMPTY = object_id("tree", tree([]))
"""The empty tree, which git knows without storing it."""

_SAFE = ("--no-ext-diff", "--no-textconv", "--no-color", "--ignore-submodules=none")
_STATUS: dict[bytes, Literal["added", "modified", "deleted"]] = {b"A": "added", b"D": "deleted"}
_MAGIC = b"turnstate modes "
_VERSION = 1
_USUAL = (0o644, 0o755, 0o755)


def permissions(mode: int) -> int:
    """Return the permission bits of a mode, setuid, setgid and sticky included."""
    return stat.S_IMODE(mode)


def is_program(mode: int) -> bool:
    """Return True if git would call a file of that mode executable."""
    return bool(mode & stat.S_IXUSR)


def split(path: bytes) -> tuple[bytes, bytes]:
    """Return the folder of a path and the last name in it."""
    folder, _, name = path.rpartition(b"/")
    return folder, name


def parents(path: bytes) -> Iterator[bytes]:
    """Yield the parent folders of a path, the nearest first, without the work tree itself."""
    while b"/" in path:
        path = path.rpartition(b"/")[0]
        yield path


class Modes(NamedTuple):
    """The modes of the files and folders of a snapshot."""

    usual: tuple[int, int, int]  # of files, of programs, of folders
    files: dict[bytes, int]
    folders: dict[bytes, int]
    empty: tuple[bytes, ...]

    @classmethod
    def of(cls, files: Mapping[bytes, int], folders: Mapping[bytes, int], *, empty: Iterable[bytes]) -> Modes:
        """Collect the modes of regular files and folders, and the ``empty`` folders, which git omits."""
        counts = Counter(files.values())
        usual = (
            _most({mode: count for mode, count in counts.items() if not is_program(mode)}, _USUAL[0]),
            _most({mode: count for mode, count in counts.items() if is_program(mode)}, _USUAL[1]),
            _most(Counter(folders.values()), _USUAL[2]),
        )
        return cls(
            usual,
            {path: mode for path, mode in files.items() if mode not in usual[:2]},
            {path: mode for path, mode in folders.items() if mode != usual[2]},
            tuple(sorted(empty)),
        )

    def file(self, path: bytes, *, program: bool) -> int:
        """Return the mode of a file."""
        return self.files.get(path, self.usual[program])

    def folder(self, path: bytes) -> int:
        """Return the mode of a folder."""
        return self.folders.get(path, self.usual[2])

    def encoded(self) -> bytes:
        """Return the modes as bytes; equal modes give equal bytes."""
        head = b"%b%d\n%o %o %o\n" % (_MAGIC, _VERSION, *self.usual)
        lines = [
            *(b"f %o %b\0" % (mode, path) for path, mode in sorted(self.files.items())),
            *(b"d %o %b\0" % (mode, path) for path, mode in sorted(self.folders.items())),
            *(b"e 0 %b\0" % path for path in self.empty),
        ]
        return head + b"".join(lines)

    @classmethod
    def decoded(cls, data: bytes) -> Modes:
        """Parse modes. Raise CheckpointsDamaged or NewerFormat if they cannot be read."""
        try:
            magic, usual, lines = data.split(b"\n", 2)
            if not magic.startswith(_MAGIC):
                raise ValueError("it has another header")
            if int(magic.removeprefix(_MAGIC)) > _VERSION:
                raise NewerFormat(
                    "the modes of the snapshot were written by a newer Turnstate; update this one"
                )
            records = [line.split(b" ", 2) for line in lines.split(b"\0")[:-1]]
            plain, programs, folders = (int(mode, 8) for mode in usual.split())
            return cls(
                (plain, programs, folders),
                {path: int(mode, 8) for kind, mode, path in records if kind == b"f"},
                {path: int(mode, 8) for kind, mode, path in records if kind == b"d"},
                tuple(path for kind, _, path in records if kind == b"e"),
            )
        except ValueError as error:
            if isinstance(error, NewerFormat):
                raise
            raise CheckpointsDamaged(f"the modes of the snapshot cannot be read: {error}") from error


def _most(counts: Mapping[int, int], otherwise: int) -> int:
    """Return the most frequent mode, the lowest if several are."""
    return min(counts, key=lambda mode: (-counts[mode], mode), default=otherwise)


class Commit(NamedTuple):
    """A snapshot as git holds it."""

    id: str
    tree: str
    parents: tuple[str, ...]
    seconds: int
    message: str
    is_checkpoint: bool


class Reader:
    """Reads commits and trees of a repository."""

    def __init__(self, git: Git) -> None:
        self.objects = git.objects
        self._trees = dict[str, tuple[Leaf, ...]]()

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
        """Return the ids of the files tree and the modes blob of a snapshot."""
        found = {leaf.name: leaf.id for leaf in self.tree(tree)}
        if not {FILES.encode(), MODES.encode()} <= found.keys():
            raise CheckpointsDamaged(f"tree {tree} is not that of a snapshot")
        return found[FILES.encode()], found[MODES.encode()]

    def files(self, tree: str, before: bytes = b"") -> Iterator[tuple[bytes, Leaf]]:
        """Yield the files and links of a tree with their paths."""
        for leaf in self.tree(tree):
            if leaf.mode == FOLDER:
                yield from self.files(leaf.id, before + leaf.name + b"/")
            else:
                yield before + leaf.name, leaf

    def listing(self, tree: str) -> Listing:
        """Return the files and folders of a snapshot tree."""
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
        """Return the paths that a snapshot does not hold because they belonged to databases in use."""
        found = [leaf.id for leaf in self.tree(tree) if leaf.name == LEFT.encode()]
        return {path for id in found for path in self.objects.read(id).split(b"\0")[:-1]}

    def ordered(self, heads: Iterable[str]) -> dict[str, Commit]:
        """Return the readable ancestors of the heads, and the heads, each after its parents."""
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
    """Return the files and folders of a commit."""
    reader = Reader(git)
    return reader.listing(reader.commit(commit).tree)


def left_databases(git: Git, commit: str) -> set[bytes]:
    """Return the paths that a commit does not hold because they belonged to databases in use."""
    reader = Reader(git)
    return reader.left_databases(reader.commit(commit).tree)


def tree_of(git: Git, commit: str) -> str:
    """Return the name of a commit's tree."""
    return Reader(git).commit(commit).tree


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


def difference(git: Git, before: str, after: str) -> tuple[FileDiff, ...]:
    """Return the files that differ between two snapshot trees; ``before`` is empty for the first snapshot."""
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
    """Compare two snapshot trees: the files, how many lines changed, and the text of the diff."""
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
    """Return what differs only in its mode, and the empty folders that were added or deleted."""
    reader = Reader(git)
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
