"""What a snapshot holds, read back from its commit: files, links and folders with all their modes."""

from __future__ import annotations

from ..errors import CheckpointsDamaged
from .capturing import FILES, LEFT, MODES
from .git import Git
from .modes import Modes, parents
from .objects import EXECUTABLE, LINK
from .values import Entry, Listing

__all__ = ["left_databases", "listing", "modes", "tree_of"]


def listing(git: Git, commit: str) -> Listing:
    """Read what a commit holds."""
    kept = modes(git, commit)
    files = dict[bytes, Entry]()
    for line in git.run("ls-tree", "-r", "-z", f"{commit}:{FILES}").split(b"\0")[:-1]:
        facts, _, path = line.partition(b"\t")
        try:
            mode, _, blob = facts.split()
        except ValueError:
            raise CheckpointsDamaged(f"commit {commit} holds a line that cannot be read") from None
        link = mode == LINK
        files[path] = Entry(link, 0 if link else kept.file(path, program=mode == EXECUTABLE), blob.decode())
    folders = {folder for path in (*files, *kept.empty) for folder in parents(path)} | {*kept.empty}
    return Listing(files, {folder: kept.folder(folder) for folder in sorted(folders)})


def modes(git: Git, commit: str) -> Modes:
    """Read the modes that a commit holds beside its files."""
    return Modes.decoded(git.run("cat-file", "blob", f"{commit}:{MODES}"))


def left_databases(git: Git, commit: str) -> set[bytes]:
    """Name the files that a commit does not hold because they belonged to databases in use."""
    if not git.run("ls-tree", "-z", commit, LEFT):
        return set()
    return set(git.run("cat-file", "blob", f"{commit}:{LEFT}").split(b"\0")[:-1])


def tree_of(git: Git, commit: str) -> str:
    """Name the tree of a commit."""
    return git.run("rev-parse", f"{commit}^{{tree}}").decode().strip()
