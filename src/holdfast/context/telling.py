"""Telling a digest: as much of it as fits, in plain English, within a number of tokens.

Detail is dropped step by step, the least useful first: the tools that succeeded, ids, files,
failures, then topics down to the first, which says what it was all about; then everything but the
counts. Words that came from outside are quoted and never hold the template's own label, so a
message cannot pose as a summary by being summarised.
"""

from __future__ import annotations

from bisect import bisect_left
from functools import cache
from typing import NamedTuple

from ..tokens import Counter
from .known import Digest
from .mentions import Mention
from .quote import line, quoted, word
from .template import bare, filled, label

__all__ = ["text"]


class _Detail(NamedTuple):
    """How much is told: items of each kind, characters of quoted words, characters of what is carried."""

    tools: int
    ids: int
    files: int
    failed: int
    topics: int
    chars: int
    carried: int


_DETAILS = (
    _Detail(tools=12, ids=12, files=16, failed=8, topics=10, chars=200, carried=2_000),
    _Detail(tools=4, ids=12, files=16, failed=8, topics=10, chars=200, carried=1_500),
    _Detail(tools=0, ids=8, files=12, failed=8, topics=10, chars=160, carried=1_200),
    _Detail(tools=0, ids=4, files=8, failed=6, topics=8, chars=160, carried=1_000),
    _Detail(tools=0, ids=2, files=6, failed=4, topics=6, chars=120, carried=700),
    _Detail(tools=0, ids=0, files=4, failed=4, topics=5, chars=100, carried=500),
    _Detail(tools=0, ids=0, files=2, failed=2, topics=3, chars=100, carried=300),
    _Detail(tools=0, ids=0, files=0, failed=2, topics=2, chars=80, carried=200),
    _Detail(tools=0, ids=0, files=0, failed=0, topics=2, chars=80, carried=120),
    _Detail(tools=0, ids=0, files=0, failed=0, topics=1, chars=60, carried=60),
    _Detail(tools=0, ids=0, files=0, failed=0, topics=1, chars=30, carried=30),
    _Detail(tools=0, ids=0, files=0, failed=0, topics=0, chars=0, carried=0),
)
"""From everything to the counts alone."""


def text(digest: Digest, cap_tokens: int, counter: Counter, template: str) -> str:
    """Tell as much of a digest as fits into the cap together with its template.

    The text is bare: the template is counted here and put on when the message is made. Where not
    even the counts fit, it is the number of messages, and that is given even where the cap is
    smaller still, since something must stand at a cut.
    """
    telling = _Telling(digest, template)
    told = cache(telling.at)

    def fits(detail: _Detail) -> bool:
        return counter.count(filled(template, told(detail))).tokens <= cap_tokens

    level = bisect_left(_DETAILS, True, key=fits)
    return told(_DETAILS[level]) if level < len(_DETAILS) else telling.least()


class _Telling:
    """A digest in sentences."""

    def __init__(self, digest: Digest, template: str) -> None:
        self._digest = digest
        self._template = template
        self._label = label(template)

    def at(self, detail: _Detail) -> str:
        sentences = (
            self._carried(detail.carried),
            self._counts(),
            self._topics(detail.topics, detail.chars),
            self._failures(detail.failed, detail.chars),
            self._files(detail.files, detail.chars),
            self._ids(detail.ids, detail.chars),
            self._tools(detail.tools, detail.chars),
        )
        return " ".join(sentence for sentence in sentences if sentence)

    def least(self) -> str:
        return f"{_number(self._digest.messages, 'message')}."

    def _carried(self, most: int) -> str:
        carried = bare(self._template, self._digest.carried)
        return f"Earlier summary: {self._quoted(carried, most)}." if carried and most else ""

    def _counts(self) -> str:
        if not self._digest.messages:
            return "Earlier messages are left out."
        turns = f" ({_number(self._digest.turns, 'turn')})" if self._digest.turns else ""
        return f"{_number(self._digest.messages, 'earlier message')}{turns} left out."

    def _topics(self, most: int, chars: int) -> str:
        some, others = self._digest.topics.some(most)
        rest = [f"and {others:,} more"] if others and some else []
        return _sentence("The user said", [self._quoted(_name(one), chars) for one in some] + rest)

    def _failures(self, most: int, chars: int) -> str:
        some, others = self._digest.failed.some(most)
        return _sentence("Failed", [self._failure(one, chars) for one in some], others)

    def _failure(self, one: Mention, chars: int) -> str:
        name, on, why, *_ = (*one.parts, "", "", "")
        where = f" on {self._word(on, chars)}" if on else ""
        because = f", {self._quoted(why, chars)}" if why else ""
        return self._word(name, chars) + where + because + _times(one.times)

    def _files(self, most: int, chars: int) -> str:
        some, others = self._digest.files.some(most)
        return _sentence("Files", [self._word(_name(one), chars) for one in some], others)

    def _ids(self, most: int, chars: int) -> str:
        some, others = self._digest.ids.some(most)
        called: dict[str, list[str]] = {}
        for one in some:
            name, id, *_ = (*one.parts, "", "")
            called.setdefault(self._word(name, chars), []).append(self._word(id, chars))
        return _sentence("Ids", [f"{name} {', '.join(ids)}" for name, ids in called.items()], others)

    def _tools(self, most: int, chars: int) -> str:
        some, others = self._digest.succeeded.some(most)
        return _sentence(
            "Succeeded", [self._word(_name(one), chars) + _times(one.times) for one in some], others
        )

    def _quoted(self, words: str, most: int) -> str:
        return quoted(self._unlabelled(words), most)

    def _word(self, words: str, most: int) -> str:
        return word(self._unlabelled(words), most)

    def _unlabelled(self, words: str) -> str:
        """Take the template's label out of foreign words, wherever it stands."""
        words = line(words, len(words) or 1)
        while self._label and self._label in words:
            words = words.replace(self._label, "")
        return words


def _sentence(title: str, told: list[str], others: int = 0) -> str:
    """List what is told; others are only counted."""
    rest = [f"others{_times(others)}"] if others else []
    return f"{title}: {'; '.join(told + rest)}." if told else ""


def _name(one: Mention) -> str:
    return " ".join(one.parts)


def _times(times: int) -> str:
    return f" ×{times:,}" if times > 1 else ""


def _number(count: int, name: str) -> str:
    return f"{count:,} {name}" if count == 1 else f"{count:,} {name}s"
