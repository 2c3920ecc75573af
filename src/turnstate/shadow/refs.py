"""The way of a snapshot to the disk: objects first, then the names in their folder, then the reference.

A reference never names what is not on the disk yet, so a power cut leaves the last snapshot or this one.
Every snapshot brings a pack; many small ones are joined now and then, the large one is left alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ..errors import CheckpointError, CheckpointsDamaged, UnknownCheckpoint
from ..files import sync_folder
from .contents import Reader
from .git import Git
from .objects import Pack

__all__ = [
    "HEADS",
    "RECORDS",
    "RULES",
    "SEEN",
    "TAGS",
    "WAS",
    "Tagged",
    "check_tag",
    "join_packs",
    "known",
    "latest",
    "meant",
    "newest_checkpoint",
    "point",
    "references",
    "remove_pack",
    "resolved",
    "store",
    "tagged",
]

SEEN = "refs/heads/seen"
"""The newest snapshot of any kind: a checkpoint, or one that was taken before or after a restore."""

TAGS = "refs/tags/"
HEADS = "refs/heads/"
RECORDS = "refs/restores/"
"""What a restore put in place and took away, under the tag of the snapshot that was taken before it."""

RULES = "refs/rules/"
"""Snapshots whose ignore rules still count after a restore replaced them, under the same tags."""

WAS = "refs/was/"
"""The commits that were written anew, under their old names, which the log of a conversation uses."""

MANY = 40
"""Packs until they are joined: git looks into each for every object."""

_TAG = re.compile(r"(?!.*\.\.)(?!.*\.lock$)[A-Za-z0-9](?:[A-Za-z0-9._-]{0,98}[A-Za-z0-9_-])?")
_COMMIT = re.compile(r"[0-9a-f]{40}")


class Tagged(NamedTuple):
    """A commit that a tag names."""

    tag: str
    commit: str
    seconds: int
    message: str


def check_tag(tag: str) -> str:
    """Refuse a tag that git could not keep as a file."""
    if not _TAG.fullmatch(tag) or _COMMIT.fullmatch(tag):
        raise CheckpointError(
            f"{tag!r:.80} is no tag: letters, digits, dots, dashes and underscores make one"
        )
    return tag


def store(git: Git, pack: Pack) -> None:
    """Keep the objects of a pack."""
    if len(pack):
        git.run("index-pack", "--stdin", input=pack.finished())
        sync_folder(git.objects_folder / "pack")


def point(git: Git, names: Mapping[str, str]) -> None:
    """Let references name these objects; one that is to name nothing is removed."""
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
    """Return what the references below a name point to; nothing for one that cannot be read."""
    found = dict[str, str]()
    for path in sorted((git.folder / under).glob("*")):
        found[path.name] = text if _COMMIT.fullmatch(text := _text(path)) else ""
    return found


def tagged(git: Git) -> list[Tagged]:
    """List the tags, the oldest commit first."""
    tags = references(git, TAGS)
    with Reader.opened(git) as reader:
        commits = reader.ordered([newest_checkpoint(git), latest(git), *sorted({*tags.values()})])
    order = {id: place for place, id in enumerate(commits)}
    found = [
        Tagged(tag, id, commits[id].seconds, commits[id].message) for tag, id in tags.items() if id in commits
    ]
    return sorted(found, key=lambda one: (order[one.commit], one.tag))


def meant(git: Git, name: str) -> str:
    """Return the commit that a tag or an old name stands for, or a commit that is named by itself."""
    if _COMMIT.fullmatch(name):
        return references(git, WAS).get(name) or name
    return references(git, TAGS).get(name, "")


def known(git: Git, name: str) -> bool:
    """Tell whether there is, or was, a snapshot of that name, whether or not it can be read."""
    tags = references(git, TAGS)
    if name in tags or name in tags.values() or name in references(git, WAS):
        return True
    with git.objects(only_ask=True) as objects:
        return bool(_COMMIT.fullmatch(name)) and objects.has(name)


def resolved(git: Git, name: str) -> str:
    """Return the commit that a name stands for, if it can be read."""
    try:
        with Reader.opened(git) as reader:
            return reader.commit(meant(git, name)).id
    except CheckpointsDamaged as error:
        if known(git, name):
            raise CheckpointsDamaged(f"the snapshot {name:.80} cannot be read: {error}") from error
        raise UnknownCheckpoint(f"there is no checkpoint {name!r:.80}") from None


def join_packs(git: Git) -> None:
    """Make one pack of all but the largest, once there are many."""
    folder = git.folder / "objects" / "pack"
    packs = sorted(folder.glob("pack-*.pack"), key=lambda pack: pack.stat().st_size)
    if len(packs) <= MANY:
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
    """Remove a pack, its index last: without a pack it is nothing, and is swept if the power goes now."""
    for suffix in (".pack", ".rev", ".idx"):
        pack.with_suffix(suffix).unlink(missing_ok=True)


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def latest(git: Git) -> str:
    """Return the newest snapshot of any kind, or nothing."""
    return references(git, HEADS).get("seen", "") or newest_checkpoint(git)


def newest_checkpoint(git: Git) -> str:
    """Return the newest checkpoint, or nothing."""
    return references(git, HEADS).get("history", "")
