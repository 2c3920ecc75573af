"""``holdfast validate``: would the provider take these conversations, or answer 400?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import click

from ..formats.port import Format, Violation
from . import document, options, screen
from .conversations import Conversation, walk

__all__ = ["command", "described"]


@click.command("validate", epilog=options.EPILOG)
@options.file
@options.input_format
@click.option("--request", is_flag=True, help="Apply the rules about the last message of a request, too.")
@options.as_json
@options.keep_going
def command(file: str | None, source: Format, request: bool, as_json: bool, keep_going: bool) -> int:
    """Say what the provider would reject: unanswered calls, orphaned results, empty texts and so on.

    FILE is a JSON document (a list of messages, or an object that holds one) or JSONL with a
    conversation a line; nothing or - is standard input. Each violation is one line: the
    conversation (where there are many), the message's index from 0, the rule, the id concerned,
    the reason. A conversation in the log may end as it likes; one that is about to be sent is
    checked with --request.

    \b
    Example:
      holdfast validate messages.json
      holdfast validate --format anthropic --request --json < request.json

    \b
    With --json, one object a conversation:
      id          what the conversation calls itself, or null
      line        its line in the JSONL, or null for a single document
      messages    how many messages the document holds
      valid       true or false
      violations  a list of {rule, index, id, text}
    """
    verdict = _Verdict(source, request, as_json)
    result = walk(file, verdict.judge, keep_going=keep_going)
    if result.many and not as_json:
        verdict.show_total(result.good)
    if result.bad:
        return 2
    return 1 if verdict.invalid else 0


def described(violation: Violation) -> str:
    """Write a violation as one harmless line."""
    concerned = f" ({violation.id})" if violation.id else ""
    return screen.escaped(f"message {violation.index}: {violation.rule}{concerned}: {violation.text}")


@dataclass
class _Verdict:
    """Judgements, shown as they are made, and how many went wrong."""

    source: Format
    request: bool
    as_json: bool
    invalid: int = 0
    violations: int = 0

    def judge(self, conversation: Conversation) -> None:
        """Judge one conversation and show what is wrong with it."""
        found = self.source.validate(conversation.payload, request=self.request)
        self.invalid += bool(found)
        self.violations += len(found)
        if self.as_json:
            screen.show(document.compact(self._judgement(conversation, found)))
            return
        place = "" if conversation.line is None else f"{conversation.label}: "
        for violation in found:
            screen.show(place + described(violation))
        if conversation.line is None:
            self._show_one(conversation, found)

    def show_total(self, conversations: int) -> None:
        """Show how many conversations are valid."""
        valid = f"{conversations - self.invalid:,} of {screen.counted(conversations, 'conversation')}"
        screen.show(f"{valid} valid for {self.source.name}, {screen.counted(self.violations, 'violation')}")

    def _show_one(self, conversation: Conversation, found: list[Violation]) -> None:
        messages = screen.counted(document.size(conversation.payload, self.source), "message")
        if found:
            count = screen.counted(len(found), "violation")
            screen.show(f"not valid for {self.source.name}: {count} in {messages}")
        else:
            screen.show(f"valid for {self.source.name}: {messages}")

    def _judgement(self, conversation: Conversation, found: list[Violation]) -> dict[str, Any]:
        return {
            "id": conversation.id,
            "line": conversation.line,
            "messages": document.size(conversation.payload, self.source),
            "valid": not found,
            "violations": [
                {"rule": one.rule, "index": one.index, "id": one.id, "text": one.text} for one in found
            ],
        }
