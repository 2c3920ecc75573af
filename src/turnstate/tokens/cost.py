"""What a message costs as it is sent: all that reaches the model, and nothing that does not.

Text, reasoning, the names and arguments of calls, results, tool definitions, media and the frame
that a provider puts around each message are counted; ids, timestamps and what a document said
beside the message are not sent and cost nothing. Costs add up: a conversation is the sum of its
messages, its tools, and the start of the reply, so that a running total stays true.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct, field

from .. import wire_text
from ..message import Message
from ..part import FilePart, ImagePart, OpaquePart, Part, ReasoningPart, TextPart
from ..toolspec import ToolSpec
from .counter import Count, Counter, Quality, total, weaker
from .exact import count_texts
from .images import ImageRule, rule_for

__all__ = [
    "MESSAGE_FRAME",
    "REPLY_START",
    "Meter",
    "Price",
    "conversation_cost",
    "message_cost",
    "price",
    "tools_cost",
]

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


class Price(Struct):
    """What a message costs: tokens that are known without counting, and the texts to count."""

    tokens: int = MESSAGE_FRAME
    texts: list[str] = field(default_factory=list)
    quality: Quality = "exact"

    def estimated(self, tokens: int) -> None:
        """Add what no counter counts."""
        self.tokens += tokens
        self.quality = "estimated"


def price(message: Message, counter: str, *, images: ImageRule | None = None) -> Price:
    """Return what a message costs as it is sent, before its texts are counted.

    `images` prices pictures, by default as the provider of the counter with that name.
    """
    price, content = Price(), message.content
    if isinstance(content, str):
        price.texts.append(content)
    elif content:
        _add_parts(price, content, counter, images)
    for call in message.tool_calls:
        price.tokens += CALL_FRAME
        price.texts += (call.name, wire_text.args_text(call))
    for result in message.tool_results:
        price.tokens += RESULT_FRAME
        if isinstance(result.result, str):
            price.texts.append(result.result)
        elif parts := wire_text.result_parts(result.result):
            _add_parts(price, parts, counter, images)
        else:
            price.texts.append(wire_text.result_text(result.result))
    return price


def _add_parts(price: Price, parts: Iterable[Part], counter: str, images: ImageRule | None) -> None:
    for part in parts:
        match part:
            case TextPart():
                price.texts.append(part.text)
            case ImagePart():
                price.estimated((images or rule_for(counter))(part))
            case FilePart():
                price.texts.append(part.name or "")
                price.estimated(_file(part))
            case ReasoningPart(text=text, signature=str(seal)) if seal and not text:
                price.estimated(-(-len(seal) // SIGNATURE_CHARACTERS))
            case ReasoningPart():
                price.texts.append(part.text)
            case OpaquePart():
                price.texts.append(wire_text.json_text(part.body))


class Meter:
    """Counts messages as they are sent; ``quality`` is that of the weakest count so far.

    ``images`` prices pictures, by default as the counter's provider does.
    """

    def __init__(self, counter: Counter, *, images: ImageRule | None = None) -> None:
        self.quality: Quality = "exact"
        self._counter, self._images = counter, images

    def message(self, message: Message) -> int:
        """Return the tokens of one message."""
        cost = price(message, self._counter.name, images=self._images)
        count = count_texts(self._counter, cost.texts)
        for quality in (cost.quality, count.quality):
            if quality != "exact":
                self.quality = weaker(self.quality, quality)
        return cost.tokens + count.tokens


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
