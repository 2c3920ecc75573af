"""Mentions: what came up, how often, in bounded room.

The first few things stay for good, since they say what it was all about; of the rest the newest
stay. What drops out is counted: the times of all that is listed, and ``others``, always add up to
the number of times that anything was mentioned. Folding in pieces lists what folding at once lists.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from msgspec import Struct

__all__ = ["Mention", "Mentions", "Room", "Words", "folded"]


class Room(NamedTuple):
    """How many of the first and of the newest things are kept."""

    first: int
    newest: int


Words = str | tuple[str, ...]
"""A topic, a tool or a file; or several words that belong together, such as an id and what it is called."""


class Mention(Struct, frozen=True, array_like=True):
    """Something that came up, and how often."""

    words: Words
    times: int = 1

    @property
    def parts(self) -> tuple[str, ...]:
        """The words one by one; a single one is a tuple of one."""
        return (self.words,) if isinstance(self.words, str) else self.words


class Mentions(Struct, frozen=True, omit_defaults=True):
    """The first things in the order in which they came up, the newest by when they came up last."""

    first: tuple[Mention, ...] = ()
    newest: tuple[Mention, ...] = ()
    others: int = 0

    def __iter__(self) -> Iterator[Mention]:
        yield from self.first
        yield from self.newest

    def __bool__(self) -> bool:
        return bool(self.first or self.newest or self.others)

    @property
    def total(self) -> int:
        """How often anything was mentioned."""
        return sum(mention.times for mention in self) + self.others

    def some(self, most: int) -> tuple[list[Mention], int]:
        """Give at most that many, oldest and newest, and how often the others were mentioned."""
        known = list(self)
        if len(known) > most:
            old = min(len(self.first), (most + 2) // 3)
            known = known[:old] + known[len(known) - (most - old) :]
        return known, self.total - sum(mention.times for mention in known)


def folded(earlier: Mentions, came_up: Sequence[Words], room: Room, *, unread: int = 0) -> Mentions:
    """Fold what comes up now into what came up before; `unread` more are only counted."""
    times = Counter(came_up)
    first = {mention.words: mention.times for mention in earlier.first[: room.first]}
    for words in islice(times, room.first):
        if len(first) < room.first:
            first.setdefault(words, 0)
    first = {words: count + times[words] for words, count in first.items()}
    newest = {mention.words: mention.times for mention in earlier.newest}
    for words in reversed(_latest(came_up, most=min(len(times), room.first + room.newest))):
        newest[words] = newest.pop(words, 0) + times[words]
    kept = {words: count for words, count in newest.items() if words not in first}
    kept = dict(list(kept.items())[-room.newest :])
    total = earlier.total + len(came_up) + unread
    others = total - sum(first.values()) - sum(kept.values())
    return Mentions(_mentions(first), _mentions(kept), others)


def _latest(came_up: Sequence[Words], *, most: int) -> list[Words]:
    """Give the things that came up last, the newest first, reading back no further than it takes."""
    found: dict[Words, None] = {}
    for words in reversed(came_up):
        if len(found) == most:
            break
        found[words] = None
    return list(found)


def _mentions(counted: dict[Words, int]) -> tuple[Mention, ...]:
    return tuple(Mention(words, times) for words, times in counted.items())
