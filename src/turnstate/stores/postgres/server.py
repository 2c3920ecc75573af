"""The server as each connection sees it: whether it meets the requirements, and how durable commits are.

An acknowledged commit is on the disk only if the server waits for it (`synchronous_commit`), calls `fsync`
and can repair pages that a power cut tore (`full_page_writes`). These settings are read, never changed: the
operator of the server decides, and the store reports the resulting durability.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple, cast
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

from msgspec import Struct

from ...errors import InputError, StoreUnavailable
from ..values import Durability

LEAST_SERVER = 130_000
"""PostgreSQL 13: older versions are no longer maintained."""


class PostgresSettings(Struct, frozen=True, kw_only=True):
    """Version and settings, as one connection sees them."""

    version: str
    number: int
    encoding: str
    synchronous_commit: str
    fsync: str
    full_page_writes: str
    is_replica: bool
    read_only: str

    @property
    def durability(self) -> Durability:
        """The durability of an acknowledged write."""
        waits = self.synchronous_commit != "off"  # all other values wait for the server's own disk, at least
        return "fsync" if waits and self.fsync == self.full_page_writes == "on" else "best_effort"

    def check(self, shown: str, *, asked: Durability | None = None) -> None:
        """Raise `StoreUnavailable` if the server cannot keep sessions, or not as durably as requested."""
        if self.is_replica or self.read_only == "on":
            what = "a replica" if self.is_replica else "set read-only (default_transaction_read_only)"
            raise StoreUnavailable(f"{shown} is {what}; give the URL of a server that takes writes")
        if self.number < LEAST_SERVER:
            raise StoreUnavailable(
                f"{shown} runs PostgreSQL {self.version}; {LEAST_SERVER // 10_000} or newer is needed"
            )
        if self.encoding != "UTF8":
            raise StoreUnavailable(
                f"{shown} has the encoding {self.encoding}; create a database with ENCODING 'UTF8'"
            )
        if asked == "fsync" and self.durability != "fsync":
            named = ("synchronous_commit", "fsync", "full_page_writes")
            weak = [f"{name} is {value}" for name in named if (value := getattr(self, name)) == "off"]
            raise StoreUnavailable(
                f"{shown} cannot promise durability=fsync: {', '.join(weak)}; "
                "turn it on, or leave durability out of the URL"
            )


SCHEMA = "turnstate"

Pooler = Literal["transaction", "session"]
"""How a pooler lends its connections, if the URL says so; see `pooler`."""

_NAME = re.compile("(?!pg_)[a-z_][a-z0-9_]{0,62}").fullmatch


class PostgresTarget(NamedTuple):
    """A parsed URL: the DSN for the driver, the schema, and a name that can be shown."""

    dsn: str
    schema: str
    shown: str
    durability: Durability | None = None
    pooler: Pooler | None = None


def target(url: str) -> PostgresTarget:
    """Parse a URL, or raise `InputError`."""
    try:
        parts = urlsplit(url)
        settings = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
    except ValueError:
        raise InputError(_UNREADABLE) from None
    if parts.fragment or "\0" in unquote(url):
        raise InputError(_UNREADABLE)
    schema = settings.pop("schema", SCHEMA)
    if not _NAME(schema):
        raise InputError(
            f"the schema {schema!r:.80} cannot be used: write at most 63 of a-z, 0-9 and _, "
            "not a digit first, and not pg_"
        )
    durability = settings.pop("durability", None)
    if durability not in (None, "fsync", "best_effort"):
        raise InputError(f"durability={durability!r:.40} is not supported; write fsync or best_effort")
    pooler = settings.pop("pooler", None)
    if pooler not in (None, "transaction", "session"):
        raise InputError(f"pooler={pooler!r:.40} is not supported; write transaction or session")
    whose, at, where = parts.netloc.rpartition("@")
    netloc = whose.replace("@", "%40") + at + where
    dsn = urlunsplit((parts.scheme, netloc, parts.path, urlencode(settings, quote_via=quote), ""))
    place = where or settings.get("host", "")
    shown = f"PostgreSQL at {place or 'the default host'}{unquote(parts.path)}"
    return PostgresTarget(
        dsn, schema, shown, "fsync" if durability == "fsync" else None, cast("Pooler | None", pooler)
    )


_UNREADABLE = (
    "the URL of a PostgreSQL store cannot be read: write postgresql://user:password@host:5432/database, "
    "with %40 for @, %2F for /, %3F for ? and %23 for # in a password"
)
