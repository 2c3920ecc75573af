"""The journal of a restore: what is to be done, on the disk before the first file is touched.

It appears whole or not at all, and goes when everything is done and on the disk. Whoever finds one
finishes what it says; each step can be done again. One that cannot be read is set aside, since every
file it could have spoken of is in the snapshot that was taken before.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Collection
from pathlib import Path

import msgspec
from msgspec import Struct

from .. import durable
from ..errors import CheckpointsDamaged, NewerFormat
from .keeping import sync
from .planning import Plan
from .values import Entry, Kept

__all__ = ["NAME", "Journal", "Record", "read", "remove", "write"]

NAME = "restore.journal"
_FORMAT = 1


class Journal(Struct, frozen=True, kw_only=True):
    """A restore that is under way."""

    format: int = _FORMAT
    id: str
    name: str
    target: str
    undo: str
    hard: bool
    plan: Plan
    kept: tuple[Kept, ...] = ()  # what the plan leaves alone from the start
    tag: str = ""  # of the snapshot that was taken before
    undoes: str = ""  # the tag of the restore that this one takes back
    rules: bool = False  # whether ignore rules are replaced


class Record(Struct, frozen=True, kw_only=True):
    """What a restore put where nothing was, and what it took away; whoever undoes it needs both."""

    put: dict[bytes, Entry] = {}
    removed: dict[bytes, Entry] = {}
    folders: tuple[bytes, ...] = ()

    @classmethod
    def of(cls, journal: Journal, kept: Collection[Kept]) -> Record:
        """Record what a journal's restore did, if these paths were left alone."""
        left, plan = {one.path for one in kept}, journal.plan
        return cls(
            put={one.path: one.entry for one in plan.puts if one.before is None and one.path not in left},
            removed={one.path: one.before for one in plan.removals if one.path not in left},
            folders=tuple(path for path in plan.folders if path not in left),
        )

    def encoded(self) -> bytes:
        """Write the record down."""
        return msgspec.msgpack.encode(self)

    @classmethod
    def decoded(cls, data: bytes) -> Record:
        """Read a record that was written down."""
        try:
            return msgspec.msgpack.decode(data, type=cls)
        except msgspec.DecodeError as error:
            raise CheckpointsDamaged(f"the record of a restore cannot be read: {error}") from error


def new_id() -> str:
    """Make a name for a restore, which the files that it stages carry."""
    return secrets.token_hex(8)


def write(journal: Journal, folder: Path) -> None:
    """Put the journal on the disk."""
    payload = msgspec.json.encode(journal)
    data = hashlib.sha256(payload).hexdigest().encode() + b"\n" + payload
    temporary = f"{NAME}.{secrets.token_hex(8)}.tmp"
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        durable.write_new(temporary, data, folder=descriptor)
        os.rename(temporary, NAME, src_dir_fd=descriptor, dst_dir_fd=descriptor)
        durable.sync_folder(descriptor)
    finally:
        os.close(descriptor)


def read(folder: Path) -> Journal | None:
    """Read the journal of a restore that was cut off, if there is one."""
    path = folder / NAME
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    checksum, _, payload = data.partition(b"\n")
    try:
        if hashlib.sha256(payload).hexdigest().encode() != checksum:
            raise ValueError("its checksum does not match")
        if msgspec.json.decode(payload, type=_Any).format > _FORMAT:
            raise NewerFormat(
                f"{path} was written by a newer Turnstate; update this one to finish the restore"
            )
        return msgspec.json.decode(payload, type=Journal)
    except NewerFormat:
        raise
    except ValueError:
        os.replace(path, path.with_suffix(".damaged"))
        sync(folder)
        return None


def remove(folder: Path) -> None:
    """Let the restore be done."""
    (folder / NAME).unlink(missing_ok=True)
    sync(folder)


class _Any(Struct, frozen=True):
    format: int = _FORMAT
