"""OAuth at MCP servers, with the official SDK: `browser_login` makes a login, `StoredLogin` uses it.

A login needs a person, so it happens only when it is asked for. What an agent connects with refreshes tokens
and never begins a login: without a valid login it fails at once and says what to run. The SDK keeps the rules
of the protocol; both classes look at every request that it makes and at every answer with tokens, before
anything is sent to an address that a server named, and before the SDK could log an answer.
"""

from __future__ import annotations

import asyncio
import logging
import re
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.shared.auth import (
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from pydantic import BaseModel, ValidationError

from .. import files
from .logins import KeptLogin, LoginFailed, Logins, is_allowed

CALLBACK = "/callback"
LONGEST_REQUEST = 16_384
REFRESH_SECONDS = 60.0
"""How long to wait for another process that refreshes the same tokens."""

POLL_SECONDS = 0.02
EXPIRED = 1.0  # a time in the past; the SDK takes 0 for "never expires"
UNAUTHORIZED = 401

Show = Callable[[str], Awaitable[None]]
"""Shows the address that the user has to open in a browser."""

_DONE = b"You are logged in. You can close this page and return to the terminal.\n"
_REFUSED = b"The login was refused. You can close this page and return to the terminal.\n"
_ERROR_CODE = re.compile(r"[a-z_]{1,40}").fullmatch

# The SDK logs a failed flow with its traceback, although the error is raised as well.
logging.getLogger(OAuthClientProvider.__module__).addFilter(lambda record: record.exc_info is None)


class _Storage:
    """The documents of one login, in the SDK's form; `keep` stores them when the tokens change."""

    def __init__(self, kept: KeptLogin | None, keep: Callable[[KeptLogin], None]) -> None:
        self._kept, self._keep = kept, keep
        self.context: Any = None

    async def get_tokens(self) -> OAuthToken | None:
        return OAuthToken.model_validate(self._kept.tokens) if self._kept else None

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return OAuthClientInformationFull.model_validate(self._kept.client) if self._kept else None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Do nothing: a registration is of no use without tokens, and is kept together with them."""

    async def set_tokens(self, tokens: OAuthToken) -> None:
        context = self.context
        self._kept = KeptLogin(
            client=_document(context.client_info) or {},
            tokens=_document(tokens) or {},
            expires_at=context.token_expiry_time,
            authority=_document(context.oauth_metadata),
            resource=_document(context.protected_resource_metadata),
        )
        self._keep(self._kept)


class StoredLogin(httpx2.Auth):
    """Adds the tokens of an earlier login to requests and refreshes them; never begins a login."""

    def __init__(self, name: str, url: str, logins: Logins) -> None:
        self._name, self._url, self._logins = name, url, logins
        self._kept = self._newest()
        storage = _Storage(self._kept, lambda new: logins.renew(url, self._kept, new))
        self._provider = _provider(url, storage, port=1)
        self._rejected = ""

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Send a request with a valid token; if the server rejects it, refresh it and try once more."""
        for is_last in (False, True):
            held = await self._prepared()
            if held is not None:
                flow = self._provider.async_auth_flow(request)
                try:
                    outgoing = await anext(flow)
                    _check_address(str(outgoing.url), self._url)
                    answer = yield outgoing
                    await self._check_refreshed(answer)
                    await flow.asend(answer)
                finally:
                    await flow.aclose()  # the SDK would lock out other requests until this one is answered
                    files.unlock(held)
            tokens = self._provider.context.current_tokens
            request.headers["Authorization"] = f"Bearer {tokens.access_token if tokens else ''}"
            response = yield request
            if response.status_code == UNAUTHORIZED and not is_last:
                self._rejected = request.headers["Authorization"].removeprefix("Bearer ")
                continue
            wants = response.headers.get("WWW-Authenticate", "")
            if response.status_code == UNAUTHORIZED or "insufficient_scope" in wants:
                raise self._needed()
            return

    async def _prepared(self) -> int | None:
        """Load the newest tokens; if they have to be refreshed, return the lock for that.

        An authorization server may end a login if two processes use one refresh token.
        """
        if self._load():
            return None
        try:
            async with asyncio.timeout(REFRESH_SECONDS):
                while (held := files.try_lock(self._logins.lock_file(self._url))) is None:
                    await asyncio.sleep(POLL_SECONDS)
        except TimeoutError:
            raise LoginFailed(
                f"another process has been refreshing the login at the MCP server {self._name} for "
                f"{REFRESH_SECONDS:g} seconds; try again"
            ) from None
        is_valid = True
        try:
            is_valid = self._load()
        finally:
            if is_valid:  # another process has refreshed them, or there is nothing to refresh
                files.unlock(held)
        return None if is_valid else held

    def _load(self) -> bool:
        """Load the kept tokens into the SDK; return False if they have to be refreshed."""
        self._kept = kept = self._newest()
        context = self._provider.context
        try:
            context.current_tokens = tokens = OAuthToken.model_validate(kept.tokens)
            context.client_info = OAuthClientInformationFull.model_validate(kept.client)
            # The SDK does not load these: it would take any token for valid, and send the refresh token to
            # the server itself instead of the authorization server.
            context.oauth_metadata = _loaded(OAuthMetadata, kept.authority)
            context.protected_resource_metadata = _loaded(ProtectedResourceMetadata, kept.resource)
        except ValidationError:  # its text would contain the tokens
            raise self._needed() from None
        context.token_expiry_time = EXPIRED if tokens.access_token == self._rejected else kept.expires_at
        if not context.is_token_valid() and not context.can_refresh_token():
            raise self._needed()
        return bool(context.is_token_valid())

    async def _check_refreshed(self, response: httpx2.Response) -> None:
        if 400 <= response.status_code < 500 and response.status_code != 429:
            raise self._needed()
        await _check_tokens(response, self._name)

    def _newest(self) -> KeptLogin:
        if (kept := self._logins.get(self._url)) is None:
            raise self._needed()
        return kept

    def _needed(self) -> LoginFailed:
        return LoginFailed(
            f"the MCP server {self._name} needs a login, and there is none that is valid; "
            f"run: turnstate mcp login {self._name}"
        )


class BrowserLogin(httpx2.Auth):
    """Logs in when the server asks for it, and keeps the tokens."""

    def __init__(self, name: str, url: str, provider: OAuthClientProvider) -> None:
        self._name, self._url, self._provider = name, url, provider

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Let the SDK find the authorization server, register, and exchange the code for tokens."""
        flow = self._provider.async_auth_flow(request)
        try:
            outgoing = await anext(flow)
            while True:
                if outgoing is not request:
                    _check_address(str(outgoing.url), self._url)
                response = yield outgoing
                if outgoing.headers.get("Content-Type") == "application/x-www-form-urlencoded":
                    await _check_tokens(response, self._name)  # only the request for tokens is a form
                outgoing = await flow.asend(response)
        except StopAsyncIteration:
            return
        finally:
            await flow.aclose()


@asynccontextmanager
async def browser_login(name: str, url: str, logins: Logins, show: Show) -> AsyncIterator[BrowserLogin]:
    """Yield what logs in: `show` shows an address, and the user's browser brings the answer.

    The answer comes to a random port that only this machine can reach, and is taken once. It must have the
    state of the request, so another page or program cannot answer in its place.
    """
    answer: asyncio.Future[dict[str, str]] = asyncio.get_running_loop().create_future()
    expected: list[str] = []

    async def redirect(address: str) -> None:
        _check_address(address, url)
        expected[:] = parse_qs(urlsplit(address).query).get("state", [])
        await show(address)

    async def receive(reader: StreamReader, writer: StreamWriter) -> None:
        try:
            fields = _fields(await reader.readline())
            is_answer = bool(expected) and fields.get("state") == expected[0] and not answer.done()
            page = (_DONE if "code" in fields else _REFUSED) if is_answer else b""
            writer.write(_page(b"200 OK" if is_answer else b"404 Not Found", page))
            await writer.drain()
            if is_answer:
                answer.set_result(fields)
        except (OSError, ValueError):
            pass  # a connection that was cut, or a request that is longer than the limit
        finally:
            writer.close()

    async def received() -> AuthorizationCodeResult:
        fields = await answer
        if "code" not in fields:
            why = fields.get("error", "")
            raise LoginFailed(f"the login was refused: {why if _ERROR_CODE(why) else 'without a reason'}")
        return AuthorizationCodeResult(code=fields["code"], state=fields.get("state"), iss=fields.get("iss"))

    async with await asyncio.start_server(receive, "127.0.0.1", 0, limit=LONGEST_REQUEST) as server:
        port = server.sockets[0].getsockname()[1]
        # Each login registers anew: the registration names the port.
        storage = _Storage(None, lambda new: logins.keep(url, new))
        yield BrowserLogin(name, url, _provider(url, storage, port, redirect, received))


def _fields(line: bytes) -> dict[str, str]:
    """Return the fields of the request that a browser makes for the redirection; empty for any other."""
    words = line.decode("ascii", "replace").split()
    asked = urlsplit(words[1] if len(words) == 3 and words[0] == "GET" else "")
    found = parse_qs(asked.query) if asked.path == CALLBACK else {}
    return {key: values[0] for key, values in found.items()}


def _page(status: bytes, page: bytes) -> bytes:
    heads = b"Content-Type: text/plain\r\nCache-Control: no-store\r\nReferrer-Policy: no-referrer\r\n"
    return b"HTTP/1.1 %b\r\n%bContent-Length: %d\r\nConnection: close\r\n\r\n%b" % (
        status,
        heads,
        len(page),
        page,
    )


def _provider(
    url: str,
    storage: _Storage,
    port: int,
    redirect: Show | None = None,
    received: Callable[[], Awaitable[AuthorizationCodeResult]] | None = None,
) -> OAuthClientProvider:
    metadata = OAuthClientMetadata.model_validate(
        {
            "client_name": "Turnstate",
            "redirect_uris": [f"http://127.0.0.1:{port}{CALLBACK}"],
            "token_endpoint_auth_method": "none",
        }
    )
    provider = OAuthClientProvider(url, metadata, storage, redirect, received)
    storage.context = provider.context
    return provider


async def _check_tokens(response: httpx2.Response, name: str) -> None:
    """Raise `LoginFailed` if an answer has no tokens; the SDK's own errors would contain the answer."""
    content = await response.aread()
    try:
        if response.status_code in (200, 201):
            OAuthToken.model_validate_json(content)
            return
        why = f"HTTP status {response.status_code}"
    except ValidationError:
        why = "an invalid answer"
    raise LoginFailed(f"the authorization server of the MCP server {name} gave no tokens: {why}")


def _check_address(address: str, server: str) -> None:
    if not is_allowed(address, server=server):
        shown = address.partition("?")[0]
        raise LoginFailed(
            f"the login at {server} leads to {shown!r:.200}, which is not allowed: it must be an address "
            "with https, and one of this machine or a private network only if the server is there, too"
        )


def _document(value: BaseModel | None) -> dict[str, Any] | None:
    return None if value is None else value.model_dump(mode="json", exclude_none=True)


def _loaded(kind: type[Any], document: dict[str, Any] | None) -> Any:
    return None if document is None else kind.model_validate(document)
