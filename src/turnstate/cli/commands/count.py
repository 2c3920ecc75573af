"""``turnstate count``: count the tokens of conversations as they would be sent to a model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import click
from click.core import ParameterSource

from ... import tokens
from ...formats.port import Format
from ...plain_text import counted
from ...terminal import screen
from ...tokens import Count, Counter
from .. import documents, options
from ..documents import Conversation, walk

DEFAULT_COUNTER = "o200k_base"


@click.command("count", epilog=options.EPILOG)
@options.files
@options.input_format
@click.option("--counter", metavar="NAME", help=f"The counter to use.  [default: {DEFAULT_COUNTER}]")
@options.model_option("Use the counter of this model instead.")
@options.json_option("Print one JSON object per conversation.")
@options.keep_going
@click.pass_context
def command(
    ctx: click.Context,
    files: tuple[str, ...],
    source: Format,
    counter: str | None,
    model: str | None,
    as_json: bool,
    keep_going: bool,
) -> int:
    """Count the tokens of a conversation, tool definitions included.

    FILE is a JSON document (a list of messages, or an object that contains one) or JSONL with one
    conversation, or one message, per line; without it, or with -, standard input is read. A count is exact
    if the counter is the model's own, and otherwise marked as estimated. For JSONL, each
    conversation gets a line, followed by a total.

    \b
    Example:
      turnstate count messages.json
      turnstate count --model gpt-4o --json < conversations.jsonl

    \b
    With --json, one object per conversation:
      id        the document's own id, or null
      file      the file, if there are several
      line      its line in the JSONL, or null for a single document
      messages  number of messages in the document
      tokens    tokens of messages and tool definitions
      quality   exact or estimated
      counter   the counter used
    """
    if counter and ctx.get_parameter_source("model") is ParameterSource.COMMANDLINE:
        raise click.UsageError("pass --counter or --model, not both")
    by_model = tokens.counter_for(model) if model and not counter else None
    chosen = by_model or tokens.counter(counter or DEFAULT_COUNTER)
    tally = _Tally(source, chosen, as_json)
    result = walk(files, source, tally.add, keep_going=keep_going)
    if result.many and not as_json:
        _show_row(tally.total, tally.messages, f"total of {result.good:,}")
    return 2 if result.bad else 0


@dataclass
class _Tally:
    """Counts conversations, shows each count, and adds them up."""

    source: Format
    counter: Counter
    as_json: bool
    messages: int = 0
    total: Count = field(default_factory=Count)

    def add(self, conversation: Conversation) -> None:
        """Count one conversation and show the result."""
        payload = conversation.payload
        messages, tools = self.source.parse(payload), self.source.tools(payload)
        cost = tokens.conversation_cost(messages, self.counter, tools=tools)
        size = documents.size(payload, self.source)
        self.messages += size
        self.total += cost
        if self.as_json:
            screen.show(documents.compact(self._fields(conversation, size, cost)))
        elif conversation.many:
            _show_row(cost, size, conversation.label)
        else:
            text = f"{counted(cost.tokens, 'token')} in {counted(size, 'message')}"
            screen.show(f"{text} ({self.counter.name}, {cost.quality})")

    def _fields(self, conversation: Conversation, size: int, cost: Count) -> dict[str, Any]:
        return {
            **conversation.place,
            "messages": size,
            "tokens": cost.tokens,
            "quality": cost.quality,
            "counter": self.counter.name,
        }


def _show_row(cost: Count, messages: int, label: str) -> None:
    screen.show(f"{cost.tokens:>11,} tokens  {messages:>7,} messages  {cost.quality:<9}  {label}")
