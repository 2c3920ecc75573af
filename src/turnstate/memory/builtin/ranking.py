"""Ranking: which turns answer a question, by their words and those of the turns around them.

A turn is found through its neighbors: an answer is often elliptical ("Super good! It was rich and creamy"),
and the words of the question are in the turn before. So the frequency of a term in a turn is its own plus
that of the turns around it in the session, discounted with distance, and BM25 runs on that. What is known
of question and turn beyond their words multiplies the score.

Everything is pure, and in two steps, so that a large memory costs little: `Scan` finds the turns worth a
second look with nothing but the lists of which term occurs where; `ranked` looks at those, and at their
neighbors, exactly. With an embedder, the similarities of turns are added to the scores of their words.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import date
from math import log
from operator import itemgetter
from typing import NamedTuple

from .dates import closeness
from .question import Group, Question
from .signs import Sign

__all__ = ["REACH", "Scan", "Turn", "ranked"]

REACH = 4
DISCOUNT = 0.55
KERNEL = tuple((offset, DISCOUNT ** abs(offset)) for offset in range(-REACH, REACH + 1))
SPREAD = 3.0
"""How many times longer a turn is with its neighbors, discounted, on average."""

K1, B = 1.2, 0.5  # of BM25

HITS = 300
CANDIDATES = 150
"""Turns that are spread to their neighbors, and turns that are ranked exactly."""

MAX_SCANNED = 20_000
"""Occurrences that the first step looks at; the most frequent terms are left to the second."""

AUTHOR, AUTHOR_WITH_VECTORS = 2.0, 1.5
VECTORS = 1.0
"""The weight of similarity beside words; the best of each is 1."""

SIGNS = (
    (int(Sign.QUESTION), 0.8),
    (int(Sign.EVENT), 1.15),
    (int(Sign.NAME), 1.15),
    (int(Sign.FACT), 1.1),
    (int(Sign.ENDED), 0.6),
)
ASKED_SIGNS = ((int(Sign.TIME), 1.3), (int(Sign.NUMBER), 1.2))
ENDED = 0.4
"""What the words of a turn count whose fact no longer holds."""

ROLES = {"tool": 0.6, "summary": 0.8}


class Turn(NamedTuple):
    """What ranking knows of a turn besides its words."""

    session: int
    author: str
    role: str
    said: str
    length: int
    signs: int


class Scan:
    """The first step: the turns worth a second look."""

    def __init__(self, question: Question, lists: Mapping[str, array[int]], size: int) -> None:
        self._question, self._lists = question, lists
        self.idf = {group.term: _idf(group, lists, size) for group in question.groups}

    def found(self) -> list[int]:
        """Return turns that contain terms of the question or are near them, the best first."""
        scores = defaultdict[int, float](float)
        for term, weight in self._scanned():
            for number in self._lists[term]:
                scores[number] += weight
        near = defaultdict[int, float](float)
        for number, score in _best(scores, HITS):
            for offset, share in KERNEL:
                near[number + offset] += score * share
        return [number for number, _ in _best(near, CANDIDATES)]

    def _scanned(self) -> list[tuple[str, float]]:
        """Return the terms to scan with their weights: rare ones first, until there are enough."""
        weights = [
            (term, weight * self.idf[group.term])
            for group in self._question.groups
            for term, weight in group.weights
            if term in self._lists
        ]
        weights.sort(key=lambda pair: len(self._lists[pair[0]]) / pair[1])
        taken, left = list[tuple[str, float]](), MAX_SCANNED
        for term, weight in weights:
            left -= len(self._lists[term])
            if left < 0 and taken:
                break
            taken.append((term, weight))
        return taken


def _best(scores: Mapping[int, float], most: int) -> list[tuple[int, float]]:
    """Return the best scores; most are far below the best, so they are left out before the rest is sorted."""
    top = max(scores.values(), default=0.0)
    for least in (0.4 * top, 0.2 * top, 0.0):
        found = [pair for pair in scores.items() if pair[1] >= least]
        if len(found) >= most:
            break
    return sorted(found, key=itemgetter(1), reverse=True)[:most]


def ranked(
    scan: Scan,
    question: Question,
    lists: Mapping[str, array[int]],
    turns: Mapping[int, Turn],
    numbers: Iterable[int],
    mean_length: float,
    similarities: Mapping[int, float] | None = None,
) -> list[tuple[int, float]]:
    """Return turns with their scores, the best first; ``turns`` has them and their neighbors."""
    scores = _word_scores(scan, question, lists, turns, mean_length)
    author = AUTHOR
    if similarities is not None:
        best = max(scores.values(), default=0.0) or 1.0
        scores = {n: scores.get(n, 0.0) / best + VECTORS * similarities.get(n, 0.0) for n in numbers}
        author = AUTHOR_WITH_VECTORS
    found = [
        (number, scores[number] * _factor(question, turns[number], author))
        for number in numbers
        if number in turns and scores.get(number, 0.0) > 0
    ]
    return sorted(found, key=lambda pair: (-pair[1], -pair[0]))


def _word_scores(
    scan: Scan,
    question: Question,
    lists: Mapping[str, array[int]],
    turns: Mapping[int, Turn],
    mean_length: float,
) -> dict[int, float]:
    norms = dict[int, float]()
    scores = defaultdict[int, float](float)
    for group in question.groups:
        idf = scan.idf[group.term]
        for number, frequency in _spread(group, lists, turns).items():
            if number not in norms:
                norms[number] = K1 * (1 - B + B * _length(number, turns) / (mean_length * SPREAD))
            scores[number] += idf * frequency * (K1 + 1) / (frequency + norms[number])
    return scores


def _spread(group: Group, lists: Mapping[str, array[int]], turns: Mapping[int, Turn]) -> dict[int, float]:
    """Return how often a term occurs in turns, neighbors and related terms included."""
    own = defaultdict[int, float](float)
    for term, weight in group.weights:
        for number in lists.get(term, ()):
            if number in turns:
                own[number] += weight
    spread = defaultdict[int, float](float)
    for number, frequency in own.items():
        session = turns[number].session
        if turns[number].signs & Sign.ENDED:
            frequency *= ENDED  # noqa: PLW2901 - neighbors of what no longer holds are not better than it
        for offset, share in KERNEL:
            other = turns.get(number + offset)
            if other is not None and other.session == session:
                spread[number + offset] += frequency * share
    return spread


def _length(number: int, turns: Mapping[int, Turn]) -> float:
    session, total = turns[number].session, 0.0
    for offset, share in KERNEL:
        other = turns.get(number + offset)
        if other is not None and other.session == session:
            total += other.length * share
    return total


def _factor(question: Question, turn: Turn, author: float) -> float:
    factor = ROLES.get(turn.role, 1.0)
    if question.author is not None and question.author in (turn.author, turn.role):
        factor *= author
    for sign, share in SIGNS:
        if turn.signs & sign:
            factor *= share
    for sign, share in ASKED_SIGNS:
        if turn.signs & sign & question.kinds:
            factor *= share
    if question.periods:
        factor *= 1 + closeness(_day(turn.said), question.periods)
    return factor


def _day(said: str) -> date:
    try:
        return date.fromisoformat(said[:10])
    except ValueError:
        return date.min


def _idf(group: Group, lists: Mapping[str, array[int]], size: int) -> float:
    """Return how telling a term is: related terms count as occurrences by their weights."""
    occurrences = min(size, sum(weight * len(lists[term]) for term, weight in group.weights if term in lists))
    return log(1 + (size - occurrences + 0.5) / (occurrences + 0.5))
