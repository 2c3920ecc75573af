"""The URL of a server: its address, credentials and options.

    redis://user:password@host:6379/0        one server; rediss:// with TLS
    redis+unix:///run/valkey.sock?db=0       one server on this machine
    redis+cluster://host:7000                a Cluster, by any of its nodes; rediss+cluster:// with TLS

``valkey`` and ``valkeys`` mean the same as ``redis`` and ``rediss``.

Options: ``timeout`` in seconds, ``durability=fsync`` to refuse a server that promises less, and
``allow_eviction=1`` to accept a server that evicts keys when its memory is full.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec
from msgspec import Struct

from ...errors import InputError
from ..values import Durability

TIMEOUT = 3.0
"""Seconds to wait for an answer; short enough to raise an error within five."""

_PORT = 6379


class RedisTarget(Struct, frozen=True, kw_only=True):
    """A parsed URL."""

    shown: str  # for people, without user and password
    host: str = ""
    port: int = _PORT
    path: str = ""
    db: int = 0
    user: str | None = None
    password: str | None = None
    tls: bool = False
    cluster: bool = False
    timeout: float = TIMEOUT
    durability: Durability | None = None
    allow_eviction: bool = False

    def __repr__(self) -> str:
        return f"RedisTarget({self.shown})"


class _Options(Struct, frozen=True, forbid_unknown_fields=True):
    timeout: float = TIMEOUT
    durability: Durability | None = None
    allow_eviction: bool = False
    db: int | None = None


def parsed(url: str) -> RedisTarget:
    """Parse a URL, or raise `InputError` without repeating its password."""
    try:
        parts = urlsplit(url)
        scheme, _, kind = parts.scheme.replace("valkey", "redis").partition("+")
        port = parts.port or _PORT
    except ValueError as error:
        raise InputError(f"the URL of a Redis server cannot be read: {error}") from None
    if scheme not in ("redis", "rediss") or kind not in ("", "cluster", "unix") or parts.fragment:
        raise InputError(
            "a Redis server is redis://host:port/db, redis+unix:///path or redis+cluster://host:port"
        )
    options = _options(parts.query)
    path = unquote(parts.path)
    if kind == "unix":
        if parts.hostname or path in ("", "/") or scheme == "rediss":
            raise InputError("a socket is redis+unix:///path/of/the.sock, with ?db=1 for another database")
        db, shown = options.db or 0, f"redis+unix://{path}"
    else:
        db = _database(path, options.db)
        shown = f"{parts.scheme}://{parts.hostname or 'localhost'}:{port}"
    if db and kind == "cluster":
        raise InputError(f"{shown} is a Cluster, which has only database 0")
    return RedisTarget(
        shown=f"{shown} (database {db})" if db else shown,
        host=parts.hostname or "localhost",
        port=port,
        path=path if kind == "unix" else "",
        db=db,
        user=unquote(parts.username) if parts.username else None,
        password=unquote(parts.password) if parts.password else None,
        tls=scheme == "rediss",
        cluster=kind == "cluster",
        timeout=options.timeout,
        durability=options.durability,
        allow_eviction=options.allow_eviction,
    )


def _options(query: str) -> _Options:
    given: dict[str, Any] = dict(parse_qsl(query, keep_blank_values=True))
    try:
        options = msgspec.convert(given, _Options, strict=False)
    except msgspec.ValidationError as error:
        names = ", ".join(_Options.__struct_fields__)
        raise InputError(
            f"an option of the Redis URL cannot be used ({error}); the options are {names}"
        ) from None
    if not 0 < options.timeout <= 3600:
        raise InputError(f"timeout={options.timeout} must be a number of seconds up to 3600")
    return options


def _database(path: str, option: int | None) -> int:
    name = path.strip("/")
    if not name:
        return option or 0
    if not name.isascii() or not name.isdigit() or option is not None:
        raise InputError(f"{name!r:.40} is not a database number; write redis://host:port/0")
    return int(name)
