"""What a message costs as it is sent: all that reaches the model, and nothing that does not.

Text, reasoning, the names and arguments of calls, results, tool definitions, media and the frame
that a provider puts around each message are counted; ids, timestamps and what a document said
beside the message are not sent and cost nothing. Costs add up: a conversation is the sum of its
messages, its tools, and the start of the reply, so that a running total stays true.
"""

from __future__ import annotations

from collections.abc import Iterable

from .. import sent
from ..message import Message, ToolCallResult
from ..part import FilePart, ImagePart, OpaquePart, Part, ReasoningPart, TextPart
from ..toolspec import ToolSpec
from .counter import Count, Counter, Quality, total, weaker
from .images import ImageRule, rule_for

__all__ = ["MESSAGE_FRAME", "REPLY_START", "conversation_cost", "message_cost", "tools_cost"]

# OpenAI publishes the frame of a message: three tokens and the role, and three to start the
# reply; and of functions: seven each and twelve for the block. Other providers are close to it.
MESSAGE_FRAME = 4
REPLY_START = 3
TOOL_FRAME = 7
TOOLS_BLOCK = 12

CALL_FRAME = 8
"""What turns text into a call: whom it is for, that JSON follows, where it ends."""

RESULT_FRAME = 4
"""Every result goes out as a message of its own, whichever message it stands in with us."""

FILE_UNKNOWN = 9_200
"""A file that is only referred to: taken for a document of four pages, 2,300 tokens each."""

SIGNATURE_CHARACTERS = 5
"""Characters of a sealed thought for one of its tokens: base64 of about four bytes a token."""

# Bytes for a token. Text: as it reads. Sound and film: 32 and 260 tokens a second at common
# rates. The rest is taken for a document with pictures: a page has 60 kB and 2,300 tokens.
_BYTES_OF_TEXT, _BYTES_OF_RECORDING, _BYTES_OF_DOCUMENT = 4, 400, 26
_TEXT_TYPES = ("text/", "application/json", "application/xml", "application/yaml")


def message_cost(message: Message, counter: Counter, *, images: ImageRule | None = None) -> Count:
    """Count one message as it is sent; `images` prices pictures, by default as the counter's provider."""
    content, calls, results = message.content, message.tool_calls, message.tool_results
    frames = MESSAGE_FRAME + CALL_FRAME * len(calls) + RESULT_FRAME * len(results)
    if isinstance(content, str):
        counts = [counter.count(content)] if content else []
    else:
        counts = [_part(part, counter, images) for part in content or ()]
    for call in calls:
        counts += (counter.count(call.name), counter.count(sent.args_text(call.args)))
    for result in results:
        counts += _result(result, counter, images)
    return _summed(frames, counts)


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
    said = total(message_cost(message, counter, images=images) for message in messages)
    return said + tools_cost(tools, counter) + Count(REPLY_START)


def _tool(tool: ToolSpec, counter: Counter) -> Count:
    definition = {"name": tool.name, "description": tool.description, "parameters": tool.input_schema}
    return Count(TOOL_FRAME) + counter.count(sent.json_text(definition))


def _summed(frames: int, counts: Iterable[Count]) -> Count:
    quality: Quality = "exact"
    for count in counts:
        frames += count.tokens
        if count.quality != "exact":
            quality = weaker(quality, count.quality)
    return Count(frames, quality)


def _result(result: ToolCallResult, counter: Counter, images: ImageRule | None) -> list[Count]:
    parts = sent.result_parts(result.result)
    if parts is None:
        return [counter.count(sent.result_text(result.result))]
    return [_part(part, counter, images) for part in parts]


def _part(part: Part, counter: Counter, images: ImageRule | None) -> Count:
    match part:
        case TextPart():
            return counter.count(part.text)
        case ImagePart():
            return Count((images or rule_for(counter.name))(part), "estimated")
        case FilePart():
            return counter.count(part.name or "") + Count(_file(part), "estimated")
        case ReasoningPart():
            return _reasoning(part, counter)
        case OpaquePart():
            return counter.count(sent.json_text(part.body))


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


def _reasoning(part: ReasoningPart, counter: Counter) -> Count:
    """Count a thought by its words; one that is sealed, by the length of the seal."""
    if part.text or not part.signature:
        return counter.count(part.text)
    return Count(-(-len(part.signature) // SIGNATURE_CHARACTERS), "estimated")
