"""The file as SQLite sees it: pages, trees, the indexes over tables, and the schema.

Damage here is damage to the ground on which everything stands. Nothing is mended in such a file, since
writing may make it worse; what can be read is salvaged into another.
"""

from __future__ import annotations

from functools import cache

import apsw
from msgspec import Struct

from ..connection import foreign_objects
from ..faults import UNREADABLE
from ..queries import migrations, query

__all__ = ["Structure", "inspect_structure"]

MOST = 20
"""Faults that are named: more of them say no more."""

_NOT_FAULTS = ("ok", "*** in database main ***")

_OF_THE_INDEX = ("malformed inverted index", "unable to validate the inverted index")


class Structure(Struct, frozen=True):
    """What is wrong with the file, and whether the index for search is."""

    faults: tuple[str, ...]
    index_is_broken: bool

    @property
    def sound(self) -> bool:
        """Whether it can be written to."""
        return not self.faults


def inspect_structure(db: apsw.Connection) -> Structure:
    """Let SQLite check all its pages, and compare the schema with the one that is made."""
    lines = [*_told_by_sqlite(db), *_wrong_schema(db)]
    about_index = [line for line in lines if line.startswith(_OF_THE_INDEX)]
    return Structure(tuple(line for line in lines if line not in about_index), bool(about_index))


def _told_by_sqlite(db: apsw.Connection) -> list[str]:
    lines = list[str]()
    try:
        for (line,) in db.execute(f"PRAGMA integrity_check({MOST})"):
            lines += [piece for piece in str(line).splitlines() if piece not in _NOT_FAULTS]
    except (*UNREADABLE, apsw.IOError, apsw.SQLError) as error:
        lines = lines or [str(error)]
    return lines[:MOST]


def _wrong_schema(db: apsw.Connection) -> list[str]:
    try:
        there = {name: rest for _, name, *rest in db.execute(query("schema"))}
    except UNREADABLE as error:
        return [f"the schema cannot be read: {error}"]
    wanted = _schema(migrations())
    changed = [f"the schema of `{name}` was changed" for name in wanted if there.get(name) != wanted[name]]
    return [*changed, *(f"{one} is not of Turnstate's making" for one in foreign_objects(db))]


@cache
def _schema(steps: tuple[str, ...]) -> dict[str, list[object]]:
    db = apsw.Connection(":memory:")
    try:
        for step in steps:
            db.execute(step)
        return {name: rest for _, name, *rest in db.execute(query("schema"))}
    finally:
        db.close()
