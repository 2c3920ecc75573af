"""The digest as text: what is known, within a number of tokens, the most important first.

A text has sections in a fixed order: the goal, what the user wants, what was done, what failed, what was
asked since, open tasks, decisions, ids, what the user was told, files, what else the user said, and which
tools ran. Its items are ranked, and the text contains as many of the best as fit, so the cap is used
whatever its size. In a rank, a section's items take turns with those of others by its share; a section of a
later rank begins when the ones before it have no more. Deeds are first written with what they were done to,
and with all of their arguments in a later rank.

Words from outside are quoted and never contain the template's own label, so a message cannot pose as a
summary by being summarized."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from ..tokens import Counter as TokenCounter
from .deeds import only_reads
from .digest import Digest
from .mentions import Mention, Mentions
from .speech import SAID_CHARS, weight, wish_strength
from .summary_text import WORDINGS, Language, bare, filled, label, line, quoted, word

__all__ = ["facts", "text"]

_LEAST_CHARS = 30  # of a quotation, for the smallest caps
_QUOTED_SHARE = 0.25  # characters of a quotation for each token of the cap, up to a whole sentence
_CARRIED_SHARE = 2  # characters of the carried text for each token of the cap: about half of it
_BARE, _WITH_ONE = 2, 4  # words of a deed without arguments, and with one
_GOAL_SHARE = 2  # times the characters of other quotations
_SHORT_GOAL = 40  # characters of a first message that only announces the next

_ORDER = (
    "goal",
    "wishes",
    "done",
    "failed",
    "asked",
    "tasks",
    "decided",
    "ids",
    "told",
    "files",
    "said",
    "tools",
)
_FACTS = frozenset({"wishes", "done", "failed", "asked", "tasks", "decided", "ids", "files"})
"""The sections of a text, in order, and those that stand beside a model's words."""


_SHARES = {
    "wishes": 3.0,
    "done": 8.0,
    "failed": 2.0,
    "asked": 0.5,
    "tasks": 3.0,
    "decided": 2.0,
    "ids": 7.0,
    "told": 0.7,
    "files": 0.5,
}
"""How many items of each section stand in a text beside those of the others, if not all have room."""


class _Item(NamedTuple):
    """A piece of a section.

    A later item with the same key replaces an earlier one. Items of a group are listed together. If other
    words contain all of `says`, they say the same.
    """

    section: str
    key: str
    text: str
    says: tuple[str, ...]
    group: str = ""


def text(
    digest: Digest, cap_tokens: int, counter: TokenCounter, template: str, *, language: Language = "en"
) -> str:
    """Write as much of a digest as fits into the cap together with its template.

    The text is bare: the template is counted here and added when the message is made. If not even the
    counts fit, the text is the number of messages, even if that exceeds the cap, since something must be
    shown at a cut.
    """
    writer = _Writer(digest, template, language, cap_tokens)

    def fits(written: str) -> bool:
        return counter.count(filled(template, written)).tokens <= cap_tokens

    found = _longest(writer.told, writer.tiers(), fits)
    return writer.least() if found is None else found


def facts(
    digest: Digest,
    cap_tokens: int,
    counter: TokenCounter,
    template: str,
    *,
    language: Language = "en",
    words: str = "",
) -> str:
    """Write what code knows for certain and a model's words leave out, within the cap.

    These are deeds, wishes, failures and open tasks, then decisions, ids and files; topics and counts are
    not, since the facts accompany a model's words. The result is empty if nothing is known or nothing fits.
    """
    writer = _Writer(digest, template, language, cap_tokens)

    def is_left_out(item: _Item) -> bool:
        return item.section in _FACTS and not all(one in words for one in item.says)

    def fits(written: str) -> bool:
        return counter.count(written).tokens <= cap_tokens

    tiers = ([item for item in tier if is_left_out(item)] for tier in writer.tiers())
    return _longest(writer.known, tiers, fits) or ""


def _longest(
    write: Callable[[Sequence[_Item]], str], tiers: Iterable[list[_Item]], fits: Callable[[str], bool]
) -> str | None:
    """Return the text of as many items as fit; None if not even the one without items does."""
    found, items = None, list[_Item]()
    for tier in tiers:
        if fits(written := write([*items, *tier])):
            found, items = written, [*items, *tier]
            continue
        low, high = 0 if found is None else 1, len(tier)
        while low < high:
            middle = (low + high) // 2
            if fits(written := write([*items, *tier[:middle]])):
                found, low = written, middle + 1
            else:
                high = middle
        return found
    return found


class _Writer:
    """A digest in sentences."""

    def __init__(self, digest: Digest, template: str, language: Language, cap: int) -> None:
        self._digest = digest
        self._template = template
        self._label = label(template)
        self._wording = WORDINGS[language]
        self._chars = max(_LEAST_CHARS, min(SAID_CHARS, int(_QUOTED_SHARE * cap)))
        self._carried_chars = max(0, _CARRIED_SHARE * cap)

    def told(self, items: Sequence[_Item]) -> str:
        """Return the text with these items."""
        carried, others = self._sentences(items, "carried"), self._sentences(items, *_ORDER)
        return self._joined([*carried, self._counts(), *others])

    def known(self, items: Sequence[_Item]) -> str:
        """Return these items as facts beside other words; empty if there are none."""
        return self._wording.known + self._joined(self._sentences(items, *_ORDER)) if items else ""

    def least(self) -> str:
        """Return the number of messages."""
        return _number(self._digest.messages, self._wording.least)

    def tiers(self) -> Iterator[list[_Item]]:
        """Yield all items, the most important first; what a text has no room for is not even written."""
        known = self._digest
        done = _newest(known.done)
        did, subjects = {one.name for one in done}, {word for one in done for word in _shown(one)}
        asked = known.asked[::-1] if done else ()
        goal = _goal(known.topics, asked)
        carried = bare(self._template, known.carried)[: self._carried_chars]
        yield [
            *self._quotes("carried", filter(None, [carried]), self._carried_chars),
            *self._quotes("goal", goal, _GOAL_SHARE * self._chars),
        ]
        yield _ranked(
            self._quotes("wishes", sorted(_names(known.wishes), key=wish_strength, reverse=True)),
            (self._deed(one, whole=False) for one in done),
            map(self._failure, _weighed(known.failed)),
            self._quotes("asked", asked),
            self._quotes("tasks", known.tasks),
            self._quotes("decided", _names(_newest(known.decided))),
            map(self._id, _by_name(known.ids, subjects)),
            self._quotes("told", _names(_newest(known.told))),
            (self._name("files", one) for one in _newest(known.files) if one.name not in subjects),
        )
        yield [self._deed(one, whole=True) for one in done if len(one.parts) > _WITH_ONE]
        said = [one for one in _names(known.topics) if one not in goal and one not in asked]
        yield list(self._quotes("said", sorted(said, key=weight, reverse=True)))
        yield [self._name("tools", one) for one in known.succeeded if one.name not in did]

    def _quotes(self, section: str, words: Iterable[str], most: int = 0) -> Iterator[_Item]:
        return (_Item(section, one, self._quoted(one, most or self._chars), (one,)) for one in words)

    def _deed(self, one: Mention, *, whole: bool) -> _Item:
        name, made, *pairs = (*one.parts, "", "") if len(one.parts) < _BARE else one.parts
        keys, values = map(self._word, pairs[::2]), map(self._word, pairs[1::2])
        args = list(zip(keys, values, strict=False))
        found = self._wording.made.format(" ".join(map(self._word, made.split()))) if made else ""
        found += _times(one.times)
        key, says, group = "\0".join(one.parts), (name, *pairs[1:2]), self._word(name)
        if args and not whole:
            return _Item("done", key, args[0][1] + found, says, f"{group} {args[0][0]}")
        return _Item(
            "done", key, f"{group} {self._wording.word.join(map(' '.join, args))}".strip() + found, says
        )

    def _failure(self, one: Mention) -> _Item:
        name, on, why, *_ = (*one.parts, "", "", "")
        where = self._wording.on.format(self._word(on)) if on else ""
        because = self._wording.word + self._quoted(why, self._chars) if why else ""
        text = self._word(name) + where + because + _times(one.times)
        return _Item("failed", "\0".join(one.parts), text, (on or name,))

    def _id(self, one: Mention) -> _Item:
        name, id, *_ = (*one.parts, "", "")
        return _Item("ids", "\0".join(one.parts), self._word(id), (id,), self._word(name))

    def _name(self, section: str, one: Mention) -> _Item:
        name = " ".join(one.parts)
        return _Item(
            section, name, self._word(name) + (_times(one.times) if section == "tools" else ""), (name,)
        )

    def _sentences(self, items: Sequence[_Item], *sections: str) -> list[str]:
        """Write the items of some sections, each section as a sentence."""
        found: dict[str, dict[str, _Item]] = {section: {} for section in sections}
        for item in items:
            if item.section in found:
                found[item.section][item.key] = item
        return [self._sentence(section, some.values()) for section, some in found.items() if some]

    def _sentence(self, section: str, items: Iterable[_Item]) -> str:
        wording = self._wording
        written, last = list[str](), ""
        for item in sorted(items, key=lambda item: item.group) if section == "ids" else items:
            if item.group and item.group == last:
                written[-1] += wording.word + item.text
            else:
                written.append(f"{item.group} {item.text}" if item.group else item.text)
            last = item.group
        if section == "carried":
            return wording.earlier.format(*written)
        return wording.sentence.format(wording.titles[section], wording.item.join(written))

    def _counts(self) -> str:
        wording, known = self._wording, self._digest
        if not known.messages:
            return wording.some_left_out
        messages = _number(known.messages, wording.message)
        if not known.turns:
            return wording.left_out.format(messages)
        return wording.left_out_turns.format(messages, _number(known.turns, wording.turn))

    def _joined(self, sentences: Iterable[str]) -> str:
        return self._wording.space.join(sentences)

    def _quoted(self, words: str, most: int) -> str:
        return _clean(quoted, words, most, self._label)

    def _word(self, words: str) -> str:
        return _clean(word, words, SAID_CHARS, self._label)


@lru_cache(maxsize=1_024)
def _clean(write: Callable[[str, int], str], words: str, most: int, label: str) -> str:
    """Write foreign words without the template's label; most are written again after the next cut."""
    written = write(words, most)
    if not label or label not in written:
        return written
    words = line(words, len(words) or 1)
    while label in words:
        words = words.replace(label, "")
    return write(words, most)


# The order within a section.


def _ranked(*sections: Iterable[_Item]) -> list[_Item]:
    """Return the items of some sections, which take turns by their shares."""
    ranked = (
        (place / _SHARES[item.section], item)
        for items in sections
        for place, item in enumerate(items, start=1)
    )
    return [item for _, item in sorted(ranked, key=lambda pair: pair[0])]


def _goal(topics: Mentions, asked: Collection[str]) -> list[str]:
    """Return what the user said first; if that only announces something, what came next, too."""
    first = _names(topics.first)
    if first and len(first[0]) < _SHORT_GOAL and first[1:2] and first[1] not in asked:
        return first[:2]
    return first[:1]


def _newest(mentions: Mentions) -> list[Mention]:
    return list(mentions)[::-1]


def _names(mentions: Iterable[Mention]) -> list[str]:
    return [" ".join(one.parts) for one in mentions]


def _weighed(failed: Mentions) -> list[Mention]:
    """Return failures newest first, those of calls that only read at the end."""
    return sorted(_newest(failed), key=lambda one: only_reads(one.name))


def _by_name(ids: Mentions, shown: Collection[str]) -> list[Mention]:
    """Return ids that are not shown yet: the newest with each name, then those that came up most."""
    listed, firsts, others = set(shown), dict[str, Mention](), list[Mention]()
    for one in _newest(ids):
        if one.parts[-1:] and one.parts[-1] not in listed:
            listed.add(one.parts[-1])
            if firsts.setdefault(one.name, one) is not one:
                others.append(one)
    return [*firsts.values(), *sorted(others, key=lambda one: -one.times)]


def _shown(deed: Mention) -> set[str]:
    """Return the words of a deed that are always written: what it was done to, and what it made."""
    made, _, on = (*deed.parts[1:4], "", "", "")[:3]
    return {on, *made.split()}


def _times(times: int) -> str:
    return f" ×{times:,}" if times > 1 else ""


def _number(count: int, forms: tuple[str, str]) -> str:
    return forms[count != 1].format(f"{count:,}")
