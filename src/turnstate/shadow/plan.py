"""What a restore will do, decided before anything is done: from what is there and what was there.

Two rules hold everything together. Only what the snapshot of this moment holds is replaced or removed,
so an undo has it all. And what stands in the way of the target goes, even in a soft restore: a file
where a folder was, a folder where a file was. Otherwise newer files stay, unless they are to be removed.
"""

from __future__ import annotations

from collections.abc import Collection

from msgspec import Struct

from .objects import parents
from .values import Changes, FileEntry, Kept, Listing

__all__ = ["Mode", "Plan", "Put", "Remove", "blocking_folders", "newer", "plan"]


class Put(Struct, frozen=True, array_like=True):
    """Write a file or a link; ``before`` is what it may replace."""

    path: bytes
    entry: FileEntry
    before: FileEntry | None


class Remove(Struct, frozen=True, array_like=True):
    """Remove a file or a link that still is what it was."""

    path: bytes
    before: FileEntry


class Mode(Struct, frozen=True, array_like=True):
    """Set the permission bits of a file or folder."""

    path: bytes
    mode: int


class Plan(Struct, frozen=True, kw_only=True):
    """The steps of a restore, in the order in which they are done."""

    removals: tuple[Remove, ...] = ()
    emptied: tuple[bytes, ...] = ()  # folders to remove once nothing is in them, the deepest first
    folders: tuple[bytes, ...] = ()  # folders to make, the topmost first
    puts: tuple[Put, ...] = ()
    modes: tuple[Mode, ...] = ()
    folder_modes: tuple[Mode, ...] = ()  # the deepest first: a folder may forbid what is done in it

    def __bool__(self) -> bool:
        return any(getattr(self, field) for field in self.__struct_fields__)

    def changes(self, kept: Collection[Kept]) -> Changes:
        """Say what the plan changed in the end, if these paths were left alone."""
        left = {one.path for one in kept}
        added = {put.path for put in self.puts if put.before is None} - left
        modified = ({put.path for put in self.puts if put.before} | {mode.path for mode in self.modes}) - left
        deleted = {removal.path for removal in self.removals} - left - added - modified
        return Changes(
            added=tuple(sorted(added)), modified=tuple(sorted(modified)), deleted=tuple(sorted(deleted))
        )


def newer(live: Listing, target: Listing) -> set[bytes]:
    """Name the files that are there now and were not in the target."""
    return live.files.keys() - target.files.keys()


def blocking_folders(live: Listing, target: Listing) -> set[bytes]:
    """Name the folders that stand where the target has a file."""
    return live.folders.keys() & target.files.keys()


def plan(
    live: Listing,
    target: Listing,
    *,
    unwanted: Collection[bytes] = (),
    unwanted_folders: Collection[bytes] = (),
    untouchable: Collection[bytes] = (),
) -> Plan:
    """Plan the way from what is there to the target.

    ``unwanted`` files and, once empty, folders go; what the target has at ``untouchable`` paths is not put.
    """
    wanted = {path: entry for path, entry in target.files.items() if path not in untouchable}
    blocked = blocking_folders(live, target) - set(untouchable)
    under = {path for path in live.files if blocked and not blocked.isdisjoint(parents(path))}
    gone = (set(unwanted) | under | (live.files.keys() & target.folders.keys())) - wanted.keys()
    folders_gone = {folder for path in gone for folder in parents(path)} | set(unwanted_folders) | blocked
    folders_gone |= {path for path in live.folders if blocked and not blocked.isdisjoint(parents(path))}
    fresh = target.folders.keys() - live.folders.keys()
    return Plan(
        removals=tuple(Remove(path, live.files[path]) for path in sorted(gone)),
        emptied=tuple(sorted((folders_gone & live.folders.keys()) - target.folders.keys(), reverse=True)),
        folders=tuple(sorted(fresh)),
        puts=tuple(
            Put(path, entry, live.files.get(path))
            for path, entry in sorted(wanted.items())
            if not _same_bytes(entry, live.files.get(path))
        ),
        modes=tuple(
            Mode(path, entry.mode)
            for path, entry in sorted(wanted.items())
            if _same_bytes(entry, live.files.get(path)) and entry.mode != live.files[path].mode
        ),
        folder_modes=tuple(
            Mode(path, mode)
            for path, mode in sorted(target.folders.items(), reverse=True)
            if live.folders.get(path) != mode
        ),
    )


def _same_bytes(entry: FileEntry, other: FileEntry | None) -> bool:
    return other is not None and (entry.link, entry.blob) == (other.link, other.blob)
