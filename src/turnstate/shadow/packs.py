"""The packs of a shadow repository: checked when their files change, and saved as far as they can be read.

Git refuses a whole pack for one wrong byte in its trailer or its index. So a pack that is not what it was
is read here, object by object: those that have the bytes their names say go into a new pack, and the
damaged one is set aside. After that every object in the repository is sound, and a damaged one is missing.
What the files of the packs looked like is remembered, so a check of sound ones reads none of them.
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

import msgspec
from msgspec import Struct

from ..errors import GitFailed
from ..files import sync_folder
from .folder import copy_aside, set_aside
from .git import Git
from .objects import BLOB, COMMIT, TREE, Pack, object_id
from .refs import store

__all__ = ["Checked", "check", "note", "object_names"]

_NAME = "packs"
_MAGIC = b"turnstate packs 1\n"
_KINDS = {1: COMMIT, 2: TREE, 3: BLOB}
_OFFSET, _REFERENCE = 6, 7  # an object that is written as a difference to another one
_CHUNK = 1 << 16
_DEEPEST = 200  # differences of differences; git makes 50

_Stamps = tuple[tuple[int, int, int, int], ...]


class Checked(NamedTuple):
    """The result of a check: what was found, and whether objects may be missing, now or since earlier.

    ``changed`` tells that somebody else changed packs or references since the last check.
    """

    found: tuple[str, ...]
    suspect: bool
    changed: bool


class _Known(Struct, frozen=True, array_like=True):
    packs: dict[str, _Stamps]
    references: bytes
    suspect: bool


class _Index(NamedTuple):
    offsets: dict[int, str]
    pack: bytes  # the checksum of the pack


class _Unreadable(Exception):
    """An object of a pack cannot be read."""


def check(git: Git, folder: Path, *, deep: bool = False) -> Checked:
    """Check the packs that changed since the last check, or all, and save what is sound in damaged ones."""
    known, there, references = _load(folder / _NAME), _there(git), _references(git)
    if known is not None and (known.packs, known.references) == (there, references) and not deep:
        return Checked((), known.suspect, changed=False)
    found = list[str]()
    for stem, stamps in there.items():
        if deep or known is None or known.packs.get(stem) != stamps:
            found += _checked(git, folder, stem, was_whole=known is None or stem in known.packs)
    if known is not None:
        found += [f"{stem}.pack is missing" for stem in known.packs.keys() - there.keys()]
    suspect = bool(there) if known is None else known.suspect or known.references != references
    suspect = suspect or bool(found)
    _save(folder / _NAME, _Known(_there(git), references, suspect))
    changed = bool(found) or known is None or known.references != references
    return Checked(tuple(found), suspect, changed)


def note(git: Git, folder: Path, *, suspect: bool) -> None:
    """Remember the packs as they are now, after a change of our own."""
    known = _Known(_there(git), _references(git), suspect)
    if known != _load(folder / _NAME):
        _save(folder / _NAME, known)


def object_names(git: Git) -> set[str]:
    """Return the names of all objects that the repository has."""
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
                yield f"{listed.name} was damaged, and was written anew from the pack"
            return
    saved = _save_objects(git, folder, pack, index)
    if not saved and not was_whole and index is None:
        return  # left by a process that was killed; no snapshot needs it
    expected = f" of {len(index.offsets):,}" if index is not None else ""
    yield f"{stem}.pack is damaged: {saved:,}{expected} objects in it could be saved"


def _save_objects(git: Git, folder: Path, pack: Path, index: _Index | None) -> int:
    """Write what is sound in a pack to a new one, and set the damaged one aside; say how many there were.

    If all could be saved the new pack may have the name of the old one, and then takes its place.
    """
    with TemporaryDirectory(dir=git.folder, prefix="live-") as apart, Pack(folder) as sound:
        (Path(apart) / "pack").mkdir()
        for kind, data, id in _objects(pack, index):
            sound.add(kind, data, id)
        store(git.apart(Path(apart), alone=True), sound)
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
    """Read the sound objects of a pack: those that an index names, or one after the other."""
    with path.open("rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            reading = _Reading(data, index.offsets if index else {})
            if index is None:
                yield from reading.in_a_row()
                return
            for offset, id in sorted(index.offsets.items()):
                try:
                    kind, content, _ = reading.object(offset)
                except _Unreadable:
                    continue
                if object_id(kind, content) == id:
                    yield kind, content, id


class _Reading:
    """Reads a pack as it is written, also where git would not."""

    def __init__(self, data: mmap.mmap, offsets: dict[int, str]) -> None:
        self._data = data
        self._places = {id: offset for offset, id in offsets.items()}

    def in_a_row(self) -> Iterator[tuple[str, bytes, str]]:
        """Read the objects from the first on, up to one that cannot be read."""
        place = 12
        while place < len(self._data) - 20:
            try:
                kind, content, end = self.object(place)
            except _Unreadable:
                return
            id = object_id(kind, content)
            self._places[id], place = place, end
            yield kind, content, id

    def object(self, offset: int, depth: int = 0) -> tuple[str, bytes, int]:
        """Read an object: its kind, its content, and where the next one begins."""
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
                raise _Unreadable
            if depth > _DEEPEST or base < 12:
                raise _Unreadable
            delta, end = self._inflated(place, size)
            kind, content, _ = self.object(base, depth + 1)
            return kind, _patched(content, delta), end
        except (IndexError, KeyError, zlib.error):
            raise _Unreadable from None

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
                raise _Unreadable
            parts.append(inflating.decompress(chunk))
            length += len(parts[-1])
            place += len(chunk) - len(inflating.unused_data)
        if length != size:
            raise _Unreadable
        return b"".join(parts), place


def _patched(base: bytes, delta: bytes) -> bytes:
    """Make an object from another one and what differs: pieces of the other, and pieces that are new."""
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
        raise _Unreadable
    return bytes(made)


def _index(path: Path) -> _Index | None:
    """Read the index of a pack; None if it is not what it was written as."""
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
    """Return the checksum at the end of a pack; nothing if the pack does not have it."""
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


def _there(git: Git) -> dict[str, _Stamps]:
    """Tell what the files of the packs look like from outside."""
    found = dict[str, list[tuple[int, int, int, int]]]()
    for path in sorted((*_packs(git).glob("pack-*.pack"), *_packs(git).glob("pack-*.idx"))):
        one = path.stat()
        found.setdefault(path.stem, []).append((one.st_size, one.st_mtime_ns, one.st_ctime_ns, one.st_ino))
    return {stem: tuple(stamps) for stem, stamps in found.items()}


def _references(git: Git) -> bytes:
    """Tell what the files of all references look like from outside, in a few bytes."""
    digest = hashlib.sha256()
    for above, folders, files in os.walk(git.folder / "refs"):
        folders.sort()
        for name in sorted(files):
            one = os.lstat(os.path.join(above, name))
            stamp = (os.path.join(above, name), one.st_size, one.st_mtime_ns, one.st_ctime_ns, one.st_ino)
            digest.update(repr(stamp).encode("utf-8", "surrogateescape"))
    return digest.digest()


def _save(path: Path, known: _Known) -> None:
    payload = msgspec.msgpack.encode(known)
    temporary = path.with_name(f"{path.name}.tmp")
    temporary.write_bytes(_MAGIC + hashlib.sha256(payload).digest() + payload)
    os.replace(temporary, path)


def _load(path: Path) -> _Known | None:
    start = len(_MAGIC) + 32
    try:
        data = path.read_bytes()
        if data[:start] != _MAGIC + hashlib.sha256(data[start:]).digest():
            return None
        return msgspec.msgpack.decode(data[start:], type=_Known)
    except (OSError, msgspec.DecodeError):
        return None
