"""A conversation as Markdown, for people: nothing hidden, nothing that breaks out of its fence."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from .. import sent
from ..ids import UNKNOWN_TIME
from ..message import Message
from ..part import Part, ReasoningPart, TextPart

__all__ = ["markdown"]

_BACKTICKS = re.compile(r"`{3,}")


def markdown(messages: Iterable[Message]) -> str:
    """Write a conversation as Markdown."""
    names: dict[str, str] = {}
    blocks: list[str] = []
    for message in messages:
        names.update((call.id, call.name) for call in message.tool_calls)
        blocks += [_heading(message), *_body(message, names)]
    return "\n\n".join(blocks) + "\n" if blocks else ""


def _heading(message: Message) -> str:
    kind = f" ({message.kind})" if message.kind else ""
    time = f" · {message.timestamp}" if message.timestamp != UNKNOWN_TIME else ""
    return f"## {message.role}{kind}{time}"


def _body(message: Message, names: dict[str, str]) -> Iterator[str]:
    for part in message.parts:
        if text := _part(part):
            yield text
    for call in message.tool_calls:
        yield f"**call** `{_inline(call.name)}`"
        yield _fenced(_pretty(call.args), "json")
    for result in message.tool_results:
        name = names.get(result.tool_call_id, result.tool_call_id)
        yield f"**{'error' if result.is_error else 'result'} of** `{_inline(name)}`"
        plain = isinstance(result.result, str) or sent.result_parts(result.result)
        yield (
            _fenced(sent.result_text(result.result), "") if plain else _fenced(_pretty(result.result), "json")
        )


def _part(part: Part) -> str:
    if isinstance(part, TextPart):
        return part.text
    text = sent.described(part)
    return "\n".join(f"> {line}" for line in text.splitlines()) if isinstance(part, ReasoningPart) else text


def _pretty(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def _inline(text: str) -> str:
    return text.replace("`", "'").replace("\n", " ")


def _fenced(text: str, language: str) -> str:
    longest = max((len(run) for run in _BACKTICKS.findall(text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"
