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
from .git import Git
from .keeping import sync
from .listing import Reader
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
    "latest",
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
        sync(git.objects_folder / "pack")


def point(git: Git, names: Mapping[str, str]) -> None:
    """Let references name these objects; one that is to name nothing is removed."""
    lines = [f"update {name}\0{id}\0\0" if id else f"delete {name}\0\0" for name, id in names.items()]
    git.run("update-ref", "--stdin", "-z", input="".join(lines).encode())
    for folder in {name.rpartition("/")[0] for name in names} | {"refs"}:
        with suppress(FileNotFoundError):  # git removes a folder of references with the last of them
            sync(git.folder / folder)


def references(git: Git, under: str) -> dict[str, str]:
    """Return what the references below a name point to; nothing for one that cannot be read."""
    found = dict[str, str]()
    for path in sorted((git.folder / under).glob("*")):
        with suppress(FileNotFoundError):
            text = path.read_text(errors="replace").strip() if path.is_file() else ""
            found[path.name] = text if _COMMIT.fullmatch(text) else ""
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


def resolved(git: Git, name: str) -> str:
    """Return the commit that a tag names, or that is named by itself, also by its old name."""
    if _COMMIT.fullmatch(name):
        found = references(git, WAS).get(name, name)
    else:
        found = references(git, TAGS).get(name, "")
    try:
        with Reader.opened(git) as reader:
            return reader.commit(found).id
    except CheckpointsDamaged:
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
    sync(folder)
    for pack in small:
        if pack.stem != f"pack-{made.decode().strip()}":
            remove_pack(pack)


def remove_pack(pack: Path) -> None:
    """Remove a pack, its index first: without one it is nothing, and is swept if the power goes now."""
    for suffix in (".idx", ".rev", ".pack"):
        pack.with_suffix(suffix).unlink(missing_ok=True)


def latest(git: Git) -> str:
    """Return the newest snapshot of any kind, or nothing."""
    return references(git, HEADS).get("seen", "") or newest_checkpoint(git)


def newest_checkpoint(git: Git) -> str:
    """Return the newest checkpoint, or nothing."""
    return references(git, HEADS).get("history", "")
