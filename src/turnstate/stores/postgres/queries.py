"""The SQL statements of the store, for a given schema.

Parameters are written by name, as in ``:tenant``, and numbered here, since the server expects ``$1``. The
schema is written as ``turnstate.`` and replaced if the store uses another one.

Nothing depends on the search path of a connection: built-in functions, types and operators are qualified
with ``pg_catalog``, and functions set their own path. A test reads the files and enforces this.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from ..sql import migration_steps, named_statements, without_comments
from .server import SCHEMA

_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)")
_STATEMENTS = named_statements(__package__, "queries.sql", "verification.sql")
_MIGRATIONS = migration_steps(__package__)
_FUNCTIONS = files(__package__).joinpath("functions.sql").read_text("utf-8")


class Query(NamedTuple):
    """A statement with numbered parameters, and their names in that order."""

    sql: str
    names: tuple[str, ...]

    def arguments(self, given: Mapping[str, Any]) -> list[Any]:
        """Return values in the order of the parameters."""
        return [given[name] for name in self.names]


@cache
def queries(schema: str) -> dict[str, Query]:
    """Return all queries by name."""
    return {name: _numbered(_in_schema(sql, schema)) for name, sql in _STATEMENTS.items()}


@cache
def migrations(schema: str) -> tuple[str, ...]:
    """Return the migration steps in order, without comments; steps are numbered from 1.

    A step that changes no table is empty.
    """
    return tuple(_in_schema(without_comments(step).strip(), schema) for step in _MIGRATIONS)


@cache
def functions(schema: str) -> str:
    """Return the statements that create or replace all functions of a schema."""
    return _in_schema(_FUNCTIONS, schema)


def _in_schema(sql: str, schema: str) -> str:
    return sql.replace(f"{SCHEMA}.", f'"{schema}".')


def _numbered(sql: str) -> Query:
    names = tuple(dict.fromkeys(_PARAMETER.findall(sql)))
    return Query(_PARAMETER.sub(lambda match: f"${names.index(match[1]) + 1}", sql), names)
