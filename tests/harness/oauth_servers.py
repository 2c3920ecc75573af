"""A real MCP server with OAuth, and a real authorization server on another port."""

from __future__ import annotations

import secrets
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import anyio
import uvicorn
from mcp.server import MCPServer
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    ProviderTokenVerifier,
    RefreshToken,
    TokenError,
    construct_redirect_uri,
)
from mcp.server.auth.routes import create_auth_routes
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from starlette.applications import Starlette

__all__ = ["Authority", "OAuthServers"]

LIFETIME = 3_600


class Authority:
    """Registers clients and issues tokens; refresh tokens are valid once, as the specification asks."""

    def __init__(self) -> None:
        self.clients = dict[str, OAuthClientInformationFull]()
        self.codes = dict[str, AuthorizationCode]()
        self.access = dict[str, AccessToken]()
        self.refresh = dict[str, RefreshToken]()
        self.issued = list[str]()
        """Every token that was ever issued."""

        self.lifetime = LIFETIME
        self.refuses = False

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        self.clients[client_info.client_id] = client_info

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        if self.refuses:
            return construct_redirect_uri(str(params.redirect_uri), error="access_denied", state=params.state)
        code = secrets.token_urlsafe(32)
        self.codes[code] = AuthorizationCode(
            code=code,
            scopes=params.scopes or [],
            expires_at=time.time() + 60,
            client_id=client.client_id,
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
        )
        return construct_redirect_uri(str(params.redirect_uri), code=code, state=params.state)

    async def load_authorization_code(self, _: Any, authorization_code: str) -> AuthorizationCode | None:
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(self, _: Any, authorization_code: AuthorizationCode) -> OAuthToken:
        del self.codes[authorization_code.code]
        return self._tokens(
            authorization_code.client_id, authorization_code.scopes, authorization_code.resource
        )

    async def load_refresh_token(self, _: Any, refresh_token: str) -> RefreshToken | None:
        return self.refresh.get(refresh_token)

    async def exchange_refresh_token(
        self, _: Any, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        if self.refresh.pop(refresh_token.token, None) is None:
            raise TokenError("invalid_grant")
        return self._tokens(refresh_token.client_id, scopes, refresh_token.resource)

    async def load_access_token(self, token: str) -> AccessToken | None:
        return self.access.get(token)

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        self.access.pop(token.token, None)
        self.refresh.pop(token.token, None)

    def _tokens(self, client: str, scopes: list[str], resource: str | None) -> OAuthToken:
        access, refresh = f"access-{secrets.token_hex(16)}", f"refresh-{secrets.token_hex(16)}"
        self.issued += [access, refresh]
        until = int(time.time()) + LIFETIME
        self.access[access] = AccessToken(
            token=access, client_id=client, scopes=scopes, expires_at=until, resource=resource
        )
        self.refresh[refresh] = RefreshToken(
            token=refresh, client_id=client, scopes=scopes, resource=resource
        )
        return OAuthToken(access_token=access, expires_in=self.lifetime, refresh_token=refresh)


class OAuthServers:
    """Both servers; `requests` has every request that they got, with its method and path."""

    def __init__(self) -> None:
        self.authority = Authority()
        self.requests = list[str]()
        self.answers = dict[str, tuple[int, bytes]]()
        """Answers to give instead of the real ones, by path."""

        self.challenge = ""
        """What the MCP server answers a request without a token with, instead of the SDK's header."""

    @property
    def url(self) -> str:
        """The URL of the MCP server."""
        return f"http://127.0.0.1:{self.port}/mcp"

    @contextmanager
    def running(self) -> Iterator[OAuthServers]:
        """Serve on two free ports."""
        with _listening() as own, _listening() as other:
            self.port, self.authority_port = own.getsockname()[1], other.getsockname()[1]
            with _served(self._wrapped(self._resource()), own), _served(self._wrapped(self._issuer()), other):
                yield self

    @property
    def _settings(self) -> AuthSettings:
        return AuthSettings.model_validate(
            {
                "issuer_url": f"http://127.0.0.1:{self.authority_port}",
                "resource_server_url": self.url,
                "required_scopes": ["tools"],
                "validate_token_resource": True,
            }
        )

    def _resource(self) -> Any:
        server = MCPServer("oauth", auth=self._settings, token_verifier=ProviderTokenVerifier(self.authority))

        @server.tool()
        def add(a: int, b: int) -> str:
            """Add two numbers."""
            return str(a + b)

        inside = list[None]()

        @server.tool()
        async def meet(count: int) -> str:
            """Wait until so many calls are inside at once."""
            inside.append(None)
            with anyio.fail_after(20):
                while len(inside) < count:
                    await anyio.sleep(0.01)
            return "met"

        return server.streamable_http_app()

    def _issuer(self) -> Any:
        options = ClientRegistrationOptions(enabled=True, valid_scopes=["tools"], default_scopes=["tools"])
        issuer = self._settings.issuer_url
        return Starlette(
            routes=create_auth_routes(self.authority, issuer, client_registration_options=options)
        )

    def _wrapped(self, app: Any) -> Any:
        async def asked(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] == "http":
                self.requests.append(f"{scope['method']} {scope['path']}")
                if scope["path"] in self.answers:
                    status, body = self.answers[scope["path"]]
                    heads = [(b"content-type", b"application/json")]
                    if self.challenge:
                        heads.append((b"www-authenticate", self.challenge.encode()))
                    await send({"type": "http.response.start", "status": status, "headers": heads})
                    await send({"type": "http.response.body", "body": body})
                    return
            await app(scope, receive, send)

        return asked


@contextmanager
def _listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


@contextmanager
def _served(app: Any, listener: socket.socket) -> Iterator[None]:
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        while not server.started and thread.is_alive():
            time.sleep(0.01)
        yield
    finally:
        server.should_exit = True
        thread.join(10)
