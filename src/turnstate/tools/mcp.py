"""Tools of MCP servers, through the official SDK: local programs over stdio, and URLs.

Servers are started concurrently, each with a time limit; one that does not start is listed in ``failures``
and does not affect the others. A connection lives in a task of its own, so the task that opens it also closes
it. The processes of a server end with it, including those that it started. If a server crashes, hangs or
sends garbage, the call gets an error result, and the next call restarts the server. When a server changes its
list of tools, the list is read again before the next request, and remembered approvals remain valid only for
definitions that have not changed.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from msgspec import Struct

from ..conversation.tools import ToolOrigin
from ..errors import InputError, TurnstateError
from ..message import ToolCallResult
from ..toolspec import EMPTY_SCHEMA, ToolSpec
from .definition import BadArguments, Tool, ToolContext
from .manager import ToolManager
from .process import LastWords, message_streams

if TYPE_CHECKING:
    from mcp import Client

__all__ = ["McpFailed", "McpServer", "McpServers"]

START_SECONDS = 30.0
CALL_SECONDS = 120.0
STOP_SECONDS = 10.0
CHECK_SECONDS = 2.0
MAX_PAGES = 100
"""Maximum pages of a list of tools: a guard against a server whose list never ends."""

_UNUSABLE = re.compile(r"[^A-Za-z0-9_-]")


class McpFailed(TurnstateError):
    """An MCP server did not start, did not answer, or sent an invalid answer."""


class McpServer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to reach a server: a command to run, or the URL of its Streamable HTTP endpoint."""

    name: str
    command: str = ""
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    cwd: str | None = None
    url: str = ""
    start_seconds: float = START_SECONDS
    seconds: float = CALL_SECONDS

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,32}", self.name):
            raise InputError(f"{self.name!r:.60} cannot name a server: use 1 to 32 letters, digits, _ and -")
        if bool(self.command) == bool(self.url):
            raise InputError(f"the MCP server {self.name} needs a command or a url, and not both")


class _Connection:
    """A running server: a task that holds the client open until it is told to stop."""

    def __init__(self, server: McpServer) -> None:
        self.server = server
        self.changed = False
        self._client: Client | None = None
        self._last_words = LastWords()
        self._stop = asyncio.Event()
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._serve(), name=f"turnstate-mcp-{server.name}")

    @property
    def is_alive(self) -> bool:
        return not self._task.done()

    async def started(self) -> None:
        try:
            await asyncio.wait_for(asyncio.shield(self._ready), self.server.start_seconds)
        except TimeoutError:
            await self.stop()
            raise McpFailed(
                f"the MCP server {self.server.name} did not start in {self.server.start_seconds:g} seconds"
            ) from None

    async def stop(self) -> None:
        self._stop.set()
        if not self._ready.done():
            self._task.cancel()  # it is still starting: there is no connection to close
        _, running = await asyncio.wait([self._task], timeout=STOP_SECONDS)
        if running:
            self._task.cancel()
            await asyncio.wait([self._task], timeout=STOP_SECONDS)

    async def tools(self) -> list[Any]:
        """Return the server's tools from all pages of the list."""
        self.changed = False
        found, cursor = list[Any](), None
        for _ in range(MAX_PAGES):
            page = await self._connected().list_tools(cursor=cursor, cache_mode="refresh")
            found += page.tools
            cursor = page.next_cursor
            if cursor is None:
                return found
        raise McpFailed(f"the list of tools of the MCP server {self.server.name} does not end")

    async def call(self, name: str, args: dict[str, Any]) -> Any:
        return await self._connected().call_tool(name, args, read_timeout_seconds=self.server.seconds)

    async def check(self) -> None:
        """Stop the server if it no longer responds; the next call restarts it."""
        try:
            async with asyncio.timeout(CHECK_SECONDS):
                await self._connected().list_tools(cache_mode="refresh")  # the protocol no longer has pings
        except Exception:  # any error means that it does not respond
            await self.stop()

    def _connected(self) -> Client:
        if self._client is None:
            raise McpFailed(f"the MCP server {self.server.name} is not running")
        return self._client

    async def _serve(self) -> None:
        try:
            async with _client(self.server, self._heard, self._last_words) as client:
                self._client = client
                self._ready.set_result(None)
                listener = asyncio.create_task(self._listen(client))
                try:
                    await self._stop.wait()
                finally:
                    listener.cancel()
                    await asyncio.wait([listener])
        except Exception as error:  # the SDK, the server and the system may fail in any way
            if not self._ready.done():
                self._ready.set_exception(_failed(self.server, error, str(self._last_words)))
        finally:
            self._client = None
            if not self._ready.done():
                self._ready.cancel()

    async def _listen(self, client: Client) -> None:
        """Subscribe to changes of the tool list; servers with an older protocol notify `_heard` instead."""
        with suppress(Exception):
            async with client.listen(tools_list_changed=True) as events:
                async for _ in events:
                    self.changed = True

    async def _heard(self, message: object) -> None:
        if type(message).__name__ == "ToolListChangedNotification":
            self.changed = True
        elif isinstance(message, Exception):  # the transport broke: the next call restarts the server
            self._stop.set()


class McpServers:
    """The servers of an agent; ``async with McpServers(servers, manager)`` adds and removes their tools."""

    def __init__(self, servers: Iterable[McpServer], manager: ToolManager) -> None:
        self._servers = {server.name: server for server in servers}
        self._manager = manager
        self._running = dict[str, _Connection]()
        self._starting = {name: asyncio.Lock() for name in self._servers}
        self.failures = dict[str, str]()

    async def __aenter__(self) -> Self:
        await asyncio.gather(*(self._try(name) for name in self._servers))
        self._manager.sources.append(self.refresh)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._manager.sources.remove(self.refresh)
        running, self._running = list(self._running.values()), {}
        await asyncio.gather(*(connection.stop() for connection in running))
        for server in self._servers:
            self._manager.remove(ToolOrigin.mcp(server))

    async def refresh(self) -> None:
        """Reload the tool lists that servers have changed; an agent does this before each request."""
        changed = [name for name, one in self._running.items() if one.changed and one.is_alive]
        await asyncio.gather(*(self._try(name) for name in changed))

    async def _try(self, name: str) -> None:
        """Start a server if necessary and add its tools; record a failure in ``failures``."""
        try:
            connection = await self._connection(name)
            tools = await asyncio.wait_for(connection.tools(), self._servers[name].start_seconds)
        except Exception as error:  # as above; the other servers are not affected
            self.failures[name] = str(_failed(self._servers[name], error))
            return
        self.failures.pop(name, None)
        self._manager.remove(ToolOrigin.mcp(name))
        for tool in tools:
            made = self._tool(name, tool)
            if self._manager.get(made.name) is None:  # a server that lists a name twice offers one tool
                self._manager.add(made)

    async def _connection(self, name: str) -> _Connection:
        """Return the connection to a server; start the server if it is not running."""
        async with self._starting[name]:
            connection = self._running.get(name)
            if connection is None or not connection.is_alive:
                connection = self._running[name] = _Connection(self._servers[name])
            await connection.started()
            return connection

    def _tool(self, server: str, tool: Any) -> Tool:
        schema = tool.input_schema if isinstance(tool.input_schema, dict) else EMPTY_SCHEMA
        name = _UNUSABLE.sub("_", f"{server}__{tool.name}")[:64]
        spec = ToolSpec(name=name, description=tool.description or "", input_schema=schema)
        hints = tool.annotations
        read_only = bool(hints and hints.read_only_hint)

        async def run(args: dict[str, Any], context: ToolContext) -> ToolCallResult:
            connection: _Connection | None = None
            try:
                connection = await self._connection(server)
                answer = await connection.call(tool.name, args)
            except Exception as error:
                if connection is not None:
                    await connection.check()
                raise _failed(self._servers[server], error) from error
            return _result(context, answer)

        return Tool(
            spec,
            run,
            check=lambda args: _checked(args, schema),
            origin=ToolOrigin.mcp(server),
            idempotent=read_only and bool(hints and hints.idempotent_hint),
            changes_files=not read_only,
            timeout=self._servers[server].seconds + self._servers[server].start_seconds,
        )


def _client(server: McpServer, heard: Any, last_words: LastWords) -> Client:
    try:
        from mcp import Client
    except ImportError:
        raise McpFailed(
            "MCP servers need the official SDK; install it with: pip install 'turnstate[mcp]'"
        ) from None
    if server.url:
        return Client(server.url, message_handler=heard)
    from mcp.client.stdio import get_default_environment

    env = {**get_default_environment(), **server.env}
    streams = message_streams(server.command, server.args, env=env, cwd=server.cwd, last_words=last_words)
    return Client(streams, message_handler=heard)


def _checked(args: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """Check arguments against the server's schema; if that is invalid, leave the check to the server."""
    from jsonschema import Draft202012Validator, SchemaError

    try:
        Draft202012Validator.check_schema(schema)
        errors = sorted(Draft202012Validator(schema).iter_errors(args), key=lambda one: str(one.json_path))
    except (SchemaError, RecursionError):
        return args
    if errors:
        raise BadArguments(f"invalid arguments: {errors[0].message:.300} at {errors[0].json_path}")
    return args


def _result(context: ToolContext, answer: Any) -> ToolCallResult:
    """Convert an answer: a single text to a string, other content to the list of parts that MCP sends."""
    parts = [_part(one.model_dump(by_alias=True, exclude_none=True, mode="json")) for one in answer.content]
    output: Any = parts
    if not parts:
        output = answer.structured_content
    elif len(parts) == 1 and parts[0].get("type") == "text":
        output = parts[0].get("text", "")
    return ToolCallResult.of(context.call.id, output, is_error=bool(answer.is_error))


def _part(part: dict[str, Any]) -> dict[str, Any]:
    """Return a part in a form that a model can read: the text of a resource, or its URI."""
    match part:
        case {"type": "resource", "resource": {"text": str(text)}}:
            return {"type": "text", "text": text}
        case {"type": "resource" | "resource_link"}:
            where = part.get("uri") or part.get("resource", {}).get("uri", "")
            return {"type": "text", "text": f"[resource {where}]"}
        case _:
            return part


def _failed(server: McpServer, error: BaseException, last_words: str = "") -> McpFailed:
    """Return an error that names the server; for an exception group, describe its first exception."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, McpFailed):
        return error
    why = last_words or f"{type(error).__name__}: {error}"
    return McpFailed(f"the MCP server {server.name} failed: {why}"[:500])
