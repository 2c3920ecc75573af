"""Memory in PostgreSQL, for many machines: the same tables in a schema of their own.

No extension is needed: terms and vectors are bytes, and this process scores them. Advisory locks serialize
operations on the same user or session, so a delivery and a call to forget never miss each other.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Any, Generic, TypeVar

import asyncpg

from ...errors import InputError, NewerFormat, StoreError
from ...process import Owner
from ...stores.postgres.faults import FAULTS, ROLLED_BACK, fault, unreachable
from ...stores.postgres.pooler import STATEMENTS, configured_commit, is_pooled, pinned
from ...stores.postgres.server import PostgresTarget, target
from .database import SCHEMA_VERSION, Ask, Operation, schema_steps, statements

VERSION = SCHEMA_VERSION
SUFFIX = "_memory"
"""The suffix of the schema: the memory of a store in the schema ``turnstate`` is in ``turnstate_memory``."""

MAX_CONNECTIONS = 5
CONNECT_PATIENCE, PATIENCE = 3.0, 60.0  # seconds
TRIES = 10
"""Attempts at an operation that the server rolled back because of another one."""

_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)")

T = TypeVar("T")


class PostgresDatabase:
    """The tables of the engine in a schema of a PostgreSQL database."""

    files = ()

    def __init__(self, where: PostgresTarget) -> None:
        self._target, self._closed = where, False
        self._pool: Any = None
        self._pinned: str | None = None  # the settings of a transaction, if there is a pooler
        self._owner = Owner(self, f"the memory in {where.shown}")
        self._sql = {
            name: _numbered(sql) for name, sql in statements("postgres", f'"{where.schema}".').items()
        }

    @classmethod
    async def open(cls, url: str) -> PostgresDatabase:
        """Connect to the server and create the tables if they are missing."""
        where = target(url)
        where = where._replace(schema=(where.schema + SUFFIX)[:63])
        made = cls(where)
        try:
            if await made._is_pooled():
                made._pool = await made._connect(statement_cache_size=0)
            else:
                made._pool = await made._connect(statement_cache_size=STATEMENTS, init=_pin_names)
        except asyncpg.ClientConfigurationError as error:
            raise InputError(f"the settings in the URL of {where.shown} cannot be used: {error}") from None
        except FAULTS as error:
            raise unreachable(error, where.shown) from None
        try:
            await made._create()
        except BaseException:
            await made.close()
            raise
        return made

    async def _connect(self, **how: Any) -> Any:
        return await asyncpg.create_pool(
            self._target.dsn,
            min_size=0,
            max_size=MAX_CONNECTIONS,
            timeout=CONNECT_PATIENCE,
            command_timeout=PATIENCE,
            reset=_nothing,
            **how,
        )

    async def _is_pooled(self) -> bool:
        """Find out whether there is a pooler, and the settings of a transaction there."""
        if self._target.pooler == "session":
            return False
        connection = await asyncpg.connect(
            self._target.dsn, timeout=CONNECT_PATIENCE, command_timeout=PATIENCE, statement_cache_size=0
        )
        try:
            known = self._target.pooler == "transaction"
            if not known and not await is_pooled(connection, timeout=CONNECT_PATIENCE):
                return False
            self._pinned = pinned(await configured_commit(connection, timeout=CONNECT_PATIENCE))
            return True
        finally:
            await connection.close(timeout=CONNECT_PATIENCE)

    async def rows(self, name: str, /, **given: Any) -> list[tuple[Any, ...]]:
        """Run one read-only statement."""
        sql, names = self._sql[name]
        async with self._transaction(readonly=True, one=True) as connection:
            return [tuple(row) for row in await connection.fetch(sql, *(given[name] for name in names))]

    async def read(self, operation: Callable[[], Operation[T]]) -> T:
        """Run a read-only operation in one transaction, which never waits for a writer."""
        async with self._transaction(readonly=True) as connection:
            return await self._driven(operation(), connection, thread=True)

    async def write(self, operation: Callable[[], Operation[T]]) -> T:
        """Run an operation in one transaction, which is durable when this returns."""
        for attempt in range(TRIES):
            try:
                async with self._transaction() as connection:
                    return await self._driven(operation(), connection)
            except StoreError as error:
                if not isinstance(error.__cause__, ROLLED_BACK) or attempt == TRIES - 1:
                    raise
        raise AssertionError  # the last attempt raises

    async def scrub(self) -> bool:
        """Return False: the server's vacuum reuses the space of deleted rows, and its WAL has old pages."""
        return False

    async def close(self) -> None:
        """Close the connections."""
        if self._closed or self._owner.is_elsewhere:
            return
        self._closed = True
        try:
            async with asyncio.timeout(PATIENCE):
                await self._pool.close()
        except FAULTS:
            self._pool.terminate()

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Any]:
        self._owner.check()
        if self._closed:
            raise StoreError(f"the memory in {self._target.shown} is closed; open it again")
        try:
            async with self._pool.acquire(timeout=PATIENCE) as connection:
                yield connection
        except FAULTS as error:
            raise fault(error, self._target.shown) from error

    @asynccontextmanager
    async def _transaction(self, *, readonly: bool = False, one: bool = False) -> AsyncIterator[Any]:
        """Yield a connection in a transaction; for ``one`` statement it needs none without a pooler."""
        level = "repeatable_read" if readonly else "read_committed"
        async with self._connection() as connection:
            if one and self._pinned is None:
                yield connection
                return
            async with connection.transaction(isolation=level, readonly=readonly):
                if self._pinned is not None:
                    await connection.execute(self._pinned)
                yield connection

    async def _driven(self, operation: Operation[T], connection: Any, *, thread: bool = False) -> T:
        """Run an operation; with ``thread``, its own work does not block the event loop."""
        rows: list[Any] | None = None
        while True:
            step = await asyncio.to_thread(_next, operation, rows) if thread else _next(operation, rows)
            if isinstance(step, _Done):
                return step.result
            sql, names = self._sql[step.name]
            if isinstance(step.given, list):
                await connection.executemany(sql, [[one[name] for name in names] for one in step.given])
                rows = []
            else:
                found = await connection.fetch(sql, *(step.given[name] for name in names))
                rows = [tuple(row) for row in found]

    async def _create(self) -> None:
        schema = self._target.schema
        lock = int.from_bytes(sha256(f"turnstate memory {schema}".encode()).digest()[:8], signed=True)
        async with self._transaction() as connection:
            await connection.execute("SELECT pg_advisory_xact_lock($1)", lock)
            there = await connection.fetchval("SELECT 1 FROM pg_namespace WHERE nspname = $1", schema)
            if not there:
                await connection.execute(f'CREATE SCHEMA "{schema}"')
                await connection.execute(f'CREATE TABLE "{schema}".version (number BIGINT NOT NULL)')
            version = await connection.fetchval(f'SELECT max(number) FROM "{schema}".version') or 0  # noqa: S608
            if version < VERSION:
                steps = schema_steps(
                    f'"{schema}".',
                    after=version,
                    key="BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
                    integer="BIGINT",
                    blob="BYTEA",
                )
                await connection.execute(steps)
                await connection.execute(f'INSERT INTO "{schema}".version VALUES ($1)', VERSION)  # noqa: S608
        if version > VERSION:
            raise NewerFormat(
                f"the memory in {self._target.shown} has schema {version}; update Turnstate to open it"
            )


async def _pin_names(connection: Any) -> None:
    """Make sure that no name means another role's object."""
    await connection.execute("SET search_path = pg_catalog")


async def _nothing(_connection: Any) -> None:
    """Skip the reset of a connection that is returned to the pool: its settings stay as they are."""


class _Done(Generic[T]):
    """The end of an operation."""

    def __init__(self, result: T) -> None:
        self.result = result


def _next(operation: Operation[T], rows: list[Any] | None) -> Ask | _Done[T]:
    """Return the next statement of an operation, or its end: a thread cannot pass on a StopIteration."""
    try:
        return operation.send(rows)
    except StopIteration as end:
        return _Done(end.value)


def _numbered(sql: str) -> tuple[str, tuple[str, ...]]:
    """Replace named parameters with numbers, as the server expects, and return their names in order."""
    names = dict[str, int]()
    numbered = _PARAMETER.sub(lambda found: f"${names.setdefault(found[1], len(names) + 1)}", sql)
    return numbered, tuple(names)
