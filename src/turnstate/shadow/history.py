"""The history of snapshots: their order, their tags, and how two of them differ.

Git compares the trees, with every external program switched off. Modes are compared here, and only if
the blobs that hold them differ; the path of a folder ends in a slash.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

from ..errors import CheckpointsDamaged
from .contents import FILES, TAGS, Commit, Reader, newest_checkpoint, newest_snapshot, references
from .git import Git, object_id, tree
from .values import Diff, FileDiff, Listing, shown

EMPTY = object_id("tree", tree([]))
"""The empty tree, which git knows without storing it."""

_SAFE = ("--no-ext-diff", "--no-textconv", "--no-color", "--ignore-submodules=none")
_STATUS: dict[bytes, Literal["added", "modified", "deleted"]] = {b"A": "added", b"D": "deleted"}


class Tagged(NamedTuple):
    """A commit that a tag names."""

    tag: str
    commit: str
    seconds: int
    message: str


def tagged(git: Git) -> list[Tagged]:
    """Return the tags, the oldest commit first."""
    tags = references(git, TAGS)
    commits = ordered(Reader(git), [newest_checkpoint(git), newest_snapshot(git), *sorted({*tags.values()})])
    order = {id: place for place, id in enumerate(commits)}
    found = [
        Tagged(tag, id, commits[id].seconds, commits[id].message) for tag, id in tags.items() if id in commits
    ]
    return sorted(found, key=lambda one: (order[one.commit], one.tag))


def ordered(reader: Reader, tips: Iterable[str]) -> dict[str, Commit]:
    """Return the tips and their ancestors as far as they can be read, parents first."""
    found, seen = dict[str, Commit](), set[str]()
    for tip in tips:
        waiting: list[str | Commit] = [tip]
        while waiting:
            match waiting.pop():
                case Commit() as commit:
                    found[commit.id] = commit
                case str(id) if id and id not in seen:
                    seen.add(id)
                    try:
                        commit = reader.commit(id)
                    except CheckpointsDamaged:
                        continue
                    waiting += [commit, *reversed(commit.parents)]
    return found


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
    """Return the files and folders whose modes differ, and the empty folders that were added or deleted."""
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
