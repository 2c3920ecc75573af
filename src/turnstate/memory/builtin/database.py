"""The database of the engine: named statements, and operations that each run in one transaction.

    def known(owner: int, key: str) -> Operation[bool]:
        return bool((yield Ask("delivered", {"owner": owner, "key": key})))

An operation is a generator that yields statements and is sent their rows. So the same operation works with
SQLite, which runs it in a thread, and with PostgreSQL, which awaits each statement. An operation may run
again after a rollback, so callers pass a function that creates it, and it changes nothing but the database.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

from ...stores.sql import named_statements, without_comments

T = TypeVar("T")

SCHEMA = ("schema.sql", "0002-facts.sql")
"""The steps of the schema; a memory of an older version takes those that it has not taken yet."""

SCHEMA_VERSION = len(SCHEMA)


class Ask(NamedTuple):
    """A statement by name, with its parameters; with a list of parameters it runs once for each."""

    name: str
    given: dict[str, Any] | list[dict[str, Any]]


Operation: TypeAlias = Generator[Ask, Any, T]


def asked(name: str, /, **given: Any) -> Operation[list[tuple[Any, ...]]]:
    """Run a statement and return its rows."""
    return list((yield Ask(name, given)))


class Database(Protocol):
    """A database with the tables of the engine."""

    @property
    def files(self) -> Sequence[Path]:
        """The absolute paths of its files."""
        ...

    async def rows(self, name: str, /, **given: Any) -> list[tuple[Any, ...]]:
        """Run one read-only statement."""
        ...

    async def read(self, operation: Callable[[], Operation[T]]) -> T:
        """Run a read-only operation in one transaction, which never waits for a writer."""
        ...

    async def write(self, operation: Callable[[], Operation[T]]) -> T:
        """Run an operation in one transaction, which is durable when this returns."""
        ...

    async def scrub(self) -> bool:
        """Overwrite the remains of deleted rows in files; return True if none are left."""
        ...

    async def close(self) -> None:
        """Close files and connections."""
        ...


def statements(dialect: str, prefix: str) -> dict[str, str]:
    """Return the statements of a dialect by name; ``prefix`` is put before each table name."""
    found = named_statements(__package__, "sql/statements.sql", f"sql/{dialect}.sql")
    return {name: sql.replace("turnstate.", prefix) for name, sql in found.items()}


def schema_steps(prefix: str, *, after: int, key: str, integer: str, blob: str) -> str:
    """Return the statements that bring the tables to the newest version, with the types of a dialect."""
    folder = files(__package__).joinpath("sql")
    text = "".join(without_comments(folder.joinpath(step).read_text("utf-8")) for step in SCHEMA[after:])
    for name, meaning in ((" id KEY", f" id {key}"), (" INT ", f" {integer} "), (" BYTES ", f" {blob} ")):
        text = text.replace(name, meaning)
    return text.replace("turnstate.", prefix)
