"""Search: from a question to the turns that answer it, in four reads of the database.

    names ─► question ─► postings of its terms ─► candidates ─► candidates and neighbors ─► best k ─► texts

What takes time in Python runs in a thread. The reads are not one transaction: numbers are never used
again, so what was forgotten in between is only missing.
"""

from __future__ import annotations

import asyncio
from array import array
from collections import Counter, defaultdict
from collections.abc import Sequence

from ..port import Recollection
from .database import Database
from .documents import Owner
from .meaning import Meaning
from .question import Question
from .ranking import REACH, Scan, Turn, ranked

__all__ = ["found"]

MIN_ADDRESSED = 3
"""Times that a name must be used as an address before a question may use it for its owner."""

MAX_QUESTION = 2_000
"""Characters of a question; a longer one is a document, whose beginning says what it is about."""


async def found(
    database: Database, owner: Owner, query: str, k: int, meaning: Meaning | None
) -> list[Recollection]:
    """Return at most ``k`` turns that answer a question, the best first."""
    names = await _names(database, owner.id)
    question = await asyncio.to_thread(Question.of, query[:MAX_QUESTION], names)
    lists = await _lists(database, owner.id, question.terms)
    scan, numbers = await asyncio.to_thread(_scanned, question, lists, owner.size)
    similar: dict[int, float] | None = None
    if meaning is not None:
        numbers, similar = await meaning.found(owner, question.spoken, numbers)
    near = sorted({number + offset for number in numbers for offset in range(-REACH, REACH + 1)})
    rows = await database.rows("turns", owner=owner.id, numbers=[number for number in near if number >= 0])
    turns = {row[0]: Turn._make(row[1:]) for row in rows}
    mean = owner.words / max(1, owner.size) or 1.0
    best = await asyncio.to_thread(ranked, scan, question, lists, turns, numbers, mean, similar)
    return await _recollections(database, owner.id, best[:k])


async def _names(database: Database, owner: int) -> dict[str, str]:
    """Return the names that a question may use, and the author that each means."""
    known = defaultdict[str, Counter[str]](Counter)
    for name, author, times in await database.rows("authors", owner=owner):
        if name == author or times >= MIN_ADDRESSED:
            known[name][author] += times
    return {name: authors.most_common(1)[0][0] for name, authors in known.items()}


async def _lists(database: Database, owner: int, terms: list[str]) -> dict[str, array[int]]:
    lists: dict[str, array[int]] = {}
    for term, _, numbers in await database.rows("postings", owner=owner, terms=terms):
        lists.setdefault(term, array("I")).frombytes(bytes(numbers))
    return lists


def _scanned(question: Question, lists: dict[str, array[int]], size: int) -> tuple[Scan, list[int]]:
    scan = Scan(question, lists, size)
    return scan, scan.found()


async def _recollections(
    database: Database, owner: int, best: Sequence[tuple[int, float]]
) -> list[Recollection]:
    numbers = [number for number, _ in best]
    rows = {row[0]: row[1:] for row in await database.rows("texts", owner=owner, numbers=numbers)}
    return [
        Recollection(text=text, session=session, message=message, timestamp=said, role=role, score=score)
        for number, score in best
        if number in rows
        for session, message, said, role, _, text in [rows[number]]
    ]
