"""Poolers such as PgBouncer: each transaction may run on another connection to the server.

    client ──► pooler ──► server connection 1   transaction A of this client, B of another
                     └──► server connection 2   transaction C of this client

So nothing that belongs to a connection can be relied on: neither prepared statements, which the driver
otherwise keeps, nor settings, which another client may have left behind on a server connection. Through a
pooler, the driver prepares nothing, and each transaction that writes begins by setting `synchronous_commit`
to the value that the server has configured for this user, so that a commit is as durable as the store says.
"""

from __future__ import annotations

from typing import Any

from ...errors import StoreUnavailable

STATEMENTS = 100
"""The most prepared statements that the driver keeps for a connection without a pooler."""


class PoolerSeen(StoreUnavailable):
    """The server is behind a pooler, which was not so when the store was opened; open it again."""


async def is_pooled(connection: Any, *, timeout: float) -> bool:
    """Return True if a pooler answers in place of the server.

    A server names its process when a client connects, and a pooler makes up a number. The process that runs
    a statement is asked for with COPY: any other query would leave a prepared statement on the server.
    """
    answer = bytearray()

    async def take(data: bytes) -> None:
        answer.extend(data)

    await connection.copy_from_query("SELECT pg_catalog.pg_backend_pid()", output=take, timeout=timeout)
    named: int = connection.get_server_pid()
    return int(answer) != named


async def configured_commit(connection: Any, *, timeout: float) -> str:
    """Return `synchronous_commit` as configured, whatever other clients have set on this connection."""
    value: str = await connection.fetchval(
        "SELECT reset_val FROM pg_catalog.pg_settings "
        "WHERE name OPERATOR(pg_catalog.=) 'synchronous_commit'::pg_catalog.text",
        timeout=timeout,
    )
    return value


def pinned(commit: str) -> str:
    """Return the statements that set what matters here for the rest of a transaction."""
    return f"SET LOCAL search_path = pg_catalog, pg_temp; SET LOCAL synchronous_commit = {commit}"
