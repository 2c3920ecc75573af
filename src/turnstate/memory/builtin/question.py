"""Parses a question: its terms, whose words it is about, and what kind of answer it wants.

    Question.of("When did Joanna adopt the turtles in May?", {"Joanna": "Joanna", "Nate": "Nate"})
        terms    adopt, turtl         each with the terms related to it, which count less
        author   Joanna               a name is a filter on who spoke, not a word; of two, the first
        periods  May                  a date is compared, not matched
        kinds    TIME                 a turn that says when is a better answer

In a log of users and assistants, "I" and "my" name the user, and "you" the assistant.

Related terms are near in meaning: "Which pets does she have?" is answered by a turn about a dog, which no
spelling rule would find. They come from a table of English stems that ``tools/related_words.py`` built once
with an embedding model. Turns in other languages are found by their own words, or with an embedder.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import date
from functools import cache
from importlib.resources import files
from itertools import pairwise
from typing import NamedTuple

from .dates import Period, period_days, periods
from .signs import Sign
from .terms import is_dense, terms

USER, ASSISTANT = "user", "assistant"

RELATED_WEIGHT = 0.3
"""The weight of a related term, multiplied by the square of its similarity."""

MAX_GROUPS = 64
"""The most terms of a question; a recall for a long message uses the first ones."""

_WHEN = re.compile(
    r"\b(when|how long|what (?:date|day|time|month|year))\b|いつ|何年|何月|何日|什么时候|哪年|哪天|几月",
    re.IGNORECASE,
)
_HOW_MANY = re.compile(
    r"\bhow (?:many|much|long|old|often)\b|いくつ|何(?:人|回|個|歳|匹)|多少|几[个次人岁只]", re.IGNORECASE
)
_ASKED = re.compile(
    r"何[をがはにで]?|誰|いつ|どこ|どれ|どの|どんな|どう|なぜ|いくら|いくつ|教えて(?:ください)?"
    r"|(?:(?:して|て)(?:い|る)?|でし|まし|し)?(?:ます|ました|です|でした|た|の)?か?[。？?\s]*$"
    r"|什么时候|什么|多少|怎么样|怎么|怎样|为什么|为何|哪里|哪儿|哪[个些种家天年月]?|谁|几[个点]?|吗|呢|请问|告诉我"
)
"""Words of Japanese and Chinese that only ask; with the characters next to them they would be pairs."""

DAYS = 0.5
"""The weight of the days that a question names, relative to a word."""

INSIDE = 0.2
"""The weight of a Han character that is part of a longer word."""

LONGEST_WORD = 6
"""The most characters of a word in the tables of related words of Japanese and Chinese."""

_KANA = re.compile("[\u3041-\u30ff]")
_HAN_RUN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff]+")
_DENSE_RUN = re.compile("[\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff]+")
_I = re.compile(r"\b(i|i'm|i've|i'd|my|mine|me|we|our)\b|私|僕|俺|わたし|我(?!们)", re.IGNORECASE)
_BOTH = re.compile(r"\b(both|each other)\b|二人|两人|两个人", re.IGNORECASE)
_AND = re.compile(r"(?:['’]s?)?\s*(?:and|or|&|,|と|和|跟|与|や)\s*", re.IGNORECASE)
_LETTER = r"[^\W\u3041-\u30ff\u3400-\u9fff]"
_OWNS = re.compile(r"['’]s?(?!\w)")
_YOU = re.compile(r"\b(you|your|yours)\b|あなた|君|你|您", re.IGNORECASE)


class Group(NamedTuple):
    """A term of the question and its related terms, each with a weight; the term itself has weight 1."""

    term: str
    weights: tuple[tuple[str, float], ...]
    share: float = 1.0
    """How much the group counts: less for a character inside a word than for a word."""


class Question(NamedTuple):
    """What ranking needs to know about a question."""

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

    def with_days(self, years: Collection[int]) -> Question:
        """Return the question with the days that it names as a term, in ``years`` if it names none."""
        days = dict.fromkeys(day for period in self.periods for day in period_days(period, years))
        if not days:
            return self
        group = Group(next(iter(days)), tuple((day, 1.0) for day in days), DAYS)
        return self._replace(groups=(*self.groups, group))

    @classmethod
    def of(cls, text: str, names: Mapping[str, str] | None = None, today: date | None = None) -> Question:
        """Parse a question; ``names`` maps the names of authors to the authors that they mean."""
        named, spoken = _without_names(text, names or {})
        bare = _ASKED.sub(" ", spoken)
        own = dict.fromkeys(terms(bare))
        near, alone = _near(bare, own), set(_HAN_RUN.findall(bare))
        kinds = Sign.NONE
        if _WHEN.search(text):
            kinds |= Sign.TIME
        if _HOW_MANY.search(text):
            kinds |= Sign.NUMBER
        return cls(
            groups=tuple(
                Group(
                    term,
                    ((term, 1.0), *near.get(term, {}).items()),
                    INSIDE if is_dense(term) and len(term) == 1 and term not in alone else 1.0,
                )
                for term in list(own)[:MAX_GROUPS]
            ),
            author=named[0] if len(named) == 1 else None if named else _role(text),
            periods=tuple(periods(text, today)),
            kinds=int(kinds),
            spoken=spoken,
        )


def related(term: str) -> list[tuple[str, float]]:
    """Return the terms related to an English term, each with its similarity from 0 to 1."""
    return _pairs(_table().get(term, ""))


def related_dense(run: str, language: str) -> Iterator[tuple[str, list[tuple[str, float]]]]:
    """Yield the terms of the words in a run of characters, each with the terms related to it."""
    known = _dense_table(language)
    for first in range(len(run)):
        for last in range(first + 1, min(first + LONGEST_WORD, len(run)) + 1):
            if line := known.get(run[first:last]):
                term, _, others = line.partition(" ")
                yield term, _pairs(others)


def _near(text: str, own: Collection[str]) -> dict[str, dict[str, float]]:
    """Return for the terms of a question the weights of the terms related to them."""
    found = {term: related(term) for term in own if term.isascii()}
    language = "ja" if _KANA.search(text) else "zh"
    for run in _DENSE_RUN.findall(text):
        for term, others in related_dense(run, language):
            found.setdefault(term, []).extend(others)
    return {
        term: {other: RELATED_WEIGHT * near * near for other, near in others if other not in own}
        for term, others in found.items()
    }


def _pairs(line: str) -> list[tuple[str, float]]:
    return [(pair[:-2], int(pair[-2:]) / 100) for pair in line.split()]


@cache
def _table() -> dict[str, str]:
    return _lines("related_words.txt.gz")


@cache
def _dense_table(language: str) -> dict[str, str]:
    return _lines(f"related_words_{language}.txt.gz")


def _lines(name: str) -> dict[str, str]:
    lines = gzip.decompress(files(__package__).joinpath(name).read_bytes()).decode().splitlines()
    return dict(line.split(" ", 1) for line in lines if " " in line)


def _without_names(text: str, names: Mapping[str, str]) -> tuple[list[str], str]:
    """Return the authors whom a text is about, and the text as they would say it.

    Of two names the first is the subject: "What did Jon tell Gina?" is about words of Jon, who says "you"
    to Gina. "Jon and Gina" means both.
    """
    places = _places(text, names)
    named = list(dict.fromkeys(author for _, _, author in places))
    is_about_one = len(named) == 2 and not _are_joined(text, places)
    spoken, end = "", 0
    for first, last, author in places:
        my, me = ("your", "you") if is_about_one and author != named[0] else ("my", "I")
        owns = _OWNS.match(text, last)
        spoken += text[end:first] + (my if owns else me)
        end = owns.end() if owns else last
    return named[:1] if is_about_one else named, spoken + text[end:]


def _places(text: str, names: Mapping[str, str]) -> list[tuple[int, int, str]]:
    """Return the spans of names in a text with their authors; a longer name wins over a part of it."""
    taken = dict[int, tuple[int, int, str]]()
    for name in sorted(names, key=len, reverse=True):
        for form in _forms(name):
            for found in re.finditer(_as_a_word(form), text, re.IGNORECASE):
                if not any(place in taken for place in range(*found.span())):
                    taken |= dict.fromkeys(range(*found.span()), (*found.span(), names[name]))
    return sorted(set(taken.values()))


def _as_a_word(name: str) -> str:
    """Return a pattern for a name as a whole word; in a script without spaces, it needs two characters."""
    if is_dense(name):
        return re.escape(name) if len(name) > 1 else r"(?!)"
    return rf"(?<!{_LETTER}){re.escape(name)}(?!{_LETTER})"


def _are_joined(text: str, places: Sequence[tuple[int, int, str]]) -> bool:
    """Return True if a question with two names is about both."""
    return bool(_BOTH.search(text)) or any(
        one[2] != other[2] and _AND.fullmatch(text, one[1], other[0]) for one, other in pairwise(places)
    )


def _forms(name: str) -> list[str]:
    """Return a name and, if it has several words, the first one unless it is very short."""
    first = name.split()[0]
    return [name] if first == name or len(first) < 3 else [name, first]


def _role(text: str) -> str | None:
    asks_user, asks_assistant = bool(_I.search(text)), bool(_YOU.search(text))
    if asks_user == asks_assistant:
        return None
    return USER if asks_user else ASSISTANT
