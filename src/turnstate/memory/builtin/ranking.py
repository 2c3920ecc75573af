"""Ranking: which turns answer a question, by their words and those of the turns around them.

A turn is found through its neighbors: an answer is often elliptical ("Super good! It was rich and creamy"),
and the words of the question are in the turn before. So the frequency of a term in a turn includes the turns
around it in the session, discounted by distance, and BM25 uses this frequency. Other signals about the
question and the turn multiply the score.

Everything is pure. There are two steps, so that a large memory costs little: `TurnScan` finds candidates
with nothing but the postings of terms, and `Ranking` scores the candidates and their neighbors exactly. With
an embedder, the similarities of turns are added to the scores of their words.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from datetime import date
from math import log
from typing import NamedTuple

from .dates import closeness
from .question import Group, Question
from .signs import Sign

REACH = 4
DISCOUNT = 0.55
KERNEL = tuple((offset, DISCOUNT ** abs(offset)) for offset in range(-REACH, REACH + 1))
SPREAD = 3.0
"""How many times longer a turn is on average with its neighbors, discounted by distance."""

K1, B = 1.2, 0.5  # of BM25

HITS = 200
CANDIDATES = 120
"""The most turns whose scores spread to their neighbors, and the most turns that are ranked exactly."""

MAX_SCANNED = 12_000
"""The most occurrences that the first step reads; the most frequent terms are left to the second."""

LONG = 8
"""The most numbers in a list for each run of wanted turns; in a longer list, a binary search is faster."""

AUTHOR, AUTHOR_WITH_VECTORS = 2.0, 1.5
VECTORS = 1.0
"""The weight of similarity relative to words; the best of each is 1."""

SIGNS = (
    (int(Sign.QUESTION), 0.8),
    (int(Sign.EVENT), 1.15),
    (int(Sign.NAME), 1.15),
    (int(Sign.FACT), 1.1),
    (int(Sign.ENDED), 0.6),
)
ASKED_SIGNS = ((int(Sign.TIME), 1.3), (int(Sign.NUMBER), 1.2))
ENDED = 0.4
"""The weight of the words of a turn whose fact no longer holds."""

_ENDED = int(Sign.ENDED)
ROLES = {"tool": 0.6, "summary": 0.8}


class RankedTurn(NamedTuple):
    """What ranking knows about a candidate besides its words."""

    number: int
    session: int
    author: str
    role: str
    said: str
    length: int
    signs: int


class Surroundings(NamedTuple):
    """Candidates and the turns around them, by column.

    With one object for each of these hundreds of turns, the garbage collector would run in every search, and
    sometimes over all objects of the process, which takes longer than the search.
    """

    numbers: Sequence[int]
    sessions: Sequence[int]
    lengths: Sequence[int]
    signs: Sequence[int]


class TurnScan:
    """The first step: finds candidates."""

    def __init__(self, question: Question, lists: Mapping[str, array[int]], size: int) -> None:
        self._question, self._lists = question, lists
        self.idf = {group.term: _idf(group, lists, size) for group in question.groups}

    def found(self, allowed: Container[int] | None = None) -> list[int]:
        """Return turns that contain terms of the question or are near them, the best first."""
        near = defaultdict[int, float](float)
        for number, score in _best(self._hits(), HITS):
            for offset, share in KERNEL:
                if allowed is None or number + offset in allowed:
                    near[number + offset] += score * share
        return [number for number, _ in _best(near, CANDIDATES)]

    def _hits(self) -> dict[int, float]:
        """Return the scores of turns by their own words."""
        scores = defaultdict[int, float](float)
        for term, weight in self._scanned():
            for number in set(self._lists[term]):
                scores[number] += weight
        return scores

    def _scanned(self) -> list[tuple[str, float]]:
        """Return the terms to scan with their weights: rare ones first, up to `MAX_SCANNED` occurrences."""
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
    """Return the best scores; of equal scores, the older turn comes first."""
    if len(scores) > most:  # sorting thousands of pairs took 0.8 of the 5 ms of a search among 50,000 turns
        least = sorted(scores.values())[-most]
        scores = {number: score for number, score in scores.items() if score >= least}
    return sorted(scores.items(), key=lambda pair: (-pair[1], pair[0]))[:most]


class Ranking:
    """The second step: scores the candidates exactly."""

    def __init__(
        self,
        question: Question,
        candidates: Sequence[RankedTurn],
        around: Surroundings,
        mean_length: float,
        similarities: Mapping[int, float] | None = None,
        certainty: float = 0.0,
        *,
        weight: float = 1.0,
    ) -> None:
        """Prepare the candidates.

        ``weight`` is that of all terms together, ``certainty`` the similarity of the most similar turn.
        """
        self._similarities = similarities
        self._most, self._certainty = (weight or 1.0) * (K1 + 1), certainty
        self._numbers = [turn.number for turn in candidates]
        self._scores = [0.0] * len(candidates)
        author = AUTHOR if similarities is None else AUTHOR_WITH_VECTORS
        self._factors = [_factor(question, turn, author) for turn in candidates]
        self._near = defaultdict[int, list[tuple[int, float]]](list)
        """By turn, the candidates that it counts for, and how much."""
        lengths = self._join(candidates, around)
        self._runs = _runs(self._near)
        self._norms = [K1 * (1 - B + B * length / (mean_length * SPREAD)) for length in lengths]

    def _join(self, candidates: Sequence[RankedTurn], around: Surroundings) -> list[float]:
        """Link the turns around each candidate to it; return the candidates' lengths with these turns."""
        places = {number: place for place, number in enumerate(around.numbers)}
        found = list[float]()
        for target, turn in enumerate(candidates):
            length = 0.0
            for offset, share in KERNEL:
                number = turn.number + offset
                place = places.get(number)
                if place is None or around.sessions[place] != turn.session:
                    continue
                length += around.lengths[place] * share
                is_ended = around.signs[place] & _ENDED  # it also counts less for its neighbors
                self._near[number].append((target, share * ENDED if is_ended else share))
            found.append(length)
        return found

    def add(self, terms: Iterable[tuple[str, float]], idf: float, lists: Mapping[str, array[int]]) -> None:
        """Add the scores of turns for a group of synonyms, each with its weight.

        ``idf`` is the weight of the group: its inverse document frequency, less for a term of feedback.
        """
        frequencies = [0.0] * len(self._scores)
        for term, weight in terms:
            for number in self._near_in(lists.get(term, ())):
                for target, share in self._near[number]:
                    frequencies[target] += weight * share
        for target, frequency in enumerate(frequencies):
            if frequency:
                norm = self._norms[target]
                self._scores[target] += idf * frequency * (K1 + 1) / (frequency + norm)

    def _near_in(self, numbers: Sequence[int]) -> list[int]:
        """Return the numbers of an ordered list that count for a candidate."""
        if len(numbers) <= LONG * len(self._runs):
            return [number for number in numbers if number in self._near]
        # Reading long lists whole takes 0.5 of 6 ms of the processor for a search among 50,012 turns; with an
        # embedder, the goal for the slowest (p99) is 40 ms, of which 36 were spent.
        found = list[int]()
        for first, last in self._runs:
            found += numbers[bisect_left(numbers, first) : bisect_right(numbers, last)]
        return found

    def best(self) -> list[tuple[int, float]]:
        """Return the turns with their scores, the best first."""
        scores = self._scores
        if self._similarities is not None:
            top = max(scores, default=0.0) or 1.0
            similar = [self._similarities.get(number, 0.0) for number in self._numbers]
            scores = [score / top + VECTORS * near for score, near in zip(scores, similar, strict=True)]
        found = [
            (number, score * factor)
            for number, score, factor in zip(self._numbers, scores, self._factors, strict=True)
            if score > 0
        ]
        return sorted(found, key=lambda pair: (-pair[1], -pair[0]))

    def scored(self) -> list[tuple[int, float]]:
        """Return the turns, the best first, with scores from 0 to 1 that mean the same for every question.

        A score compares what was found with what could be found: a turn that has all words of the question,
        the rare ones included.
        """
        unit = 1 / self._most
        if self._similarities is not None:
            unit = (max(self._scores, default=0.0) / self._most + self._certainty) / 2
        return [(number, value * unit / (1 + value * unit)) for number, value in self.best()]


def _runs(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Return numbers as runs without gaps, each with its first and last number."""
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
    """Return the inverse document frequency of a group by its share; related terms count by their weights."""
    occurrences = sum(weight * len(lists[term]) for term, weight in group.weights if term in lists)
    return group.share * idf(occurrences, size)


def idf(occurrences: float, size: int) -> float:
    """Return the inverse document frequency of a term with ``occurrences`` in ``size`` turns.

    A term that occurs several times in each turn counts as if it were in all of them.
    """
    occurrences = min(occurrences, size)
    return log(1 + (size - occurrences + 0.5) / (occurrences + 0.5))
