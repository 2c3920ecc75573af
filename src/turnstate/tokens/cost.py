"""What a message costs as it is sent: all that reaches the model, and nothing that does not.

Text, reasoning, the names and arguments of calls, results, tool definitions, media and the frame
that a provider puts around each message are counted; ids, timestamps and what a document said
beside the message are not sent and cost nothing. Costs add up: a conversation is the sum of its
messages, its tools, and the start of the reply, so that a running total stays true.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .. import wire_text
from ..message import Message
from ..part import FilePart, ImagePart, OpaquePart, Part, ReasoningPart, TextPart
from ..toolspec import ToolSpec
from .counter import Count, Counter, Quality, total, weaker
from .images import ImageRule, rule_for

__all__ = ["MESSAGE_FRAME", "REPLY_START", "Meter", "conversation_cost", "message_cost", "tools_cost"]

# OpenAI publishes the frame of a message: three tokens and the role, and three to start the
# reply; and of functions: seven each and twelve for the block. Other providers are close to it.
MESSAGE_FRAME = 4
REPLY_START = 3
TOOL_FRAME = 7
TOOLS_BLOCK = 12

CALL_FRAME = 8
"""What turns text into a call: whom it is for, that JSON follows, where it ends."""

RESULT_FRAME = 4
"""Every result goes out as a message of its own, whichever message of ours it is in."""

FILE_UNKNOWN = 9_200
"""A file that is only referred to: taken for a document of four pages, 2,300 tokens each."""

SIGNATURE_CHARACTERS = 5
"""Characters of a sealed thought for one of its tokens: base64 of about four bytes a token."""

# Bytes for a token. Text: as it reads. Sound and film: 32 and 260 tokens a second at common
# rates. The rest is taken for a document with pictures: a page has 60 kB and 2,300 tokens.
_BYTES_OF_TEXT, _BYTES_OF_RECORDING, _BYTES_OF_DOCUMENT = 4, 400, 26
_TEXT_TYPES = ("text/", "application/json", "application/xml", "application/yaml")


class Meter:
    """Counts messages as they are sent; ``quality`` is that of the weakest count so far.

    ``images`` prices pictures, by default as the counter's provider does.
    """

    def __init__(self, counter: Counter, *, images: ImageRule | None = None) -> None:
        self.quality: Quality = "exact"
        self._count = counter.count
        self._counter_name, self._image = counter.name, images
        self._names: dict[str, int] = {}

    def message(self, message: Message) -> int:
        """Return the tokens of one message."""
        tokens, content = MESSAGE_FRAME, message.content
        if isinstance(content, str):
            tokens += self._text(content) if content else 0
        elif content:
            tokens += sum(map(self._part, content))
        for call in message.tool_calls:
            tokens += CALL_FRAME + self._name(call.name) + self._text(wire_text.args_text(call))
        for result in message.tool_results:
            tokens += RESULT_FRAME + self._result(result.result)
        return tokens

    def _text(self, text: str) -> int:
        count = self._count(text)
        if count.quality != "exact":
            self.quality = weaker(self.quality, count.quality)
        return count.tokens

    def _name(self, name: str) -> int:
        """Count the name of a tool, which comes again and again, once."""
        if name not in self._names:
            self._names[name] = self._text(name)
        return self._names[name]

    def _result(self, result: Any) -> int:
        if isinstance(result, str):
            return self._text(result)
        parts = wire_text.result_parts(result)
        return self._text(wire_text.result_text(result)) if parts is None else sum(map(self._part, parts))

    def _part(self, part: Part) -> int:
        match part:
            case TextPart():
                return self._text(part.text)
            case ImagePart():
                self._image = self._image or rule_for(self._counter_name)
                return self._estimated(self._image(part))
            case FilePart():
                return self._text(part.name or "") + self._estimated(_file(part))
            case ReasoningPart():
                return self._reasoning(part)
            case OpaquePart():
                return self._text(wire_text.json_text(part.body))

    def _reasoning(self, part: ReasoningPart) -> int:
        """Count a thought by its words; one that is sealed, by the length of the seal."""
        if part.text or not part.signature:
            return self._text(part.text)
        return self._estimated(-(-len(part.signature) // SIGNATURE_CHARACTERS))

    def _estimated(self, tokens: int) -> int:
        self.quality = "estimated"
        return tokens


def message_cost(message: Message, counter: Counter, *, images: ImageRule | None = None) -> Count:
    """Count one message as it is sent; `images` prices pictures, by default as the counter's provider."""
    meter = Meter(counter, images=images)
    return Count(meter.message(message), meter.quality)


def tools_cost(tools: Iterable[ToolSpec], counter: Counter) -> Count:
    """Count tool definitions; none at all cost nothing."""
    costs = [_tool(tool, counter) for tool in tools]
    return Count(TOOLS_BLOCK) + total(costs) if costs else Count()


def conversation_cost(
    messages: Iterable[Message],
    counter: Counter,
    tools: Iterable[ToolSpec] = (),
    *,
    images: ImageRule | None = None,
) -> Count:
    """Count a whole request: its messages, its tools, and the start of the reply."""
    meter = Meter(counter, images=images)
    said = sum(map(meter.message, messages))
    return Count(said + REPLY_START, meter.quality) + tools_cost(tools, counter)


def _tool(tool: ToolSpec, counter: Counter) -> Count:
    definition = {"name": tool.name, "description": tool.description, "parameters": tool.input_schema}
    return Count(TOOL_FRAME) + counter.count(wire_text.json_text(definition))


def _file(file: FilePart) -> int:
    """Judge a file by its size and type: its bytes never reach the model as base64."""
    if file.data is None:
        return FILE_UNKNOWN
    kind = file.media_type or ""
    if kind.startswith(_TEXT_TYPES):
        return -(-len(file.data) // _BYTES_OF_TEXT)
    if kind.startswith(("audio/", "video/")):
        return -(-len(file.data) // _BYTES_OF_RECORDING)
    return -(-len(file.data) // _BYTES_OF_DOCUMENT)
