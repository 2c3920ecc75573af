"""The digest: what is known of the messages that were cut, available immediately and without a model.

    evicted messages ──► digest(messages, previous) ──► Digest ──► text(digest, cap, …)
                              ▲                           │
                              └──── the next cut folds ───┘

It contains what the user asked for, in the user's words; which tools succeeded, which failed and why; which
files and ids the calls named; which tasks are open and what was decided, if it was written down as such; and
how much was cut. Its size is bounded, however long the history. Folding the next cut into it gives the same
result as one digest of both, as long as cuts fall between groups. A text from elsewhere, such as a model's
summary, is carried along at its beginning.

``text`` writes everything that is known within a number of tokens. Detail is dropped step by step, the
least useful first: the tools that succeeded, ids, files, decisions, failures and open tasks, then topics
down to the first, which says what the conversation is about; then everything except the counts. ``facts``
writes only what must stay beside a model's words. Words from outside are quoted and never contain the
template's own label, so a message cannot pose as a summary by being summarized.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import islice
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from ..errors import InputError
from ..message import Message
from ..tokens import Counter as TokenCounter
from . import evidence
from .evidence import Evidence
from .summary_text import WORDINGS, Language, bare, filled, label, line, quoted, word

__all__ = ["Capacity", "Digest", "Mention", "Mentions", "carrying", "digest", "facts", "folded", "text"]

# Mentions: what came up and how often, in bounded space.


class Capacity(NamedTuple):
    """How many of the first and of the newest mentions are kept."""

    first: int
    newest: int


Words = str | tuple[str, ...]
"""A topic, a tool or a file; or several words that belong together, such as an id and its name."""


class Mention(Struct, frozen=True, array_like=True):
    """Something that came up, and how often."""

    words: Words
    times: int = 1

    @property
    def parts(self) -> tuple[str, ...]:
        """The words as a tuple, even a single one."""
        return (self.words,) if isinstance(self.words, str) else self.words


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
        return sum(mention.times for mention in self) + self.others

    def some(self, most: int) -> tuple[list[Mention], int]:
        """Return at most `most` of the oldest and newest, and how often the others were mentioned."""
        known = list(self)
        if len(known) > most:
            old = min(len(self.first), (most + 2) // 3)
            known = known[:old] + known[len(known) - (most - old) :]
        return known, self.total - sum(mention.times for mention in known)


def folded(earlier: Mentions, came_up: Sequence[Words], room: Capacity, *, unread: int = 0) -> Mentions:
    """Fold new mentions into earlier ones; another `unread` mentions are only counted."""
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
    """Return the last `most` different mentions, newest first, reading back no further than needed."""
    found: dict[Words, None] = {}
    for words in reversed(came_up):
        if len(found) == most:
            break
        found[words] = None
    return list(found)


def _mentions(counted: dict[Words, int]) -> tuple[Mention, ...]:
    return tuple(Mention(words, times) for words, times in counted.items())


# The digest: what was cut.

CARRIED_CHARS = 2_000  # of a text from elsewhere: about 500 tokens, half of the usual cap

_TOPICS = Capacity(first=3, newest=7)
_SUCCEEDED = Capacity(first=4, newest=8)
_FAILED = Capacity(first=0, newest=8)
_DECIDED = Capacity(first=2, newest=6)
_FILES = Capacity(first=4, newest=12)
_IDS = Capacity(first=4, newest=8)

_FIRST_READ, _NEWEST_READ = 16, 48  # user messages; some raise no topic, some repeat one


class Digest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How much was cut, what the user asked for, what the tools did, and what was known before.

    ``topics`` are the user's own words. ``tasks`` are the tasks open at the end, in the order of the list
    that named them. ``carried`` is a summary that was written elsewhere, by a model or in an imported list;
    it covers what came before everything else here.
    """

    messages: int = 0
    turns: int = 0
    topics: Mentions = Mentions()
    succeeded: Mentions = Mentions()
    failed: Mentions = Mentions()
    files: Mentions = Mentions()
    ids: Mentions = Mentions()
    decided: Mentions = Mentions()
    tasks: tuple[str, ...] = ()
    carried: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the digest as plain JSON values, to store with its cut."""
        plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self))
        return plain

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> Digest:
        """Create a digest from plain JSON values, ignoring fields that a newer version added."""
        try:
            return msgspec.convert(plain, cls)
        except msgspec.ValidationError as error:
            raise InputError(f"not a digest: {error}; make it again from the log") from None


# The beginning of a digest that carries an earlier summary; the quoted text has other quotation marks inside.
_NESTED = re.compile(
    "|".join("^{}“([^”]*)”{} ?".format(*map(re.escape, one.earlier.split("{}"))) for one in WORDINGS.values())
)


def digest(messages: Iterable[Message] | Evidence, previous: Digest | None = None) -> Digest:
    """Fold messages that are cut now, or their evidence, into the digest of those cut before."""
    known = previous or Digest()
    cut = messages if isinstance(messages, Evidence) else Evidence().read(tuple(messages))
    topics = [topic for message in _ends(cut.said) if (topic := evidence.topic(message))]
    return Digest(
        messages=known.messages + cut.messages,
        turns=known.turns + len(cut.said),
        topics=folded(known.topics, topics, _TOPICS, unread=len(cut.said) - len(topics)),
        succeeded=folded(known.succeeded, cut.succeeded, _SUCCEEDED),
        failed=folded(known.failed, cut.failed, _FAILED),
        files=folded(known.files, cut.files, _FILES),
        ids=folded(known.ids, cut.ids + cut.answered_ids, _IDS),
        decided=folded(known.decided, cut.decided, _DECIDED),
        tasks=evidence.open_tasks(cut.tasks, known.tasks),
        carried=_carried(cut.summaries, known.carried),
    )


def carrying(text: str, previous: Digest | None = None) -> Digest:
    """Return a digest that carries a summary from elsewhere, beside the known facts about what it covers.

    The new text covers what was carried before, so that is dropped; topics and facts stay. If the text is a
    digest that itself carries a summary, it is not nested: the quoted text comes first, then the rest.
    """
    text = _NESTED.sub(lambda found: f"{found[found.lastindex or 0]} ", text)
    return msgspec.structs.replace(previous or Digest(), carried=line(text, CARRIED_CHARS))


def _ends(messages: Sequence[Message]) -> Sequence[Message]:
    """Return the first and the newest messages: only their topics can be kept."""
    if len(messages) <= _FIRST_READ + _NEWEST_READ:
        return messages
    return (*messages[:_FIRST_READ], *messages[-_NEWEST_READ:])


def _carried(summaries: Sequence[str], before: str) -> str:
    """Add summaries found among the messages to what is already carried, giving each an equal share."""
    if not summaries:
        return before
    texts = [text for text in (before, *summaries) if text]
    share = max(1, CARRIED_CHARS // max(1, len(texts)) - 1)
    return line(" ".join(line(text, share) for text in texts), CARRIED_CHARS)


# The digest as text.


class _Detail(NamedTuple):
    """How much is written: items of each kind, characters of quoted words and of the carried text."""

    tools: int = 0
    ids: int = 0
    files: int = 0
    decided: int = 0
    failed: int = 0
    tasks: int = 0
    topics: int = 0
    chars: int = 0
    carried: int = 0


_DETAILS = (
    _Detail(tools=12, ids=12, files=16, decided=8, failed=8, tasks=12, topics=10, chars=200, carried=2_000),
    _Detail(tools=4, ids=12, files=16, decided=8, failed=8, tasks=12, topics=10, chars=200, carried=1_500),
    _Detail(ids=8, files=12, decided=8, failed=8, tasks=12, topics=10, chars=160, carried=1_200),
    _Detail(ids=4, files=8, decided=6, failed=6, tasks=8, topics=8, chars=160, carried=1_000),
    _Detail(ids=2, files=6, decided=4, failed=4, tasks=6, topics=6, chars=120, carried=700),
    _Detail(files=4, decided=3, failed=4, tasks=4, topics=5, chars=100, carried=500),
    _Detail(files=2, decided=2, failed=2, tasks=3, topics=3, chars=100, carried=300),
    _Detail(decided=1, failed=2, tasks=2, topics=2, chars=80, carried=200),
    _Detail(tasks=1, topics=2, chars=80, carried=120),
    _Detail(topics=1, chars=60, carried=60),
    _Detail(topics=1, chars=30, carried=30),
    _Detail(),
)
"""From everything to the counts alone."""

_FACTS = (
    _Detail(ids=12, files=16, decided=8, failed=8, tasks=12, chars=160),
    _Detail(ids=8, files=16, decided=8, failed=8, tasks=12, chars=120),
    _Detail(ids=4, files=12, decided=6, failed=8, tasks=12, chars=100),
    _Detail(files=8, decided=4, failed=6, tasks=8, chars=100),
    _Detail(files=6, decided=3, failed=4, tasks=6, chars=80),
    _Detail(files=4, decided=2, failed=3, tasks=4, chars=80),
    _Detail(files=2, decided=1, failed=2, tasks=3, chars=60),
    _Detail(files=1, failed=2, tasks=2, chars=60),
    _Detail(failed=1, tasks=1, chars=60),
    _Detail(failed=1, tasks=1, chars=30),
    _Detail(failed=1, chars=30),
    _Detail(),
)
"""From all facts to none."""


def text(
    digest: Digest, cap_tokens: int, counter: TokenCounter, template: str, *, language: Language = "en"
) -> str:
    """Write as much of a digest as fits into the cap together with its template.

    The text is bare: the template is counted here and added when the message is made. If not even the
    counts fit, the text is the number of messages, even if that exceeds the cap, since something must be
    shown at a cut.
    """
    writer = _Writer(digest, template, language)

    def fits(written: str) -> bool:
        return counter.count(filled(template, written)).tokens <= cap_tokens

    found = _most(writer.at, _DETAILS, fits)
    return writer.least() if found is None else found


def facts(
    digest: Digest, cap_tokens: int, counter: TokenCounter, template: str, *, language: Language = "en"
) -> str:
    """Write what code knows for certain within the cap, the newest failures and open tasks first.

    Files, failures, open tasks, decisions and ids are written; topics and counts are not, since the facts
    accompany a model's words. The result is empty if nothing is known or nothing fits.
    """
    writer = _Writer(digest, template, language)
    return _most(writer.facts, _FACTS, lambda written: counter.count(written).tokens <= cap_tokens) or ""


def _most(
    write: Callable[[_Detail], str], details: Sequence[_Detail], fits: Callable[[str], bool]
) -> str | None:
    """Return the most detailed text that fits; None if not even the least detailed one does."""
    written = cache(write)
    level = bisect_left(details, True, key=lambda detail: fits(written(detail)))
    return written(details[level]) if level < len(details) else None


class _Writer:
    """A digest in sentences."""

    def __init__(self, digest: Digest, template: str, language: Language) -> None:
        self._digest = digest
        self._template = template
        self._label = label(template)
        self._wording = WORDINGS[language]
        self._unlabeled = cache(self._without_label)  # each level of detail writes the same words

    def at(self, detail: _Detail) -> str:
        known = self._digest
        return self._joined(
            self._carried(detail.carried),
            self._counts(),
            self._topics(detail.topics, detail.chars),
            self._tasks(detail.tasks, detail.chars),
            self._failures(*known.failed.some(detail.failed), detail.chars),
            self._decided(*known.decided.some(detail.decided), detail.chars),
            self._files(*known.files.some(detail.files), detail.chars),
            self._ids(*known.ids.some(detail.ids), detail.chars),
            self._tools(detail.tools, detail.chars),
        )

    def facts(self, detail: _Detail) -> str:
        known = self._digest
        written = self._joined(
            self._failures(*_newest(known.failed, detail.failed), detail.chars),
            self._tasks(detail.tasks, detail.chars),
            self._decided(*_newest(known.decided, detail.decided), detail.chars),
            self._files(*_newest(known.files, detail.files), detail.chars),
            self._ids(*_newest(known.ids, detail.ids), detail.chars),
        )
        return self._wording.known + written if written else ""

    def least(self) -> str:
        return _number(self._digest.messages, self._wording.least)

    def _carried(self, most: int) -> str:
        carried = bare(self._template, self._digest.carried)
        return self._wording.earlier.format(self._quoted(carried, most)) if carried and most else ""

    def _counts(self) -> str:
        wording, known = self._wording, self._digest
        if not known.messages:
            return wording.some_left_out
        messages = _number(known.messages, wording.message)
        if not known.turns:
            return wording.left_out.format(messages)
        return wording.left_out_turns.format(messages, _number(known.turns, wording.turn))

    def _topics(self, most: int, chars: int) -> str:
        some, others = self._digest.topics.some(most)
        rest = [self._wording.more.format(f"{others:,}")] if others and some else []
        return self._sentence(self._wording.said, [self._quoted(_name(one), chars) for one in some] + rest)

    def _tasks(self, most: int, chars: int) -> str:
        tasks = self._digest.tasks
        written = [self._quoted(task, chars) for task in tasks[:most]]
        return self._sentence(self._wording.tasks, written, len(tasks) - most)

    def _decided(self, some: Sequence[Mention], others: int, chars: int) -> str:
        return self._sentence(
            self._wording.decided, [self._quoted(_name(one), chars) for one in some], others
        )

    def _failures(self, some: Sequence[Mention], others: int, chars: int) -> str:
        return self._sentence(self._wording.failed, [self._failure(one, chars) for one in some], others)

    def _failure(self, one: Mention, chars: int) -> str:
        name, on, why, *_ = (*one.parts, "", "", "")
        where = self._wording.on.format(self._word(on, chars)) if on else ""
        because = self._wording.word + self._quoted(why, chars) if why else ""
        return self._word(name, chars) + where + because + _times(one.times)

    def _files(self, some: Sequence[Mention], others: int, chars: int) -> str:
        return self._sentence(self._wording.files, [self._word(_name(one), chars) for one in some], others)

    def _ids(self, some: Sequence[Mention], others: int, chars: int) -> str:
        called: dict[str, list[str]] = {}
        for one in some:
            name, id, *_ = (*one.parts, "", "")
            called.setdefault(self._word(name, chars), []).append(self._word(id, chars))
        written = [f"{name} {self._wording.word.join(ids)}" for name, ids in called.items()]
        return self._sentence(self._wording.ids, written, others)

    def _tools(self, most: int, chars: int) -> str:
        some, others = self._digest.succeeded.some(most)
        written = [self._word(_name(one), chars) + _times(one.times) for one in some]
        return self._sentence(self._wording.succeeded, written, others)

    def _sentence(self, title: str, written: list[str], others: int = 0) -> str:
        """Return a sentence that lists items; others are only counted."""
        wording = self._wording
        rest = [wording.others + _times(others)] if others > 0 else []
        return wording.sentence.format(title, wording.item.join(written + rest)) if written else ""

    def _joined(self, *sentences: str) -> str:
        return self._wording.space.join(sentence for sentence in sentences if sentence)

    def _quoted(self, words: str, most: int) -> str:
        return quoted(self._unlabeled(words), most)

    def _word(self, words: str, most: int) -> str:
        return word(self._unlabeled(words), most)

    def _without_label(self, words: str) -> str:
        """Remove every occurrence of the template's label from foreign words."""
        words = line(words, len(words) or 1)
        while self._label and self._label in words:
            words = words.replace(self._label, "")
        return words


def _newest(mentions: Mentions, most: int) -> tuple[list[Mention], int]:
    """Return at most `most` mentions, newest first, and how often the others came up."""
    known = list(mentions)[::-1][:most]
    return known, mentions.total - sum(mention.times for mention in known)


def _name(one: Mention) -> str:
    return " ".join(one.parts)


def _times(times: int) -> str:
    return f" ×{times:,}" if times > 1 else ""


def _number(count: int, forms: tuple[str, str]) -> str:
    return forms[count != 1].format(f"{count:,}")
