"""A rule: a pattern over a sentence, and the kind of fact that it finds."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from ..facts import FactKind

_ENDS = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n+")

MAX_SENTENCE = 400
"""The most characters of a sentence; anything longer is a list or a log."""


class Rule(NamedTuple):
    """A pattern whose group ``value`` matches the claimed value, and ``slot`` what it is a value of."""

    kind: FactKind
    pattern: str
    slot: str = ""
    denies: bool = False
    prefix: str = ""
    """Text to put before the value, so that a dislike differs from a like."""

    def matches(self, sentence: str) -> Iterator[tuple[str, str]]:
        """Yield the value and the slot of each match."""
        for found in _compiled(self.pattern).finditer(sentence):
            groups = found.groupdict()
            value = _trimmed(groups["value"])
            what = _trimmed(groups.get("slot") or "").lower()
            if value:
                yield self.prefix + value, f"{self.slot} {what}".strip() if what else self.slot


def rule(kind: FactKind, pattern: str, slot: str = "", *, denies: bool = False, prefix: str = "") -> Rule:
    """Return a rule; its pattern ignores case."""
    return Rule(kind, pattern, slot, denies, prefix)


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """Compile a pattern on first use, because compiling all of them takes a fifth of a second."""
    return re.compile(pattern, re.IGNORECASE)


def sentences(text: str) -> list[str]:
    """Return the sentences of a text, except those that are too short or too long to be one."""
    found = (sentence.strip() for sentence in _ENDS.split(text))
    return [sentence for sentence in found if 3 <= len(sentence) <= MAX_SENTENCE]


def _trimmed(text: str) -> str:
    return text.strip(" \t,.;:!?、。，；：！？'\"“”‘’「」『』()（）-–—")
