"""Search: from a question to the turns that answer it.

    names ─► question ─► postings of its terms ─► candidates ─► candidates and neighbors ─► ranked
    best turns ─► their distinctive terms ─► postings ─► candidates ranked once more ─► best k ─► texts

The second pass finds answers in other words: the topics of the best turns show which other turns are
relevant, too.

A search has two operations: one parses the question, one ranks. With an embedder it has three: while the
question is compared with all turns, one operation reads and scans the postings.
"""

from __future__ import annotations

import asyncio
import json
from array import array
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from heapq import nlargest
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from ..port import Recollection
from .database import Database, Operation, asked
from .documents import Owner
from .meaning import Meaning
from .question import Question
from .ranking import CANDIDATES, REACH, RankedTurn, Ranking, Surroundings, TurnScan, idf
from .terms import terms

if TYPE_CHECKING:
    from .vectors import Similarities

MIN_ADDRESSED = 3
"""Times that a name must be used as an address before a question can use it for its owner."""

MAX_QUESTION = 2_000
"""The most characters of a question; a longer one is a document, whose beginning says what it is about."""


FEEDBACK_TURNS, FEEDBACK_CHARACTERS = 10, 2_000
"""The number of best turns whose terms expand a question, and the most characters read of each."""

FEEDBACK_TERMS, FEEDBACK_WEIGHT = 20, 0.15
"""The most terms that are added, and the weight of the best of them relative to a term of the question."""

FEEDBACK_CANDIDATES = 40
"""The most terms whose postings are read to choose from."""

SHORT = 6
"""The minimum length of a turn in terms; a shorter turn counts as this long."""


class Scanned(NamedTuple):
    """The postings and the candidates that the words of a question lead to."""

    lists: dict[str, array[int]]
    idf: Mapping[str, float]
    numbers: list[int]


async def found(
    database: Database, owner: Owner, query: str, k: int, meaning: Meaning | None
) -> list[Recollection]:
    """Return at most ``k`` turns that answer a question, the best first."""
    names, question = await database.read(lambda: _asked(owner.id, query[:MAX_QUESTION]))
    known = {*question.terms, *(term for name in names for term in terms(name))}
    if meaning is None:
        return await database.read(lambda: _answers(owner, question, known, k))
    similar, scanned = await asyncio.gather(
        meaning.similarities(owner, question.spoken), database.read(lambda: _scanned(owner, question))
    )
    return await database.read(lambda: _answers(owner, question, known, k, scanned, meaning, similar))


def _asked(owner: int, query: str) -> Operation[tuple[list[str], Question]]:
    """Return the names that a question may use, and the question."""
    known = defaultdict[str, Counter[str]](Counter)
    for name, author, times in (yield from asked("authors", owner=owner)):
        if name == author or times >= MIN_ADDRESSED:
            known[name][author] += times
    names = {name: authors.most_common(1)[0][0] for name, authors in known.items()}
    return list(names), Question.of(query, names)


def _answers(
    owner: Owner,
    question: Question,
    known: Collection[str],
    k: int,
    scanned: Scanned | None = None,
    meaning: Meaning | None = None,
    similar: Similarities | None = None,
) -> Operation[list[Recollection]]:
    """Return the best turns; ``known`` are the terms that add nothing new to the question."""
    scanned = scanned or (yield from _scanned(owner, question))
    ranking = yield from _ranking(owner, question, scanned, meaning, similar)
    texts = yield from _look_again(owner, ranking, known)
    best = ranking.best()[:k]
    texts |= yield from _texts(owner.id, [number for number, _ in best if number not in texts])
    return [
        Recollection(text=text, session=session, message=message, timestamp=said, role=role, score=score)
        for number, score in best
        if number in texts
        for session, message, said, role, _, text in [texts[number]]
    ]


def _scanned(owner: Owner, question: Question) -> Operation[Scanned]:
    """Return the postings of the terms of a question, and the candidates that they lead to."""
    lists = yield from _lists(owner.id, question.terms)
    scan = TurnScan(question, lists, owner.size)
    return Scanned(lists, scan.idf, scan.found())


def _ranking(
    owner: Owner,
    question: Question,
    scanned: Scanned,
    meaning: Meaning | None,
    similar: Similarities | None,
) -> Operation[Ranking]:
    """Return the candidates, ranked by the terms of a question and by similarity."""
    lists, idf_of, numbers = scanned
    near_in_meaning: dict[int, float] | None = None
    if meaning is not None and similar is not None:
        numbers = list(dict.fromkeys([*numbers, *similar.best(CANDIDATES)]))
        near_in_meaning = yield from meaning.of(owner, similar, numbers)
    rows = yield from asked("turns", owner=owner.id, numbers=[number for number in numbers if number >= 0])
    ranking = Ranking(
        question,
        [RankedTurn._make(row) for row in rows],
        (yield from _surroundings(owner.id, [row[0] for row in rows])),
        owner.words / max(1, owner.size) or 1.0,
        near_in_meaning,
    )
    for group in question.groups:
        ranking.add(group.weights, idf_of[group.term], lists)
    return ranking


def _surroundings(owner: int, numbers: Iterable[int]) -> Operation[Surroundings]:
    """Return the turns with these numbers and the turns around them."""
    near = {number + offset for number in numbers for offset in range(-REACH, REACH + 1)}
    (columns,) = yield from asked("surroundings", owner=owner, numbers=sorted(n for n in near if n >= 0))
    return Surroundings(*(json.loads(f"[{column or ''}]") for column in columns))


def _look_again(
    owner: Owner, ranking: Ranking, known: Collection[str]
) -> Operation[dict[int, tuple[Any, ...]]]:
    """Add the scores for the most distinctive terms of the best turns; return the rows of these turns."""
    best = ranking.best()[:FEEDBACK_TURNS]
    texts = yield from _texts(owner.id, [number for number, _ in best])
    shares = _feedback_shares({number: row[-1] for number, row in texts.items()}, known, best)
    lists = yield from _lists(owner.id, list(shares))
    rare = {
        term: idf(len(numbers), owner.size)
        for term, numbers in lists.items()
        if len(numbers) > 1  # a term that only this turn has leads nowhere
    }
    added = nlargest(FEEDBACK_TERMS, ((shares[term] * value, term) for term, value in rare.items()))
    for weight, term in added:
        ranking.add([(term, 1.0)], FEEDBACK_WEIGHT * rare[term] * weight / added[0][0], lists)
    return texts


def _feedback_shares(
    texts: Mapping[int, str], known: Collection[str], best: Sequence[tuple[int, float]]
) -> dict[str, float]:
    """Return the new terms that the best turns use most, by their share of a turn and its score."""
    weights = defaultdict[str, float](float)
    for number, score in best:
        found = terms(texts.get(number, "")[:FEEDBACK_CHARACTERS])
        for term in found:
            if term not in known:
                weights[term] += score / max(SHORT, len(found))
    return dict(nlargest(FEEDBACK_CANDIDATES, weights.items(), key=itemgetter(1)))


def _lists(owner: int, terms: list[str]) -> Operation[dict[str, array[int]]]:
    """Return the numbers of the turns in which each term occurs."""
    lists: dict[str, array[int]] = {}
    for term, _, numbers in (yield from asked("postings", owner=owner, terms=terms)):
        lists.setdefault(term, array("I")).frombytes(bytes(numbers))
    return lists


def _texts(owner: int, numbers: list[int]) -> Operation[dict[int, tuple[Any, ...]]]:
    rows = (yield from asked("texts", owner=owner, numbers=numbers)) if numbers else []
    return {row[0]: row[1:] for row in rows}
