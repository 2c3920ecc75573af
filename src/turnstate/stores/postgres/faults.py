"""Translates the errors of PostgreSQL and of the connection to it.

If the answer to a write did not arrive, it is unknown whether it was committed. The error says so, and that
the same request can be sent again with its key. No message contains a password, a body or a value.
"""

from __future__ import annotations

import asyncpg

from ...errors import AlreadyExists, InputError, StoreDamaged, StoreError, StoreUnavailable, TurnstateError

ROLLED_BACK = (asyncpg.SerializationError, asyncpg.DeadlockDetectedError)
"""Nothing was written, and a second attempt may succeed."""

BROKEN = (
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,  # includes timeouts
)
"""The answer did not arrive; the statement may have been committed."""

CUT = (
    asyncpg.ConnectionDoesNotExistError,
    asyncpg.ConnectionFailureError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.InternalClientError,  # the server said that it would, while the driver was about to ask something
    ConnectionError,
)
"""The other side closed a connection."""

FAULTS = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, UnicodeError)
"""Everything that the driver raises."""


class AnswerLost(StoreUnavailable):
    """The answer to a write was lost, so it is unknown whether it was committed."""


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
        "{shown}: the database does not exist; create it first",
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
        "{shown} takes no writes: it is a replica or read-only; give the URL of the primary",
    ),
    (
        (asyncpg.InsufficientResourcesError,),
        StoreUnavailable,
        "{shown} is out of disk space or memory ({error}); nothing was written",
    ),
    (
        (asyncpg.TransactionRollbackError,),
        StoreUnavailable,
        "{shown}: other transactions wrote the same rows; nothing was written, try again",
    ),
    (
        (asyncpg.LockNotAvailableError,),
        StoreUnavailable,
        "{shown}: another process has held a lock for too long; nothing was written, try again",
    ),
    (
        (asyncpg.QueryCanceledError,),
        StoreUnavailable,
        "{shown} canceled the request ({error}); nothing was written, try again",
    ),
    (
        (asyncpg.InvalidSQLStatementNameError, asyncpg.DuplicatePreparedStatementError),
        StoreUnavailable,
        "{shown} is behind a pooler in transaction mode; write ?pooler=transaction in the URL",
    ),
    (
        (asyncpg.DataCorruptedError, asyncpg.IndexCorruptedError, asyncpg.IntegrityConstraintViolationError),
        StoreDamaged,
        "{shown} is damaged ({error}); run `turnstate verify` on it",
    ),
    (
        (asyncpg.SyntaxOrAccessError, asyncpg.InvalidSchemaNameError),
        StoreDamaged,
        "{shown} does not have the tables of Turnstate ({error}); run `turnstate verify` on it",
    ),
]


def fault(error: Exception, shown: str, *, unknown: bool = False) -> TurnstateError:
    """Return the error that a user sees; ``unknown`` means that a write was in progress."""
    if isinstance(error, _UNUSABLE):
        return InputError(
            "NUL, a lone surrogate, a number beyond 64 bits or a name of over 2,000 bytes cannot be stored"
        )
    if isinstance(error, asyncpg.UniqueViolationError) and error.constraint_name == "entry_by_id":
        return AlreadyExists("the session already has an entry of this id")
    for kinds, meaning, text in _MEANINGS:
        if isinstance(error, kinds):
            return meaning(text.format(shown=shown, error=_first_line(error)))
    if isinstance(error, UnicodeError):
        return StoreDamaged(
            f"{shown} is damaged: a text column is not valid UTF-8; run `turnstate verify` on it"
        )
    if isinstance(error, BROKEN):
        text = _broken(error, shown, unknown=unknown)
        return AnswerLost(text) if unknown else StoreUnavailable(text)
    return StoreError(f"{shown}: {type(error).__name__}: {_first_line(error)}")


def unreachable(error: Exception, shown: str) -> StoreUnavailable:
    """Return the error of a server that cannot be reached."""
    why = "no answer in time" if isinstance(error, TimeoutError) else _first_line(error)
    return StoreUnavailable(f"{shown} cannot be reached ({why}); check that it runs, and the URL")


def _broken(error: Exception, shown: str, *, unknown: bool) -> str:
    why = "no answer in time" if isinstance(error, TimeoutError) else "the connection broke"
    if not unknown:
        return f"{shown}: {why}; try again"
    return (
        f"{shown}: {why} before the answer arrived, so it is unknown whether this was written; "
        "retry with the same key, or read the session to find out"
    )


def _first_line(error: Exception) -> str:
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return text.partition("\n")[0][:300] or type(error).__name__
