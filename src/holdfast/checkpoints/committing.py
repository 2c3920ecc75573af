"""The way of a snapshot to the disk: objects first, then the names in their folder, then the reference.

A reference never names what is not on the disk yet, so a power cut leaves the last snapshot or this one.
Every snapshot brings a pack; many small ones are joined now and then, the large one is left alone.
"""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ..errors import CheckpointError, UnknownCheckpoint
from .git import Git
from .keeping import HISTORY, sync
from .objects import Pack

__all__ = ["Tagged", "check_tag", "join_packs", "latest", "point", "resolved", "store", "tagged"]

TAGS = "refs/tags/"
MANY = 40
"""Packs until they are joined: git looks into each for every object."""

_TAG = re.compile(r"(?!.*\.\.)(?!.*\.lock$)[A-Za-z0-9](?:[A-Za-z0-9._-]{0,98}[A-Za-z0-9_-])?")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_FORMAT = "%(refname)%00%(objectname)%00%(committerdate:unix)%00%(contents)%00"


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


def point(git: Git, commit: str, *, tag: str = "") -> None:
    """Let the history end with a commit, and a tag name it."""
    names = [HISTORY, *([TAGS + tag] if tag else [])]
    git.run(
        "update-ref",
        "--stdin",
        "-z",
        input=b"".join(f"update {name}\0{commit}\0\0".encode() for name in names),
    )
    for folder in ("refs/heads", "refs/tags"):
        sync(git.folder / folder)


def tagged(git: Git) -> list[Tagged]:
    """List the tags, the oldest commit first."""
    said = git.run("for-each-ref", f"--format={_FORMAT}", TAGS)
    found = list[Tagged]()
    for record in said.split(b"\0\n")[:-1]:
        name, commit, seconds, message = record.decode(errors="replace").split("\0")
        found.append(Tagged(name.removeprefix(TAGS), commit, int(seconds), message.rstrip("\n")))
    order = {commit: place for place, commit in enumerate(reversed(_history(git)))}
    return sorted(found, key=lambda one: (order.get(one.commit, -1), one.tag))


def resolved(git: Git, name: str) -> str:
    """Give the commit that a tag names, or that is named by itself."""
    wanted = name if _COMMIT.fullmatch(name) else TAGS + name if _TAG.fullmatch(name) else ""
    said = (
        git.run("rev-parse", "--verify", "--quiet", f"{wanted}^{{commit}}", fine=(0, 1, 128))
        if wanted
        else b""
    )
    if not said.strip():
        raise UnknownCheckpoint(f"there is no checkpoint {name!r:.80}")
    return said.decode().strip()


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
            _remove_pack(pack)


def _remove_pack(pack: Path) -> None:
    """Remove a pack, its index first: without one it is nothing, and is swept if the power goes now."""
    for suffix in (".idx", ".rev", ".pack"):
        pack.with_suffix(suffix).unlink(missing_ok=True)


def latest(git: Git) -> str:
    """Give the commit that the history ends with, or nothing."""
    with suppress(FileNotFoundError):
        return (git.folder / HISTORY).read_text().strip()
    return git.run("rev-parse", "--verify", "--quiet", f"{HISTORY}^{{commit}}", fine=(0, 1)).decode().strip()


def _history(git: Git) -> list[str]:
    return git.run("rev-list", HISTORY).decode().split() if latest(git) else []
