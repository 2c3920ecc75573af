"""Checks the packs of a shadow repository when their files change, and saves sound objects of damaged ones.

Git rejects a whole pack because of one wrong byte in its trailer or its index. So this module reads a
damaged pack object by object: objects whose bytes match their ids go into a new pack, and the damaged pack
is set aside. After that every object in the repository is sound; damaged objects are missing.

Every snapshot adds a pack. When there are too many, all but the largest are joined.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from msgspec import structs

from ..errors import GitFailed
from ..files import sync_folder
from .contents import RepositoryState, store_pack
from .folder import copy_aside, set_aside
from .git import BLOB, COMMIT, TREE, Git, Pack, object_id

_KINDS = {1: COMMIT, 2: TREE, 3: BLOB}
_OFFSET, _REFERENCE = 6, 7  # kinds of objects that are stored as deltas
_CHUNK = 1 << 16
MAX_PACKS = 40
"""The most packs before they are joined; git searches each pack for every object."""

_MAX_DELTA_DEPTH = 200  # git writes at most 50


class Checked(NamedTuple):
    """The result of a check: what is damaged, and whether objects may be missing (``suspect``).

    ``changed`` is true if another program changed packs or references since the last check.
    """

    found: tuple[str, ...]
    suspect: bool
    changed: bool


class _Index(NamedTuple):
    offsets: dict[int, str]
    pack: bytes  # the checksum of the pack


class _DamagedObject(Exception):
    """An object of a pack cannot be read."""


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
    found = set[str]()
    for path in _packs(git).glob("pack-*.idx"):
        if (index := _index(path)) is not None:
            found.update(index.offsets.values())
    return found


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
    expected = f" of {len(index.offsets):,}" if index is not None else ""
    yield f"{stem}.pack is damaged: {saved:,}{expected} objects in it could be saved"


def _save_objects(git: Git, folder: Path, pack: Path, index: _Index | None) -> int:
    """Copy the sound objects of a damaged pack to a new one and set it aside; return their number.

    If all objects were saved, the new pack may have the same name; it then replaces the damaged one.
    """
    with TemporaryDirectory(dir=git.folder, prefix="live-") as apart, Pack(folder) as sound:
        (Path(apart) / "pack").mkdir()
        for kind, data, id in _objects(pack, index):
            sound.add(kind, data, id)
        store_pack(git.apart(Path(apart), alone=True), sound)
        made = sorted((Path(apart) / "pack").iterdir(), reverse=True)  # a pack, then its index
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


def _objects(path: Path, index: _Index | None) -> Iterator[tuple[str, bytes, str]]:
    """Yield the sound objects of a pack: those in its index or, without an index, those found in order."""
    with path.open("rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            reading = _PackReader(data, index.offsets if index else {})
            if index is None:
                yield from reading.in_order()
                return
            for offset, id in sorted(index.offsets.items()):
                try:
                    kind, content, _ = reading.object(offset)
                except _DamagedObject:
                    continue
                if object_id(kind, content) == id:
                    yield kind, content, id


class _PackReader:
    """Reads the objects of a pack, even one that git refuses."""

    def __init__(self, data: mmap.mmap, offsets: dict[int, str]) -> None:
        self._data = data
        self._places = {id: offset for offset, id in offsets.items()}

    def in_order(self) -> Iterator[tuple[str, bytes, str]]:
        """Yield the objects from the start of the file up to the first one that cannot be read."""
        place = 12
        while place < len(self._data) - 20:
            try:
                kind, content, end = self.object(place)
            except _DamagedObject:
                return
            id = object_id(kind, content)
            self._places[id], place = place, end
            yield kind, content, id

    def object(self, offset: int, depth: int = 0) -> tuple[str, bytes, int]:
        """Return the kind of an object, its content, and the offset of the next one."""
        try:
            number, size, place = self._head(offset)
            if number in _KINDS:
                content, end = self._inflated(place, size)
                return _KINDS[number], content, end
            if number == _OFFSET:
                back, place = self._distance(place)
                base = offset - back
            elif number == _REFERENCE:
                base, place = self._places[self._data[place : place + 20].hex()], place + 20
            else:
                raise _DamagedObject
            if depth > _MAX_DELTA_DEPTH or base < 12:
                raise _DamagedObject
            delta, end = self._inflated(place, size)
            kind, content, _ = self.object(base, depth + 1)
            return kind, _patched(content, delta), end
        except (IndexError, KeyError, zlib.error):
            raise _DamagedObject from None

    def _head(self, place: int) -> tuple[int, int, int]:
        byte = self._data[place]
        number, size, shift = (byte >> 4) & 7, byte & 15, 4
        while byte & 0x80:
            place += 1
            byte = self._data[place]
            size |= (byte & 0x7F) << shift
            shift += 7
        return number, size, place + 1

    def _distance(self, place: int) -> tuple[int, int]:
        byte = self._data[place]
        back = byte & 0x7F
        while byte & 0x80:
            place += 1
            byte = self._data[place]
            back = ((back + 1) << 7) | (byte & 0x7F)
        return back, place + 1

    def _inflated(self, place: int, size: int) -> tuple[bytes, int]:
        inflating, parts, length = zlib.decompressobj(), list[bytes](), 0
        while not inflating.eof:
            chunk = self._data[place : place + _CHUNK]
            if not chunk or length > size:
                raise _DamagedObject
            parts.append(inflating.decompress(chunk))
            length += len(parts[-1])
            place += len(chunk) - len(inflating.unused_data)
        if length != size:
            raise _DamagedObject
        return b"".join(parts), place


def _patched(base: bytes, delta: bytes) -> bytes:
    """Apply a delta, which copies pieces of the base object and inserts new ones."""
    place, sizes = 0, list[int]()
    for _ in range(2):
        size = shift = 0
        while True:
            byte = delta[place]
            place += 1
            size |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                break
        sizes.append(size)
    made = bytearray()
    while place < len(delta):
        order = delta[place]
        place += 1
        if not order & 0x80:
            made += delta[place : place + order]
            place += order
            continue
        start = length = 0
        for bit in range(4):
            if order & (1 << bit):
                start |= delta[place] << (8 * bit)
                place += 1
        for bit in range(3):
            if order & (0x10 << bit):
                length |= delta[place] << (8 * bit)
                place += 1
        made += base[start : start + (length or 0x10000)]
    if [len(base), len(made)] != sizes:
        raise _DamagedObject
    return bytes(made)


def _index(path: Path) -> _Index | None:
    """Return the index of a pack, or None if it is damaged."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    body, checksum = data[:-20], data[-20:]
    if data[:8] != b"\xfftOc\0\0\0\2" or len(data) < 1072 or hashlib.sha1(body).digest() != checksum:  # noqa: S324
        return None
    (count,) = struct.unpack_from(">I", data, 1028)
    names, places = 1032, 1032 + 24 * count
    offsets = dict[int, str]()
    for number in range(count):
        (offset,) = struct.unpack_from(">I", data, places + 4 * number)
        if offset & 0x80000000:
            (offset,) = struct.unpack_from(">Q", data, places + 4 * count + 8 * (offset & 0x7FFFFFFF))
        offsets[offset] = data[names + 20 * number : names + 20 * number + 20].hex()
    return _Index(offsets, data[-40:-20])


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
