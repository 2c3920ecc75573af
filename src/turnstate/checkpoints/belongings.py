"""What of our own may stand in a work tree: stores, the home, snapshots, memories, shadow repositories.

It is never captured, restored over or removed, whatever the ignore rules say. It is known by its path
and by its inode, so that no link and no second name leads around that; what no setting of this process
names is recognized by its content (`databases`, and `is_shadow_repository`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Set
from pathlib import Path
from typing import NamedTuple

from ..errors import CheckpointError, NewerFormat
from ..snapshots.snapshots import FOLDER as SNAPSHOTS
from .databases import side_files
from .keeping import read_about
from .modes import parents
from .values import Listing

__all__ = ["NOTHING", "Belongings", "Owned", "is_shadow_repository"]

_SNAPSHOTS = b"/" + os.fsencode(SNAPSHOTS)
_SHADOW = {b"about.json", b"lock", b"repository"}
_MOST_LINKS = 40  # on the way to one file, as in the kernel


class Owned(NamedTuple):
    """The paths in a work tree, and the inodes, that are ours at one moment."""

    paths: frozenset[bytes] = frozenset()
    inodes: frozenset[tuple[int, int]] = frozenset()

    def covers(self, path: bytes) -> bool:
        """Tell whether a path is ours, or leads into a folder of ours."""
        return any(one in self.paths or (b"/" + one).endswith(_SNAPSHOTS) for one in (path, *parents(path)))

    def is_at(self, path: bytes, device: int, inode: int) -> bool:
        """Tell whether what stands at a path is ours."""
        return (device, inode) in self.inodes or path in self.paths or (b"/" + path).endswith(_SNAPSHOTS)

    def with_paths(self, paths: Iterable[bytes]) -> Owned:
        """Add what was found to be ours."""
        return self._replace(paths=self.paths.union(paths))

    def without(self, listing: Listing) -> Listing:
        """Leave out of a listing, which names the folders of all files, what is ours."""
        covered = {path for path in listing.folders if self.covers(path)}
        files = {
            path: entry
            for path, entry in listing.files.items()
            if path not in self.paths and path.rpartition(b"/")[0] not in covered
        }
        return Listing(files, {path: mode for path, mode in listing.folders.items() if path not in covered})


NOTHING = Owned()


class Belongings:
    """The files and folders of ours that settings name, in a work tree or elsewhere."""

    def __init__(self, work_tree: Path, places: Iterable[str | os.PathLike[str]]) -> None:
        self._top = os.fsencode(work_tree)
        self._places = [os.fsencode(Path(place).absolute()) for place in places]

    def now(self) -> Owned:
        """Look where they are at this moment, since files are replaced and links are changed."""
        paths, inodes = set[bytes](), set[tuple[int, int]]()
        for place in self._places:
            real, links = _followed(place)
            paths.update(self._inside(links))
            for one in (real, *side_files(real)):
                paths.update(self._inside([one]))
                try:
                    status = os.stat(one)
                except OSError:
                    continue
                inodes.add((status.st_dev, status.st_ino))
        return Owned(frozenset(paths), frozenset(inodes))

    def _inside(self, paths: Iterable[bytes]) -> Iterable[bytes]:
        """Return those of the real paths that are in the work tree, as seen from it."""
        top = self._top.rstrip(b"/") + b"/"
        return [path[len(top) :] for path in paths if path.startswith(top)]


def is_shadow_repository(path: bytes, names: Set[bytes]) -> bool:
    """Tell whether a folder with these names in it holds somebody's checkpoints."""
    folder = Path(os.fsdecode(path))
    if not names >= _SHADOW or not (folder / "about.json").is_file():
        return False
    try:
        read_about(folder)
    except NewerFormat:
        return True
    except CheckpointError:
        return False
    return True


def _followed(path: bytes) -> tuple[bytes, list[bytes]]:
    """Return where a path leads to, and the links on the way, each by its real path."""
    links, names, real = list[bytes](), path.split(b"/")[::-1], b"/"
    while names:
        name = names.pop()
        if name in (b"", b"."):
            continue
        if name == b"..":
            real = os.path.dirname(real)
            continue
        real = os.path.join(real, name)
        try:
            target = os.readlink(real) if len(links) < _MOST_LINKS else None
        except OSError:
            target = None
        if target is not None:
            links.append(real)
            names.extend(reversed(target.split(b"/")))
            real = b"/" if target.startswith(b"/") else os.path.dirname(real)
    return real, links
