"""Connections: a small pool, the handling of broken connections, and the migration of the schema.

    read    the connection broke  ─►  retried on another connection; once, if the server was silent
    write   the connection broke  ─►  AnswerLost: it is unknown whether it was committed
    both    rolled back by the server (deadlock, serialization)  ─►  retried until it succeeds or times out

Each statement is its own transaction, so a rollback leaves nothing behind. The server is checked on every new
connection: after a failover it may be a replica, or configured differently. Returning a connection to the
pool costs no round trip: nothing here changes the state of a connection, so it needs no reset.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from hashlib import sha256
from typing import Any

import asyncpg

from ...errors import InputError, NewerFormat, StoreDamaged, StoreError, TurnstateError
from ...process import Owner
from ..values import Durability
from .faults import BROKEN, CUT, FAULTS, ROLLED_BACK, fault, unreachable
from .pooler import STATEMENTS, PoolerSeen, configured_commit, is_pooled, pinned
from .queries import Query, functions, migrations, queries
from .server import PostgresSettings, PostgresTarget

CONNECT_PATIENCE = 3.0
"""Seconds to wait for a new connection; short enough to raise an error within five."""

PATIENCE = 30.0
"""Seconds to wait for an answer, or for a connection that is in use, before giving up."""

CANCEL_PATIENCE = 1.0
"""Seconds to wait for the server to cancel a statement; it may not respond."""

LONG = 3_600.0
"""Seconds for statements that read or delete a lot."""

KEPT = 2
"""Connections that are kept out of the driver's pool: acquiring and releasing one there takes several
iterations of the event loop, a good part of the time of an append."""

MAX_CONNECTIONS = 10
"""More do not help: appends share an fsync, and the server's connections are shared with other clients."""


class Work:
    """Statements on one connection, in one transaction."""

    def __init__(self, connection: Any, known: dict[str, Query], patience: float) -> None:
        self.connection, self._queries, self._patience = connection, known, patience

    async def rows(self, name: str, /, **given: Any) -> Sequence[Any]:
        """Run a query by name and return its rows."""
        query = self._queries[name]
        arguments = query.arguments(given)
        found: Sequence[Any] = await self.connection.fetch(query.sql, *arguments, timeout=self._patience)
        return found


class Connections:
    """Runs statements by name, each on a free connection."""

    def __init__(self, target: PostgresTarget) -> None:
        self.target = target
        self.server: PostgresSettings  # as seen by the newest connection
        self.durability: Durability = "fsync"  # the weakest that any connection has seen
        self._queries = queries(target.schema)
        self._closed = False
        self._pool: Any = None
        self._kept = list[Any]()
        self._wanting = 0  # tasks waiting for the pool
        self.is_pooled = target.pooler == "transaction"  # or once a pooler is seen
        self.owner = Owner(self, target.shown)

    @classmethod
    async def open(cls, target: PostgresTarget) -> Connections:
        """Connect to the server, or raise within seconds."""
        made = cls(target)
        try:
            try:
                await made._connect()
            except PoolerSeen:
                made.is_pooled = True
                await made._connect()
        except asyncpg.ClientConfigurationError as error:
            raise InputError(f"the settings in the URL of {target.shown} cannot be used: {error}") from None
        except FAULTS as error:
            raise made._unreachable(error) from None
        except ValueError:
            raise InputError(f"the settings in the URL of {target.shown} cannot be used") from None
        return made

    async def _connect(self) -> None:
        """Create the pool with its first connection."""
        self._pool = await asyncpg.create_pool(
            self.target.dsn,
            min_size=0,  # the driver logs every failed attempt to keep a minimum
            max_size=MAX_CONNECTIONS,
            timeout=CONNECT_PATIENCE,
            command_timeout=PATIENCE,
            statement_cache_size=0 if self.is_pooled else STATEMENTS,
            max_cached_statement_lifetime=0,
            init=self._look,
            reset=_nothing,
        )
        await self._pool.release(await self._pool.acquire())

    async def read(self, name: str, /, **given: Any) -> Sequence[Any]:
        """Run a query that changes nothing."""
        return await self._run(name, given, writes=False)

    async def write(self, name: str, /, **given: Any) -> Sequence[Any]:
        """Run a statement as its own transaction."""
        return await self._run(name, given, writes=True)

    async def write_within(self, seconds: float, name: str, /, **given: Any) -> Sequence[Any]:
        """Run a statement as its own transaction, for at most this long."""
        return await self._run(name, given, writes=True, patience=seconds)

    async def write_long(self, name: str, /, **given: Any) -> Sequence[Any]:
        """Run a statement that may take long as its own transaction."""
        return await self._run(name, given, writes=True, patience=LONG)

    @asynccontextmanager
    async def transaction(self, *, frozen: bool = False, patience: float = PATIENCE) -> AsyncIterator[Work]:
        """Run several statements in one transaction; ``frozen`` makes it a read-only snapshot."""
        async with self.connection(writes=not frozen) as connection:
            level = "repeatable_read" if frozen else "read_committed"
            async with connection.transaction(isolation=level, readonly=frozen):
                if self.is_pooled and not frozen:
                    await connection.execute(pinned(self.server.synchronous_commit))
                yield Work(connection, self._queries, patience)

    @asynccontextmanager
    async def connection(self, *, writes: bool = True) -> AsyncIterator[Any]:
        """Borrow a connection; raise the driver's errors as store errors."""
        connection = await self._acquired()
        try:
            yield connection
        except FAULTS as error:
            raise fault(error, self.target.shown, unknown=writes) from error
        finally:
            await self._released(connection)

    async def close(self) -> None:
        """Wait for statements in progress, and close the connections."""
        if self._closed or self.owner.is_elsewhere:
            return
        self._closed = True
        try:
            async with asyncio.timeout(PATIENCE):
                while self._kept:
                    await self._pool.release(self._kept.pop())
                await self._pool.close()
        except FAULTS:
            self._pool.terminate()

    def facts(self) -> dict[str, str]:
        """Return the number of connections, and whether they lead to a pooler."""
        pool = f"{self._pool.get_size()} of at most {self._pool.get_max_size()} connections"
        return {"pool": pool, "pooler": "transactions" if self.is_pooled else "none"}

    async def _run(
        self, name: str, given: dict[str, Any], *, writes: bool, patience: float = PATIENCE
    ) -> Sequence[Any]:
        query = self._queries[name]
        arguments = query.arguments(given)
        deadline, again = time.monotonic() + patience, not writes
        while True:
            connection, is_sound = await self._acquired(), False
            try:
                send = self._written if writes and self.is_pooled else _fetched
                rows = await send(connection, query.sql, arguments, patience)
                is_sound = True
                return rows
            except ROLLED_BACK as error:
                if time.monotonic() > deadline:
                    raise fault(error, self.target.shown) from error
            except BROKEN as error:
                if not again or time.monotonic() > deadline:
                    raise fault(error, self.target.shown, unknown=writes) from error
                again = isinstance(error, CUT)  # a server that keeps silent is asked twice
            except FAULTS as error:
                raise fault(error, self.target.shown) from error
            finally:
                if not (is_sound and self._keep(connection)):
                    await self._released(connection)
            await asyncio.sleep(random.uniform(0.0, 0.01))  # noqa: S311

    async def _written(
        self, connection: Any, sql: str, arguments: Sequence[Any], patience: float
    ) -> Sequence[Any]:
        """Run a statement in a transaction that has the settings of this store; see `pooler`."""
        try:
            settings = pinned(self.server.synchronous_commit)
            await connection.execute(f"BEGIN; {settings}", timeout=patience)
            rows = await _fetched(connection, sql, arguments, patience)
            await connection.execute("COMMIT", timeout=patience)
        # Also if the task is canceled: the next caller of this connection must not continue the transaction.
        except (
            BaseException
        ):  # a canceled task, too: the next user of the connection must find no transaction
            if not connection.is_closed() and connection.is_in_transaction():
                try:
                    await connection.execute("ROLLBACK", timeout=CANCEL_PATIENCE)
                except FAULTS:
                    connection.terminate()
            raise
        return rows

    async def _acquired(self) -> Any:
        self.owner.check()
        if self._closed:
            raise StoreError(f"{self.target.shown} is closed; open it again")
        while self._kept:
            connection = self._kept.pop()
            if _is_open(connection):
                return connection
            await self._released(connection)
        self._wanting += 1
        try:
            async with asyncio.timeout(PATIENCE):
                return await self._lent()
        except FAULTS as error:
            raise self._unreachable(error) from error
        finally:
            self._wanting -= 1

    def _keep(self, connection: Any) -> bool:
        """Keep a connection out of the pool and return True, unless enough are kept or tasks wait for one."""
        if self._closed or self._wanting or len(self._kept) >= KEPT:
            return False
        self._kept.append(connection)
        return True

    async def _lent(self) -> Any:
        """Take a connection or open one, again if it is cut; if the server allows no more, wait for ours."""
        while True:
            try:
                return await self._pool.acquire()
            except asyncpg.TooManyConnectionsError:
                if self._pool.get_size() == 0:
                    raise
            except CUT as error:  # while it was being opened, so nothing was asked yet
                if isinstance(error, ConnectionRefusedError):  # no server is there
                    raise
            await asyncio.sleep(random.uniform(0.0, 0.02))  # noqa: S311

    async def _released(self, connection: Any) -> None:
        with suppress(*FAULTS):  # it is broken and will be replaced; its answer is still valid
            async with asyncio.timeout(CANCEL_PATIENCE):  # the driver continues in the background
                await self._pool.release(connection)

    async def _look(self, connection: Any) -> None:
        """Check the server of a new connection."""
        is_known = self.is_pooled or self.target.pooler == "session"
        if not is_known and await is_pooled(connection, timeout=CONNECT_PATIENCE):
            raise PoolerSeen(
                f"{self.target.shown} is behind a pooler, which was not so when the store was opened; "
                "open it again"
            )
        # The driver looks up array types with its own SQL, which depends on the search path. It does so once
        # per connection: here, in a transaction whose search path excludes the objects of other roles.
        await connection.execute(f"BEGIN; {self._queries['pin_names'].sql}", timeout=CONNECT_PATIENCE)
        unnamed = {"name": ""} if self.is_pooled else {}
        await connection.prepare(self._queries["array_types"].sql, timeout=CONNECT_PATIENCE, **unnamed)
        found = dict(await connection.fetchrow(self._queries["settings"].sql, timeout=CONNECT_PATIENCE))
        if self.is_pooled:
            found["synchronous_commit"] = await configured_commit(connection, timeout=CONNECT_PATIENCE)
        await connection.execute("COMMIT", timeout=CONNECT_PATIENCE)
        server = PostgresSettings(**found)
        server.check(self.target.shown, asked=self.target.durability)
        self.server = server
        if server.durability != "fsync":
            self.durability = server.durability

    def _unreachable(self, error: Exception) -> TurnstateError:
        answered = isinstance(error, asyncpg.PostgresError) and not isinstance(
            error, asyncpg.PostgresConnectionError
        )
        return fault(error, self.target.shown) if answered else unreachable(error, self.target.shown)


async def _fetched(connection: Any, sql: str, arguments: Sequence[Any], patience: float) -> Sequence[Any]:
    rows: Sequence[Any] = await connection.fetch(sql, *arguments, timeout=patience)
    return rows


def _is_open(connection: Any) -> bool:
    try:
        return not connection.is_closed()
    except asyncpg.InterfaceError:  # the pool has already noticed that it is broken
        return False


async def _nothing(_connection: Any) -> None:
    """Skip the reset of a connection that is returned to the pool."""


# Migration: opening a store brings its schema up to date.


async def migrate(connections: Connections) -> None:
    """Create the schema or bring it up to date; leave a schema that is refused untouched."""
    target = connections.target
    steps = migrations(target.schema)
    async with connections.transaction(frozen=True) as work:
        if await _version(work, target) == len(steps):
            return
    async with connections.transaction() as work:
        await work.rows("pin_names")
        await work.rows("lock_schema", lock=_lock(target.schema))
        version = await _version(work, target)
        if version == len(steps):  # another process migrated first
            return
        if version is None:
            await work.connection.execute(f'CREATE SCHEMA "{target.schema}"')
        if not version:
            await work.rows("make_migration")
        for number in range(version or 0, len(steps)):
            if steps[number]:
                await work.connection.execute(steps[number])
            await work.rows("add_migration", number=number + 1)
        await work.connection.execute(functions(target.schema))


async def _version(work: Work, target: PostgresTarget) -> int | None:
    """Return the version of the schema; 0 if it is empty, None if it is missing."""
    ((there, is_ours, tables),) = await work.rows("schema", schema=target.schema)
    if not there:
        return None
    if not is_ours and tables:
        raise StoreDamaged(
            f"{target.shown}: the schema {target.schema!r} belongs to another program; "
            "add ?schema=NAME to the URL"
        )
    if not is_ours:
        return 0
    ((version,),) = await work.rows("version")
    known = len(migrations(target.schema))
    if not version:
        raise StoreDamaged(f"{target.shown}: the schema {target.schema!r} is damaged: it has no version")
    if version > known:
        raise NewerFormat(
            f"{target.shown} has schema {version}, newer than {known}; update Turnstate to open it"
        )
    return int(version)


def _lock(schema: str) -> int:
    """Return the number of the advisory lock that serializes migrations of a schema."""
    return int.from_bytes(sha256(f"turnstate schema {schema}".encode()).digest()[:8], signed=True)
