"""Are two conversations the same to a model?

Providers cut a conversation up differently: one message or several for the results of a batch,
neighbours of one role joined or not, other ids, a system message in its place or as a notice.
``same`` compares what is left when these differences are gone: roles, content, calls and results
in order, with calls and results tied to each other the same way. Text that says nothing counts as
nothing; reasoning is private to the model that had it and is not compared; ``is_error`` is compared
where both sides can carry it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from .. import sent
from ..ids import CallId
from ..message import Message
from ..part import Part, ReasoningPart
from .pairing import gathered

__all__ = ["same"]

_WITHOUT_ERRORS = ("openai-chat", "openai-responses")

_Said = tuple[str, ...]
_Atom = tuple[
    Any, ...
]  # ("text", role, text) | ("call", n, name, args) | ("result", n, texts, is_error or None)


def same(one: Sequence[Message], other: Sequence[Message]) -> bool:
    """Tell whether two conversations say the same."""
    left, right = list(_atoms(one)), list(_atoms(other))
    return len(left) == len(right) and all(_equal(a, b) for a, b in zip(left, right, strict=True))


def _equal(a: _Atom, b: _Atom) -> bool:
    if a[0] == b[0] == "result":
        return a[1:3] == b[1:3] and (None in (a[3], b[3]) or a[3] == b[3])
    return a == b


def _atoms(messages: Sequence[Message]) -> Iterator[_Atom]:
    """Take a conversation apart into what was said, asked and answered, in order."""
    numbers: dict[CallId, int] = {}
    leading = True
    for message in gathered(messages):
        leading = leading and message.role == "system"
        role = "user" if message.role == "system" and not leading else message.role
        for text in _texts(message.parts):
            yield "text", role, sent.notice(text) if role != message.role else text
        for call in message.tool_calls:
            number = numbers.setdefault(call.id, len(numbers))
            yield "call", number, call.name, sent.json_text(call.args)
        flagged = message.native is None or message.native.format not in _WITHOUT_ERRORS
        for result in message.tool_results:
            number = numbers.setdefault(result.tool_call_id, len(numbers))
            yield "result", number, _result_texts(result.result), result.is_error if flagged else None


def _texts(parts: Sequence[Part]) -> Iterator[str]:
    for part in parts:
        text = "" if isinstance(part, ReasoningPart) else sent.described(part)
        if text.strip() and text != sent.SILENCE:
            yield text


def _result_texts(result: Any) -> _Said:
    parts = sent.result_parts(result)
    texts = [sent.described(part) for part in parts] if parts else [sent.result_text(result)]
    return tuple(text for text in texts if text.strip() and text != sent.SILENCE)
