"""Snapshots in the repository: their contents are git objects, their names are references.

The tree of a snapshot has two entries: `files`, the work tree as git stores it, and `modes`, which holds
what git does not store: permission bits and empty folders. If databases were in use, a third entry, `left`,
lists them: they existed, so no restore of this snapshot may remove them.

Objects are synced first, then the folder of their pack, then the reference. A reference never names an
object that is not durable, so a power cut leaves either the previous snapshot or the new one. Each
operation saves the state of the repository's files, so the next one sees whether another program changed
them.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Self

import msgspec
from msgspec import Struct

from ..errors import CheckpointError, CheckpointsDamaged, NewerFormat, UnknownCheckpoint
from ..files import load_cache, save_cache, sync_folder
from .git import AROUND, EXECUTABLE, FOLDER, LINK, Git, Leaf, Pack
from .values import FileEntry, Listing

FILES, MODES, LEFT = "files", "modes", "left"
SEEN = "refs/heads/seen"
"""The newest snapshot of any kind: a checkpoint, or a snapshot taken before or after a restore."""

TAGS = "refs/tags/"
REFS = "refs/heads/"
RECORDS = "refs/restores/"
"""The records of restores, under the tags of the snapshots taken before them."""

RULES = "refs/rules/"
"""Snapshots whose ignore rules still apply after a restore replaced them, under the same tags."""

WAS = "refs/was/"
"""Rewritten commits, under their old ids, which conversation logs still contain."""

_TAG = re.compile(r"(?!.*\.\.)(?!.*\.lock$)[A-Za-z0-9](?:[A-Za-z0-9._-]{0,98}[A-Za-z0-9_-])?")
_STATE = "packs"
_STATE_MAGIC = b"turnstate packs 1\n"
_COMMIT = re.compile(r"[0-9a-f]{40}")
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
    """Return the folder and the last name of a path."""
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
        header = b"%b%d\n%o %o %o\n" % (_MAGIC, _VERSION, *self.usual)
        lines = [
            *(b"f %o %b\0" % (mode, path) for path, mode in sorted(self.files.items())),
            *(b"d %o %b\0" % (mode, path) for path, mode in sorted(self.folders.items())),
            *(b"e 0 %b\0" % path for path in self.empty),
        ]
        return header + b"".join(lines)

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
    """Return the most frequent mode; of equally frequent ones, the lowest."""
    return min(counts, key=lambda mode: (-counts[mode], mode), default=otherwise)


class Commit(NamedTuple):
    """A snapshot as git stores it."""

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
        header, _, message = self.objects.read(id).decode(errors="replace").partition("\n\n")
        fields = [line.split(" ") for line in header.split("\n")]
        try:
            (tree,) = (value for name, value, *_ in fields if name == "tree")
            above = tuple(value for name, value, *_ in fields if name == "parent")
            (seconds,) = (int(words[-2]) for words in fields if words[0] == "committer")
        except (ValueError, IndexError):
            raise CheckpointsDamaged(f"object {id} is not a commit") from None
        is_checkpoint = AROUND not in header.split("\n")
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

    def left_in_use(self, tree: str) -> set[bytes]:
        """Return the paths that a snapshot does not hold because they were in use or being written."""
        found = [leaf.id for leaf in self.tree(tree) if leaf.name == LEFT.encode()]
        return {path for id in found for path in self.objects.read(id).split(b"\0")[:-1]}


def listing(git: Git, commit: str) -> Listing:
    """Return the files and folders of a commit."""
    reader = Reader(git)
    return reader.listing(reader.commit(commit).tree)


def left_in_use(git: Git, commit: str) -> set[bytes]:
    """Return the paths that a commit does not hold because they were in use or being written."""
    reader = Reader(git)
    return reader.left_in_use(reader.commit(commit).tree)


def tree_of(git: Git, commit: str) -> str:
    """Return the id of a commit's tree."""
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


def check_tag(tag: str) -> str:
    """Return the tag. Raise CheckpointError if git could not store it as a file."""
    if not _TAG.fullmatch(tag) or _COMMIT.fullmatch(tag):
        raise CheckpointError(
            f"{tag!r:.80} is not a valid tag; use letters, digits, dots, dashes and underscores"
        )
    return tag


def references(git: Git, under: str) -> dict[str, str]:
    """Return the ids of the references under a prefix; the id of an unreadable one is empty."""
    found = dict[str, str]()
    for path in sorted((git.folder / under).glob("*")):
        found[path.name] = text if _COMMIT.fullmatch(text := _text(path)) else ""
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def newest_snapshot(git: Git) -> str:
    """Return the newest snapshot of any kind, or an empty string."""
    return references(git, REFS).get("seen", "") or newest_checkpoint(git)


def newest_checkpoint(git: Git) -> str:
    """Return the newest checkpoint, or an empty string."""
    return references(git, REFS).get("history", "")


def commit_named(git: Git, name: str) -> str:
    """Return the commit that a tag, an old id or a commit id refers to; empty for an unknown tag."""
    if _COMMIT.fullmatch(name):
        return references(git, WAS).get(name) or name
    return references(git, TAGS).get(name, "")


def is_known(git: Git, name: str) -> bool:
    """Return True if there is a snapshot with this name, readable or not."""
    tags = references(git, TAGS)
    if name in tags or name in tags.values() or name in references(git, WAS):
        return True
    return bool(_COMMIT.fullmatch(name)) and git.objects.has(name)


def resolve(git: Git, name: str) -> str:
    """Return the commit of a name. Raise UnknownCheckpoint or CheckpointsDamaged if it cannot be read."""
    try:
        return Reader(git).commit(commit_named(git, name)).id
    except CheckpointsDamaged as error:
        if is_known(git, name):
            raise CheckpointsDamaged(f"the snapshot {name:.80} cannot be read: {error}") from error
        raise UnknownCheckpoint(f"there is no checkpoint {name!r:.80}") from None


def store_pack(git: Git, pack: Pack) -> None:
    """Store the objects of a pack durably."""
    if len(pack):
        git.run("index-pack", "--stdin", input=pack.finished())
        sync_folder(git.objects_folder / "pack")


def update_references(git: Git, names: Mapping[str, str]) -> None:
    """Set references durably; an empty id removes the reference."""
    for name in names:
        if (git.folder / name).is_file() and not _COMMIT.fullmatch(_text(git.folder / name)):
            (git.folder / name).unlink()  # git refuses to replace a reference that it cannot read
    names = {name: id for name, id in names.items() if id or (git.folder / name).exists()}
    lines = [f"update {name}\0{id}\0\0" if id else f"delete {name}\0\0" for name, id in names.items()]
    git.run("update-ref", "--stdin", "-z", input="".join(lines).encode())
    for folder in {name.rpartition("/")[0] for name in names} | {"refs"}:
        with suppress(FileNotFoundError):  # git removes the folder with its last reference
            sync_folder(git.folder / folder)


class RepositoryState(Struct, frozen=True, array_like=True):
    """The stat of all files at the last check; while it is unchanged, nothing is read or repaired.

    ``suspect`` is true if objects may be missing. ``layout`` covers all that is neither pack nor reference.
    """

    packs: dict[str, tuple[tuple[int, int, int, int], ...]]
    references: bytes
    suspect: bool = False
    layout: bytes = b""

    @classmethod
    def current(cls, git: Git, *, suspect: bool = False) -> Self:
        """Return the state of the files as they are now."""
        packs = dict[str, tuple[tuple[int, int, int, int], ...]]()
        folder = git.folder / "objects" / "pack"
        for path in sorted((*folder.glob("pack-*.pack"), *folder.glob("pack-*.idx"))):
            one = path.stat()
            stamp = (one.st_size, one.st_mtime_ns, one.st_ctime_ns, one.st_ino)
            packs[path.stem] = (*packs.get(path.stem, ()), stamp)
        references, layout = hashlib.sha256(), hashlib.sha256()
        beside = sorted(one.name for one in os.scandir(git.folder.parent) if _is_odd(one))
        layout.update(repr(beside).encode("utf-8", "surrogateescape"))
        for above, folders, names in os.walk(git.folder):
            folders.sort()
            digest = references if Path(above).is_relative_to(git.folder / "refs") else layout
            layout.update(repr(folders).encode("utf-8", "surrogateescape"))
            for name in sorted(names):
                if name.removesuffix(".pack").removesuffix(".idx") in packs:
                    continue
                one = os.lstat(os.path.join(above, name))
                of_name = (
                    os.path.join(above, name),
                    one.st_size,
                    one.st_mtime_ns,
                    one.st_ctime_ns,
                    one.st_ino,
                )
                digest.update(repr(of_name).encode("utf-8", "surrogateescape"))
        return cls(packs, references.digest(), suspect, layout.digest())

    @classmethod
    def load(cls, folder: Path) -> Self | None:
        """Read the state that was saved last, or return None."""
        payload = load_cache(folder / _STATE, _STATE_MAGIC)
        with suppress(msgspec.DecodeError):
            return msgspec.msgpack.decode(payload, type=cls) if payload is not None else None
        return None

    def save(self, folder: Path) -> None:
        """Write the state, unless it was saved already."""
        if self != self.load(folder):
            save_cache(folder / _STATE, _STATE_MAGIC, msgspec.msgpack.encode(self))


def _is_odd(entry: os.DirEntry[str]) -> bool:
    """Return True for any folder, and for a file that a crashed process may have left behind."""
    return entry.name.endswith(".tmp") or entry.is_dir()
