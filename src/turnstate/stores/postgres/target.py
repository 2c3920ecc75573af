"""Where a store is: the URL as the driver takes it, the schema, and a name that can be shown.

    postgresql://user:password@host:5432/database?schema=turnstate&durability=fsync&sslmode=require

``schema`` and ``durability`` are ours and may be left out; with ``durability=fsync`` a server that is set
to less is refused. All else is as in other programs, environment and password file included. The name for
errors and logs has neither user nor password nor settings.
"""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

from ...errors import InputError
from ..values import Durability

__all__ = ["SCHEMA", "Target", "target"]

SCHEMA = "turnstate"

_NAME = re.compile("(?!pg_)[a-z_][a-z0-9_]{0,62}").fullmatch


class Target(NamedTuple):
    """What a URL says."""

    dsn: str
    schema: str
    shown: str
    durability: Durability | None = None


def target(url: str) -> Target:
    """Read a URL, or say what is wrong with it."""
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
        raise InputError(f"durability={durability!r:.40} cannot be asked for; fsync and best_effort can")
    whose, at, where = parts.netloc.rpartition("@")
    netloc = whose.replace("@", "%40") + at + where
    dsn = urlunsplit((parts.scheme, netloc, parts.path, urlencode(settings, quote_via=quote), ""))
    place = where or settings.get("host", "")
    shown = f"PostgreSQL at {place or 'the default host'}{unquote(parts.path)}"
    return Target(dsn, schema, shown, "fsync" if durability == "fsync" else None)


_UNREADABLE = (
    "the URL of a PostgreSQL store cannot be read: write postgresql://user:password@host:5432/database, "
    "with %40 for @, %2F for /, %3F for ? and %23 for # in a password"
)
