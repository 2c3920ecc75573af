"""Planted bugs: a harness that does not catch its own proves nothing.

They exist in workers only, as commands that behave badly or as a store that is changed in that process.
"""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Callable
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import apsw
from msgspec import structs

from tests.faults.promises import texts
from tests.faults.worker_commands import Commands
from turnstate import Message, open_databases
from turnstate.errors import Conflict, TurnstateError
from turnstate.memory.builtin import sqlite as memory_file
from turnstate.stores import admission
from turnstate.stores.postgres import connections as postgres_connections
from turnstate.stores.redis import log as redis_log
from turnstate.stores.redis.server import Script
from turnstate.stores.sqlite import changes, connection, log, writer

ADMISSION: Any = admission  # modules whose functions are replaced
CONNECTION: Any = connection
LOG: Any = log
CHANGING: Any = changes
WRITING: Any = writer
MIGRATION: Any = postgres_connections
REDIS_LOG: Any = redis_log
HOLDING: Any = open_databases
REMEMBERING: Any = memory_file
RESTORING: Any = import_module("turnstate.archive.restore")  # the package has a function of that name


class AcksFirst(Commands):
    """Acknowledges, then commits."""

    async def append(self, name: str, size: int = 1, expected: int | None = None) -> None:
        await self.say(ack=name, version=0)
        await self.commit(name, size, expected)


class AppendsInTwo(Commands):
    """Writes one append in two transactions."""

    async def commit(self, name: str, size: int, expected: int | None) -> Any:
        parts = texts(name, size)
        await self.session.append(*map(Message.user, parts[: size // 2]), key=f"{name} 1")
        return await self.session.append(*map(Message.user, parts[size // 2 :]), key=f"{name} 2")


class ChecksFirst(Commands):
    """Compares the version, then writes: two writers may both pass the check."""

    async def commit(self, name: str, size: int, expected: int | None) -> Any:
        version = await self.version()
        if expected not in (None, version):
            raise Conflict("too late", version=version)
        return await super().commit(name, size, None)


class ForgetsOne(Commands):
    """Acknowledges one append without writing it."""

    async def commit(self, name: str, size: int, expected: int | None) -> Any:
        if name.endswith("-7"):
            return SimpleNamespace(version=7)
        return await super().commit(name, size, expected)


class HidesErrors(Commands):
    """Acknowledges the first appends that fail."""

    patience = 3

    async def commit(self, name: str, size: int, expected: int | None) -> Any:
        try:
            return await super().commit(name, size, expected)
        except TurnstateError:
            if not self.patience:
                raise
            self.patience -= 1
            return SimpleNamespace(version=0)


def sync_now_and_then() -> None:
    """Leave out the sync at a commit, as `synchronous=NORMAL` does."""
    prepare = CONNECTION._prepare_writer

    def lax(db: apsw.Connection) -> None:
        prepare(db)
        db.pragma("synchronous", "NORMAL")

    CONNECTION._prepare_writer = lax


def settle_nothing() -> None:
    """Write after the frames of the WAL without making sure that they are on the disk."""
    assert WRITING.settle_log, "it is called otherwise now"
    assert REMEMBERING.settle_log, "it is called otherwise now"
    WRITING.settle_log = REMEMBERING.settle_log = lambda *_: None


def keep_keys_later() -> None:
    """Write entries in one transaction and their key in the next."""
    keep = CHANGING.keep_key

    def later(db: apsw.Connection, *details: object) -> None:
        db.execute("COMMIT")
        db.execute("BEGIN IMMEDIATE")
        keep(db, *details)

    CHANGING.keep_key = later


def trust_bytes() -> None:
    """Read every body without comparing its checksum."""
    read = LOG.entry_row
    LOG.entry_row = lambda columns: structs.replace(read(columns), damaged=False)


def take_any_fence() -> None:
    """Accept writes of a writer whose lease was taken over, in every store."""
    ADMISSION._check_fence = lambda *_: None
    functions, script = MIGRATION.functions, REDIS_LOG.script

    def lax_functions(schema: str) -> str:
        return _without(" OR asked_fence <> own.fence", functions(schema))

    def lax_script(name: str) -> Script:
        if name != "commit":
            return script(name)
        source = _without(" or ask.fence and ask.fence ~= head.fence", script(name).source.decode()).encode()
        digest = hashlib.sha1(source, usedforsecurity=False).hexdigest()
        return Script(name, source, digest.encode())

    MIGRATION.functions, REDIS_LOG.script = lax_functions, lax_script


def _without(check: str, program: str) -> str:
    assert check in program, f"the check is written otherwise now: {check}"
    return program.replace(check, "")


def mark_nothing() -> None:
    """Create imported sessions without the mark of an unfinished import."""
    assert RESTORING.IMPORTER, "the mark is called otherwise now"
    RESTORING.IMPORTER = ""


def lock_once() -> None:
    """Rely on the locks of SQLite alone, and do not look whether the files are still there."""
    HOLDING._SET = None
    HOLDING.DatabaseHold.replaced_file = lambda *_, **__: ""


COMMANDS: dict[str, type[Commands]] = {
    "acks first": AcksFirst,
    "appends in two": AppendsInTwo,
    "checks first": ChecksFirst,
    "forgets one": ForgetsOne,
    "hides errors": HidesErrors,
}
CHANGES: dict[str, Callable[[], None]] = {
    "syncs now and then": sync_now_and_then,
    "settles nothing": settle_nothing,
    "keeps keys later": keep_keys_later,
    "trusts bytes": trust_bytes,
    "takes any fence": take_any_fence,
    "marks nothing": mark_nothing,
    "locks once": lock_once,
}


def commands(channel: socket.socket, url: str, plant: str) -> Commands:
    """Return the commands of a worker, with a planted bug if one is named."""
    assert plant in ("", *COMMANDS, *CHANGES), plant
    if change := CHANGES.get(plant):
        change()
    return COMMANDS.get(plant, Commands)(channel, url)
