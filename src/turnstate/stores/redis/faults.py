"""What the errors of the client library mean to a user of the store.

Three sorts matter to whoever asks: the server refused before it did anything, and may take it a moment
later; the answer was lost, and nobody knows whether it was done; everything else is an answer.
"""

from __future__ import annotations

from ...errors import StoreDamaged, StoreError, StoreUnavailable
from .library import exceptions as told

__all__ = ["ERRORS", "LOST", "NOT_TAKEN", "REFUSED", "AnswerLost", "fault", "never_sent"]

ERRORS = (told.RedisError, told.RedisClusterException, OSError)
"""All that the library raises."""

NOT_TAKEN = (
    told.TryAgainError,
    told.ClusterError,
    told.SlotNotCoveredError,
    told.BusyLoadingError,
    told.MaxConnectionsError,
)
"""Nothing was done, and a moment later it may be: keys are moving, a master is being replaced."""

REFUSED = (told.AuthenticationError, told.AuthorizationError)
"""Whom the server does not let in: asking again does not help."""

LOST = (told.ConnectionError, told.TimeoutError, OSError)
"""The connection is gone, and what was asked may have been done."""

_KINDS: list[tuple[type[Exception], str]] = [
    (told.BusyLoadingError, "{name} is still loading its data; try again in a while"),
    (told.AuthenticationError, "{name} refuses the user or the password; check both in the URL"),
    (told.AuthorizationError, "{name} refuses the user; check the URL"),
    (
        told.NoPermissionError,
        "the user may not do this on {name} ({error}); it needs ~ts:* ~{{ts:* and +@all -@dangerous +info",
    ),
    (
        told.ReadOnlyError,
        "{name} is a replica and takes no writes; give the address of its master in the URL",
    ),
    (
        told.OutOfMemoryError,
        "the memory of {name} is full (maxmemory); nothing was written: raise maxmemory or remove sessions",
    ),
    (told.ClusterError, "the Cluster at {name} is down or misses slots; nothing was done, try again"),
    (told.MaxConnectionsError, "{name} is used by too many at once; nothing was done, try again"),
    (told.TryAgainError, "keys of {name} are being moved to another node; nothing was done, try again"),
    (told.MovedError, "{name} is a node of a Cluster; write redis+cluster:// in the URL"),
]

_TEXTS: list[tuple[str, type[StoreError], str]] = [
    ("noauth", StoreUnavailable, "{name} wants a password; put it into the URL: redis://user:password@host"),
    ("wrongpass", StoreUnavailable, "{name} refuses the user or the password; check both in the URL"),
    ("username-password", StoreUnavailable, "{name} refuses the user or the password; check both in the URL"),
    (
        "authentication",
        StoreUnavailable,
        "{name} wants a password; put it into the URL: redis://user:password@host",
    ),
    ("cluster mode is not", StoreUnavailable, "{name} is no Cluster; write redis:// for a single server"),
    (
        "cannot be connected",
        StoreUnavailable,
        "{name} cannot be reached ({error}); check address and network",
    ),
    ("db index", StoreUnavailable, "{name} has no such database; take a lower number in the URL"),
    ("misconf", StoreUnavailable, "{name} cannot save to its disk and takes no writes ({error})"),
    ("noreplicas", StoreUnavailable, "{name} has too few replicas to take writes ({error})"),
    ("busy", StoreUnavailable, "{name} is held up by a script for too long; nothing was done, try again"),
    ("non local key", StoreUnavailable, "keys of {name} are being moved; nothing was done, try again"),
    ("wrongtype", StoreDamaged, "a key of the store on {name} is another program's ({error})"),
    ("crossslot", StoreUnavailable, "{name} is a Cluster behind a proxy; name a node as redis+cluster://"),
    (
        "unknown command",
        StoreUnavailable,
        "{name} is no Redis 7 or Valkey, or commands are disabled ({error})",
    ),
]


class AnswerLost(StoreUnavailable):
    """The answer was lost, so nobody knows whether the change was taken."""


def fault(error: Exception, name: str, *, asked: bool = True) -> StoreError:
    """Give the error that a user sees; ``asked`` says that something was asked that changes the store."""
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
    """Tell whether there was no connection to begin with."""
    return "connecting to" in str(error)


def _lost(error: Exception, name: str, *, asked: bool) -> StoreUnavailable:
    why = str(error).strip().rstrip(".") or type(error).__name__
    if not asked or never_sent(error):
        return StoreUnavailable(f"{name} cannot be reached ({why}); check address and network")
    return AnswerLost(
        f"the answer of {name} was lost ({why}), so nobody knows whether the change was taken: "
        "ask again under the same key, or read what is there"
    )
