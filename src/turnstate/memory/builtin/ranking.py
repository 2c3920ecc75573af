"""Ranking: which turns answer a question, by their words and those of the turns around them.

A turn is found through its neighbors: an answer is often elliptical ("Super good! It was rich and creamy"),
and the words of the question are in the turn before. So the frequency of a term in a turn is its own plus
that of the turns around it in the session, discounted with distance, and BM25 runs on that. What is known
of question and turn beyond their words multiplies the score.

Everything is pure, and in two steps, so that a large memory costs little: `Scan` finds the turns worth a
second look with nothing but the lists of which term occurs where; `Ranking` looks at those, and at their
neighbors, exactly. With an embedder, the similarities of turns are added to the scores of their words.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import date
from math import log
from operator import itemgetter
from typing import NamedTuple

from .dates import closeness
from .question import Group, Question
from .signs import Sign

__all__ = ["REACH", "RankedTurn", "Ranking", "TurnScan", "idf"]

REACH = 4
DISCOUNT = 0.55
KERNEL = tuple((offset, DISCOUNT ** abs(offset)) for offset in range(-REACH, REACH + 1))
SPREAD = 3.0
"""How many times longer a turn is with its neighbors, discounted, on average."""

K1, B = 1.2, 0.5  # of BM25

HITS = 200
CANDIDATES = 120
"""Turns that are spread to their neighbors, and turns that are ranked exactly."""

MAX_SCANNED = 12_000
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

_ENDED = int(Sign.ENDED)
ROLES = {"tool": 0.6, "summary": 0.8}


class RankedTurn(NamedTuple):
    """What ranking knows of a turn besides its words."""

    number: int
    session: int
    author: str
    role: str
    said: str
    length: int
    signs: int


class TurnScan:
    """The first step: the turns worth a second look."""

    def __init__(self, question: Question, lists: Mapping[str, array[int]], size: int) -> None:
        self._question, self._lists = question, lists
        self.idf = {group.term: _idf(group, lists, size) for group in question.groups}

    def found(self) -> list[int]:
        """Return turns that contain terms of the question or are near them, the best first."""
        scores = dict[int, float]()
        for term, weight in self._scanned():
            more = dict.fromkeys(self._lists[term], weight)  # most turns have one of the terms only
            for number in more.keys() & scores.keys():
                more[number] += scores[number]
            scores |= more
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
    """Return the best scores; numbers are sorted faster than pairs, so the least of them is found first."""
    if len(scores) > most:
        least = sorted(scores.values(), reverse=True)[most - 1]
        scores = {number: score for number, score in scores.items() if score >= least}
    return sorted(scores.items(), key=itemgetter(1), reverse=True)[:most]


class Ranking:
    """The second step: the scores of some turns, exactly; ``turns`` has them and their neighbors."""

    def __init__(
        self,
        question: Question,
        turns: Mapping[int, RankedTurn],
        numbers: Iterable[int],
        mean_length: float,
        similarities: Mapping[int, float] | None = None,
    ) -> None:
        self._turns, self._similarities = turns, similarities
        self._targets = defaultdict[int, list[tuple[int, float]]](list)
        self._norms, self._factors = dict[int, float](), dict[int, float]()
        self._scores = defaultdict[int, float](float)
        author = AUTHOR if similarities is None else AUTHOR_WITH_VECTORS
        for number in numbers:
            if number in turns:
                length = self._join(number, turns[number].session)
                self._norms[number] = K1 * (1 - B + B * length / (mean_length * SPREAD))
                self._factors[number] = _factor(question, turns[number], author)
        self._runs = _runs(self._targets)

    def _join(self, number: int, session: int) -> float:
        """Note which turns count for a turn, and how much; return its length with theirs."""
        length = 0.0
        for offset, share in KERNEL:
            other = self._turns.get(number + offset)
            if other is not None and other.session == session:
                self._targets[number + offset].append((number, share))
                length += other.length * share
        return length

    def add(
        self, terms: Iterable[tuple[str, float]], telling: float, lists: Mapping[str, array[int]]
    ) -> None:
        """Add what turns score for some terms that stand for one another, each with its weight."""
        own = defaultdict[int, float](float)
        for term, weight in terms:
            for number in self._within(lists.get(term)):
                own[number] += weight
        spread = defaultdict[int, float](float)
        for number, frequency in own.items():
            if self._turns[number].signs & _ENDED:  # neighbors of what no longer holds are no better than it
                frequency *= ENDED  # noqa: PLW2901
            for target, share in self._targets[number]:
                spread[target] += frequency * share
        for number, frequency in spread.items():
            self._scores[number] += telling * frequency * (K1 + 1) / (frequency + self._norms[number])

    def _within(self, numbers: array[int] | None) -> list[int]:
        """Return the numbers of an ordered list that count for a turn, without looking at all others."""
        if not numbers:
            return []
        if len(numbers) < 4 * len(self._runs):
            return [number for number in numbers if number in self._targets]
        found, place = list[int](), 0
        for first, last in self._runs:
            place = bisect_left(numbers, first, place)
            end = bisect_right(numbers, last, place)
            found += numbers[place:end]
            place = end
        return found

    def best(self) -> list[tuple[int, float]]:
        """Return the turns with their scores, the best first."""
        scores: Mapping[int, float] = self._scores
        if self._similarities is not None:
            top = max(scores.values(), default=0.0) or 1.0
            scores = {
                number: scores.get(number, 0.0) / top + VECTORS * self._similarities.get(number, 0.0)
                for number in self._factors
            }
        found = [
            (number, scores[number] * factor)
            for number, factor in self._factors.items()
            if scores.get(number, 0.0) > 0
        ]
        return sorted(found, key=lambda pair: (-pair[1], -pair[0]))


def _runs(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Return numbers as runs without gaps, each with its first and its last."""
    found = list[tuple[int, int]]()
    for number in sorted(numbers):
        if found and found[-1][1] == number - 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found


def _factor(question: Question, turn: RankedTurn, author: float) -> float:
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
    return idf(occurrences, size)


def idf(occurrences: float, size: int) -> float:
    """Return how telling a term is that occurs so often among so many turns."""
    return log(1 + (size - occurrences + 0.5) / (occurrences + 0.5))
