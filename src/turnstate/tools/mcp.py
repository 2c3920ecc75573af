"""Tools of MCP servers, through the official SDK: local programs over stdio, and URLs.

Servers are started concurrently, each with a time limit; one that does not start is listed in ``failures``
and does not affect the others. A connection lives in a task of its own, so the task that opens it also closes
it. The processes of a server end with it, including those that it started. If a server crashes or hangs, the
call gets an error result, and the next call restarts the server. When a server changes its list of tools, the
list is read again before the next request, and remembered approvals remain valid only for definitions that
have not changed.

The name of a tool follows from its server's name and its own alone (`tool_name`), so it is the same whichever
other servers there are, and two tools never have one name. What a server does that it should not, such as
printing what is no message or offering a schema that refers elsewhere, is in ``notices``.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from fnmatch import fnmatchcase
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import msgspec
from msgspec import Struct

from ..conversation.tools import ToolOrigin
from ..errors import AlreadyExists, InputError, TurnstateError
from ..home import Home
from ..jobs.process import JobFailed
from ..message import ToolCallResult
from ..toolspec import EMPTY_SCHEMA, ToolSpec
from .definition import Tool, ToolContext
from .logins import LoginFailed, Logins, is_allowed
from .manager import ToolManager
from .process import LastWords, message_streams
from .redaction import Redaction
from .server_schema import SchemaCheck, check_arguments, check_schema

if TYPE_CHECKING:
    from mcp import Client

    from .oauth import Show

START_SECONDS = 30.0
CALL_SECONDS = 120.0
STOP_SECONDS = 10.0
CHECK_SECONDS = 2.0
MAX_PAGES = 100
"""Maximum pages of a list of tools: a guard against a server whose list never ends."""

LONGEST_NAME = 64
"""Characters of a name that every provider accepts."""

LONGEST_SHOWN = 100
"""Characters to show of a name in a message."""

DIGEST = 12
"""Hexadecimal digits that tell apart names which would otherwise be the same."""

LONGEST_REASON = 400
"""Characters to quote of why a server failed."""

HTTP_SECONDS, STREAM_SECONDS = 30.0, 300.0
"""How long to wait for a connection to a URL, and for the next part of an answer."""

LOGIN_SECONDS = 300.0
"""How long a user may take to log in: a password, a second factor, and a question."""

_UNUSABLE = re.compile(r"[^A-Za-z0-9_-]")
_DIGESTED = re.compile(rf"_[0-9a-f]{{{DIGEST}}}$")
VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
"""Matches what a value of a server takes from the environment."""

_HEADER_VALUE = re.compile(r"[\x20-\x7e\t]*").fullmatch
_log = logging.getLogger(__name__)


class McpFailed(TurnstateError):
    """An MCP server did not start, did not answer, or sent an invalid answer."""


class McpServer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to reach a server: a command to run, or the URL of its Streamable HTTP endpoint.

    ``${NAME}`` in a value of ``env`` or ``headers`` is replaced with an environment variable when the server
    is started, so that no secret is in this value. ``tools`` selects tools by the server's names for them.
    With ``oauth``, requests to a URL get the tokens of an earlier login (`log_in`).
    """

    name: str
    command: str = ""
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    cwd: str | None = None
    url: str = ""
    headers: dict[str, str] = {}
    oauth: bool = False
    tools: tuple[str, ...] = ("*",)
    start_seconds: float = START_SECONDS
    seconds: float = CALL_SECONDS

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,32}", self.name):
            raise InputError(f"{self.name!r:.60} cannot name a server: use 1 to 32 letters, digits, _ and -")
        if bool(self.command) == bool(self.url):
            raise InputError(f"the MCP server {self.name} needs a command or a url, and not both")
        if self.headers and not self.url:
            raise InputError(f"the MCP server {self.name} has headers, which only a url takes; use env")
        if self.oauth and not is_allowed(self.url, server=self.url):
            raise InputError(f"the MCP server {self.name} has oauth, which needs a url with https")
        if self.oauth and "authorization" in map(str.lower, self.headers):
            raise InputError(f"the MCP server {self.name} has both oauth and a header Authorization")


def tool_name(server: str, tool: str) -> str:
    """Return the name by which a model calls a server's tool; no two tools have the same.

    It is ``SERVER__TOOL`` if both can be read from that. Otherwise the name is too long, has characters that
    providers refuse, or could also be that of another pair; it then ends with a digest of the pair.
    """
    plain = f"{server}__{tool}"
    name = _UNUSABLE.sub("_", plain)
    is_readable = "__" not in server and not server.endswith("_") and not _DIGESTED.search(name)
    if is_readable and name == plain and len(name) <= LONGEST_NAME:
        return name
    digest = hashlib.sha256(f"{len(server)}:{plain}".encode(errors="surrogatepass")).hexdigest()[:DIGEST]
    return f"{name[: LONGEST_NAME - DIGEST - 1]}_{digest}"


class _Connection:
    """A running server: a task that holds the client open until it is told to stop."""

    def __init__(self, server: McpServer, noticed: Callable[[str], None], logins: Logins) -> None:
        self.server, self._noticed, self._logins = server, noticed, logins
        self.changed = False
        self.failure: McpFailed | None = None
        """Why the connection ended; a call that was open then only knows that it was closed."""

        self._client: Client | None = None
        self._last_words = LastWords(_redaction(server, logins))
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
            printed = f"; it printed: {noise}" if (noise := self._last_words.noise) else ""
            raise McpFailed(
                f"the MCP server {self.server.name} did not start in {self.server.start_seconds:g} seconds"
                f"{printed}"
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
            self._last_words.on_noise = self._printed
            async with _client(self.server, self._heard, self._last_words, self._logins) as client:
                # The SDK would check answers against the server's schema in the event loop, where a pattern
                # could take forever. No one here depends on that check: the model reads what was answered.
                client.session.validate_tool_result = _accept  # type: ignore[method-assign, assignment]
                self._client = client
                self._ready.set_result(None)
                listener = asyncio.create_task(self._listen(client))
                try:
                    await self._stop.wait()
                finally:
                    listener.cancel()
                    await asyncio.wait([listener])
        except Exception as error:  # the SDK, the server and the system may fail in any way
            self.failure = _failed(self.server, error, self._logins, str(self._last_words))
            if not self._ready.done():
                self._ready.set_exception(self.failure)
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

    def _printed(self, line: str) -> None:
        name = self.server.name
        self._noticed(f"the MCP server {name} prints what is no message, which is ignored: {line!r}")

    async def _heard(self, message: object) -> None:
        if type(message).__name__ == "ToolListChangedNotification":
            self.changed = True
        elif isinstance(message, Exception):  # the transport broke: the next call restarts the server
            self._stop.set()


class McpServers:
    """The servers of an agent; ``async with McpServers(servers, manager)`` adds and removes their tools."""

    def __init__(
        self, servers: Iterable[McpServer], manager: ToolManager, *, home: Home | None = None
    ) -> None:
        """Prepare servers for a manager; `home` has the logins, by default the environment's."""
        self._servers = {server.name: server for server in servers}
        self._manager, self._logins = manager, Logins(home)
        self._running = dict[str, _Connection]()
        self._starting = {name: asyncio.Lock() for name in self._servers}
        self._checks = dict[bytes, SchemaCheck]()
        self.failures = dict[str, str]()
        self.notices = list[str]()
        """What servers do that they should not, each told once."""

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
            made = await asyncio.wait_for(self._offered(connection), self._servers[name].start_seconds)
        except Exception as error:  # as above; the other servers are not affected
            self.failures[name] = str(_failed(self._servers[name], error, self._logins))
            return
        self.failures.pop(name, None)
        self._manager.remove(ToolOrigin.mcp(name))
        for tool in made:
            try:
                self._manager.add(tool)
            except AlreadyExists as error:
                self._notice(name, f"a tool of the MCP server {name} is not offered: {error}")

    async def _offered(self, connection: _Connection) -> list[Tool]:
        """Return the tools of a server that are selected and usable; of a name that it lists twice, one."""
        server = connection.server
        listed = {str(one.name): one for one in reversed(await connection.tools())}
        wanted = [
            one
            for name, one in reversed(listed.items())
            if any(fnmatchcase(name, pattern) for pattern in server.tools)
        ]
        checks = await asyncio.gather(*(self._checked(_schema(one)) for one in wanted))
        for tool, check in zip(wanted, checks, strict=True):
            if check.refusal:
                cut = _redaction(server, self._logins).first
                told = f"the tool {cut(repr(tool.name), LONGEST_SHOWN)} of the MCP server {server.name}"
                why = cut(check.refusal, LONGEST_REASON)
                self._notice(server.name, f"{told} is not offered: its schema is refused, since {why}")
        usable = [pair for pair in zip(wanted, checks, strict=True) if not pair[1].refusal]
        return [self._tool(server.name, tool, check) for tool, check in usable]

    async def _checked(self, schema: dict[str, Any]) -> SchemaCheck:
        """Check a schema once, however often it is listed; a check that fails is made again."""
        key = hashlib.sha256(msgspec.json.encode(schema)).digest()
        if key not in self._checks:
            try:
                self._checks[key] = await check_schema(schema)
            except JobFailed as failed:
                return SchemaCheck(refusal=f"it cannot be checked ({failed})")
        return self._checks[key]

    def _notice(self, server: str, text: str) -> None:
        text = _redaction(self._servers[server], self._logins)(text)
        if text not in self.notices:
            self.notices.append(text)
            _log.warning("%s", text)

    async def _connection(self, name: str) -> _Connection:
        """Return the connection to a server; start the server if it is not running."""
        async with self._starting[name]:
            connection = self._running.get(name)
            if connection is None or not connection.is_alive:
                connection = self._running[name] = _Connection(
                    self._servers[name], partial(self._notice, name), self._logins
                )
            await connection.started()
            return connection

    def _tool(self, server: str, tool: Any, checked: SchemaCheck) -> Tool:
        schema, name = _schema(tool), tool_name(server, tool.name)
        former = _UNUSABLE.sub("_", f"{server}__{tool.name}")[:LONGEST_NAME]
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
                    if connection.failure is not None:
                        raise connection.failure from error
                raise _failed(self._servers[server], error, self._logins) from error
            return _result(context, answer)

        async def check(args: dict[str, Any]) -> dict[str, Any]:
            if not checked.unusable:
                await check_arguments(schema, args)
            return args

        return Tool(
            spec,
            run,
            check=check,
            origin=ToolOrigin.mcp(server),
            idempotent=read_only and bool(hints and hints.idempotent_hint),
            changes_files=not read_only,
            timeout=self._servers[server].seconds + self._servers[server].start_seconds,
            former_name=former if former != name else "",
        )


def _schema(tool: Any) -> dict[str, Any]:
    return tool.input_schema if isinstance(tool.input_schema, dict) else EMPTY_SCHEMA


async def _accept(*_: object) -> None:
    """Accept any answer."""


async def log_in(server: McpServer, show: Show, *, home: Home | None = None) -> bool:
    """Log in at a server and keep the tokens; `show` shows the address that the user has to open.

    Return False if the server answers without a login; raise `McpFailed` if the login fails.
    """
    if not server.oauth:
        raise InputError(f"the MCP server {server.name} has no login; set oauth = true if it wants one")
    client_of, logins = _sdk(), Logins(home)
    from .oauth import browser_login  # deferred: it needs the SDK

    before = logins.get(server.url)
    try:
        async with (
            asyncio.timeout(LOGIN_SECONDS) as limit,
            browser_login(server.name, server.url, logins, show) as auth,
            client_of(_http_streams(server, auth)) as client,
        ):
            await client.list_tools()
    except Exception as error:  # the SDK and the server may fail in any way
        if isinstance(error, TimeoutError) and limit.expired():
            raise McpFailed(
                f"the login at {server.name} was not finished in {LOGIN_SECONDS:g} seconds"
            ) from None
        raise _failed(server, error, logins) from None
    return logins.get(server.url) != before


def _sdk() -> type[Client]:
    try:
        from mcp import Client
    except ImportError:
        raise McpFailed(
            "MCP servers need the official SDK; install it with: pip install 'turnstate[mcp]'"
        ) from None
    return Client


def _client(server: McpServer, heard: Any, last_words: LastWords, logins: Logins) -> Client:
    client_of = _sdk()
    if server.url:
        return client_of(_http_streams(server, _auth(server, logins)), message_handler=heard)
    from mcp.client.stdio import get_default_environment

    env = {**get_default_environment(), **_expanded(server, server.env)}
    streams = message_streams(server.command, server.args, env=env, cwd=server.cwd, last_words=last_words)
    return client_of(streams, message_handler=heard)


def _auth(server: McpServer, logins: Logins) -> Any:
    """Return what adds the tokens of a login to requests; raise `LoginFailed` if there is no login."""
    if not server.oauth:
        return None
    from .oauth import StoredLogin  # deferred, as above

    return StoredLogin(server.name, server.url, logins)


@asynccontextmanager
async def _http_streams(server: McpServer, auth: Any) -> AsyncIterator[Any]:
    """Connect to a URL with the server's headers; the SDK sends them to this address and no other."""
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    headers = _expanded(server, server.headers)
    for name, value in headers.items():
        if not _HEADER_VALUE(value):  # the HTTP library's own error would contain the value
            raise McpFailed(f"the header {name} of the MCP server {server.name} has an invalid character")
    timeout = httpx2.Timeout(HTTP_SECONDS, read=STREAM_SECONDS)
    async with (
        httpx2.AsyncClient(headers=headers, timeout=timeout, auth=auth) as client,
        streamable_http_client(server.url, http_client=client) as streams,
    ):
        yield streams


def _expanded(server: McpServer, values: Mapping[str, str]) -> dict[str, str]:
    """Return values with their environment variables filled in; raise `McpFailed` if one is not set."""

    def value(found: re.Match[str]) -> str:
        if (known := os.environ.get(found[1])) is None:
            raise McpFailed(
                f"the MCP server {server.name} needs the environment variable {found[1]}, which is not set"
            )
        return known

    return {name: VARIABLE.sub(value, text) for name, text in values.items()}


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


def _failed(server: McpServer, error: BaseException, logins: Logins, last_words: str = "") -> McpFailed:
    """Return an error that names the server; for an exception group, describe its first exception."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, McpFailed):
        return error
    if isinstance(error, LoginFailed):
        return McpFailed(str(error))
    redacted = _redaction(server, logins).first(f"{type(error).__name__}: {error}", LONGEST_REASON)
    return McpFailed(f"the MCP server {server.name} failed: {last_words or redacted}")


def _redaction(server: McpServer, logins: Logins) -> Redaction:
    """Return what keeps a server's secrets out of texts: it may repeat what it was given."""
    names = VARIABLE.findall(" ".join([*server.env.values(), *server.headers.values()]))
    secrets = {os.environ.get(name, ""): f"${{{name}}}" for name in names}
    kept = logins.get(server.url) if server.oauth else None
    return Redaction(secrets | dict.fromkeys(kept.secrets if kept else (), "[token]"))
