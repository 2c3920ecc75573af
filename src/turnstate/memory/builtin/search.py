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
import logging
from array import array
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import date
from functools import partial
from heapq import nlargest
from itertools import zip_longest
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from ..port import Filter, Recollection
from ..reranker import Reranker
from .asking import questions
from .database import Database, Operation, asked
from .documents import DocumentOwner
from .meaning import Meaning
from .question import Question
from .ranking import CANDIDATES, REACH, RankedTurn, Ranking, Surroundings, TurnScan, idf
from .signs import Sign
from .terms import terms

if TYPE_CHECKING:
    from .vectors import Similarities

MOST_YEARS = 5
"""The last years of a memory in which a date without a year is looked for."""

MIN_ADDRESSED = 3
"""Times that a name must be used as an address before a question can use it for its owner."""

MAX_MESSAGE, MAX_QUESTION = 16_000, 2_000
"""The most characters that are read of a message, and of one question in it."""

RERANKED = 50
"""The results that a reranker gets."""

PATIENCE = 2.0
"""Seconds to wait for a reranker; after that, the results stay as they are."""

STEP = 40
"""Turns whose texts are read at a time, if the first ``k`` repeat each other."""

FEEDBACK_TURNS, FEEDBACK_CHARACTERS = 10, 2_000
"""The number of best turns whose terms expand a question, and the most characters read of each."""

FEEDBACK_TERMS, FEEDBACK_WEIGHT = 20, 0.15
"""The most terms that are added, and the weight of the best of them relative to a term of the question."""

FEEDBACK_CANDIDATES = 40
"""The most terms whose postings are read to choose from."""

SHORT = 6
"""The minimum length of a turn in terms; a shorter turn counts as this long."""


_log = logging.getLogger(__name__)

_EMPTY = int(Sign.EMPTY)


class Scanned(NamedTuple):
    """The postings and the candidates that the words of a question lead to."""

    lists: dict[str, array[int]]
    idf: Mapping[str, float]
    numbers: list[int]


async def found(
    database: Database,
    owner: DocumentOwner,
    query: str,
    k: int,
    where: Filter,
    *,
    meaning: Meaning | None,
    reranker: Reranker | None,
    today: date,
) -> list[Recollection]:
    """Return at most ``k`` turns that answer what a message asks, the best first."""
    asked_for = questions(query[:MAX_MESSAGE])
    if not asked_for:
        return []
    names, years, allowed = await database.read(lambda: _known(owner.id, where))
    addressed = {term for name in names for term in terms(name)}
    answers = list[list[Recollection]]()
    for text in asked_for:
        question = Question.of(text[:MAX_QUESTION], names, today).with_days(years)
        search = _QuestionSearch(question, {*question.terms, *addressed}, allowed)
        if meaning is not None:
            similar, scanned = await asyncio.gather(
                meaning.similarities(owner, question.spoken),
                database.read(partial(_scanned, owner, search)),
            )
            search = search._replace(scanned=scanned, meaning=meaning, similar=similar)
        hits = await database.read(partial(_answers, owner, search, RERANKED if reranker else k))
        answers.append(await _reranked(reranker, text, hits) if reranker else hits)
    return _joined(answers, where.min_score)[:k]


async def _reranked(reranker: Reranker, question: str, hits: list[Recollection]) -> list[Recollection]:
    """Return the hits in the order of a reranker, with its scores; as they are if it fails."""
    try:
        async with asyncio.timeout(PATIENCE):
            scores = await reranker.scores(question, [hit.text for hit in hits])
        rescored = [replace(hit, score=score) for hit, score in zip(hits, scores, strict=True)]
    except Exception as error:  # foreign code may raise anything
        _log.warning("the results of a search are not reranked: %s", error or type(error).__name__)
        return hits
    return sorted(rescored, key=lambda hit: -hit.score)


def _joined(answers: Sequence[list[Recollection]], least: float) -> list[Recollection]:
    """Return the hits of several questions: the first of each, then the second of each, and so on."""
    found = dict[str, Recollection]()
    for hits in zip_longest(*answers):
        for hit in hits:
            if hit is not None and hit.score >= least:
                found.setdefault(hit.text, hit)
    return list(found.values())


class _QuestionSearch(NamedTuple):
    """One question on its way."""

    question: Question
    known: Collection[str]
    """Terms that add nothing new to the question."""
    allowed: frozenset[int] | None
    """The turns to search; None for all."""
    scanned: Scanned | None = None
    meaning: Meaning | None = None
    similar: Similarities | None = None


def _known(owner: int, where: Filter) -> Operation[tuple[dict[str, str], range, frozenset[int] | None]]:
    """Return what a search has to know: names with their authors, the years, and the allowed turns."""
    known = defaultdict[str, Counter[str]](Counter)
    for name, author, times in (yield from asked("authors", owner=owner)):
        if name == author or times >= MIN_ADDRESSED:
            known[name][author] += times
    names = {name: authors.most_common(1)[0][0] for name, authors in known.items()}
    ((first, last),) = yield from asked("first_and_last", owner=owner)
    years = [int(said[:4]) for said in (first, last) if said and said[:4].isdecimal()]
    allowed: frozenset[int] | None = None
    if where.roles or where.session is not None or where.since or where.until:
        rows = yield from asked(
            "documents_where",
            owner=owner,
            anywhere=int(where.session is None),
            session=where.session or "",
            since=where.since,
            until=where.until,
        )
        allowed = frozenset(number for number, role in rows if not where.roles or role in where.roles)
    return names, range(min(years, default=0), max(years, default=-1) + 1)[-MOST_YEARS:], allowed


def _answers(owner: DocumentOwner, search: _QuestionSearch, most: int) -> Operation[list[Recollection]]:
    """Return the best turns for a question, each text once."""
    ranking = yield from _ranking(owner, search, search.scanned or (yield from _scanned(owner, search)))
    texts = yield from _look_again(owner, ranking, search.known)
    found, ranked, step = dict[str, Recollection](), ranking.scored(), most
    while ranked and len(found) < most:
        part, ranked, step = ranked[:step], ranked[step:], STEP
        texts |= yield from _texts(owner.id, [number for number, _ in part if number not in texts])
        for number, score in part:
            if number in texts:
                session, message, said, role, _, text = texts[number]
                hit = Recollection(
                    text=text, session=session, message=message, timestamp=said, role=role, score=score
                )
                found.setdefault(text, hit)
    return list(found.values())[:most]


def _scanned(owner: DocumentOwner, search: _QuestionSearch) -> Operation[Scanned]:
    """Return the postings of the terms of a question, and the candidates that they lead to."""
    lists = yield from _lists(owner.id, search.question.terms)
    scan = TurnScan(search.question, lists, owner.size)
    return Scanned(lists, scan.idf, scan.found(search.allowed))


def _ranking(owner: DocumentOwner, search: _QuestionSearch, scanned: Scanned) -> Operation[Ranking]:
    """Return the candidates, ranked by the terms of a question and by similarity."""
    question, (lists, idf_of, numbers) = search.question, scanned
    near_in_meaning: dict[int, float] | None = None
    certainty = 0.0
    if search.meaning is not None and search.similar is not None:
        numbers = list(dict.fromkeys([*numbers, *search.similar.best(CANDIDATES, search.allowed)]))
        near_in_meaning = yield from search.meaning.of(owner, search.similar, numbers)
        certainty = search.similar.certainty
    found = yield from asked("turns", owner=owner.id, numbers=[number for number in numbers if number >= 0])
    rows = [row for row in found if not row[-1] & _EMPTY]
    ranking = Ranking(
        question,
        [RankedTurn._make(row) for row in rows],
        (yield from _surroundings(owner.id, [row[0] for row in rows])),
        owner.words / max(1, owner.size) or 1.0,
        near_in_meaning,
        certainty,
        weight=sum(idf_of.values()),
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
    owner: DocumentOwner, ranking: Ranking, known: Collection[str]
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
