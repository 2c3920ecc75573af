"""A line: a list that may go on from another, at some place of it, without copying it.

Forking a line is one object, however long it is. What is added behind the fork, on either side, is
seen on that side alone; so leaving a fork is letting go of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TypeVar, overload

__all__ = ["ForkedList"]

T = TypeVar("T")


class ForkedList(Sequence[T]):
    """A sequence that grows at its end."""

    __slots__ = ("_base", "_own", "_parent")

    def __init__(self, parent: ForkedList[T] | None = None, at: int | None = None) -> None:
        self._parent = parent
        self._base = 0 if parent is None else len(parent) if at is None else at
        self._own: list[T] = []

    def append(self, item: T) -> None:
        """Add one at the end."""
        self._own.append(item)

    def replace_last(self, item: T) -> None:
        """Put another in the place of the last, on this side of a fork alone."""
        if self._own:
            self._own[-1] = item
        else:
            self._base -= 1
            self._own.append(item)

    def replace(self, place: int, item: T) -> None:
        """Put another in a place behind the fork."""
        self._own[place - self._base] = item

    def fork(self, at: int | None = None) -> ForkedList[T]:
        """Go on from here, or from an earlier place, on a line of its own."""
        return ForkedList(self, at)

    @property
    def own(self) -> Sequence[T]:
        """What was added since the fork."""
        return self._own

    def __len__(self) -> int:
        return self._base + len(self._own)

    @overload
    def __getitem__(self, index: int) -> T: ...

    @overload
    def __getitem__(self, index: slice) -> list[T]: ...

    def __getitem__(self, index: int | slice) -> T | list[T]:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            return self._between(start, stop)[::step] if step > 0 else list(self)[index]
        place = index + len(self) if index < 0 else index
        if not 0 <= place < len(self):
            raise IndexError(index)
        return next(iter(self._between(place, place + 1)))

    def __iter__(self) -> Iterator[T]:
        return iter(self._between(0, len(self)))

    def __reversed__(self) -> Iterator[T]:
        line: ForkedList[T] | None = self
        end = len(self)
        while line is not None and end > 0:
            for place in range(min(len(line._own), end - line._base) - 1, -1, -1):
                yield line._own[place]
            end, line = min(end, line._base), line._parent

    def _between(self, start: int, stop: int) -> list[T]:
        pieces = list[list[T]]()
        line: ForkedList[T] | None = self
        while line is not None and stop > start:
            if stop > line._base:
                first = max(0, start - line._base)
                pieces.append(list(islice(line._own, first, stop - line._base)))
            stop, line = min(stop, line._base), line._parent
        return [item for piece in reversed(pieces) for item in piece]
