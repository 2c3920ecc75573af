"""The preface: what is sent besides the messages of a conversation, however much of it is cut.

What changes with the session is sent before the messages. The recalled memory, which changes with each turn,
is sent before the question of the turn, after everything that a prompt cache can reuse.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Literal

from msgspec import structs

from ..formats import mended
from ..ids import UNKNOWN_TIME, derived
from ..message import Message
from ..part import TextPart
from ..tokens import Counter, message_cost, tools_cost
from ..tokens.cost import REPLY_START
from ..toolspec import ToolSpec
from ..value import Value, check_string, refuse
from .summary_text import TEMPLATES, bare, label

Category = Literal["system", "bootstrap", "context", "memory", "tools", "summary", "immediate", "short_term"]


class Preface(Value, frozen=True, kw_only=True):
    """System prompt, facts about the user, sticky context, recalled memory, tool definitions.

    Prompt and bootstrap are system messages. Context and memory are data, one user message each: context
    before the first kept message, memory before the newest user message. Memory belongs to a turn: recall it
    once for each user message, and pass the same text until the next one.
    """

    system: str | None = None
    bootstrap: str | None = None
    context: str | None = None
    memory: str | None = None
    tools: tuple[ToolSpec, ...] = ()

    def __post_init__(self) -> None:
        for field in ("system", "bootstrap", "context", "memory"):
            text = getattr(self, field)
            if text is not None and not (type(text) is str and text.isascii()):
                check_string(f"Preface.{field}", text)
        if not (isinstance(self.tools, tuple) and all(isinstance(tool, ToolSpec) for tool in self.tools)):
            refuse("Preface.tools", self.tools, "a tuple of ToolSpec")

    def system_messages(self) -> Iterator[tuple[Category, Message]]:
        """Yield the messages before the summary."""
        if self.system is not None:
            yield "system", _system(self.system, "prompt")
        if self.bootstrap is not None:
            yield "bootstrap", _system(self.bootstrap, "bootstrap")

    def context_message(self) -> Message | None:
        """Return the message with the sticky context, if there is any."""
        return _data(self.context, "context") if self.context is not None else None

    def memory_message(self) -> Message | None:
        """Return the message with the recalled memory, if there is any."""
        return _data(self.memory, "memory") if self.memory is not None else None


def _system(text: str, kind: Literal["prompt", "bootstrap"]) -> Message:
    return Message.system(text, kind=kind, id=derived(kind, text), timestamp=UNKNOWN_TIME)


def _data(text: str, name: str) -> Message:
    return Message.user(text, id=derived(name, text), timestamp=UNKNOWN_TIME)


# The counted preface: the preface as messages with their costs, counted once while it stays the same.


OPENER = Message.user("[The conversation goes on from here.]", id=derived("opener"), timestamp=UNKNOWN_TIME)
"""Sent in place of a question, since every provider requires a user message first."""

_Row = tuple[Category, Message, int]


class CountedPreface:
    """The messages before the conversation (system messages, then context), and the tools, with their costs.

    They include the leading system messages of the conversation, without the summaries among them;
    ``earlier`` is the text of those summaries. The memory is left out: it changes with each turn. `tools` are
    the encoded tools, since a prompt cache is stricter than Python's equality. Counting a long prompt and
    twenty tools takes 1 ms, so a counted preface is used again while it `is_of` the same values.
    """

    def __init__(
        self, preface: Preface, tools: bytes, leading: Sequence[Message], counter: Counter, template: str
    ) -> None:
        def rows(messages: Iterable[tuple[Category, Message]]) -> list[_Row]:
            return [
                (category, message, message_cost(message, counter).tokens) for category, message in messages
            ]

        self.given = preface
        self.tools_sent = tools
        self._made_from = (tuple(leading), counter, template)
        kept, self.earlier = incoming(leading, template)
        self.systems = rows(preface.system_messages())
        self.systems += rows(("system", mended(message)[0]) for message in kept)
        context = preface.context_message()
        self.context = rows([("context", context)] if context else ())
        self.tools = tools_cost(preface.tools, counter).tokens
        self.fixed = self.tools + REPLY_START
        self.tokens = self.fixed + sum(cost for _, _, cost in self.systems + self.context)

    @cached_property
    def opener(self) -> int:
        """The tokens of the message that is sent in place of a question."""
        return message_cost(OPENER, self._made_from[1]).tokens

    def is_of(
        self, preface: Preface, tools: bytes, leading: Sequence[Message], counter: Counter, template: str
    ) -> bool:
        """Return True if it would be made again of these."""
        given = self.given
        texts = (given.system, given.bootstrap, given.context)
        same = texts == (preface.system, preface.bootstrap, preface.context)
        same = same and self._made_from == (tuple(leading), counter, template)
        return same and self.tools_sent == tools


def check_tools(tools: object) -> None:
    """Raise `InvalidSetting` unless these are tool definitions."""
    for number, tool in enumerate(tools) if isinstance(tools, list | tuple) else [(0, tools)]:
        if not isinstance(tool, ToolSpec):
            refuse(f"tools[{number}]", tool, "a ToolSpec(name=…, description=…, input_schema=…)")


# Incoming summaries: they are removed from the messages, and the next cut folds them in.


def incoming(leading: Sequence[Message], template: str) -> tuple[list[Message], str]:
    """Return leading system messages without the summaries among them, and the summaries as one text.

    A provider's document has no message kinds, so a summary in it is recognized by our templates.
    """
    found = [(message, _summary(message, template)) for message in leading]
    rest = [_without(message, template) if text else message for message, text in found]
    return [message for message in rest if message is not None], " ".join(text for _, text in found if text)


def _summary(message: Message, template: str) -> str:
    """Return the text of a summary message, or of the summary at the end of a foreign system message."""
    last = message.parts[-1]
    if message.kind == "summary":
        return bare(template, message.text)
    if not isinstance(last, TextPart) or message.kind != "foreign":
        return ""
    text = bare(template if label(template) else "", last.text)
    return "" if text == last.text.strip() else text


def _without(message: Message, template: str) -> Message | None:
    """Return a system message without the summary at its end; None if nothing else is in it."""
    parts, native = message.parts[:-1], message.native
    if not parts or message.kind == "summary":
        return None
    if native:
        # Marks on the other blocks stay; an edit that would write the summary back is dropped.
        labels = [one for one in map(label, (template, *TEMPLATES.values())) if one]
        edits = tuple(edit for edit in native.edits if not any(one in str(edit.to) for one in labels))
        native = structs.replace(native, edits=edits)
    return structs.replace(message, content=parts, native=native)
