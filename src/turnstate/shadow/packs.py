"""Checks the packs of a shadow repository when their files change, and saves sound objects of damaged ones.

Git rejects a whole pack because of one wrong byte in its header, its trailer or its index. So git gets a
copy in a folder of its own, with a header and a trailer that match the index, and is asked for one object
after the other; without an index it unpacks what it can. Objects whose bytes match their ids go into a new
pack, and the damaged pack is set aside. After that every object in the repository is sound; damaged objects
are missing.

Every snapshot adds a pack. When there are too many, all but the largest are joined.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from msgspec import structs

from ..errors import CheckpointsDamaged, GitFailed
from ..files import sync_folder
from .contents import RepositoryState, store_pack
from .folder import copy_aside, set_aside
from .git import Git, Pack

_PACK_START = b"PACK\0\0\0\2"
MAX_PACKS = 40
"""The most packs before they are joined; git searches each pack for every object."""


class Checked(NamedTuple):
    """The result of a check: what is damaged, and whether objects may be missing (``suspect``).

    ``changed`` is true if another program changed packs or references since the last check.
    """

    found: tuple[str, ...]
    suspect: bool
    changed: bool


class _Index(NamedTuple):
    objects: int  # their number in the pack
    pack: bytes  # the checksum of the pack


def check(git: Git, folder: Path, *, deep: bool = False) -> Checked:
    """Check the packs that changed since the last check, or all if ``deep``; save sound objects."""
    known, now = RepositoryState.load(folder), RepositoryState.current(git)
    found = list[str]()
    for stem, stamps in now.packs.items():
        if deep or known is None or known.packs.get(stem) != stamps:
            found += _checked(git, folder, stem, was_whole=known is None or stem in known.packs)
    if known is not None:
        found += [f"{stem}.pack is missing" for stem in known.packs.keys() - now.packs.keys()]
    moved = known is None or known.references != now.references
    suspect = bool(found) or (bool(now.packs) if known is None else known.suspect or moved)
    after = RepositoryState.current(git, suspect=suspect)
    structs.replace(after, references=now.references).save(folder)
    return Checked(tuple(found), suspect, changed=bool(found) or moved)


def object_names(git: Git) -> set[str]:
    """Return the ids of all objects in the repository."""
    return set(_names(git))


def _names(git: Git) -> list[str]:
    """Return the ids of all objects, those of a pack in its order."""
    listing = ("cat-file", "--batch-all-objects", "--unordered", "--batch-check=%(objectname)")
    return git.run(*listing).decode().split()


def _checked(git: Git, folder: Path, stem: str, *, was_whole: bool) -> Iterator[str]:
    pack, listed = _packs(git) / f"{stem}.pack", _packs(git) / f"{stem}.idx"
    for path in (pack, listed):
        if path.is_dir():
            set_aside(folder, path)
    if not pack.exists():
        listed.unlink(missing_ok=True)
        yield f"{pack.name} is missing"
        return
    index, trailer = _index(listed), _trailer(pack)
    if trailer and index is not None and index.pack == trailer:
        return
    if trailer:
        for path in (listed, listed.with_suffix(".rev")):
            path.unlink(missing_ok=True)
        try:
            git.run("index-pack", str(pack))
            sync_folder(pack.parent)
        except GitFailed:
            pass
        else:
            if was_whole:
                yield f"{listed.name} was damaged and was rebuilt from the pack"
            return
    saved = _save_objects(git, folder, pack, index)
    if not saved and not was_whole and index is None:
        return  # left by a crashed process; no snapshot needs it
    expected = f" of {index.objects:,}" if index is not None else ""
    yield f"{stem}.pack is damaged: {saved:,}{expected} objects in it could be saved"


def _save_objects(git: Git, folder: Path, pack: Path, index: _Index | None) -> int:
    """Copy the sound objects of a damaged pack to a new one and set it aside; return their number.

    If all objects were saved, the new pack may have the same name; it then replaces the damaged one.
    """
    with TemporaryDirectory(dir=git.folder, prefix="live-") as apart, Pack(folder) as sound:
        old, new = Path(apart) / "old", Path(apart) / "new"
        for one in (old, new):
            (one / "pack").mkdir(parents=True)
        for kind, data, id in _sound_objects(git.apart(old, alone=True), pack, index):
            sound.add(kind, data, id)
        store_pack(git.apart(new, alone=True), sound)
        made = sorted((new / "pack").iterdir(), reverse=True)  # a pack, then its index
        damaged = [one for one in map(pack.with_suffix, (".idx", ".rev", ".pack")) if os.path.lexists(one)]
        for path in damaged:
            copy_aside(folder, path)
        for path in made:
            os.replace(path, pack.parent / path.name)
        for path in damaged:
            if path.name not in {one.name for one in made}:
                path.unlink()
    sync_folder(pack.parent)
    return len(sound)


def _sound_objects(git: Git, pack: Path, index: _Index | None) -> Iterator[tuple[str, bytes, str]]:
    """Yield the sound objects of a damaged pack: those that its index names or, without one, in its order."""
    copy = git.objects_folder / "pack" / pack.name
    shutil.copyfile(pack, copy)
    with copy.open("r+b") as file:
        file.write(_PACK_START)
        if index is not None:  # git reads every object that the index leads to if both ends look right
            file.write(struct.pack(">I", index.objects))
            file.seek(0, os.SEEK_END)
            file.write(index.pack)
            shutil.copyfile(pack.with_suffix(".idx"), copy.with_suffix(".idx"))
    if index is None:
        _unpack(git, copy)
    with git:
        for id in _names(git):
            with suppress(CheckpointsDamaged):
                kind, data = git.objects.read_typed(id)
                yield kind, data, id


def _unpack(git: Git, pack: Path) -> None:
    """Write the objects of a pack without an index as files, as far as it can be read."""
    # It fails for every damaged pack. If the disk is full, what it wrote keeps it full until the caller has
    # failed to write, too; so no object counts as damaged that there was only no room for.
    with pack.open("rb") as file, suppress(GitFailed):
        git.run("unpack-objects", "-r", "-q", input=file, settings={"core.fsync": "none"})


def _index(path: Path) -> _Index | None:
    """Return what the index of a pack says about it, or None if the index is damaged."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    body, checksum = data[:-20], data[-20:]
    if data[:8] != b"\xfftOc\0\0\0\2" or len(data) < 1072 or hashlib.sha1(body).digest() != checksum:  # noqa: S324
        return None
    (count,) = struct.unpack_from(">I", data, 1028)  # the last of 256 running totals
    return _Index(count, data[-40:-20])


def _trailer(path: Path) -> bytes:
    """Return the checksum at the end of a pack, or empty bytes if it does not match."""
    try:
        with path.open("rb") as file:
            left, digest = os.fstat(file.fileno()).st_size - 20, hashlib.sha1(usedforsecurity=False)
            if left < 12:
                return b""
            while left and (chunk := file.read(min(left, 1 << 20))):
                digest.update(chunk)
                left -= len(chunk)
            checksum = file.read(20)
    except OSError:
        return b""
    return checksum if digest.digest() == checksum else b""


def _packs(git: Git) -> Path:
    return git.folder / "objects" / "pack"


def join(git: Git) -> None:
    """Join all packs but the largest."""
    folder = _packs(git)
    small = sorted(folder.glob("pack-*.pack"), key=lambda pack: pack.stat().st_size)[:-1]
    made = git.run(
        *("pack-objects", "--stdin-packs", "--delta-base-offset", "--quiet", str(folder / "pack")),
        input="".join(f"{pack.name}\n" for pack in small).encode(),
    )
    sync_folder(folder)
    for pack in small:
        if pack.stem != f"pack-{made.decode().strip()}":
            remove_pack(pack)


def remove_pack(pack: Path) -> None:
    """Remove a pack, its index last: after a crash, an index without a pack is cleaned up."""
    for suffix in (".pack", ".rev", ".idx"):
        pack.with_suffix(suffix).unlink(missing_ok=True)
