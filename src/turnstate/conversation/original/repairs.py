"""Exchanges as a window would send them: every call answered by what follows it, and nothing else there.

The original's service takes a tool use only with its results, like every provider. A conversation of ours
may lack some, since the answers for calls that were left behind are decisions and not messages. They are
written as the window sends them. A document of the original that was broken when it was read is marked,
and comes back as it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import structs

from ...context.structure import Structure
from ...entry import Entry
from ...message import Message
from ...value import Extra

__all__ = ["marked", "repaired"]

BROKEN = "broken"


Sides = list[tuple[Message, ...]]


def repaired(sides: Sequence[Sequence[Message]], answers: Sequence[Message]) -> tuple[Sides, list[Message]]:
    """Return what stands before each answer and behind the last one, and the answers, fitting together."""
    (*sound, waiting), told = _sound(sides, answers)
    sound.append(waiting if sides[-1] else ())  # calls under way wait for their results there, too
    kept = [
        tuple(verbatim) if any(map(_is_marked, verbatim)) else one
        for verbatim, one in zip(sides, sound, strict=True)
    ]
    return kept, told


def marked(entries: Iterable[Entry]) -> list[Entry]:
    """Mark the messages that came from a document in which calls and results do not fit together."""
    listed = list(entries)
    sides: list[list[Message]] = [[]]
    answers: list[Message] = []
    for entry in listed:
        if isinstance(entry, Message) and entry.role == "assistant":
            answers.append(entry)
            sides.append([])
        elif isinstance(entry, Message):
            sides[-1].append(entry)
    sound, _ = _sound(sides, answers)
    broken = {
        verbatim[-1].id for verbatim, one in zip(sides, sound, strict=True) if verbatim and verbatim != [*one]
    }
    return [_mark(one) if isinstance(one, Message) and one.id in broken else one for one in listed]


def _sound(sides: Sequence[Sequence[Message]], answers: Sequence[Message]) -> tuple[Sides, list[Message]]:
    structure = Structure()
    for side, answer in zip(sides, answers, strict=False):
        structure.extend([*side, answer])
    structure.extend(sides[-1])
    found: list[list[Message]] = [[]]
    told: list[Message] = []
    for message in structure.sent():
        if message.role == "assistant":
            told.append(message)
            found.append([])
        else:
            found[-1].append(message)
    return list(map(tuple, found)), told


def _mark(message: Message) -> Message:
    extra = message.extra if isinstance(message.extra, Extra) else {}
    return structs.replace(message, extra=Extra({**extra, BROKEN: True}))


def _is_marked(message: Message) -> bool:
    return isinstance(message.extra, Extra) and message.extra.get(BROKEN) is True
