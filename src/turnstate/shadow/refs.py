"""References and packs: how a snapshot becomes durable and gets its names.

Objects are synced first, then the folder of their pack, then the reference. A reference never names an
object that is not durable, so a power cut leaves the last snapshot or this one. Every snapshot adds a
pack; the small ones are joined from time to time, the largest is left alone.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Self

import msgspec
from msgspec import Struct

from ..errors import CheckpointError, CheckpointsDamaged, UnknownCheckpoint
from ..files import sync_folder
from .contents import Reader
from .git import Git, Pack

__all__ = [
    "HEADS",
    "RECORDS",
    "RULES",
    "SEEN",
    "TAGS",
    "WAS",
    "RepositoryState",
    "Tagged",
    "check_tag",
    "commit_named",
    "is_known",
    "join_packs",
    "newest_checkpoint",
    "newest_snapshot",
    "references",
    "remove_pack",
    "resolve",
    "store_pack",
    "tagged",
    "update_references",
]

SEEN = "refs/heads/seen"
"""The newest snapshot of any kind: a checkpoint, or one that was taken before or after a restore."""

TAGS = "refs/tags/"
HEADS = "refs/heads/"
RECORDS = "refs/restores/"
"""The records of restores, under the tags of the snapshots that were taken before them."""

RULES = "refs/rules/"
"""Snapshots whose ignore rules still apply after a restore replaced them, under the same tags."""

WAS = "refs/was/"
"""Rewritten commits, under their old ids, which the log of a conversation keeps."""

MAX_PACKS = 40
"""Packs before they are joined; git searches each for every object."""

_STATE = "packs"
_STATE_MAGIC = b"turnstate packs 1\n"
_TAG = re.compile(r"(?!.*\.\.)(?!.*\.lock$)[A-Za-z0-9](?:[A-Za-z0-9._-]{0,98}[A-Za-z0-9_-])?")
_COMMIT = re.compile(r"[0-9a-f]{40}")


class RepositoryState(Struct, frozen=True, array_like=True):
    """The stat of all packs and references at the last check; while it is unchanged, none is read.

    ``suspect`` is true if objects may be missing.
    """

    packs: dict[str, tuple[tuple[int, int, int, int], ...]]
    references: bytes
    suspect: bool = False

    @classmethod
    def current(cls, git: Git, *, suspect: bool = False) -> Self:
        """Return the state of the files as they are now."""
        packs = dict[str, tuple[tuple[int, int, int, int], ...]]()
        folder = git.folder / "objects" / "pack"
        for path in sorted((*folder.glob("pack-*.pack"), *folder.glob("pack-*.idx"))):
            one = path.stat()
            stamp = (one.st_size, one.st_mtime_ns, one.st_ctime_ns, one.st_ino)
            packs[path.stem] = (*packs.get(path.stem, ()), stamp)
        digest = hashlib.sha256()
        for above, folders, names in os.walk(git.folder / "refs"):
            folders.sort()
            for name in sorted(names):
                one = os.lstat(os.path.join(above, name))
                of_name = (
                    os.path.join(above, name),
                    one.st_size,
                    one.st_mtime_ns,
                    one.st_ctime_ns,
                    one.st_ino,
                )
                digest.update(repr(of_name).encode("utf-8", "surrogateescape"))
        return cls(packs, digest.digest(), suspect)

    @classmethod
    def load(cls, folder: Path) -> Self | None:
        """Read the state that was saved last, or return None."""
        start = len(_STATE_MAGIC) + 32
        try:
            data = (folder / _STATE).read_bytes()
            if data[:start] != _STATE_MAGIC + hashlib.sha256(data[start:]).digest():
                return None
            return msgspec.msgpack.decode(data[start:], type=cls)
        except (OSError, msgspec.DecodeError):
            return None

    def save(self, folder: Path) -> None:
        """Write the state, unless it is what was saved last."""
        if self == self.load(folder):
            return
        payload = msgspec.msgpack.encode(self)
        temporary = folder / f"{_STATE}.tmp"
        temporary.write_bytes(_STATE_MAGIC + hashlib.sha256(payload).digest() + payload)
        os.replace(temporary, folder / _STATE)


class Tagged(NamedTuple):
    """A commit that a tag names."""

    tag: str
    commit: str
    seconds: int
    message: str


def check_tag(tag: str) -> str:
    """Return the tag. Raise CheckpointError if git could not store it as a file."""
    if not _TAG.fullmatch(tag) or _COMMIT.fullmatch(tag):
        raise CheckpointError(
            f"{tag!r:.80} is not a valid tag; use letters, digits, dots, dashes and underscores"
        )
    return tag


def store_pack(git: Git, pack: Pack) -> None:
    """Store the objects of a pack durably."""
    if len(pack):
        git.run("index-pack", "--stdin", input=pack.finished())
        sync_folder(git.objects_folder / "pack")


def update_references(git: Git, names: Mapping[str, str]) -> None:
    """Set references durably; one with an empty id is removed."""
    for name in names:
        if (git.folder / name).is_file() and not _COMMIT.fullmatch(_text(git.folder / name)):
            (git.folder / name).unlink()  # git would refuse to replace what it cannot read
    names = {name: id for name, id in names.items() if id or (git.folder / name).exists()}
    lines = [f"update {name}\0{id}\0\0" if id else f"delete {name}\0\0" for name, id in names.items()]
    git.run("update-ref", "--stdin", "-z", input="".join(lines).encode())
    for folder in {name.rpartition("/")[0] for name in names} | {"refs"}:
        with suppress(FileNotFoundError):  # git removes a folder of references with the last of them
            sync_folder(git.folder / folder)


def references(git: Git, under: str) -> dict[str, str]:
    """Return the ids of the references below a name; empty for one that cannot be read."""
    found = dict[str, str]()
    for path in sorted((git.folder / under).glob("*")):
        found[path.name] = text if _COMMIT.fullmatch(text := _text(path)) else ""
    return found


def tagged(git: Git) -> list[Tagged]:
    """Return the tags, the oldest commit first."""
    tags = references(git, TAGS)
    commits = Reader(git).ordered([newest_checkpoint(git), newest_snapshot(git), *sorted({*tags.values()})])
    order = {id: place for place, id in enumerate(commits)}
    found = [
        Tagged(tag, id, commits[id].seconds, commits[id].message) for tag, id in tags.items() if id in commits
    ]
    return sorted(found, key=lambda one: (order[one.commit], one.tag))


def commit_named(git: Git, name: str) -> str:
    """Return the commit of a tag, an old id or a commit id."""
    if _COMMIT.fullmatch(name):
        return references(git, WAS).get(name) or name
    return references(git, TAGS).get(name, "")


def is_known(git: Git, name: str) -> bool:
    """Return True if there is a snapshot of that name, readable or not."""
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


def join_packs(git: Git) -> None:
    """Join all packs but the largest, once there are many."""
    folder = git.folder / "objects" / "pack"
    packs = sorted(folder.glob("pack-*.pack"), key=lambda pack: pack.stat().st_size)
    if len(packs) <= MAX_PACKS:
        return
    small = packs[:-1]
    made = git.run(
        *("pack-objects", "--stdin-packs", "--delta-base-offset", "--quiet", str(folder / "pack")),
        input="".join(f"{pack.name}\n" for pack in small).encode(),
    )
    sync_folder(folder)
    for pack in small:
        if pack.stem != f"pack-{made.decode().strip()}":
            remove_pack(pack)


def remove_pack(pack: Path) -> None:
    """Remove a pack, its index last: an index without a pack is removed after a crash."""
    for suffix in (".pack", ".rev", ".idx"):
        pack.with_suffix(suffix).unlink(missing_ok=True)


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def newest_snapshot(git: Git) -> str:
    """Return the newest snapshot of any kind, or nothing."""
    return references(git, HEADS).get("seen", "") or newest_checkpoint(git)


def newest_checkpoint(git: Git) -> str:
    """Return the newest checkpoint, or nothing."""
    return references(git, HEADS).get("history", "")
