"""A rule: a pattern for the beginning of a clause, and the kind of fact that it finds."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from ..facts import FactKind

BOUNDARY = "\x1f"
"""Stands between two clauses; a value ends there unless its pattern allows the character."""


class FactRule(NamedTuple):
    """A pattern whose group ``value`` matches the claimed value, and ``slot`` what it is a value of."""

    kind: FactKind
    pattern: str
    slot: str = ""
    denies: bool = False
    prefix: str = ""
    """Text to put before the value, so that a dislike differs from a like."""
    of_anyone: bool = False
    """True if the clause may begin with somebody else, as in "my wife is called …"."""
    negated: bool = False
    """True if the rule is for clauses with a negation, in languages where that is at their end."""
    several: re.Pattern[str] | None = None
    """What separates several values; without it, there is one."""
    passes: bool = False
    """True if the fact is over when the time has passed that it names."""
    timed: bool = False
    """True if only what has a time limit is a fact: "I need to …" alone is a request."""
    shape: Callable[[str], str] | None = None
    """Brings a value into the form in which it is known."""

    def matches(self, clause: str) -> list[tuple[str, str]]:
        """Return the values that a clause and what follows it begin with, each with its slot."""
        found = compiled(self.pattern).match(clause)
        if found is None:
            return []
        groups = found.groupdict()
        what = _trimmed(groups.get("slot") or "").lower()
        slot = f"{self.slot} {what}".strip() if what else self.slot
        whole = groups["value"].replace(BOUNDARY, "")
        values = map(_trimmed, self.several.split(whole) if self.several else [whole])
        return [(self.shape(value) if self.shape else value, slot) for value in values if value]


def rule(
    kind: FactKind,
    pattern: str,
    slot: str = "",
    *,
    denies: bool = False,
    prefix: str = "",
    of_anyone: bool = False,
    negated: bool = False,
    several: re.Pattern[str] | None = None,
    passes: bool = False,
    timed: bool = False,
    shape: Callable[[str], str] | None = None,
) -> FactRule:
    """Return a rule; its pattern ignores case."""
    return FactRule(kind, pattern, slot, denies, prefix, of_anyone, negated, several, passes, timed, shape)


@cache
def compiled(pattern: str) -> re.Pattern[str]:
    """Compile a pattern on first use, because compiling all of them takes a fifth of a second."""
    return re.compile(pattern, re.IGNORECASE)


def _trimmed(text: str) -> str:
    return text.strip(" \t,.;:!?、。，；：！？'\"“”‘’「」『』()（）-–—\x1f")
