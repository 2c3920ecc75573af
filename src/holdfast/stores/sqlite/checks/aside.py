"""Setting aside: nothing is destroyed.

The bytes of a damaged entry go into the table `damaged`, and a note takes its place, so that sequence
numbers stay without gaps. The note keeps the id, because decisions may name it and it must never come
to mean something else, and the tokens, so that the running totals behind it hold. It is found by no
words any more.
"""

from __future__ import annotations

from typing import NamedTuple

import apsw

from .... import ids
from ....entry import Note, encode
from ...values import Record
from ..queries import query
from ..rows import entry_columns

__all__ = ["Seat", "add_note", "put_note"]


class Seat(NamedTuple):
    """The place of an entry, and how many tokens it and all up to it have."""

    session: int
    branch: int
    seq: int
    tokens: int
    total: int


def put_note(db: apsw.Connection, entry: int, seat: Seat, *, id: str, fault: str) -> None:
    """Set an entry aside, and put a note in its place."""
    db.execute(query("set_entry_aside"), {"entry": entry, "fault": fault})
    db.execute(query("forget_words"), {"entry": entry})
    columns = _note(seat, id, f"What stood here was damaged and is set aside: {fault}.")
    db.execute(query("replace_entry"), columns | {"entry": entry})


def add_note(db: apsw.Connection, seat: Seat) -> None:
    """Put a note where nothing stands."""
    db.execute(query("add_entry"), _note(seat, "", "What stood here is lost.")).fetchall()


def _note(seat: Seat, id: str, text: str) -> dict[str, object]:
    record = Record(id=id or ids.message_id(), kind="note", body=encode(Note(text)), tokens=seat.tokens)
    return entry_columns(seat.session, seat.branch, seat.seq, seat.total, record)
