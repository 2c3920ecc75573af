"""SQL in files: a statement is a block of a ``.sql`` file under a line ``-- name: NAME``.

SQLite and PostgreSQL load their statements once, at import, so using one is a dictionary lookup. Migrations
are numbered files in a folder ``migrations``; a step's number is its position, counted from 1.
"""

from __future__ import annotations

import re
from importlib.resources import files

_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
_COMMENT = re.compile(r"^--.*\n", re.MULTILINE)


def named_statements(package: str, *names: str) -> dict[str, str]:
    """Return the statements in some ``.sql`` files of a package by name, each on one line."""
    found = dict[str, str]()
    for name in names:
        pieces = _NAME.split(files(package).joinpath(name).read_text("utf-8"))
        for title, sql in zip(pieces[1::2], pieces[2::2], strict=True):
            found[title] = " ".join(without_comments(sql).split())
    return found


def migration_steps(package: str) -> tuple[str, ...]:
    """Return the text of every migration of a package, in order."""
    folder = files(package).joinpath("migrations")
    steps = sorted((item for item in folder.iterdir() if item.name.endswith(".sql")), key=lambda it: it.name)
    return tuple(step.read_text("utf-8") for step in steps)


def without_comments(sql: str) -> str:
    """Return SQL without its comment lines."""
    return _COMMENT.sub("", sql)
