"""``turnstate validate``: would the provider take these conversations, or answer 400?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import click
from msgspec import to_builtins

from ...cli_kit import screen
from ...formats.port import Format, Violation
from .. import documents, options
from ..documents import Conversation, walk

__all__ = ["command", "described"]


@click.command("validate", epilog=options.EPILOG)
@options.file
@options.input_format
@click.option("--request", is_flag=True, help="Apply the rules about the last message of a request, too.")
@click.option("--strict", is_flag=True, help="Count fields that the provider does not declare as violations.")
@options.as_json
@options.keep_going
def command(
    file: str | None, source: Format, request: bool, strict: bool, as_json: bool, keep_going: bool
) -> int:
    """Say what the provider would reject: unanswered calls, orphaned results, empty texts and so on.

    FILE is a JSON document (a list of messages, or an object that holds one) or JSONL with a
    conversation a line; nothing or - is standard input. Each violation is one line: the
    conversation (where there are many), the message's index from 0, the rule, the id concerned,
    the reason. A conversation in the log may end as it likes; one that is about to be sent is
    checked with --request. Fields that only responses hold, like a usage, are violations. Fields
    that the provider does not declare are warnings, which leave a conversation valid, since a
    compatible server may take them; with --strict they are violations.

    \b
    Example:
      turnstate validate messages.json
      turnstate validate --format anthropic --request --json < request.json

    \b
    With --json, one object a conversation:
      id          what the conversation calls itself, or null
      line        its line in the JSONL, or null for a single document
      messages    how many messages the document holds
      valid       true or false
      violations  a list of {rule, index, id, text}
      warnings    a list of the same; empty with --strict
    """
    verdict = _Verdict(source, request, strict, as_json)
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
    strict: bool
    as_json: bool
    invalid: int = 0
    violations: int = 0

    def judge(self, conversation: Conversation) -> None:
        """Judge one conversation and show what is wrong with it."""
        payload = documents.unlabeled(conversation.payload)
        found = self.source.validate(payload, request=self.request, strict=self.strict)
        warnings = [] if self.strict else self.source.warnings(payload)
        self.invalid += bool(found)
        self.violations += len(found)
        if self.as_json:
            screen.show(documents.compact(self._judgement(conversation, found, warnings)))
            return
        place = "" if conversation.line is None else f"{conversation.label}: "
        for violation in found:
            screen.show(place + described(violation))
        for warning in warnings:
            screen.show(f"{place}warning: {described(warning)}")
        if conversation.line is None:
            self._show_one(conversation, found)

    def show_total(self, conversations: int) -> None:
        """Show how many conversations are valid."""
        valid = f"{conversations - self.invalid:,} of {screen.counted(conversations, 'conversation')}"
        screen.show(f"{valid} valid for {self.source.name}, {screen.counted(self.violations, 'violation')}")

    def _show_one(self, conversation: Conversation, found: list[Violation]) -> None:
        messages = screen.counted(documents.size(conversation.payload, self.source), "message")
        if found:
            count = screen.counted(len(found), "violation")
            screen.show(f"not valid for {self.source.name}: {count} in {messages}")
        else:
            screen.show(f"valid for {self.source.name}: {messages}")

    def _judgement(
        self, conversation: Conversation, found: list[Violation], warnings: list[Violation]
    ) -> dict[str, Any]:
        return {
            "id": conversation.id,
            "line": conversation.line,
            "messages": documents.size(conversation.payload, self.source),
            "valid": not found,
            "violations": [to_builtins(violation) for violation in found],
            "warnings": [to_builtins(warning) for warning in warnings],
        }
