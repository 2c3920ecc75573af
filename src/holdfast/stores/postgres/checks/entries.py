"""The entries of a branch: without gaps, with their bytes and words as they were, the totals adding up.

A branch is walked a page at a time. A checksum that fails for the token count alone is mended: the running
totals before and behind tell what it was. Everything else whose bytes are not what was written, or make
no sense, is set aside, and a note takes its place, so that numbers stay without gaps. The note keeps the
id, because decisions may name it, and the tokens, so that the totals behind it hold. A gap is filled
with notes. Totals and words are worked out anew, from the tokens before and from the message.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, structs

from .... import ids
from ....entry import Note, decode, encode
from ....errors import HoldfastError, NewerFormat
from ....message import Message
from ....words import words_of
from ..lexemes import kept, quoted
from ..rows import checksum, content_sum
from .inspection import Inspection

__all__ = ["PAGE", "Stretch", "inspect_entries"]

PAGE = 500
"""Entries that are in memory at once."""

_MISMATCH = "its bytes do not match their checksum"


class Stretch(Struct, frozen=True, kw_only=True):
    """What is still to be walked of a branch, behind a good entry at which the total is known."""

    session: int
    branch: int
    marks: tuple[str, ...]
    seq: int
    total: int | None  # unknown where what the branch stands on is damaged, too
    expected: int  # up to here there must be entries, since others build on them
    claimed: int | None = None  # the total that the session says its tip has
    after: int = 0  # how far the table was read
    walked: bool = False


async def inspect_entries(case: Inspection, stretch: Stretch) -> Stretch:
    """Look at the next page of a branch, and give what is left."""
    after = max(stretch.after, stretch.seq)
    which = {"key": stretch.session, "branch": stretch.branch, "after": after, "limit": PAGE}
    page = [_Seen(**dict(columns)) for columns in await case.work.rows("walked", **which)]
    walk = _Walk(case, stretch)
    for seen in page:
        walk.step(seen)
    left = walk.finished(is_last=len(page) < PAGE)
    await case.mended()
    return structs.replace(left, after=page[-1].seq if page else after, walked=len(page) < PAGE)


class _Seen(Struct, frozen=True, kw_only=True):
    """An entry as it stands in the table."""

    key: int
    seq: int
    id: str
    kind: str
    body: bytes
    tokens: int
    total: int
    checksum: int
    words: Sequence[str] | None


class _Walk:
    """One page, entry by entry."""

    def __init__(self, case: Inspection, stretch: Stretch) -> None:
        self._case, self._stretch = case, stretch
        self._seq, self._total = stretch.seq, stretch.total
        self._wrong = list[tuple[_Seen, int]]()

    def step(self, seen: _Seen) -> None:
        """Look at the next entry."""
        before = self._total if self._total is not None else seen.total - seen.tokens
        skipped = seen.seq - self._seq - 1
        tokens = self._counted(seen, seen.total - seen.tokens if skipped else before)
        if skipped and tokens is None:
            self._misplaced(seen)
            return
        if skipped:
            before = self._gap(seen.seq - 1, before, lost=seen.total - seen.tokens - before)
        fault = _MISMATCH if tokens is None else self._read(seen)
        if fault or tokens is None:
            tokens = seen.tokens if before + seen.tokens == seen.total else 0
            self._damaged(seen, tokens, before + tokens, fault)
        elif tokens != seen.tokens:
            self._miscounted(seen, tokens)
        if before + tokens != seen.total:
            self._wrong.append((seen, before + tokens))
        self._seq, self._total = seen.seq, before + tokens

    def finished(self, *, is_last: bool) -> Stretch:
        """Give the stretch that is left; at the end of the branch entries may be missing, too."""
        last, before = self._stretch.expected, self._total or 0
        if is_last and self._seq < last:
            self._total = self._gap(last, before, lost=(self._stretch.claimed or 0) - before)
            self._seq = last
        self._tell_of_totals()
        return structs.replace(self._stretch, seq=self._seq, total=self._total)

    def _counted(self, seen: _Seen, before: int) -> int | None:
        """Give the token count with which the checksum holds: as it stands, or as the totals tell."""
        for tokens in (seen.tokens, seen.total - before):
            if self._sum(seen.seq, tokens, seen.kind, seen.id, seen.body) == seen.checksum:
                return tokens
        return None

    def _sum(self, seq: int, tokens: int, kind: str, id: str, body: bytes) -> int:
        content = content_sum(tokens, kind, id, body)
        return checksum(self._stretch.session, self._stretch.branch, seq, content)

    def _read(self, seen: _Seen) -> str:
        """Say why a body cannot be read, if so; a kind of entry that is too new is left as it is."""
        try:
            entry = decode(seen.kind, seen.body)
        except NewerFormat as error:
            self._found(str(error), seen, mends=False)
        except HoldfastError as error:
            return f"its body cannot be read ({error!s:.200})"
        else:
            self._compare_words(seen, list(kept(words_of(entry))) if isinstance(entry, Message) else [])
        return ""

    def _compare_words(self, seen: _Seen, words: list[str]) -> None:
        wanted = {*words, *self._stretch.marks} if words else set()
        if wanted == set(seen.words or ()):
            return
        fault = "search would not find it by its words"
        if self._found(fault, seen, done="its words are taken from its text again"):
            self._case.mend("word_entry", entry=seen.key, words=quoted(sorted(wanted)) if wanted else None)

    def _damaged(self, seen: _Seen, tokens: int, total: int, fault: str) -> None:
        if self._found(fault, seen, done="it is set aside, and a note stands in its place"):
            text = f"What stood here was damaged and is set aside: {fault}."
            self._case.mend("set_entry_aside", entry=seen.key, fault=fault)
            note = self._note(seen.seq, tokens, total, seen.id, text)
            self._case.mend("put_note", entry=seen.key, **note)

    def _misplaced(self, seen: _Seen) -> None:
        """Set an entry aside that stands behind a gap and whose bytes are wrong: its place may be, too."""
        if self._found(_MISMATCH, seen, done="it is set aside"):
            self._case.mend("set_entry_aside", entry=seen.key, fault=_MISMATCH)
            self._case.mend("drop_entry", entry=seen.key)

    def _miscounted(self, seen: _Seen, tokens: int) -> None:
        done = f"it is {tokens} again, as the running totals tell"
        if self._found("its token count was changed", seen, done=done):
            self._case.mend("count_entry", entry=seen.key, tokens=tokens)

    def _found(self, fault: str, seen: _Seen, *, done: str = "", mends: bool = True) -> bool:
        branch = self._stretch.branch
        return self._case.found(fault, done=done, branch=branch, seq=seen.seq, id=seen.id, mends=mends)

    def _gap(self, last: int, before: int, *, lost: int) -> int:
        """Fill up to a number, and give the total there; the first note takes the tokens that are lost."""
        first, tokens = self._seq + 1, max(0, lost)
        one = first == last
        fault = f"entry {first} is missing" if one else f"entries {first} to {last} are missing"
        done = "a note stands in its place" if one else "notes stand in their places"
        if self._case.found(fault, done=done, branch=self._stretch.branch, seq=first):
            for seq in range(first, last + 1):
                own = tokens if seq == first else 0
                note = self._note(
                    seq, own, before + tokens, str(ids.message_id()), "What stood here is lost."
                )
                self._case.mend("add_note", **note)
        return before + tokens

    def _note(self, seq: int, tokens: int, total: int, id: str, text: str) -> dict[str, object]:
        body = encode(Note(text))
        place = {"key": self._stretch.session, "branch": self._stretch.branch, "seq": seq}
        said = {"id": id, "kind": "note", "body": body, "tokens": tokens, "total": total}
        return {**place, **said, "checksum": self._sum(seq, tokens, "note", id, body)}

    def _tell_of_totals(self) -> None:
        if not self._wrong:
            return
        first, last = self._wrong[0][0].seq, self._wrong[-1][0].seq
        fault = f"{len(self._wrong)} running totals between entries {first} and {last} are wrong"
        if self._case.found(fault, done="they are worked out again", branch=self._stretch.branch, seq=first):
            for seen, total in self._wrong:
                self._case.mend("total_entry", entry=seen.key, total=total)
