"""Conversations with the facts that a window should still have, and how a window is judged.

A fact is a few strings, found by rules from the messages and calls themselves. It survives if each of them is
in the window's text; a fact with a `near` string survives only if that one also stands next to the first.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from turnstate import wire_text
from turnstate.message import Message

BEFORE, AFTER = 20, 260
"""How many characters before a name its target may begin, and how many after the name it may end."""

_PLAIN_QUOTES = str.maketrans("“”‘’", "\"\"''")


class Fact(NamedTuple):
    """What should survive: its kind, its strings, and a string that must stand next to the first."""

    kind: str
    strings: tuple[str, ...]
    near: str = ""


class Talk(NamedTuple):
    """A conversation, its system prompt, and two lists of facts in it."""

    system: str
    messages: list[Message]
    mixed: tuple[Fact, ...]
    spread: tuple[Fact, ...]


def survives(fact: Fact, text: str) -> bool:
    """Return True if a window's text has a fact."""
    strings = [plain(one) for one in fact.strings]
    if not all(one in text for one in strings):
        return False
    if not fact.near:
        return True
    spots = (found.span() for found in re.finditer(re.escape(strings[0]), text))
    near = plain(fact.near)
    return any(near in text[max(0, start - BEFORE) : end + AFTER] for start, end in spots)


def text_of(messages: Iterable[Message]) -> str:
    """Return all that a model reads in some messages as one line."""
    return plain("\n".join(piece for message in messages for piece in _pieces(message)))


def plain(text: str) -> str:
    """Collapse white space and straighten quotation marks."""
    return " ".join(text.translate(_PLAIN_QUOTES).split())


def _pieces(message: Message) -> Iterator[str]:
    yield message.text
    for call in message.tool_calls:
        yield f"{call.name} {json.dumps(call.args, ensure_ascii=False)}"
    for result in message.tool_results:
        yield wire_text.result_text(result.result)


def values(value: Any, key: str) -> Iterator[str]:
    """Yield the texts under a key of arguments, however deep, in order."""
    match value:
        case dict():
            for name, inner in value.items():
                if name == key and isinstance(inner, str):
                    yield inner
                yield from values(inner, key)
        case list():
            for inner in value:
                yield from values(inner, key)
