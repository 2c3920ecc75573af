"""Whether two conversations are the same to a model.

Providers split a conversation differently: one or several messages for the results of a batch,
neighbors of one role joined or not, different ids, a system message in place or as a notice.
``same`` ignores these differences and compares the rest: roles, content, calls and results in
order, and which result answers which call.

Empty text is ignored. Reasoning is private to the model that produced it and is not compared.
``is_error`` is compared if both sides can express it. The order of the results of one batch does
not matter: they are matched to their calls by id, they arrive in whichever order the tools finish,
and a provider without ids gets them in the order of the calls. The order of keys in arguments does
not matter either, since a JSON object has none. Tools are compared under the names that every
provider accepts, since that is the form in which a foreign name comes back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

import msgspec

from .. import wire_text
from ..ids import CallId
from ..message import Message, ToolCallRequest
from ..part import FilePart, ImagePart, Part, ReasoningPart
from . import media
from .pairing import gathered, wire_name

_WITHOUT_ERRORS = ("openai-chat", "openai-responses")

_Atom = tuple[Any, ...]
"""``("text", role, text)``, ``("call", n, name, args)`` or ``("result", n, texts, is_error or None)``."""


def says_something(text: str) -> bool:
    """Return True if a text is neither blank nor the placeholder for empty text."""
    return bool(text.strip()) and text != wire_text.SILENCE


def same(one: Sequence[Message], other: Sequence[Message]) -> bool:
    """Return True if two conversations are the same to a model."""
    left, right = list(_atoms(one)), list(_atoms(other))
    return len(left) == len(right) and all(_equal(a, b) for a, b in zip(left, right, strict=True))


def _equal(a: _Atom, b: _Atom) -> bool:
    if a[0] == b[0] == "result":
        return a[1:3] == b[1:3] and (None in (a[3], b[3]) or a[3] == b[3])
    return a == b


def _atoms(messages: Sequence[Message]) -> Iterator[_Atom]:
    """Split a conversation into texts, calls and results, in order."""
    numbers: dict[CallId, int] = {}
    leading = True
    for role, run in groupby(gathered(messages), lambda message: message.role):
        said = list(run)
        leading = leading and role == "system"
        yield from _texts(said, notice=role == "system" and not leading)
        yield from _calls(said, numbers)
        yield from sorted(_results(said, numbers), key=lambda atom: atom[1])


def _texts(said: Iterable[Message], *, notice: bool) -> Iterator[_Atom]:
    for message in said:
        for text in _audible(message.parts):
            yield ("text", "user", wire_text.notice(text)) if notice else ("text", message.role, text)


def _calls(said: Iterable[Message], numbers: dict[CallId, int]) -> Iterator[_Atom]:
    for message in said:
        for call in message.tool_calls:
            number = numbers.setdefault(call.id, len(numbers))
            yield "call", number, wire_name(call.name), _args(call)


def _results(said: Iterable[Message], numbers: dict[CallId, int]) -> Iterator[_Atom]:
    for message in said:
        flagged = message.native is None or message.native.format not in _WITHOUT_ERRORS
        for result in message.tool_results:
            number = numbers.setdefault(result.tool_call_id, len(numbers))
            parts = wire_text.result_parts(result.result)
            texts = tuple(_audible(parts)) if parts else _audible_text(wire_text.result_text(result.result))
            yield "result", number, texts, result.is_error if flagged else None


def _args(call: ToolCallRequest) -> bytes:
    raw = call.unparsed
    return msgspec.json.encode(call.args, order="deterministic") if raw is None else raw.encode()


def _audible(parts: Iterable[Part]) -> Iterator[str]:
    """Yield the texts that are not empty; media count as the line that describes them."""
    for part in parts:
        if isinstance(part, ImagePart | FilePart):
            yield wire_text.described(media.by_type(part))
        elif not isinstance(part, ReasoningPart):
            yield from _audible_text(part.text)


def _audible_text(text: str) -> tuple[str, ...]:
    return (text,) if says_something(text) else ()
