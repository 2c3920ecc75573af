"""The counter of a session whose name was damaged: the counts that are kept of its messages tell it.

Each message was counted once, in the session's counter, and short ones as they stand. The counter under
which most of them have the counts that are kept is the one that was lost.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from ...entry import decode
from ...errors import TurnstateError
from ...message import Message
from ...tokens import counter, counter_names, message_cost
from ..values import MESSAGE

__all__ = ["SHORT", "SOME", "Lost", "is_known", "lost_counter"]

DEFAULT = "o200k_base"
"""What sessions count with where nothing else is asked for."""

SOME, SHORT = 100, 4_000
"""Messages that are asked, and the bytes of one: a longer one may have been counted as it was reduced."""


class Lost(Struct, frozen=True):
    """A counter whose name is none: what is to be told of it, and which it was."""

    fault: str
    name: str
    done: str


def is_known(name: str) -> bool:
    """Tell whether Turnstate has a counter of that name."""
    return name in counter_names()


def lost_counter(name: str, said: Iterable[tuple[bytes, int]]) -> Lost:
    """Find out which counter it was, from bodies of messages and their counts; else it is the default."""
    counted = [(message, tokens) for body, tokens in said if (message := _message(body))]
    names = sorted(counter_names(), key=lambda one: one != DEFAULT)
    fits = {one: sum(_cost(message, one) == tokens for message, tokens in counted) for one in names}
    found = max(names, key=fits.__getitem__)
    why = "as the counts of its messages tell" if fits[found] else "and nothing tells which it was"
    return Lost(f"its counter {name!r:.60} is none that Turnstate knows", found, f"it is {found} now, {why}")


def _cost(message: Message, name: str) -> int:
    return message_cost(message, counter(name)).tokens


def _message(body: bytes) -> Message | None:
    try:
        entry = decode(MESSAGE, body)
    except TurnstateError:
        return None
    return entry if isinstance(entry, Message) else None
