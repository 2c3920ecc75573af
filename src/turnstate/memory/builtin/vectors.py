"""Vectors of a user's turns in memory, and how near each is to a question.

A turn is compared by itself and together with its neighbors: the average of the vectors around it represents
the topic of the conversation. The average needs no second matrix: its similarity is the sum of the
neighbors' own similarities, discounted by distance, divided by one stored length per turn.

A turn that says several things is not near a question about one of them. So the vectors of its passages are
stored after its own; they are read only for candidates, and the nearest passage counts for the turn.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

REACH = 3
DISCOUNT = 0.5

MAX_BYTES = 512_000_000
"""The most bytes of vectors that a process keeps in memory; the least recently used are dropped."""

Array = NDArray[np.float32]


def packed(*vectors: Sequence[float]) -> bytes:
    """Return vectors as bytes, one after the other: scaled to length 1, two bytes for each number."""
    numbers = np.asarray(vectors, np.float32)
    lengths = np.linalg.norm(numbers, axis=1, keepdims=True)
    return (numbers / np.where(lengths > 0, lengths, 1)).astype(np.float16).tobytes()


class Vectors:
    """The vectors of one user, in the order of their turns."""

    def __init__(self, version: int, after: int, removed: int) -> None:
        self.version, self.next, self.removed = version, after, removed
        self._numbers = np.zeros(0, np.int64)
        self._sessions = np.zeros(0, np.int64)
        self._matrix: Array = np.zeros((0, 0), np.float32)
        self._lengths: Array = np.zeros(0, np.float32)

    @property
    def size(self) -> int:
        """The size in memory, in bytes."""
        return int(self._matrix.nbytes)

    def extend(self, rows: Sequence[tuple[int, int, bytes]]) -> None:
        """Add the vectors of more turns: number, session, and the vector as bytes."""
        if not rows:
            return
        width = len(rows[0][2])
        rows = [row for row in rows if len(row[2]) == width]
        added = np.frombuffer(b"".join(bytes(row[2]) for row in rows), np.float16).astype(np.float32)
        matrix = added.reshape(len(rows), -1)
        if self._matrix.shape[1] not in (0, matrix.shape[1]):
            return  # vectors of another model with the same name
        known = self._matrix.reshape(-1, matrix.shape[1])
        self._matrix = np.concatenate([known, matrix])
        self._numbers = np.concatenate([self._numbers, np.array([row[0] for row in rows], np.int64)])
        self._sessions = np.concatenate([self._sessions, np.array([row[1] for row in rows], np.int64)])
        start = max(0, len(known) - REACH)
        self._lengths = np.concatenate([self._lengths[:start], self._lengths_from(start)])

    def _lengths_from(self, start: int) -> Array:
        """Return the lengths of the averages, from the turn at ``start`` on."""
        begin = max(0, start - REACH)
        part = self._matrix[begin:]
        total = part.copy()
        for distance in range(1, REACH + 1):
            joined = self._joined(distance)[begin:, None] * np.float32(DISCOUNT**distance)
            total[:-distance] += joined * part[distance:]
            total[distance:] += joined * part[:-distance]
        lengths: Array = np.linalg.norm(total, axis=1)[start - begin :]
        return np.maximum(lengths, np.float32(1e-6))

    def _joined(self, distance: int) -> NDArray[np.bool_]:
        """Return for each turn whether the one at this distance after it is its neighbor."""
        follows = self._numbers[distance:] - self._numbers[:-distance] == distance
        joined: NDArray[np.bool_] = follows & (self._sessions[distance:] == self._sessions[:-distance])
        return joined

    def similarities(self, question: Sequence[float]) -> Similarities:
        """Return the similarity of every turn to a question."""
        asked: Array = np.array(question, np.float32)
        if self._matrix.shape[1] != len(asked):  # no vectors, or those of another model with the same name
            nothing: Array = np.zeros(0, np.float32)
            return Similarities(asked, np.zeros(0, np.int64), nothing, nothing, 0.0)
        asked /= max(float(np.linalg.norm(asked)), 1e-6)
        alone: Array = np.einsum(
            "ij,j->i", self._matrix, asked
        )  # reads memory faster than "@", and without threads
        around = alone.copy()
        for distance in range(1, REACH + 1):
            joined = self._joined(distance) * np.float32(DISCOUNT**distance)
            around[:-distance] += joined * alone[distance:]
            around[distance:] += joined * alone[:-distance]
        around /= self._lengths
        certainty = max(0.0, float(alone.max(initial=0)))
        return Similarities(asked, self._numbers, _scaled(alone), _scaled(around), certainty)


class Similarities(NamedTuple):
    """How similar turns are to a question, from 0 to 1: each alone, and with its neighbors."""

    asked: Array
    numbers: NDArray[np.int64]
    alone: Array
    around: Array
    certainty: float
    """The similarity of the most similar turn, which is 1 for the same text."""

    def best(self, most: int, allowed: frozenset[int] | None = None) -> list[int]:
        """Return the most similar turns, in no particular order."""
        both, numbers = self.alone + self.around, self.numbers
        if allowed is not None:
            inside = np.isin(numbers, list(allowed))
            both, numbers = both[inside], numbers[inside]
        if not len(numbers):
            return []
        places = np.argpartition(-both, min(most, len(numbers)) - 1)[:most]
        return [int(number) for number in numbers[places]]

    def of(self, rows: Sequence[tuple[int, bytes]]) -> dict[int, float]:
        """Return the similarities of turns by their nearest passages; a row is a number and its vectors."""
        width = 2 * len(self.asked)
        rows = [row for row in rows if row[1] and not len(row[1]) % width]
        if not rows or not len(self.numbers):
            return {}
        counts = np.array([len(row[1]) // width for row in rows])
        starts = np.cumsum(counts) - counts
        vectors = np.frombuffer(b"".join(bytes(row[1]) for row in rows), np.float16).astype(np.float32)
        near = np.einsum("ij,j->i", vectors.reshape(-1, len(self.asked)), self.asked)
        near[starts[counts > 1]] = 0  # the vector of the whole turn does not count
        nearest = _scaled(np.maximum.reduceat(near, starts))
        numbers = np.array([row[0] for row in rows])
        places = np.minimum(np.searchsorted(self.numbers, numbers), len(self.numbers) - 1)
        both = (nearest + self.around[places]) / 2
        known = self.numbers[places] == numbers
        return dict(zip(numbers[known].tolist(), both[known].tolist(), strict=True))


def _scaled(scores: Array) -> Array:
    positive = np.maximum(scores, np.float32(0))
    best = positive.max()
    scaled: Array = positive / best if best > 0 else positive
    return scaled


class VectorCache:
    """The vectors of the users whose memories were searched last."""

    def __init__(self) -> None:
        self._kept = OrderedDict[int, Vectors]()

    def get(self, owner: int) -> Vectors | None:
        """Return the vectors of a user, if they are in memory."""
        found = self._kept.get(owner)
        if found is not None:
            self._kept.move_to_end(owner)
        return found

    def put(self, owner: int, vectors: Vectors) -> None:
        """Keep the vectors of a user."""
        self._kept[owner] = vectors
        self._kept.move_to_end(owner)
        while len(self._kept) > 1 and sum(one.size for one in self._kept.values()) > MAX_BYTES:
            self._kept.popitem(last=False)

    def clear(self) -> None:
        """Drop everything, so that nothing forgotten stays in memory."""
        self._kept.clear()
