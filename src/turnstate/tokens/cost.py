"""What a message costs as it is sent: all that reaches the model, and nothing that does not.

Text, reasoning, the names and arguments of calls, results, tool definitions, media and the frame
that a provider puts around each message are counted; ids, timestamps and what a document said
beside the message are not sent and cost nothing. Costs add up: a conversation is the sum of its
messages, its tools, and the start of the reply, so that a running total stays true.

Exact counts are those of the model's own tokenizer. Names of special tokens, such as ``<|endoftext|>``,
are counted as ordinary text, which they are in a message. Counting never fails on a text: one that the
tokenizer cannot take is counted in part by the estimator, and the result says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from msgspec import Struct, field

from .. import wire_text
from ..errors import UnknownName
from ..long_json import exceeds
from ..message import Message
from ..part import FilePart, ImagePart, OpaquePart, Part, ReasoningPart, TextPart
from ..toolspec import ToolSpec
from . import vocabulary
from .counter import Count, Counter, Quality, total, weaker
from .estimate import Estimator
from .images import ImageRule, rule_for
from .pieces import LIMIT, TextPiece, pieces
from .vocabulary import SIZES, SPECIAL

__all__ = [
    "INLINE",
    "MESSAGE_FRAME",
    "REPLY_START",
    "ExactCounter",
    "Meter",
    "Price",
    "conversation_cost",
    "count_off_loop",
    "count_texts",
    "is_large",
    "is_ready",
    "message_cost",
    "off_loop",
    "price",
    "tools_cost",
]

# The exact counter, and work that leaves an event loop free.

_SPECIALS = {SPECIAL}


class ExactCounter(Struct, frozen=True):
    """Counts with ``o200k_base`` or ``cl100k_base``."""

    name: str

    def __post_init__(self) -> None:
        if self.name not in SIZES:
            known = ", ".join(sorted(SIZES))
            raise UnknownName(f"no open vocabulary is called {self.name!r:.60}; there are {known}")

    @property
    def is_loaded(self) -> bool:
        """Whether the vocabulary is in memory; the first count loads it."""
        return self.name in vocabulary.loaded

    def count(self, text: str) -> Count:
        """Count a text: exactly, unless it has no seam for 100,000 characters."""
        if len(text) > LIMIT:
            return total(map(self._counted_piece, pieces(text)))
        encoder = vocabulary.loaded.get(self.name) or vocabulary.encoding(self.name)
        try:
            # Not `encode_ordinary`: where the pattern overflows, that one panics past `except Exception`.
            return Count(len(encoder.encode(text, disallowed_special=())), "exact")
        except ValueError:
            return Estimator().count(text)

    def count_groups(self, groups: Sequence[Sequence[str]]) -> list[Count]:
        """Count groups of texts, each text on its own, in one call: return the sum of each group.

        Texts are joined by a special token, at which the tokenizer always splits. A call for each text takes
        longer, since two threads that count take Python's lock from each other at every call.
        """
        texts = [text for group in groups for text in group]
        joined = SPECIAL.join(texts)
        if len(joined) > LIMIT or joined.count(SPECIAL) >= len(texts):  # or one of them has it, too
            return self._counted_apart(groups)
        encoder = vocabulary.loaded.get(self.name) or vocabulary.encoding(self.name)
        try:
            tokens = encoder.encode(joined, allowed_special=_SPECIALS, disallowed_special=())
        except ValueError:
            return self._counted_apart(groups)
        mark, start, counts = SIZES[self.name], 0, list[Count]()
        tokens.append(mark)
        for group in groups:
            sum = 0
            for _ in group:
                end = tokens.index(mark, start)
                sum, start = sum + end - start, end + 1
            counts.append(Count(sum))
        return counts

    def _counted_apart(self, groups: Sequence[Sequence[str]]) -> list[Count]:
        if len(groups) < 2:
            return [total(map(self.count, group)) for group in groups]
        half = len(groups) // 2
        return self.count_groups(groups[:half]) + self.count_groups(groups[half:])

    def _counted_piece(self, piece: TextPiece) -> Count:
        count = self.count(piece.text)
        return count if piece.exact else Count(count.tokens, "estimated")


def count_texts(counter: Counter, texts: Sequence[str]) -> Count:
    """Count several texts, each on its own, and return the sum."""
    if len(texts) == 1:
        return counter.count(texts[0])
    if isinstance(counter, ExactCounter):
        return counter.count_groups([texts])[0]
    return total(map(counter.count, texts))


T = TypeVar("T")

INLINE = 20_000
"""Characters that are counted on the spot: two milliseconds, a pause that no user notices."""


async def off_loop(work: Callable[[], T], *, large: bool) -> T:
    """Do large work in a thread and small work at once; in a thread without a loop, all work."""
    if not large:
        return work()
    import asyncio  # a process that runs a loop has it loaded already

    return await asyncio.to_thread(work) if asyncio._get_running_loop() else work()


def is_large(*values: Any) -> bool:
    """Return True if values hold more text than is processed inline, looking at no more than that."""
    return exceeds(INLINE, *values)


def is_ready(counter: Counter) -> bool:
    """Return False if the first count would load a vocabulary."""
    return not isinstance(counter, ExactCounter) or counter.is_loaded


async def count_off_loop(counter: Counter, text: str) -> Count:
    """Count a text without holding up the event loop, a vocabulary's first loading included."""
    return await off_loop(lambda: counter.count(text), large=len(text) > INLINE or not is_ready(counter))


# Messages as they are sent.

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
