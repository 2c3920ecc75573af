"""Logins at MCP servers: what is kept of them, and where a login may go.

One file in the installation's own folder has the tokens of all servers, readable by its owner alone. They are
found by the URL of a server and never by its name, so a file that gives another address a known name gets
none of them.
"""

from __future__ import annotations

import hashlib
import ipaddress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from ..errors import TurnstateError
from ..home import Home, HomeDocument

FILE = "mcp_logins.json"


class LoginFailed(TurnstateError):
    """There is no valid login at an MCP server, or one could not be made."""


class KeptLogin(Struct, frozen=True, kw_only=True):
    """The documents of a login in the form of the protocol, and when the access token expires."""

    client: dict[str, Any]
    tokens: dict[str, Any]
    expires_at: float | None = None
    authority: dict[str, Any] | None = None
    """The description of the authorization server: a refresh token goes to its endpoint and no other."""

    resource: dict[str, Any] | None = None

    def __repr__(self) -> str:
        return "KeptLogin(…)"

    @property
    def secrets(self) -> list[str]:
        """What must not be shown."""
        found = [self.tokens.get("access_token"), self.tokens.get("refresh_token")]
        return [one for one in (*found, self.client.get("client_secret")) if isinstance(one, str) and one]


class Logins:
    """The logins of an installation by the URL of the server."""

    def __init__(self, home: Home | None = None) -> None:
        self._given = home

    @property
    def _home(self) -> Home:
        return self._given or Home.from_environment()  # when it is needed: not every server has a login

    @property
    def _document(self) -> HomeDocument[dict[str, KeptLogin]]:
        return HomeDocument(self._home, FILE, dict[str, KeptLogin])

    def get(self, url: str) -> KeptLogin | None:
        """Return the login at a server, or None."""
        return self._document.read().get(url)

    def keep(self, url: str, login: KeptLogin) -> None:
        """Keep a new login instead of an earlier one."""
        self._document.change(lambda kept: {**kept, url: login})

    def renew(self, url: str, before: KeptLogin, after: KeptLogin) -> None:
        """Keep refreshed tokens unless the user has logged out, or in again, in the meantime."""
        self._document.change(lambda kept: {**kept, url: after} if kept.get(url) == before else kept)

    def forget(self, url: str) -> bool:
        """Remove a login; return False if there is none."""
        if self.get(url) is None:
            return False
        self._document.change(lambda kept: {known: one for known, one in kept.items() if known != url})
        return True

    def lock_file(self, url: str) -> Path:
        """Return the path of the lock that a process holds while it refreshes the tokens of a server."""
        return self._home.make() / f"mcp_login.{hashlib.sha256(url.encode()).hexdigest()[:16]}.lock"


def is_allowed(url: str, *, server: str) -> bool:
    """Return True if requests of a login at a server may go to a URL that the server or others name.

    That is any address with HTTPS, except that a server elsewhere cannot name one of this machine or of a
    private network. Without encryption it is this machine only. Host names are not resolved.
    """
    try:
        to, own = urlsplit(url), urlsplit(server)
        host, own_host = to.hostname or "", own.hostname or ""
        _ = to.port
    except ValueError:
        return False
    if not host or to.username is not None:
        return False
    if to.scheme == "http":
        return _is_loopback(host) and _is_loopback(own_host)
    return to.scheme == "https" and (_is_public(host) or not _is_public(own_host))


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _is_public(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_global
    except ValueError:
        # resolvers also take 127.1, 0x7f.1 and 2130706433 for addresses; no public name ends with a number
        last = host.rstrip(".").rpartition(".")[2]
        return not (last == "localhost" or last[:1].isdigit())
