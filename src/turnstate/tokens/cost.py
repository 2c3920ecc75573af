"""What a message costs as it is sent: all that reaches the model, and nothing that does not.

Text, reasoning, the names and arguments of calls, results, tool definitions, media and the frame
that a provider puts around each message are counted; ids, timestamps and what a document said
beside the message are not sent and cost nothing. Costs add up: a conversation is the sum of its
messages, its tools, and the start of the reply, so that a running total stays true.

Exact counts are those of the open vocabularies ``o200k_base`` and ``cl100k_base``, which are compiled into
the tokenizer's package, so nothing is read or downloaded. A count is exact for every text, and takes time
in proportion to its length: a run of ten million spaces, too. Names of special tokens, such as
``<|endoftext|>``, are counted as ordinary text, which they are in a message.

Long texts are counted in a thread, so that an event loop stays free; so is the first one, which loads a
vocabulary: that takes 0.1 to 0.3 seconds, in which the tokenizer holds Python's lock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from msgspec import Struct

from .. import strict_json, wire_text
from ..errors import UnknownName
from ..long_json import exceeds
from ..message import Message
from ..part import FilePart, ImagePart, OpaquePart, Part, ReasoningPart, TextPart
from ..toolspec import ToolSpec
from .counter import Count, Counter, Quality, total, weaker
from .images import ImageRule, rule_for

__all__ = [
    "INLINE",
    "MESSAGE_FRAME",
    "REPLY_START",
    "VOCABULARIES",
    "ExactCounter",
    "Meter",
    "Price",
    "conversation_cost",
    "count_off_loop",
    "count_texts",
    "is_large",
    "is_ready",
    "loaded",
    "message_cost",
    "message_tokens",
    "off_loop",
    "price",
    "tools_cost",
]

# The exact counter. A vocabulary is loaded once, at its first use, by whichever thread comes first.

VOCABULARIES = ("cl100k_base", "o200k_base")

loaded: dict[str, Callable[[str], int]] = {}
"""The functions that count, of the vocabularies that are in memory, by name."""

_loading = threading.Lock()


class ExactCounter(Struct, frozen=True):
    """Counts with ``o200k_base`` or ``cl100k_base``."""

    name: str

    def __post_init__(self) -> None:
        if self.name not in VOCABULARIES:
            known = ", ".join(VOCABULARIES)
            raise UnknownName(f"no open vocabulary is called {self.name!r:.60}; there are {known}")

    @property
    def is_loaded(self) -> bool:
        """Whether the vocabulary is in memory; the first count loads it."""
        return self.name in loaded

    def count(self, text: str) -> Count:
        """Count a text."""
        count = loaded.get(self.name) or _load(self.name)
        try:
            return Count(count(text))
        except UnicodeEncodeError:  # of lone surrogates, which are no text
            return Count(count(strict_json.clean(text)))

    def tokens(self, texts: Sequence[str]) -> int:
        """Return the tokens of texts, each counted on its own, as a plain number."""
        count = loaded.get(self.name) or _load(self.name)
        try:
            return sum(map(count, texts))
        except UnicodeEncodeError:
            return sum([self.count(text).tokens for text in texts])


def _load(name: str) -> Callable[[str], int]:
    """Return the function that counts, loading the vocabulary if no other thread has."""
    with _loading:
        if name not in loaded:
            loaded[name] = _tokenizer(name)
        return loaded[name]


def _tokenizer(name: str) -> Callable[[str], int]:
    import toktok  # with the first vocabulary, not with `import turnstate`

    # Its public `batch_count` hands the texts to a pool of threads, which takes longer than most counts.
    count: Callable[[str], int] = toktok._encoding(name).count
    return count


# Work that leaves an event loop free.

T = TypeVar("T")

INLINE = 20_000
"""Characters that are counted on the spot: two milliseconds by the estimator, which no user notices."""


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
    """Count a text, in a thread if it is long or if a vocabulary has to be loaded for it."""
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

    tokens: int
    texts: list[str]
    quality: Quality = "exact"

    def estimated(self, tokens: int) -> None:
        """Add what no counter counts."""
        self.tokens += tokens
        self.quality = "estimated"


def price(message: Message, counter: str, *, images: ImageRule | None = None) -> Price:
    """Return what a message costs as it is sent, before its texts are counted.

    `images` prices pictures, by default as the provider of the counter with that name.
    """
    content = message.content
    texts: list[str] = []
    price = Price(MESSAGE_FRAME, texts)
    if isinstance(content, str):
        texts.append(content)
    elif content:
        _add_parts(price, content, counter, images)
    for call in message.tool_calls:
        price.tokens += CALL_FRAME
        texts += (call.name, wire_text.args_text(call))
    for result in message.tool_results:
        price.tokens += RESULT_FRAME
        if isinstance(result.result, str):
            texts.append(result.result)
        elif parts := wire_text.result_parts(result.result):
            _add_parts(price, parts, counter, images)
        else:
            texts.append(wire_text.result_text(result.result))
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


def count_texts(counter: Counter, texts: Sequence[str]) -> Count:
    """Count several texts, each on its own, and return the sum."""
    if isinstance(counter, ExactCounter):
        return Count(counter.tokens(texts))
    return total(map(counter.count, texts))


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
        if cost.quality == "exact" and type(self._counter) is ExactCounter:  # nearly always
            return cost.tokens + self._counter.tokens(cost.texts)
        count = count_texts(self._counter, cost.texts)
        if not cost.quality == count.quality == "exact":
            self.quality = weaker(self.quality, weaker(cost.quality, count.quality))
        return cost.tokens + count.tokens


def message_tokens(message: Message, counter: Counter) -> int:
    """Count one message as it is sent, without saying how exact the number is."""
    cost = price(message, counter.name)
    if type(counter) is ExactCounter:
        return cost.tokens + counter.tokens(cost.texts)
    return cost.tokens + count_texts(counter, cost.texts).tokens


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
