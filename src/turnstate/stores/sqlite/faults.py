"""What SQLite's errors mean to a user of the store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import apsw

from ...errors import InputError, StoreDamaged, StoreError, StoreUnavailable

__all__ = ["UNREADABLE", "UNUSABLE", "fault", "translated", "unusable"]

UNUSABLE = (UnicodeEncodeError, OverflowError)
"""What Python says of values that SQLite cannot hold, before SQLite has seen them."""

UNREADABLE = (apsw.CorruptError, apsw.TooBigError, apsw.NoMemError, MemoryError, UnicodeDecodeError)
"""What reading a damaged row comes to: a broken tree, an absurd length, or text that is none.

An error of the disk is not among them: the disk may come back.
"""


_MEANINGS: list[tuple[type[apsw.Error], type[StoreError], str]] = [
    (
        apsw.NotADBError,
        StoreDamaged,
        "{path} is no database, or its beginning is damaged; give another path, or put a copy in its place",
    ),
    (apsw.CorruptError, StoreDamaged, "{path} is damaged ({error}); run `turnstate verify` on it"),
    (
        apsw.SQLError,
        StoreDamaged,
        "{path} has not the tables that Turnstate made ({error}); run `turnstate verify` on it",
    ),
    (apsw.FullError, StoreUnavailable, "the disk of {path} is full; free some space and try again"),
    (
        apsw.ReadOnlyError,
        StoreUnavailable,
        "{path} cannot be written; check the permissions of file and folder",
    ),
    (
        apsw.CantOpenError,
        StoreUnavailable,
        "{path} cannot be opened; check that its folder exists and is writable",
    ),
    (apsw.PermissionsError, StoreUnavailable, "{path} may not be opened; check its permissions"),
    (apsw.BusyError, StoreUnavailable, "{path} is held by another process for too long; try again"),
    (apsw.LockedError, StoreUnavailable, "{path} is held by another process for too long; try again"),
    (apsw.IOError, StoreUnavailable, "{path} cannot be read or written ({error}); nothing was acknowledged"),
]


def fault(error: apsw.Error | UnicodeDecodeError, path: str) -> StoreError:
    """Return the error that a user sees, with what SQLite said as its cause."""
    meant = _meant(error, path)
    meant.__cause__ = error
    return meant


def _meant(error: apsw.Error | UnicodeDecodeError, path: str) -> StoreError:
    if isinstance(error, UnicodeDecodeError):
        return StoreDamaged(f"{path} is damaged: a text in it is none; run `turnstate verify` on it")
    for kind, meaning, text in _MEANINGS:
        if isinstance(error, kind):
            return meaning(text.format(path=path, error=error))
    return StoreError(f"{path}: {type(error).__name__}: {error}")


def unusable(error: Exception) -> InputError:
    """Give the error of a value that cannot be stored."""
    return InputError(f"a lone surrogate or a number beyond 64 bits cannot be stored: {error}")


@contextmanager
def translated(path: str) -> Iterator[None]:
    """Raise SQLite's errors as errors of the store."""
    try:
        yield
    except (apsw.Error, UnicodeDecodeError) as error:
        raise fault(error, path) from error
    except UNUSABLE as error:
        raise unusable(error) from error
