"""Rules for the entries of a branch: no gaps, checksums that match, totals that add up.

A branch is walked one page at a time. If only the token count of an entry is damaged, it is restored, since
the running totals before and after show what it was. Any other entry whose bytes changed, or cannot be
decoded, is set aside and replaced by a note, so sequence numbers have no gaps. The note keeps the id, because
decisions may refer to it and it must never mean anything else, and the tokens, so later totals stay right;
search does not find it. A gap is filled with notes. Totals are always computed from the tokens of entries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from msgspec import Struct, structs

from ... import ids
from ...codec import decode_entry, encode
from ...entry import Entry, ModelChange, Note
from ...errors import NewerFormat, TurnstateError
from .inspection import Check, Inspection, Statement, strictly, text

PAGE = 500
"""Entries to read in one transaction, which takes a few milliseconds."""

MISMATCH = "its bytes do not match their checksum"


class Stretch(Struct, frozen=True, kw_only=True):
    """The part of a branch that is still to be walked, after an entry whose total is known."""

    session: int
    counter: str = ""  # the name of the counter in force here
    models: dict[int, str] = {}  # filled by the walk: counters of the models, by sequence number
    branch: int
    seq: int
    total: int | None  # None if the entry that the branch forks from is damaged, too
    tip: int
    expected: int  # entries must exist up to here, since others build on them
    claimed: int | None = None  # the total that the session claims for its tip
    after: int = 0  # how far the table has been read
    walked: bool = False


class Seen(Struct, frozen=True):
    """An entry as it is stored; texts are bytes if the store can contain invalid UTF-8."""

    key: int | bytes
    seq: int
    id: str | bytes
    kind: str | bytes
    body: bytes
    tokens: int
    total: int
    checksum: int
    words: Sequence[str] | None = None


Look = Callable[[Seen, Entry], object]
"""An additional check that a store makes on each entry that can be decoded."""


def is_sound(case: Inspection, session: int, branch: int, seen: Seen) -> bool:
    """Return True if the bytes of an entry match their checksum."""
    try:
        id, kind = strictly(seen.id), strictly(seen.kind)
    except UnicodeDecodeError:
        return False
    return case.checksum(session, branch, seen.seq, id, kind, seen.tokens, seen.body) == seen.checksum


def inspect_entries(case: Inspection, stretch: Stretch, look: Look | None = None) -> Check[Stretch]:
    """Check the next page of a branch, and return what is left to walk."""
    walk, after, count = _PageCheck(case, stretch, look), max(stretch.after, stretch.seq), 0
    which = {"key": stretch.session, "branch": stretch.branch, "after": after, "tip": stretch.tip}
    rows = yield Statement("walked", which | {"limit": PAGE})
    for columns in rows:  # not a list: one body in memory at a time
        seen = Seen(*columns)
        walk.step(seen)
        after, count = seen.seq, count + 1
    left = walk.finished(is_last=count < PAGE)
    yield from case.mended()
    return structs.replace(left, after=after, walked=count < PAGE)


class _PageCheck:
    """The check of one page, entry by entry."""

    def __init__(self, case: Inspection, stretch: Stretch, look: Look | None) -> None:
        self._case, self._stretch, self._look = case, stretch, look
        self._sum = partial(case.checksum, stretch.session, stretch.branch)
        self._seq, self._total = stretch.seq, stretch.total
        self._counter = stretch.counter
        self._wrong = list[tuple[int | bytes, int, int]]()  # key and number of an entry, and its right total

    def step(self, seen: Seen) -> None:
        """Check the next entry."""
        before = self._total if self._total is not None else seen.total - seen.tokens
        skipped = seen.seq - self._seq - 1
        tokens = self._counted(seen, seen.total - seen.tokens if skipped else before)
        if skipped and tokens is None:
            self._misplaced(seen)
            return
        if skipped:
            before = self._gap(seen.seq - 1, before, lost=seen.total - seen.tokens - before)
        fault = MISMATCH if tokens is None else self._unreadable(seen)
        if fault or tokens is None:
            tokens = seen.tokens if before + seen.tokens == seen.total else 0
            self._damaged(seen, tokens, before + tokens, fault)
        elif tokens != seen.tokens:
            self._miscounted(seen, tokens)
        else:
            tokens = self._recounted(seen)
        if before + tokens != seen.total:
            self._wrong.append((seen.key, seen.seq, before + tokens))
        self._seq, self._total = seen.seq, before + tokens

    def finished(self, *, is_last: bool) -> Stretch:
        """Return what is left to walk; at the end of the branch, also handle entries missing there."""
        last, before = self._stretch.expected, self._total or 0
        if is_last and self._seq < last:
            self._total = self._gap(last, before, lost=(self._stretch.claimed or 0) - before)
            self._seq = last
        self._report_totals()
        return structs.replace(self._stretch, seq=self._seq, total=self._total, counter=self._counter)

    def _counted(self, seen: Seen, before: int) -> int | None:
        """Return the token count that matches the checksum: the stored one, or the one the totals imply."""
        at = self._case, self._stretch.session, self._stretch.branch
        counts = (seen.tokens, seen.total - before)
        return next((one for one in counts if is_sound(*at, structs.replace(seen, tokens=one))), None)

    def _unreadable(self, seen: Seen) -> str:
        """Return why a body cannot be decoded, or ""; an entry of a newer version is left as it is."""
        try:
            entry = decode_entry(text(seen.kind), seen.body)
        except NewerFormat as error:
            self._found(str(error), seen, mends=False)
        except TurnstateError as error:
            return f"its body cannot be decoded ({error!s:.200})"
        else:
            if isinstance(entry, ModelChange):
                self._counter = self._stretch.models[seen.seq] = entry.counter
            if self._look:
                self._look(seen, entry)
        return ""

    def _damaged(self, seen: Seen, tokens: int, total: int, fault: str) -> None:
        if self._found(fault, seen, done="it is set aside, and a note takes its place"):
            reason = f"What was here is damaged and was set aside: {fault}."
            note = self._note(seen.seq, tokens, total, text(seen.id), reason)
            self._case.mend("put_note", entry=seen.key, fault=fault, **note)

    def _misplaced(self, seen: Seen) -> None:
        """Set aside an entry after a gap whose bytes are wrong: its number may be wrong, too."""
        if self._found(MISMATCH, seen, done="it is set aside"):
            self._case.mend("set_entry_aside", entry=seen.key, fault=MISMATCH)

    def _miscounted(self, seen: Seen, tokens: int) -> None:
        done = f"restored to {tokens}, as the running totals show"
        if self._found("its token count was changed", seen, done=done):
            self._case.mend("count_entry", entry=seen.key, tokens=tokens)

    def _recounted(self, seen: Seen) -> int:
        """Compare the token count with the text; a repair also corrects the running totals."""
        recount = self._case.recount
        right = recount(self._counter, text(seen.kind), seen.body, seen.tokens) if recount else None
        if right is None:
            return seen.tokens
        fault = f"its token count is {seen.tokens:,}, and its text has {right:,} tokens"
        if not self._found(fault, seen, done="its tokens are counted again"):
            return seen.tokens
        sum = self._sum(seen.seq, text(seen.id), text(seen.kind), right, seen.body)
        self._case.mend("recount_entry", entry=seen.key, tokens=right, checksum=sum)
        return right

    def _found(self, fault: str, seen: Seen, *, done: str = "", mends: bool = True) -> bool:
        branch = self._stretch.branch
        return self._case.found(fault, done=done, branch=branch, seq=seen.seq, id=text(seen.id), mends=mends)

    def _gap(self, last: int, before: int, *, lost: int) -> int:
        """Fill a gap up to `last` with notes and return the total there; the first has the lost tokens."""
        first, tokens = self._seq + 1, max(0, lost)
        one = first == last
        fault = f"entry {first} is missing" if one else f"entries {first} to {last} are missing"
        done = "a note takes its place" if one else "notes take their places"
        if self._case.found(fault, done=done, branch=self._stretch.branch, seq=first):
            for seq in range(first, last + 1):
                own, id = tokens if seq == first else 0, str(ids.message_id())
                note = self._note(seq, own, before + tokens, id, "What was here is lost.")
                self._case.mend("add_note", **note)
        return before + tokens

    def _note(self, seq: int, tokens: int, total: int, id: str, reason: str) -> dict[str, object]:
        body = encode(Note(reason))
        place = {"key": self._stretch.session, "branch": self._stretch.branch, "seq": seq}
        columns = {"id": id, "kind": "note", "body": body, "tokens": tokens, "total": total}
        return {**place, **columns, "checksum": self._sum(seq, id, "note", tokens, body)}

    def _report_totals(self) -> None:
        if not self._wrong:
            return
        first, last = self._wrong[0][1], self._wrong[-1][1]
        some = f"{len(self._wrong)} running totals from entry {first} to {last} are wrong"
        fault = some if first != last else "its running total is wrong"
        if self._case.found(fault, done="computed again", branch=self._stretch.branch, seq=first):
            for key, _, total in self._wrong:
                self._case.mend("total_entry", entry=key, total=total)
