"""Translates the errors of the client library.

The caller distinguishes three kinds: the server refused a request before it did anything, and may accept it
a moment later; the answer was lost, so it is unknown whether the change was applied; any other error is an
answer.
"""

from __future__ import annotations

from ...errors import StoreDamaged, StoreError, StoreUnavailable

__all__ = [
    "ERRORS",
    "LOST",
    "NOT_TAKEN",
    "REFUSED",
    "NoBackoff",
    "Redis",
    "RedisCluster",
    "ReplyLost",
    "Retry",
    "exceptions",
    "fault",
    "never_sent",
]

try:
    from redis import exceptions
    from redis.asyncio import Redis, RedisCluster
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff
except ModuleNotFoundError as missing:
    raise StoreUnavailable(
        "the Redis store needs the package `redis`: pip install 'turnstate[redis]'"
    ) from missing


ERRORS = (exceptions.RedisError, exceptions.RedisClusterException, OSError)
"""All errors that the library raises."""

NOT_TAKEN = (
    exceptions.TryAgainError,
    exceptions.ClusterError,
    exceptions.SlotNotCoveredError,
    exceptions.BusyLoadingError,
    exceptions.MaxConnectionsError,
)
"""Nothing was done, but a retry may succeed: keys are moving, or a master is being replaced."""

REFUSED = (exceptions.AuthenticationError, exceptions.AuthorizationError)
"""The server rejects the user: a retry does not help."""

LOST = (exceptions.ConnectionError, exceptions.TimeoutError, OSError)
"""The connection is lost, and the request may have been executed."""

_KINDS: list[tuple[type[Exception], str]] = [
    (exceptions.BusyLoadingError, "{name} is still loading its data; try again in a while"),
    (exceptions.AuthenticationError, "{name} refuses the user or the password; check both in the URL"),
    (exceptions.AuthorizationError, "{name} refuses the user; check the URL"),
    (
        exceptions.NoPermissionError,
        "the user may not do this on {name} ({error}); it needs ~ts:* ~{{ts:* and +@all -@dangerous +info",
    ),
    (
        exceptions.ReadOnlyError,
        "{name} is a replica and takes no writes; give the address of its master in the URL",
    ),
    (
        exceptions.OutOfMemoryError,
        "the memory of {name} is full (maxmemory); nothing was written: raise maxmemory or remove sessions",
    ),
    (
        exceptions.ClusterError,
        "the Cluster at {name} is down or does not cover all slots; nothing was done, try again",
    ),
    (exceptions.MaxConnectionsError, "{name} has too many connections; nothing was done, try again"),
    (exceptions.TryAgainError, "keys of {name} are being moved to another node; nothing was done, try again"),
    (exceptions.MovedError, "{name} is a node of a Cluster; write redis+cluster:// in the URL"),
]

_TEXTS: list[tuple[str, type[StoreError], str]] = [
    (
        "noauth",
        StoreUnavailable,
        "{name} requires a password; put it into the URL: redis://user:password@host",
    ),
    ("wrongpass", StoreUnavailable, "{name} refuses the user or the password; check both in the URL"),
    ("username-password", StoreUnavailable, "{name} refuses the user or the password; check both in the URL"),
    (
        "authentication",
        StoreUnavailable,
        "{name} requires a password; put it into the URL: redis://user:password@host",
    ),
    ("cluster mode is not", StoreUnavailable, "{name} is not a Cluster; write redis:// for a single server"),
    (
        "cannot be connected",
        StoreUnavailable,
        "{name} cannot be reached ({error}); check address and network",
    ),
    ("db index", StoreUnavailable, "{name} has no such database; use a lower number in the URL"),
    ("misconf", StoreUnavailable, "{name} cannot save to its disk and takes no writes ({error})"),
    ("noreplicas", StoreUnavailable, "{name} has too few replicas to take writes ({error})"),
    (
        "busy",
        StoreUnavailable,
        "{name} has been busy with a script for too long; nothing was done, try again",
    ),
    ("non local key", StoreUnavailable, "keys of {name} are being moved; nothing was done, try again"),
    ("wrongtype", StoreDamaged, "a key of the store on {name} belongs to another program ({error})"),
    ("crossslot", StoreUnavailable, "{name} is a Cluster behind a proxy; name a node as redis+cluster://"),
    (
        "unknown command",
        StoreUnavailable,
        "{name} is not Redis 7 or Valkey, or commands are disabled ({error})",
    ),
]


class ReplyLost(StoreUnavailable):
    """The answer was lost, so it is unknown whether the change was applied."""


def fault(error: Exception, name: str, *, asked: bool = True) -> StoreError:
    """Return the error that a user sees; ``asked`` means that the request may have changed the store."""
    for kind, words in _KINDS:
        if isinstance(error, kind):
            return StoreUnavailable(words.format(name=name, error=error))
    lowered = str(error).lower()
    for sign, meaning, words in _TEXTS:
        if sign in lowered:
            return meaning(words.format(name=name, error=error))
    if isinstance(error, LOST):
        return _lost(error, name, asked=asked)
    return StoreError(f"{name}: {type(error).__name__}: {error}")


def never_sent(error: Exception) -> bool:
    """Return True if no connection could be opened, so that nothing was sent."""
    return "connecting to" in str(error)


def _lost(error: Exception, name: str, *, asked: bool) -> StoreUnavailable:
    why = str(error).strip().rstrip(".") or type(error).__name__
    if not asked or never_sent(error):
        return StoreUnavailable(f"{name} cannot be reached ({why}); check address and network")
    return ReplyLost(
        f"the answer of {name} was lost ({why}), so it is unknown whether the change was applied; "
        "retry with the same key, or read the session to find out"
    )
