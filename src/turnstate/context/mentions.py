"""Mentions: what came up and how often, in bounded space.

The first things stay in order of their first mention, the newest in order of their last. Folding later
mentions into earlier ones lists what folding all of them at once would list."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from msgspec import Struct, structs


class Capacity(NamedTuple):
    """How many of the first and of the newest mentions are kept, and how many of the newest with one name."""

    first: int
    newest: int
    of_one_name: int | None = None


Words = str | tuple[str, ...]
"""A sentence, a tool or a file; or several words that belong together, such as an id and its name."""


class Mention(Struct, frozen=True, array_like=True):
    """Something that came up, and how often."""

    words: Words
    times: int = 1

    @property
    def parts(self) -> tuple[str, ...]:
        """The words as a tuple, even a single one."""
        return (self.words,) if isinstance(self.words, str) else self.words

    @property
    def name(self) -> str:
        """The first word; empty if there is none."""
        return next(iter(self.parts), "")


class Mentions(Struct, frozen=True, omit_defaults=True):
    """The first things in order of their first mention, and the newest in order of their last mention."""

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
        """The total number of mentions."""
        return sum([one.times for one in self.first]) + sum([one.times for one in self.newest]) + self.others


def folded(earlier: Mentions, came_up: Sequence[Words], room: Capacity, *, unread: int = 0) -> Mentions:
    """Fold new mentions into earlier ones; another `unread` mentions are only counted."""
    if not came_up and len(earlier.first) <= room.first and len(earlier.newest) <= room.newest:
        return structs.replace(earlier, others=earlier.others + unread) if unread else earlier
    times = Counter(came_up)
    first = {mention.words: mention.times for mention in earlier.first[: room.first]}
    for words in islice(times, room.first):
        if len(first) < room.first:
            first.setdefault(words, 0)
    first = {words: count + times[words] for words, count in first.items()}
    newest = {mention.words: mention.times for mention in earlier.newest}
    for words in reversed(_latest(came_up, most=min(len(times), room.first + room.newest))):
        newest[words] = newest.pop(words, 0) + times[words]
    kept = [Mention(words, count) for words, count in newest.items() if words not in first]
    if room.of_one_name:
        kept = _spread(kept, room.of_one_name)
    kept = kept[-room.newest :] if room.newest else []
    listed = tuple(Mention(words, count) for words, count in first.items())
    total = earlier.total + len(came_up) + unread
    return Mentions(listed, tuple(kept), total - sum([one.times for one in (*listed, *kept)]))


def without(mentions: Mentions, is_over: Callable[[Mention], bool]) -> Mentions:
    """Return mentions without those that are over."""
    first, newest = (
        tuple(one for one in some if not is_over(one)) for some in (mentions.first, mentions.newest)
    )
    return Mentions(first, newest, mentions.others)


def _latest(came_up: Sequence[Words], *, most: int) -> list[Words]:
    """Return the last `most` different mentions, newest first, reading back no further than needed."""
    found: dict[Words, None] = {}
    for words in reversed(came_up):
        if len(found) == most:
            break
        found[words] = None
    return list(found)


def _spread(mentions: Sequence[Mention], most: int) -> list[Mention]:
    """Return the newest `most` mentions with each name, in their order."""
    seen, kept = Counter[str](), list[Mention]()
    for mention in reversed(mentions):
        seen[mention.name] += 1
        if seen[mention.name] <= most:
            kept.append(mention)
    return kept[::-1]
