"""A conversation as JSON Lines or Markdown.

JSON Lines has a header with the version, then one message per line. Lines can be appended, cut with
`head` and searched with `grep`; what Turnstate wrote reads back as equal messages. Markdown is for
people.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from .. import codec, strict_json, wire_text
from ..errors import InputError, InvalidPayload
from ..ids import UNKNOWN_TIME
from ..message import Message
from ..part import Part, ReasoningPart, TextPart

__all__ = ["jsonl", "markdown", "read_jsonl"]

_HEADER = "turnstate"


def jsonl(messages: Iterable[Message]) -> Iterator[str]:
    """Yield a conversation line by line, each with its line break."""
    yield wire_text.json_text({_HEADER: "messages", "version": codec.VERSION}) + "\n"
    for message in messages:
        yield codec.encode(message).decode() + "\n"


def read_jsonl(lines: Iterable[str]) -> Iterator[Message]:
    """Read the output of `jsonl`, skipping blank lines."""
    version: int | None = None
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            value = strict_json.read(line)
            if version is None:
                version = _version(value)
            else:
                yield codec.from_builtins(value, version=version)
        except InputError as error:
            raise type(error)(f"line {number}: {error.text}", path=error.path) from None


def _version(header: Any) -> int:
    match header:
        case {"turnstate": "messages", "version": int(version)}:
            return version
        case _:
            raise InvalidPayload('the first line is {"turnstate":"messages","version":…}')


# A conversation as Markdown: nothing is hidden, and nothing breaks out of its fence.


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
        yield _fenced(_pretty(call.args), "json") if call.raw is None else _fenced(call.raw, "")
    for result in message.tool_results:
        name = names.get(result.tool_call_id, result.tool_call_id)
        yield f"**{'error' if result.is_error else 'result'} of** `{_inline(name)}`"
        plain = isinstance(result.result, str) or wire_text.result_parts(result.result)
        yield (
            _fenced(wire_text.result_text(result.result), "")
            if plain
            else _fenced(_pretty(result.result), "json")
        )


def _part(part: Part) -> str:
    if isinstance(part, TextPart):
        return part.text
    text = wire_text.described(part)
    return "\n".join(f"> {line}" for line in text.splitlines()) if isinstance(part, ReasoningPart) else text


def _pretty(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def _inline(text: str) -> str:
    return text.replace("`", "'").replace("\n", " ")


def _fenced(text: str, language: str) -> str:
    longest = max((len(run) for run in _BACKTICKS.findall(text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"
