"""The entries of a branch: without gaps, each with its bytes as they were, the totals adding up.

A branch is walked a page at a time, with one body in memory at once. A checksum that fails for the
token count alone is mended: the running totals before and behind tell what it was. Everything else
whose bytes are not what was written, or make no sense, is set aside; a gap is filled with notes.
A total is always worked out anew, from the tokens of the entries before.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from msgspec import Struct, structs

from ....entry import decode
from ....errors import HoldfastError, NewerFormat
from ..queries import query
from ..rows import checksum
from .aside import Seat, add_note, put_note
from .inspection import Inspection

__all__ = ["PAGE", "Stretch", "inspect_entries"]

PAGE = 500
"""Entries that are looked at in one transaction: milliseconds, in which nobody else has to wait."""

_MISMATCH = "its bytes do not match their checksum"


class Stretch(Struct, frozen=True, kw_only=True):
    """What is still to be walked of a branch, behind a good entry at which the total is known."""

    session: int
    branch: int
    seq: int
    total: int | None  # unknown where what the branch stands on is damaged, too
    tip: int
    expected: int  # up to here there must be entries, since others build on them
    claimed: int | None = None  # the total that the session says its tip has
    after: int = 0  # how far the table was read
    walked: bool = False


def inspect_entries(case: Inspection, stretch: Stretch) -> Stretch:
    """Look at the next page of a branch, and give what is left."""
    walk, count = _Walk(case, stretch), 0
    after = max(stretch.after, stretch.seq)
    which = {"key": stretch.session, "branch": stretch.branch, "after": after, "tip": stretch.tip}
    for columns in case.db.execute(query("walked"), which | {"limit": PAGE}):
        seen = _Seen(*columns)
        walk.step(seen)
        after, count = seen.seq, count + 1
    if count < PAGE:
        walk.finish()
    return structs.replace(walk.mended(), after=after, walked=count < PAGE)


class _Seen(Struct, frozen=True):
    """An entry as it stands in the table, its texts as bytes."""

    entry: int
    seq: int
    id: bytes
    kind: bytes
    body: Any
    tokens: int
    total: int
    checksum: int


class _Walk:
    """One page: reads first and mends afterwards, since a table is not changed while it is read."""

    def __init__(self, case: Inspection, stretch: Stretch) -> None:
        self._case, self._stretch = case, stretch
        self._seq, self._total = stretch.seq, stretch.total
        self._mends = list[Callable[[], object]]()
        self._wrong = list[dict[str, int]]()

    def step(self, seen: _Seen) -> None:
        """Look at the next entry."""
        before = self._total if self._total is not None else seen.total - seen.tokens
        skipped = seen.seq - self._seq - 1
        tokens = self._counted(seen, before) if not skipped else self._counted(seen, seen.total - seen.tokens)
        if skipped and tokens is None:
            self._misplaced(seen)
            return
        if skipped:
            before = self._gap(seen.seq - 1, before, lost=seen.total - seen.tokens - before)
        fault = _MISMATCH if tokens is None else self._unreadable(seen)
        if fault or tokens is None:
            tokens = seen.tokens if before + seen.tokens == seen.total else 0
            self._damaged(seen, tokens, before + tokens, fault)
        elif tokens != seen.tokens:
            self._miscounted(seen, tokens)
        if before + tokens != seen.total:
            self._wrong.append({"entry": seen.entry, "seq": seen.seq, "total": before + tokens})
        self._seq, self._total = seen.seq, before + tokens

    def finish(self) -> None:
        """Come to the end of the branch, where entries may be missing, too."""
        last, before = self._stretch.expected, self._total or 0
        if self._seq < last:
            self._total = self._gap(last, before, lost=(self._stretch.claimed or 0) - before)
            self._seq = last

    def mended(self) -> Stretch:
        """Do what is to be done, and give the stretch that is left."""
        self._tell_of_totals()
        for mend in self._mends:
            mend()
        return structs.replace(self._stretch, seq=self._seq, total=self._total)

    def _counted(self, seen: _Seen, before: int) -> int | None:
        """Give the token count with which the checksum holds: as it stands, or as the totals tell."""
        try:
            name, kind = seen.id.decode(), seen.kind.decode()
        except UnicodeDecodeError:
            return None
        for tokens in (seen.tokens, seen.total - before):
            place = (self._stretch.session, self._stretch.branch, seen.seq, name, kind, tokens)
            if checksum(*place, seen.body) == seen.checksum:
                return tokens
        return None

    def _unreadable(self, seen: _Seen) -> str:
        """Say why a body cannot be read, if so; a kind of entry that is too new is left as it is."""
        try:
            decode(seen.kind.decode(), seen.body)
        except NewerFormat as error:
            self._found(str(error), seen, mends=False)
        except HoldfastError as error:
            return f"its body cannot be read ({error!s:.200})"
        return ""

    def _damaged(self, seen: _Seen, tokens: int, total: int, fault: str) -> None:
        if self._found(fault, seen, done="it is set aside, and a note stands in its place"):
            seat = Seat(self._stretch.session, self._stretch.branch, seen.seq, tokens, total)
            id = seen.id.decode(errors="replace")
            self._mends.append(partial(put_note, self._case.db, seen.entry, seat, id=id, fault=fault))

    def _misplaced(self, seen: _Seen) -> None:
        """Set an entry aside that stands behind a gap and whose bytes are wrong: its place may be, too."""
        if self._found(_MISMATCH, seen, done="it is set aside"):
            which = {"entry": seen.entry, "fault": _MISMATCH}
            for name in ("set_entry_aside", "forget_words", "drop_entry"):
                self._mends.append(partial(self._case.db.execute, query(name), which))

    def _miscounted(self, seen: _Seen, tokens: int) -> None:
        done = f"it is {tokens} again, as the running totals tell"
        if self._found("its token count was changed", seen, done=done):
            which = {"entry": seen.entry, "tokens": tokens}
            self._mends.append(partial(self._case.db.execute, query("count_entry"), which))

    def _found(self, fault: str, seen: _Seen, *, done: str = "", mends: bool = True) -> bool:
        id = seen.id.decode(errors="replace")
        branch = self._stretch.branch
        return self._case.found(fault, done=done, branch=branch, seq=seen.seq, id=id, mends=mends)

    def _gap(self, last: int, before: int, *, lost: int) -> int:
        """Fill up to a number, and give the total there."""
        first, tokens = self._seq + 1, max(0, lost)
        one = first == last
        fault = f"entry {first} is missing" if one else f"entries {first} to {last} are missing"
        done = "a note stands in its place" if one else "notes stand in their places"
        if self._case.found(fault, done=done, branch=self._stretch.branch, seq=first):
            self._mends.append(partial(self._fill, first, last, tokens, before + tokens))
        return before + tokens

    def _fill(self, first: int, last: int, tokens: int, total: int) -> None:
        """Put notes; the first takes the tokens that are lost, so that what follows adds up."""
        for seq in range(first, last + 1):
            own = tokens if seq == first else 0
            add_note(self._case.db, Seat(self._stretch.session, self._stretch.branch, seq, own, total))

    def _tell_of_totals(self) -> None:
        if not self._wrong:
            return
        first, last = self._wrong[0]["seq"], self._wrong[-1]["seq"]
        some = f"{len(self._wrong)} running totals from entry {first} to {last} are wrong"
        fault = some if first != last else "its running total is wrong"
        if self._case.found(fault, done="worked out again", branch=self._stretch.branch, seq=first):
            for wrong in self._wrong:
                self._mends.append(partial(self._case.db.execute, query("total_entry"), wrong))
