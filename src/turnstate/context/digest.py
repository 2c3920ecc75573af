"""The digest: what is known of the messages that were cut, at once and without a model.

    evicted messages ──► digest(messages, previous) ──► Digest ──► text(digest, cap, …)
                              ▲                           │
                              └──── the next cut folds ───┘

It knows what the user asked for, in the user's words; which tools succeeded, which failed and why;
which files and ids the calls named; which tasks are open and what was decided, where that was written
down as such; and how much was cut. It is bounded whatever the history, and
folding the next cut into it gives what one digest of both would have given, as long as cuts fall
between groups. A text from elsewhere, such as a model's summary, is carried along at its beginning.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from ..message import Message, ToolCallRequest, ToolCallResult
from . import evidence
from .digest_text import facts, text
from .evidence import Digest, Room, folded
from .text import line

__all__ = ["Digest", "carrying", "digest", "facts", "text"]

CARRIED_CHARS = 2_000  # of a text from elsewhere: about 500 tokens, half of the usual cap
NAME_CHARS = 64  # the longest tool name that a provider takes

_TOPICS = Room(first=3, newest=7)
_SUCCEEDED = Room(first=4, newest=8)
_FAILED = Room(first=0, newest=8)
_DECIDED = Room(first=2, newest=6)
_FILES = Room(first=4, newest=12)
_IDS = Room(first=4, newest=8)

_FIRST_READ, _NEWEST_READ = 16, 48  # of what the user said; some of it raises no topic, some repeats


def digest(messages: Iterable[Message], previous: Digest | None = None) -> Digest:
    """Fold messages that are cut now into what is known of those cut before."""
    known, cut = previous or Digest(), tuple(messages)
    said, summaries, (calls, failed, answers), spoken = evidence.read(cut)
    topics = [topic for message in _ends(said) if (topic := evidence.topic(message))]
    args = [call.args for call in calls]
    return Digest(
        messages=known.messages + len(cut),
        turns=known.turns + len(said),
        topics=folded(known.topics, topics, _TOPICS, unread=len(said) - len(topics)),
        succeeded=folded(known.succeeded, [call.name[:NAME_CHARS] for call in calls], _SUCCEEDED),
        failed=folded(known.failed, [_failure(call, result) for call, result in failed], _FAILED),
        files=folded(known.files, evidence.paths(args), _FILES),
        ids=folded(known.ids, evidence.ids(args + answers), _IDS),
        decided=folded(known.decided, list(evidence.decisions(spoken)), _DECIDED),
        tasks=evidence.open_tasks(spoken, known.tasks),
        carried=_carried(summaries, known.carried),
    )


def carrying(text: str, previous: Digest | None = None) -> Digest:
    """Carry a summary that was written elsewhere, beside the facts that are known of what it covers.

    What was carried before is covered by the new text, so it goes; topics and facts stay.
    """
    return msgspec.structs.replace(previous or Digest(), carried=line(text, CARRIED_CHARS))


def _ends(messages: Sequence[Message]) -> Sequence[Message]:
    """Give the first and the newest messages: the topics of no others can be kept."""
    if len(messages) <= _FIRST_READ + _NEWEST_READ:
        return messages
    return (*messages[:_FIRST_READ], *messages[-_NEWEST_READ:])


def _failure(call: ToolCallRequest, result: ToolCallResult) -> tuple[str, str, str]:
    paths = evidence.paths([call.args])
    return call.name[:NAME_CHARS], paths[0] if paths else "", evidence.reason(result)


def _carried(summaries: Sequence[str], before: str) -> str:
    """Carry summaries that stood among the messages behind what is carried already, each with its share."""
    if not summaries:
        return before
    texts = [text for text in (before, *summaries) if text]
    share = max(1, CARRIED_CHARS // max(1, len(texts)) - 1)
    return line(" ".join(line(text, share) for text in texts), CARRIED_CHARS)
