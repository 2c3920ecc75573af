"""What a restore aims at: which of the newer files may go, and which folders must not be cleared.

A hard restore removes a newer file only if a snapshot before this one holds its path; what the user
made since is kept. A folder in the way of a file is cleared only if all that is in it would be undone.
"""

from __future__ import annotations

import os
from pathlib import Path

from .capturing import FILES
from .git import Git
from .listing import listing
from .planning import Plan, blocking_folders, newer, plan
from .values import Kept, Listing

__all__ = ["planned"]


def planned(
    git: Git, work_tree: Path, live: Listing, *, target: str, base: str, hard: bool
) -> tuple[Plan, tuple[Kept, ...]]:
    """Plan a restore, and say which places it cannot take."""
    wanted = listing(git, target)
    held = {path for path in blocking_folders(live, wanted) if _holds_more(work_tree, path, live)}
    kept = tuple(
        Kept(path, "a folder with files that no snapshot holds stands there") for path in sorted(held)
    )
    if not hard:
        return plan(live, wanted, untouchable=held), kept
    files, folders = newer(live, wanted), live.folders.keys() - wanted.folders.keys()
    if not files and not folders:
        return plan(live, wanted, untouchable=held), kept
    before = listing(git, base) if base else Listing({}, {})
    unwanted = files & before.files.keys()
    if unsure := files - unwanted:
        unwanted |= unsure & _ever_kept(git, base)
    folders &= before.folders.keys()
    return plan(live, wanted, unwanted=unwanted, unwanted_folders=folders, untouchable=held), kept


def _ever_kept(git: Git, base: str) -> set[bytes]:
    """Name the files that any snapshot up to a commit added."""
    if not base:
        return set()
    commits = git.run("rev-list", base)
    said = git.run(
        *("diff-tree", "--stdin", "--root", "-r", "-z", "--no-renames", "--name-only", "--diff-filter=A"),
        *("--no-commit-id", "--no-ext-diff"),
        input=commits,
    )
    inside = FILES.encode() + b"/"
    return {path.removeprefix(inside) for path in said.split(b"\0") if path.startswith(inside)}


def _holds_more(work_tree: Path, folder: bytes, live: Listing) -> bool:
    """Tell whether there is something in a folder that the snapshot of this moment does not hold."""
    try:
        names = os.listdir(os.path.join(os.fsencode(work_tree), folder))
    except OSError:
        return True
    for name in names:
        path = folder + b"/" + name
        if path not in live.files and (path not in live.folders or _holds_more(work_tree, path, live)):
            return True
    return False
