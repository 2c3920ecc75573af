"""The SQL of the store, by name: a query is a block of a ``.sql`` file under a line that names it.

``queries.sql`` has what the store does every day, ``verification.sql`` what checks and mends it.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

__all__ = ["migrations", "query", "scanning"]

_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
_COMMENT = re.compile(r"^--.*\n", re.MULTILINE)
_FILES = ("queries.sql", "verification.sql")


@cache
def _queries() -> dict[str, str]:
    found = dict[str, str]()
    for name in _FILES:
        pieces = _NAME.split(files(__package__).joinpath(name).read_text("utf-8"))
        for title, sql in zip(pieces[1::2], pieces[2::2], strict=True):
            found[title] = " ".join(_COMMENT.sub("", sql).split())
    return found


def query(name: str) -> str:
    """Give a query by its name."""
    return _queries()[name]


@cache
def scanning(name: str, table: str, how: str = "NOT INDEXED") -> str:
    """Return a query that reads a table whole, and none of its indexes."""
    return query(name).replace(f"FROM {table} ", f"FROM {table} {how} ", 1)


@cache
def migrations() -> tuple[str, ...]:
    """Give the steps of the schema in their order; the number of a step is its place, from 1 on."""
    folder = files(__package__).joinpath("migrations")
    steps = sorted((item for item in folder.iterdir() if item.name.endswith(".sql")), key=lambda it: it.name)
    return tuple(step.read_text("utf-8") for step in steps)
