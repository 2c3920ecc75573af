"""What PostgreSQL's errors, and those of the way to it, mean to a user of the store.

Of a write whose answer did not arrive nobody knows whether it was taken. The error says so, and that
the same request under its key can be sent again. No text has a password, a body or a value in it.
"""

from __future__ import annotations

import asyncpg

from ...errors import AlreadyExists, InputError, StoreDamaged, StoreError, StoreUnavailable, TurnstateError

__all__ = ["BROKEN", "FAULTS", "ROLLED_BACK", "fault", "unreachable"]

ROLLED_BACK = (asyncpg.SerializationError, asyncpg.DeadlockDetectedError)
"""Nothing was written, and the same again may succeed."""

BROKEN = (
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,  # a time-out is one, too
)
"""The answer did not arrive; what was asked may have been done."""

FAULTS = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, UnicodeError)
"""All that the driver raises."""

_UNUSABLE = (asyncpg.DataError, asyncpg.ProgramLimitExceededError)

_MEANINGS: list[tuple[tuple[type[Exception], ...], type[StoreError], str]] = [
    (
        (asyncpg.InvalidAuthorizationSpecificationError,),
        StoreUnavailable,
        "{shown} refuses this user or password; check the URL, PGPASSWORD and the password file",
    ),
    (
        (asyncpg.InvalidCatalogNameError,),
        StoreUnavailable,
        "{shown}: there is no such database; make it first",
    ),
    (
        (asyncpg.CannotConnectNowError,),
        StoreUnavailable,
        "{shown} is starting or stopping; try again in a moment",
    ),
    (
        (asyncpg.TooManyConnectionsError,),
        StoreUnavailable,
        "{shown} has no connection left; raise max_connections, or try again later",
    ),
    (
        (asyncpg.InsufficientPrivilegeError,),
        StoreUnavailable,
        "{shown}: this user may not do that ({error}); grant it, or let the owner open the store once",
    ),
    (
        (asyncpg.ReadOnlySQLTransactionError,),
        StoreUnavailable,
        "{shown} takes no writes now: it is a replica, or set read-only; give the URL of the primary",
    ),
    (
        (asyncpg.InsufficientResourcesError,),
        StoreUnavailable,
        "{shown} is out of disk space or memory ({error}); nothing was written",
    ),
    (
        (asyncpg.TransactionRollbackError,),
        StoreUnavailable,
        "{shown}: others wrote the same at the same time; nothing was written, try again",
    ),
    (
        (asyncpg.LockNotAvailableError,),
        StoreUnavailable,
        "{shown}: somebody holds a lock for too long; nothing was written, try again",
    ),
    (
        (asyncpg.QueryCanceledError,),
        StoreUnavailable,
        "{shown} broke the request off ({error}); nothing was written, try again",
    ),
    (
        (asyncpg.DataCorruptedError, asyncpg.IndexCorruptedError, asyncpg.IntegrityConstraintViolationError),
        StoreDamaged,
        "{shown} is damaged ({error}); run `turnstate verify` on it",
    ),
    (
        (asyncpg.SyntaxOrAccessError, asyncpg.InvalidSchemaNameError),
        StoreDamaged,
        "{shown} has not the tables that Turnstate made ({error}); run `turnstate verify` on it",
    ),
]


def fault(error: Exception, shown: str, *, unknown: bool = False) -> TurnstateError:
    """Give the error that a user sees; `unknown` says that a write was under way."""
    if isinstance(error, _UNUSABLE):
        return InputError(
            "NUL, a lone surrogate, a number beyond 64 bits or a name of over 2,000 bytes cannot be stored"
        )
    if isinstance(error, asyncpg.UniqueViolationError) and error.constraint_name == "entry_by_id":
        return AlreadyExists("the session holds an entry of this id already")
    for kinds, meaning, text in _MEANINGS:
        if isinstance(error, kinds):
            return meaning(text.format(shown=shown, error=_first_line(error)))
    if isinstance(error, UnicodeError):
        return StoreDamaged(f"{shown} is damaged: a text in it is none; run `turnstate verify` on it")
    if isinstance(error, BROKEN):
        return StoreUnavailable(_broken(error, shown, unknown=unknown))
    return StoreError(f"{shown}: {type(error).__name__}: {_first_line(error)}")


def unreachable(error: Exception, shown: str) -> StoreUnavailable:
    """Give the error of a server to which there is no way."""
    why = "no answer in time" if isinstance(error, TimeoutError) else _first_line(error)
    return StoreUnavailable(f"{shown} cannot be reached ({why}); check that it runs, and the URL")


def _broken(error: Exception, shown: str, *, unknown: bool) -> str:
    why = "no answer in time" if isinstance(error, TimeoutError) else "the connection broke"
    if not unknown:
        return f"{shown}: {why}; try again"
    return (
        f"{shown}: {why} before the answer came, so nobody knows whether this was written; "
        "read what is there, or send the same request again under its key"
    )


def _first_line(error: Exception) -> str:
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return text.partition("\n")[0][:300] or type(error).__name__
