"""The server: runs scripts on one server or on the nodes of a Cluster, each within a time limit.

The client library would repeat a command whose answer was lost, and so might apply a change twice; that is
turned off. A request that the server refused without doing anything is retried until the time is up. An
idempotent request (``twice``) is retried after a lost connection; any other lost answer is an error.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple, Protocol, TypeVar

from ...errors import StoreError
from ...process import Owner
from .faults import (
    ERRORS,
    LOST,
    NOT_TAKEN,
    REFUSED,
    NoBackoff,
    Redis,
    RedisCluster,
    Retry,
    exceptions,
    fault,
    never_sent,
)
from .target import RedisTarget

_INCLUDE = re.compile(r"^-- include (\w+)\n", re.MULTILINE)


class Script(NamedTuple):
    """A script: its source is sent once, then the server knows it by its digest."""

    name: str
    source: bytes
    digest: bytes


@cache
def script(name: str) -> Script:
    """Return a script by its name: a file of Lua, with the files that it includes."""
    source = _resolved(name, set()).encode()
    digest = hashlib.sha1(source, usedforsecurity=False).hexdigest()
    return Script(name, source, digest.encode())


def _resolved(name: str, included: set[str]) -> str:
    """Insert the files that a file includes, each once."""

    def include(found: re.Match[str]) -> str:
        if found[1] in included:
            return ""
        included.add(found[1])
        return _resolved(found[1], included)

    source = files(__package__).joinpath("scripts", f"{name}.lua").read_text("utf-8")
    return _INCLUDE.sub(include, source)


T = TypeVar("T")
Call = tuple[Sequence[bytes], Sequence[bytes]]
"""Keys and arguments of a script."""

CONNECTIONS = 32
"""The most requests in progress; more tasks than that have to wait."""

PAUSE = 0.05
"""Seconds before a retry."""

RETRIES = 2
"""How often a request is repeated on a new connection."""


class _Client(Protocol):
    async def execute_command(self, *args: Any, **options: Any) -> Any: ...

    def pipeline(self, transaction: bool) -> Any: ...

    async def aclose(self) -> None: ...


class Server:
    """Runs scripts and commands."""

    def __init__(self, target: RedisTarget) -> None:
        self.name, self.is_cluster = target.shown, target.cluster
        self._timeout = target.timeout
        self._client: _Client = _connected(target)
        self._turns = asyncio.Semaphore(CONNECTIONS)
        self._closed = False
        self.owner = Owner(self, target.shown)

    @property
    def deadline(self) -> float:
        """The time at which a request made now times out, on the clock of the event loop."""
        return asyncio.get_running_loop().time() + self._timeout

    async def run(
        self,
        script: Script,
        keys: Sequence[bytes],
        arguments: Sequence[bytes] = (),
        *,
        twice: bool = False,
        until: float | None = None,
    ) -> Any:
        """Run a script; ``twice`` means that running it again does no harm."""
        given = (len(keys), *keys, *arguments)

        async def attempt() -> Any:
            try:
                return await self._client.execute_command("EVALSHA", script.digest, *given)
            except exceptions.NoScriptError:  # a new server, or one that was restarted
                return await self._client.execute_command("EVAL", script.source, *given)

        return await self._patiently(attempt, twice=twice, until=until)

    async def run_all(self, script: Script, calls: Sequence[Call], *, twice: bool = False) -> list[Any]:
        """Run a script with different keys in one pipeline, and return the answers in order."""
        if len(calls) < 2:
            return [await self.run(script, *call, twice=twice) for call in calls]

        async def attempt() -> list[Any]:
            given = [(len(keys), *keys, *arguments) for keys, arguments in calls]
            answers = await self._piped([("EVALSHA", script.digest, *one) for one in given])
            unknown = [n for n, answer in enumerate(answers) if isinstance(answer, exceptions.NoScriptError)]
            if unknown:
                again = await self._piped([("EVAL", script.source, *given[n]) for n in unknown])
                for n, answer in zip(unknown, again, strict=True):
                    answers[n] = answer
            return _without_errors(answers)

        return await self._patiently(attempt, twice=twice)

    async def run_each(self, script: Script, calls: Sequence[Call], *, until: float) -> list[Any]:
        """Run a script with different keys in one pipeline; return an answer or an error for each call.

        None means that the server did not execute the call. This is not for a Cluster, whose client repeats
        commands.
        """

        async def attempt() -> list[Any]:
            given = [(len(keys), *keys, *arguments) for keys, arguments in calls]
            return await self._piped([("EVALSHA", script.digest, *one) for one in given])

        answers = await self._patiently(attempt, twice=False, until=until)
        return [self._result(answer) for answer in answers]

    def _result(self, answer: Any) -> Any:
        if isinstance(answer, (exceptions.NoScriptError, *NOT_TAKEN)):
            return None
        return fault(answer, self.name, asked=True) if isinstance(answer, Exception) else answer

    async def ask(self, *command: bytes | str | int, node: Any = None) -> Any:
        """Run an idempotent command, on one node if given."""
        to = self._client if node is None else node
        return await self._patiently(lambda: to.execute_command(*command), twice=True)

    async def ask_all(self, commands: Sequence[tuple[bytes | str, ...]]) -> list[Any]:
        """Run idempotent commands in one pipeline."""

        async def attempt() -> list[Any]:
            return _without_errors(await self._piped(commands))

        return await self._patiently(attempt, twice=True) if commands else []

    async def nodes(self) -> list[Any]:
        """Return all masters of a Cluster, or [None] for a single server."""
        if not isinstance(self._client, RedisCluster):
            return [None]
        client = self._client
        await self._patiently(client.initialize, twice=True)
        return list(client.get_primaries())

    def grouped(self, buckets: Iterable[int]) -> list[list[int]]:
        """Group the buckets that one script may read: all of them together, but on a Cluster each alone."""
        if self.is_cluster:
            return [[bucket] for bucket in buckets]
        return [together] if (together := list(buckets)) else []

    async def close(self) -> None:
        """Close the connections."""
        self._closed = True
        await self._client.aclose()

    async def _piped(self, commands: Iterable[tuple[Any, ...]]) -> list[Any]:
        pipeline = self._client.pipeline(transaction=False)
        for command in commands:
            pipeline.execute_command(*command)
        answers: list[Any] = await pipeline.execute(raise_on_error=False)
        return answers

    async def _patiently(
        self, attempt: Callable[[], Awaitable[T]], *, twice: bool, until: float | None = None
    ) -> T:
        self.owner.check()
        if self._closed:
            raise StoreError(f"{self.name} is closed; open it again")
        losses = 0
        refusal: Exception | None = exceptions.MaxConnectionsError()  # until a connection is free
        try:
            async with asyncio.timeout_at(until or self.deadline), self._turns:
                while True:
                    try:
                        refusal = None
                        return await attempt()
                    except NOT_TAKEN as error:
                        refusal = error
                    except LOST as error:
                        losses += 1
                        # Sent again only if that cannot write twice: it may have run without its answer.
                        harmless = twice or never_sent(error)
                        if not harmless or losses > RETRIES or isinstance(error, REFUSED):
                            raise
                    await asyncio.sleep(PAUSE)
        except TimeoutError:
            silent = TimeoutError(f"no answer within {self._timeout:g} s")
            raise fault(refusal or silent, self.name, asked=not twice) from None
        except ERRORS as error:
            raise fault(error, self.name, asked=not twice) from error


def _without_errors(answers: list[Any]) -> list[Any]:
    """Return answers, or raise the first error among them."""
    for answer in answers:
        if isinstance(answer, Exception):
            raise answer
    return answers


def _connected(target: RedisTarget) -> _Client:
    # One time limit covers a whole operation, so the sockets need no timeouts.
    how: dict[str, Any] = {
        "username": target.user,
        "password": target.password,
        "socket_timeout": None,
        "socket_connect_timeout": target.timeout,
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
        "client_name": "turnstate",
    }
    if target.tls:
        how["ssl"] = True
    if target.cluster:
        # Otherwise the client would close all connections after every fifth key that moved.
        how |= {"reinitialize_steps": 0, "require_full_coverage": False}
        how["max_connections"] = 2 * CONNECTIONS
        cluster: _Client = RedisCluster(host=target.host, port=target.port, **how)
        return cluster
    place: dict[str, Any] = (
        {"unix_socket_path": target.path} if target.path else {"host": target.host, "port": target.port}
    )
    single: _Client = Redis(db=target.db, max_connections=2 * CONNECTIONS, **place, **how)
    return single
