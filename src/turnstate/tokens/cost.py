"""The cost of a message in tokens: everything that reaches the model, and nothing else.

Text, reasoning, the names and arguments of calls, results, tool definitions, media and the frame
that a provider puts around each message are counted. Ids, timestamps and what a document contained
beyond the message cost nothing. Costs are additive: a conversation costs the sum of its messages,
its tools, and the start of the reply, so a running total stays correct.

Exact counts are those of the open vocabularies ``o200k_base`` and ``cl100k_base``, which are compiled into
the tokenizer package, so nothing is read or downloaded. A count is exact for every text and takes time
proportional to its length, even for ten million spaces. Names of special tokens, such as ``<|endoftext|>``,
are counted as ordinary text, which they are in a message.

Long texts are counted in a thread so that the event loop stays free. So is the first text, which loads a
vocabulary: this takes 0.1 to 0.3 seconds, in which the tokenizer holds the GIL.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from .. import strict_json, wire_text
from ..errors import UnknownName
from ..message import Message
from ..part import FilePart, ImagePart, OpaquePart, Part, ReasoningPart, TextPart
from ..process import hold_during_fork
from ..threads import INLINE, off_loop
from ..toolspec import ToolSpec
from .counter import Count, Counter, Quality, total, weaker
from .images import OPENAI_RULES, ImageRule, rule_for

# The exact counter. A vocabulary is loaded once, on first use, by whichever thread comes first.

VOCABULARIES = ("cl100k_base", "o200k_base")
EXACT = (*VOCABULARIES, *OPENAI_RULES)
"""The names of exact counters."""

loaded: dict[str, Callable[[str], int]] = {}
"""The counting functions of the loaded vocabularies, by the name of the vocabulary and of its counters."""

_loading = threading.Lock()
hold_during_fork(_loading)


class ExactCounter(Struct, frozen=True):
    """Counts with ``o200k_base`` or ``cl100k_base``; ``o200k_base:RULE`` has another rule for images."""

    name: str

    def __post_init__(self) -> None:
        if self.name not in EXACT:
            raise UnknownName(f"unknown vocabulary {self.name!r:.60}; available: {', '.join(EXACT)}")

    @property
    def is_loaded(self) -> bool:
        """True if the vocabulary is in memory; the first count loads it."""
        return _vocabulary(self.name) in loaded

    def count(self, text: str) -> Count:
        """Count a text."""
        count = loaded.get(self.name) or _load(self.name)
        try:
            return Count(count(text))
        except UnicodeEncodeError:  # lone surrogates, which are not text
            return Count(count(strict_json.clean(text)))

    def tokens(self, texts: Sequence[str]) -> int:
        """Return the total tokens of texts, each counted by itself, as a plain number."""
        count = loaded.get(self.name) or _load(self.name)
        try:
            return sum(map(count, texts))
        except UnicodeEncodeError:
            return sum([self.count(text).tokens for text in texts])


def _load(name: str) -> Callable[[str], int]:
    """Return the counting function, loading the vocabulary unless another thread has."""
    vocabulary = _vocabulary(name)
    with _loading:
        if vocabulary not in loaded:
            loaded[vocabulary] = _tokenizer(vocabulary)
        loaded[name] = loaded[vocabulary]
        return loaded[name]


def _vocabulary(name: str) -> str:
    return name.partition(":")[0]


def _tokenizer(name: str) -> Callable[[str], int]:
    from toktok import truncate  # imported with the first vocabulary, not with `turnstate`

    # `batch_count` hands even a single text to a pool of threads, which takes 30 to 60 µs; a message of 200
    # characters is counted in half a microsecond. `truncate` returns the tokens of the whole text, too, and
    # counts in this thread. With nothing to keep, it copies nothing.
    truncate("", 0, name)  # loads the vocabulary
    return lambda text: truncate(text, 0, name)[1]


# Counting in a thread.


def is_ready(counter: Counter) -> bool:
    """Return False if the first count would load a vocabulary."""
    return not isinstance(counter, ExactCounter) or counter.is_loaded


async def count_off_loop(counter: Counter, text: str) -> Count:
    """Count a text, in a thread if it is long or if the vocabulary is not loaded yet."""
    return await off_loop(lambda: counter.count(text), large=len(text) > INLINE or not is_ready(counter))


# Messages as they are sent.

# OpenAI publishes the overhead of a message (three tokens and the role, and three to start the
# reply) and of functions (seven each, and twelve for the block). Other providers are close to it.
MESSAGE_FRAME = 4
REPLY_START = 3
TOOL_FRAME = 7
TOOLS_BLOCK = 12

CLAUDE_TOOLS = 346
"""The instructions that Claude gets if a request has tools, as long as it may choose among them.

Anthropic's table has 346 tokens for `tool_choice` auto and 313 for any. Its example of a request with one
tool and one sentence has 403 tokens in all.
"""

CALL_FRAME = 8
"""The tokens that turn text into a call: its recipient, the marker for JSON, and its end."""

RESULT_FRAME = 4
"""The frame of a result: each is sent as a message of its own, whichever of our messages holds it."""

FILE_UNKNOWN = 9_200
"""A file that is only a reference is assumed to be a document of four pages, 2,300 tokens each."""

SIGNATURE_CHARACTERS = 5
"""Characters per token of encrypted reasoning: base64 of about four bytes a token."""

# Bytes per token. Text: as it reads. Audio and video: 32 and 260 tokens a second at common
# rates. Anything else is assumed to be a document with images: a page has 60 kB and 2,300 tokens.
_BYTES_OF_TEXT, _BYTES_OF_RECORDING, _BYTES_OF_DOCUMENT = 4, 400, 26
_TEXT_TYPES = ("text/", "application/json", "application/xml", "application/yaml")


class Price(Struct):
    """The cost of a message: tokens that are known without counting, and the texts to count."""

    tokens: int
    texts: list[str]
    quality: Quality = "exact"

    def estimated(self, tokens: int) -> None:
        """Add an estimate for something that no counter can count."""
        self.tokens += tokens
        self.quality = "estimated"


def price(message: Message, counter: str, *, images: ImageRule | None = None) -> Price:
    """Return the cost of a message as it is sent, before its texts are counted.

    `images` prices images; the default is the rule of the counter's provider.
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
    """Count several texts, each by itself, and return the sum."""
    if isinstance(counter, ExactCounter):
        return Count(counter.tokens(texts))
    return total(map(counter.count, texts))


class Meter:
    """Counts messages as they are sent; ``quality`` is the quality of the weakest count so far.

    ``images`` prices images; the default is the rule of the counter's provider.
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
    """Count one message as it is sent, without the quality of the count."""
    cost = price(message, counter.name)
    if type(counter) is ExactCounter:
        return cost.tokens + counter.tokens(cost.texts)
    return cost.tokens + count_texts(counter, cost.texts).tokens


def message_cost(message: Message, counter: Counter, *, images: ImageRule | None = None) -> Count:
    """Count one message as it is sent; `images` prices images, by default by the provider's rule."""
    meter = Meter(counter, images=images)
    return Count(meter.message(message), meter.quality)


def tools_cost(tools: Iterable[ToolSpec], counter: Counter) -> Count:
    """Count tool definitions; an empty list costs nothing."""
    costs = [_tool(tool, counter) for tool in tools]
    block = CLAUDE_TOOLS if counter.name.startswith("estimate:claude") else TOOLS_BLOCK
    return Count(block) + total(costs) if costs else Count()


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
    """Estimate a file by its size and type; its bytes never reach the model as base64."""
    if file.data is None:
        return FILE_UNKNOWN
    kind = file.media_type or ""
    if kind.startswith(_TEXT_TYPES):
        return -(-len(file.data) // _BYTES_OF_TEXT)
    if kind.startswith(("audio/", "video/")):
        return -(-len(file.data) // _BYTES_OF_RECORDING)
    return -(-len(file.data) // _BYTES_OF_DOCUMENT)
