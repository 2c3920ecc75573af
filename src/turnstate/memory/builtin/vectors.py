"""Vectors of a user's turns in memory, and how near each is to a question.

A turn is compared alone and together with its neighbors: the average of the vectors around it stands for
what is being spoken about. The average needs no second matrix: its similarity is the sum of the neighbors'
own similarities, discounted with distance, over one stored length for each turn.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["VectorCache", "Vectors", "packed"]

REACH = 3
DISCOUNT = 0.5

MAX_BYTES = 512_000_000
"""Of all vectors that a process keeps in memory; those that were not used for longest leave."""

Array = NDArray[np.float32]


def packed(vector: Sequence[float]) -> bytes:
    """Return a vector as bytes: two for each number, of length 1."""
    numbers = np.asarray(vector, np.float32)
    length = float(np.linalg.norm(numbers))
    return (numbers / length if length else numbers).astype(np.float16).tobytes()


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
        """Bytes in memory."""
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
            return  # of another model under the same name
        known = self._matrix.reshape(-1, matrix.shape[1])
        self._matrix = np.concatenate([known, matrix])
        self._numbers = np.concatenate([self._numbers, np.array([row[0] for row in rows], np.int64)])
        self._sessions = np.concatenate([self._sessions, np.array([row[1] for row in rows], np.int64)])
        start = max(0, len(known) - REACH)
        self._lengths = np.concatenate([self._lengths[:start], self._lengths_from(start)])

    def _lengths_from(self, start: int) -> Array:
        """Return the lengths of the averages of turns from a place on."""
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
        """Return for each turn whether the one at a distance after it is its neighbor."""
        follows = self._numbers[distance:] - self._numbers[:-distance] == distance
        joined: NDArray[np.bool_] = follows & (self._sessions[distance:] == self._sessions[:-distance])
        return joined

    def best(self, scores: Array, most: int) -> list[int]:
        """Return the turns with the best scores."""
        if not len(scores):
            return []
        places = np.argpartition(-scores, min(most, len(scores)) - 1)[:most]
        return [int(number) for number in self._numbers[places]]

    def similarities(self, question: Sequence[float]) -> Array:
        """Return the similarity of every turn to a question, from 0 to 1."""
        if not len(self._matrix):
            return np.zeros(0, np.float32)
        asked = np.asarray(question, np.float32)
        alone = self._matrix @ (asked / max(float(np.linalg.norm(asked)), 1e-6))
        around = alone.copy()
        for distance in range(1, REACH + 1):
            joined = self._joined(distance) * np.float32(DISCOUNT**distance)
            around[:-distance] += joined * alone[distance:]
            around[distance:] += joined * alone[:-distance]
        around /= self._lengths
        both: Array = (_scaled(alone) + _scaled(around)) / np.float32(2)
        return both

    def of(self, numbers: Sequence[int], scores: Array) -> dict[int, float]:
        """Return the similarities of some turns."""
        if not len(self._numbers):
            return {}
        places = np.searchsorted(self._numbers, numbers)
        return {
            number: float(scores[place])
            for number, place in zip(numbers, places, strict=True)
            if place < len(self._numbers) and self._numbers[place] == number
        }


def _scaled(scores: Array) -> Array:
    positive = np.maximum(scores, np.float32(0))
    best = positive.max()
    scaled: Array = positive / best if best > 0 else positive
    return scaled


class VectorCache:
    """The vectors of the users who were asked for last."""

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
