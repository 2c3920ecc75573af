"""``turnstate count``: the tokens of conversations, as the model would be sent them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import click

from ... import tokens
from ...cli_kit import screen
from ...formats.port import Format
from ...tokens import Count, Counter
from .. import documents, options
from ..documents import Conversation, walk

__all__ = ["command"]

DEFAULT_COUNTER = "o200k_base"


@click.command("count", epilog=options.EPILOG)
@options.file
@options.input_format
@click.option("--counter", metavar="NAME", help=f"The counter to use.  [default: {DEFAULT_COUNTER}]")
@click.option("--model", metavar="NAME", help="Use the counter of this model instead.")
@options.as_json
@options.keep_going
def command(
    file: str | None, source: Format, counter: str | None, model: str | None, as_json: bool, keep_going: bool
) -> int:
    """Count the tokens of a conversation, tool definitions included.

    FILE is a JSON document (a list of messages, or an object that holds one) or JSONL with a
    conversation a line; nothing or - is standard input. A count is exact where the counter is
    the model's own, and says so where it is an estimate. Many conversations get a line each and
    a total.

    \b
    Example:
      turnstate count messages.json
      turnstate count --model gpt-4o --json < conversations.jsonl

    \b
    With --json, one object a conversation:
      id        what the conversation calls itself, or null
      line      its line in the JSONL, or null for a single document
      messages  how many messages the document holds
      tokens    what they and the tool definitions cost
      quality   exact or estimated
      counter   the counter used
    """
    if counter and model:
        raise click.UsageError("give --counter or --model, not both")
    chosen = tokens.counter_for(model) if model else tokens.counter(counter or DEFAULT_COUNTER)
    tally = _Tally(source, chosen, as_json)
    result = walk(file, tally.add, keep_going=keep_going)
    if result.many and not as_json:
        _show_row(tally.total, tally.messages, f"total of {result.good:,}")
    return 2 if result.bad else 0


@dataclass
class _Tally:
    """Counts, shown as they are made, and their sum."""

    source: Format
    counter: Counter
    as_json: bool
    messages: int = 0
    total: Count = field(default_factory=Count)

    def add(self, conversation: Conversation) -> None:
        """Count one conversation and show what it costs."""
        payload = conversation.payload
        messages, tools = self.source.parse(payload), self.source.tools(payload)
        cost = tokens.conversation_cost(messages, self.counter, tools=tools)
        size = documents.size(payload, self.source)
        self.messages += size
        self.total += cost
        if self.as_json:
            screen.show(documents.compact(self._fields(conversation, size, cost)))
        elif conversation.line is not None:
            _show_row(cost, size, conversation.label)
        else:
            said = f"{screen.counted(cost.tokens, 'token')} in {screen.counted(size, 'message')}"
            screen.show(f"{said} ({self.counter.name}, {cost.quality})")

    def _fields(self, conversation: Conversation, size: int, cost: Count) -> dict[str, Any]:
        return {
            "id": conversation.id,
            "line": conversation.line,
            "messages": size,
            "tokens": cost.tokens,
            "quality": cost.quality,
            "counter": self.counter.name,
        }


def _show_row(cost: Count, messages: int, label: str) -> None:
    screen.show(f"{cost.tokens:>11,} tokens  {messages:>7,} messages  {cost.quality:<9}  {label}")
