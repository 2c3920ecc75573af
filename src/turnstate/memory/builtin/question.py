"""A question, taken apart: its terms, whose words it is about, and what kind of answer it wants.

    Question.of("When did Joanna adopt the turtles in May?", {"Joanna": "Joanna", "Nate": "Nate"})
        terms    adopt, turtl         each with the terms related to it, which count less
        author   Joanna               a name is a filter on who spoke, not a word
        periods  May                  a date is compared, not matched
        kinds    TIME                 a turn that says when is a better answer

In a log of users and assistants, "I" and "my" name the user, and "you" the assistant.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import NamedTuple

from .dates import Period, periods
from .related import related
from .signs import Sign
from .terms import terms

__all__ = ["ASSISTANT", "USER", "Group", "Question"]

USER, ASSISTANT = "user", "assistant"

RELATED_WEIGHT = 0.3
"""Of a related term, times the square of its similarity."""

MAX_GROUPS = 64
"""Terms of a question; a recall for a long message takes its first ones."""

_WHEN = re.compile(
    r"\b(when|how long|what (?:date|day|time|month|year))\b|いつ|何年|何月|何日|什么时候|哪年|哪天|几月",
    re.IGNORECASE,
)
_HOW_MANY = re.compile(
    r"\bhow (?:many|much|long|old|often)\b|いくつ|何(?:人|回|個|歳|匹)|多少|几[个次人岁只]", re.IGNORECASE
)
_I = re.compile(r"\b(i|i'm|i've|i'd|my|mine|me|we|our)\b|私|僕|俺|わたし|我(?!们)", re.IGNORECASE)
_YOU = re.compile(r"\b(you|your|yours)\b|あなた|君|你|您", re.IGNORECASE)


class Group(NamedTuple):
    """A term of the question with the terms related to it, each with its weight; its own is 1."""

    term: str
    weights: tuple[tuple[str, float], ...]


class Question(NamedTuple):
    """What ranking needs to know of a question."""

    groups: tuple[Group, ...]
    author: str | None
    periods: tuple[Period, ...]
    kinds: int
    spoken: str
    """The question as its author would say it: with "I" for the name, for an embedder."""

    @property
    def terms(self) -> list[str]:
        """All terms, related ones included, each once."""
        return list(dict.fromkeys(term for group in self.groups for term, _ in group.weights))

    @classmethod
    def of(cls, text: str, names: Mapping[str, str] | None = None) -> Question:
        """Take a question apart; ``names`` are those of authors, and the author that each means."""
        named, spoken = _without_names(text, names or {})
        own = dict.fromkeys(terms(spoken))
        kinds = Sign.NONE
        if _WHEN.search(text):
            kinds |= Sign.TIME
        if _HOW_MANY.search(text):
            kinds |= Sign.NUMBER
        return cls(
            groups=tuple(_group(term, own) for term in list(own)[:MAX_GROUPS]),
            author=named[0] if len(named) == 1 else None if named else _role(text),
            periods=tuple(periods(text)),
            kinds=int(kinds),
            spoken=spoken,
        )


def _group(term: str, own: Collection[str]) -> Group:
    others = ((other, RELATED_WEIGHT * near * near) for other, near in related(term) if other not in own)
    return Group(term, ((term, 1.0), *others))


def _without_names(text: str, names: Mapping[str, str]) -> tuple[list[str], str]:
    """Return the authors that a text names, and the text with "I" and "my" for them."""
    named = list[str]()
    for name in sorted(names, key=len, reverse=True):
        for form in _forms(name):
            pattern = rf"(?<!\w){re.escape(form)}(?!\w)"
            changed = re.sub(rf"{pattern}['’]s?(?!\w)", "my", text, flags=re.IGNORECASE)
            changed = re.sub(pattern, "I", changed, flags=re.IGNORECASE)
            if changed != text:
                text = changed
                named += [names[name]] if names[name] not in named else []
    return named, text


def _forms(name: str) -> list[str]:
    """Return a name, and the first of several words of it."""
    first = name.split()[0]
    return [name] if first == name or len(first) < 3 else [name, first]


def _role(text: str) -> str | None:
    asks_user, asks_assistant = bool(_I.search(text)), bool(_YOU.search(text))
    if asks_user == asks_assistant:
        return None
    return USER if asks_user else ASSISTANT
