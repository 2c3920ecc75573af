"""Reduction: a very long tool output, shown by its two ends.

An output is too long if it has more than head + tail lines and more tokens than the soft limit,
or more tokens than the hard limit regardless of its lines. It is then shown as a `frame` that fits
the limit that it exceeded. Frames are not recognized by their words, which any tool could print: a
frame is left alone because it is within the limits, and what the limits cannot hold becomes a bare
frame, which is shorter than anything that is ever reduced. So reduction is idempotent.

The log keeps the whole output. Only the results' text changes: ids, errors, media and order stay.
All texts of one result share its limit, the short ones first, so that a one-line comment beside a
huge log stays whole.

The outputs of one batch of calls share a limit as well. Each output gets the same share, and what the
short ones do not use goes to the long ones. `share` computes it and `shortened` applies it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from operator import is_
from typing import Any

import msgspec

from .. import long_json, wire_text
from ..message import Message, ToolCallResult
from ..part import TextPart
from ..tokens.counter import Counter
from . import text as lines
from .frame import BARE, Frames, bare, framed
from .policy import OutputLimits
from .text import exceeds, full_range, tokens

__all__ = [
    "MASK",
    "full_range",
    "masked",
    "note_of",
    "output_id",
    "output_texts",
    "output_tokens",
    "reduced",
    "share",
    "shortened",
]

MASK = "[Old tool output hidden.]"
"""The line that replaces an output that is no longer worth its tokens."""

_INDENT = 2
_MOST_INDENTATION = 64 * 1024 * 1024  # characters; a small but deeply nested document would fill the memory

Texts = tuple[str, ...]
Handle = Callable[[ToolCallResult], str]


def reduced(
    message: Message,
    counter: Counter,
    limits: OutputLimits,
    *,
    handle: Handle | None = None,
) -> Message:
    """Return a tool message with its long outputs framed; any other message unchanged.

    ``handle`` returns the id under which a store holds the whole output; the frame's last line shows it.
    """
    if message.role != "tool":
        return message
    return _with_results(
        message, [_reduced_result(result, counter, limits, handle) for result in message.tool_results]
    )


def shortened(
    message: Message,
    shown: Message,
    each: int,
    counter: Counter,
    limits: OutputLimits,
    *,
    handle: Handle | None = None,
) -> Message:
    """Return a tool message like `shown`, but with at most `each` tokens of text in every output.

    Longer outputs are framed again from the whole `message`. An output that `each` tokens cannot hold
    becomes the bare frame.
    """
    less = OutputLimits(limits.head, limits.tail, each, each)
    pairs = zip(message.tool_results, shown.tool_results, strict=True)
    results = [
        _reduced_result(whole, counter, less, handle)
        if exceeds(_sent_texts(short.result), each, counter)
        else short
        for whole, short in pairs
    ]
    return _with_results(shown, results)


def output_tokens(message: Message, counter: Counter) -> list[int]:
    """Return the tokens of text in each output of a tool message."""
    return [tokens(_sent_texts(result.result), counter) for result in message.tool_results]


def share(sizes: Sequence[int], least: Sequence[int], room: int) -> int | None:
    """Return the tokens that each output may have for all to fit the room; None if they cannot.

    `sizes` are the current tokens of the outputs, `least` those of their bare frames.
    """
    if sum(least) > room:
        return None

    def used(each: int) -> int:
        return sum(max(low, min(size, each)) for size, low in zip(sizes, least, strict=True))

    return max(1, bisect_right(range(max(sizes, default=0) + 1), room, key=used) - 1)


def output_id(message: Message, result: ToolCallResult) -> str:
    """Name an output by its message, and also by its call if the message answers several."""
    return message.id if len(message.tool_results) == 1 else f"{message.id}/{result.tool_call_id}"


def note_of(id: str) -> str:
    """Return the line that shows the id under which a store holds the whole output."""
    return f"[Full output: {id}]"


def masked(message: Message, handle: Handle | None = None) -> Message:
    """Return a tool message with a line in place of each output; ids and errors stay.

    ``handle`` returns the id under which a store holds the whole output; a second line shows it.
    """
    results = (
        msgspec.structs.replace(result, result=f"{MASK}\n{note_of(handle(result))}" if handle else MASK)
        for result in message.tool_results
    )
    return message.replace(tool_results=tuple(results))


def output_texts(result: Any) -> Texts:
    """Return the texts of a result as frames number their lines: structured results as indented JSON."""
    if _is_structured(result):
        return (_indented(result),)
    return _sent_texts(result)


def _reduced_result(
    result: ToolCallResult,
    counter: Counter,
    limits: OutputLimits,
    handle: Handle | None,
) -> ToolCallResult:
    as_sent = _sent_texts(result.result)
    if not exceeds(as_sent, limits.soft, counter):
        return result
    shown = output_texts(result.result)
    rule = _Rule(counter, limits)
    if not rule.has_many_lines(shown) and not exceeds(as_sent, limits.hard, counter):
        return result
    note = note_of(handle(result)) if handle else ""
    short = rule.short(as_sent, shown, Frames(limits.head, limits.tail, note))
    if short == as_sent:
        return result
    return msgspec.structs.replace(result, result=_with_texts(result.result, short))


def _with_results(message: Message, results: Sequence[ToolCallResult]) -> Message:
    if all(map(is_, results, message.tool_results)):
        return message
    return message.replace(tool_results=tuple(results))


class _Rule(msgspec.Struct, frozen=True):
    """The rule for what is shown of texts that are too long."""

    counter: Counter
    limits: OutputLimits

    def has_many_lines(self, texts: Texts) -> bool:
        return sum(map(lines.count, texts)) > self.limits.head + self.limits.tail

    def short(self, as_sent: Texts, shown: Texts, frames: Frames) -> Texts:
        """Return texts cut to the limit that they exceed, or else as short as frames can make them."""
        if not self.has_many_lines(shown):
            short = self._shared(shown, self.limits.hard, frames)
            if self._is_within_hard(short):
                return short
        short = self._shared(shown, self.limits.soft, frames)
        if not exceeds(short, self.limits.soft, self.counter):
            return short
        return tuple(self._bare(*pair, frames) for pair in zip(as_sent, shown, strict=True))

    def _is_within_hard(self, short: Texts) -> bool:
        """Return True if texts are within the hard limit, and within the soft one if it applies to them."""
        limit = self.limits.soft if self.has_many_lines(short) else self.limits.hard
        return not exceeds(short, limit, self.counter)

    def _shared(self, shown: Texts, limit: int, frames: Frames) -> Texts:
        """Let the texts share a limit: each gets an equal part of what the shorter ones leave."""
        if len(shown) == 1 and _is_reducible(shown[0], frames):
            return (framed(shown[0], limit, self.counter, frames),)
        short = list(shown)
        order = sorted(range(len(shown)), key=lambda index: len(shown[index]))
        for done, index in enumerate(order):
            part = max(1, limit // (len(order) - done))
            if _is_reducible(shown[index], frames) and exceeds((shown[index],), part, self.counter):
                short[index] = framed(shown[index], part, self.counter, frames)
            limit = max(0, limit - tokens((short[index],), self.counter))
        return tuple(short)

    def _bare(self, as_sent: str, shown: str, frames: Frames) -> str:
        """Return the bare frame of a text if that is shorter."""
        frame = bare(shown, frames)
        cost = tokens((frame,), self.counter)
        shorter = _is_reducible(shown, frames) and exceeds((as_sent,), cost, self.counter)
        return frame if shorter else as_sent


def _is_reducible(text: str, frames: Frames) -> bool:
    return len(text) > BARE + len(frames.note)


def _is_structured(result: Any) -> bool:
    return not isinstance(result, str) and wire_text.result_parts(result) is None


def _sent_texts(result: Any) -> Texts:
    parts = None if isinstance(result, str) else wire_text.result_parts(result)
    if parts is None:
        return (wire_text.result_text(result),)
    return tuple(part.text for part in parts if isinstance(part, TextPart))


def _with_texts(result: Any, texts: Texts) -> Any:
    """Put new texts in the places of the old ones."""
    if isinstance(result, str) or _is_structured(result):
        return texts[0]
    new = iter(texts)
    return [{**part, "text": next(new)} if part["type"] == "text" else part for part in result]


def _indented(result: Any) -> str:
    """Write a structured result as indented JSON, with its keys in order."""
    compact = long_json.encode(result)
    if sum(_indentation(result)) > _MOST_INDENTATION:
        return compact.decode()
    return long_json.indented(compact, _INDENT).decode()


def _indentation(value: Any) -> Iterator[int]:
    """Yield the number of characters of indentation, level by level."""
    level, depth = [value], 0
    while level:
        yield 2 * _INDENT * depth * len(level)  # a container's closing bracket has a line too
        nodes = (node for node in level if type(node) is dict or type(node) is list)
        level = [child for node in nodes for child in (node.values() if type(node) is dict else node)]
        depth += 1
