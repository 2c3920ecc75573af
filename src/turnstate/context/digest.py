"""The digest: what is known of the messages that were cut, available immediately and without a model.

    evicted messages ──► digest(messages, previous) ──► Digest ──► text(digest, cap, …)   (`digest_text`)
                              ▲                           │
                              └──── the next cut folds ───┘

It contains what an agent must not forget: what the user asked for and wished, in the user's words; what was
done to what; what failed and did not succeed later; what was asked since the last change; which tasks are
open and what was decided; ids and files; what the assistant said to the user. Its size is bounded, however
long the history. Folding the next cut into it gives the same result as one digest of both, as long as cuts
fall between groups. A text from elsewhere, such as a model's summary, is carried along at its beginning.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from ..errors import InputError
from ..message import Message
from . import deeds, evidence, speech
from .evidence import Evidence, Outcome
from .mentions import Capacity, Mention, Mentions, Words, folded, without
from .summary_text import WORDINGS, line

__all__ = ["Digest", "carrying", "digest"]

CARRIED_CHARS = 2_000  # of a text from elsewhere: about 500 tokens, half of the usual cap

_TOPICS = Capacity(first=3, newest=9)
_WISHES = Capacity(first=6, newest=14)
_DONE = Capacity(first=0, newest=40)
_SUCCEEDED = Capacity(first=4, newest=8)
_FAILED = Capacity(first=0, newest=10)
_DECIDED = Capacity(first=2, newest=8)
_FILES = Capacity(first=4, newest=12)
_IDS = Capacity(first=4, newest=60, of_one_name=12)
_TOLD = Capacity(first=0, newest=8)
_MOST_ASKED = 4

_FIRST_READ, _NEWEST_READ = 16, 112  # user messages and outcomes of one cut: more cannot be kept

T = TypeVar("T")


class Digest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How much was cut, what was asked for and done, and what was known before.

    ``topics`` are the user's messages in the user's own words, ``wishes`` the sentences among them that
    limit or prefer something, ``asked`` those after the newest change. ``done`` are the calls that changed
    something, as `Deed.words`; ``failed`` what did not succeed since: a tool, what it was called on, and
    why. ``tasks`` are the tasks open at the end, in the order of the list that named them. ``told`` are
    sentences of the assistant. ``carried`` is a summary that was written elsewhere, by a model or in an
    imported list; it covers what came before everything else here."""

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
    wishes: Mentions = Mentions()
    done: Mentions = Mentions()
    asked: tuple[str, ...] = ()
    told: Mentions = Mentions()

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
    topics = _read(cut.said, evidence.topics, _TOPICS)
    wishes = _read(cut.said, evidence.wishes, _WISHES)
    told = _read(cut.answers, speech.told, _TOLD)
    calls = _Calls(_ends(cut.outcomes), known)
    return Digest(
        messages=known.messages + cut.messages,
        turns=known.turns + len(cut.said),
        topics=folded(known.topics, topics, _TOPICS, unread=len(cut.said) - len(topics)),
        wishes=folded(known.wishes, wishes, _WISHES),
        done=folded(known.done, calls.done, _DONE),
        asked=_asked(cut.said, calls.changed_at, known),
        succeeded=folded(known.succeeded, cut.succeeded, _SUCCEEDED),
        failed=folded(without(known.failed, calls.supersede), calls.failures, _FAILED),
        files=folded(known.files, calls.files, _FILES),
        ids=folded(known.ids, calls.ids, _IDS),
        decided=folded(known.decided, cut.decided, _DECIDED),
        told=folded(known.told, told, _TOLD),
        tasks=evidence.open_tasks(cut.tasks, known.tasks),
        carried=_carried(cut.summaries, known.carried),
    )


class _Calls:
    """What the calls of a cut did, in order: the newest outcome of a tool on the same thing counts."""

    def __init__(self, outcomes: Sequence[Outcome], known: Digest) -> None:
        self.done, self.files, self.ids = list[Words](), list[Words](), list[Words]()
        self.changed_at: int | None = None  # the number of user messages before the newest change
        self._failed = dict[Words, list[Words]]()  # by tool and what it was called on
        self._seen = set[Words]()
        self._names = {mention.name for mention in known.failed}  # of tools that failed
        self._ids = {mention.parts[-1] for mention in known.ids if mention.parts}
        for outcome in outcomes:
            self._add(outcome)

    @property
    def failures(self) -> list[Words]:
        """The failures that were not followed by a success or by another failure."""
        return [failure for same in self._failed.values() for failure in same]

    def supersede(self, failure: Mention) -> bool:
        """Return True if what failed in an earlier cut succeeded in this one, or failed in another way."""
        what = (*failure.parts, "", "")[:2]
        return what in self._seen and failure.words not in self._failed.get(what, ())

    def _add(self, outcome: Outcome) -> None:
        name = outcome.call.name
        if outcome.failed or name in self._names:
            before = self._failed.pop(what := (outcome.deed.name, outcome.deed.on), [])
            self._seen.add(what)
            self._names.add(name)
            if outcome.failed:
                failure = (*what, outcome.why)
                self._failed[what] = [*(one for one in before if one == failure), failure]
                return
        found = outcome.named
        self._ids.update(id for _, id in found.given)
        if not outcome.only_read:
            self.changed_at = outcome.said
            made = deeds.made(outcome.call, outcome.result.result, found.answered, self._ids)
            self.done.append(outcome.deed._replace(made=made).words)
        self._ids.update(id for _, id in found.answered)
        self.files += found.paths
        self.ids += [*found.answered, *found.given]


def carrying(text: str, previous: Digest | None = None) -> Digest:
    """Return a digest that carries a summary from elsewhere, beside the known facts about what it covers.

    The new text covers what was carried before, so that is dropped; topics and facts stay. If the text is a
    digest that itself carries a summary, it is not nested: the quoted text comes first, then the rest.
    """
    text = _NESTED.sub(lambda found: f"{found[found.lastindex or 0]} ", text)
    return msgspec.structs.replace(previous or Digest(), carried=line(text, CARRIED_CHARS))


def _asked(said: Sequence[Message], changed_at: int | None, known: Digest) -> tuple[str, ...]:
    """Return the newest of what the user said after the newest change."""
    new = _read(said[changed_at or 0 :], evidence.topics, Capacity(first=0, newest=_MOST_ASKED))
    asked = known.asked if changed_at is None else ()
    return tuple(reversed(list(dict.fromkeys(reversed((*asked, *new))))[:_MOST_ASKED]))


def _read(some: Sequence[T], read: Callable[[T], Sequence[str]], room: Capacity) -> list[str]:
    """Read from both ends of some texts until as many different sentences are found as there is room for."""
    first, newest = dict[str, None](), dict[str, None]()
    texts, place = _ends(some), 0
    while place < len(texts) and len(first) < room.first:
        first.update(dict.fromkeys(read(texts[place])))
        place += 1
    for text in reversed(texts[place:]):
        if len(newest) >= room.newest + room.first:  # some of them may be among the first
            break
        newest.update(dict.fromkeys(reversed(read(text))))
    return [*first, *reversed(newest)]


def _ends(some: Sequence[T]) -> Sequence[T]:
    """Return the first and the newest of them."""
    if len(some) <= _FIRST_READ + _NEWEST_READ:
        return some
    return (*some[:_FIRST_READ], *some[-_NEWEST_READ:])


def _carried(summaries: Sequence[str], before: str) -> str:
    """Add summaries found among the messages to what is already carried, giving each an equal share."""
    if not summaries:
        return before
    texts = [text for text in (before, *summaries) if text]
    share = max(1, CARRIED_CHARS // max(1, len(texts)) - 1)
    return line(" ".join(line(text, share) for text in texts), CARRIED_CHARS)
