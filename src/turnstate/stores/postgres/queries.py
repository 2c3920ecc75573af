"""The SQL of the store, by name: a query is a block of a ``.sql`` file under a line that names it.

Parameters are written by name, as in ``:tenant``, and numbered here as the server wants them. The schema
is written as ``turnstate.``, and replaced where a store has another.

Nothing is looked up along the search path of a connection: built-in functions, types and operators are
named with ``pg_catalog``, and functions set their own path. A test reads the files and holds them to it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from .server import SCHEMA

__all__ = ["Query", "functions", "migrations", "queries"]

_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
_COMMENT = re.compile(r"^--.*\n", re.MULTILINE)
_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)")
_FILES = ("queries.sql", "verification.sql")


class Query(NamedTuple):
    """A statement with numbered parameters, and their names in that order."""

    sql: str
    names: tuple[str, ...]

    def arguments(self, given: Mapping[str, Any]) -> list[Any]:
        """Put values in order."""
        return [given[name] for name in self.names]


@cache
def queries(schema: str) -> dict[str, Query]:
    """Give all queries by their names."""
    found = dict[str, Query]()
    for name in _FILES:
        pieces = _NAME.split(files(__package__).joinpath(name).read_text("utf-8"))
        for title, sql in zip(pieces[1::2], pieces[2::2], strict=True):
            found[title] = _numbered(_placed(" ".join(_COMMENT.sub("", sql).split()), schema))
    return found


@cache
def migrations(schema: str) -> tuple[str, ...]:
    """Return the steps of the schema in order, without comments; a step's number is its place, from 1 on.

    A step that changes no table is empty.
    """
    folder = files(__package__).joinpath("migrations")
    steps = sorted((item for item in folder.iterdir() if item.name.endswith(".sql")), key=lambda it: it.name)
    return tuple(_placed(_COMMENT.sub("", step.read_text("utf-8")).strip(), schema) for step in steps)


@cache
def functions(schema: str) -> str:
    """Return the statements that make or replace all functions of a schema."""
    return _placed(files(__package__).joinpath("functions.sql").read_text("utf-8"), schema)


def _placed(sql: str, schema: str) -> str:
    return sql.replace(f"{SCHEMA}.", f'"{schema}".')


def _numbered(sql: str) -> Query:
    names = tuple(dict.fromkeys(_PARAMETER.findall(sql)))
    return Query(_PARAMETER.sub(lambda match: f"${names.index(match[1]) + 1}", sql), names)
