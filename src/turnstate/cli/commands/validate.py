"""``turnstate validate``: report what a provider would reject in conversations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import click
from msgspec import to_builtins

from ...formats.port import Format, Violation
from ...plain_text import counted
from ...terminal import screen
from .. import documents, options
from ..documents import Conversation, walk


@click.command("validate", epilog=options.EPILOG)
@options.files
@options.input_format
@click.option("--request", is_flag=True, help="Also apply the rules for the last message of a request.")
@click.option("--strict", is_flag=True, help="Treat fields that the provider does not define as violations.")
@options.json_option("Print one JSON object per conversation.")
@options.keep_going
def command(
    files: tuple[str, ...], source: Format, request: bool, strict: bool, as_json: bool, keep_going: bool
) -> int:
    """Report what the provider would reject: unanswered calls, orphaned results, empty texts and so on.

    FILE is a JSON document (a list of messages, or an object that contains one) or JSONL with one
    conversation, or one message, per line; without it, or with -, standard input is read. Each violation is
    one line: the conversation (for JSONL), the message's index from 0, the rule, the id concerned,
    the reason. A stored conversation may end with any message; use --request to check one that is
    about to be sent. Fields that occur only in responses, like a usage, are violations. Fields that
    the provider does not define are warnings, since a compatible server may accept them; with
    --strict they are violations.

    \b
    Example:
      turnstate validate messages.json
      turnstate validate --format anthropic --request --json < request.json

    \b
    With --json, one object per conversation:
      id          the document's own id, or null
      file        the file, if there are several
      line        its line in the JSONL, or null for a single document
      messages    number of messages in the document
      valid       true or false
      violations  a list of {rule, index, id, text}
      warnings    a list of the same; empty with --strict
    """
    validation = _Validation(source, request, strict, as_json)
    result = walk(files, source, validation.check, keep_going=keep_going)
    if result.many and not as_json:
        validation.show_total(result.good)
    if result.bad:
        return 2
    return 1 if validation.invalid else 0


def described(violation: Violation) -> str:
    """Return a violation as one line without control characters."""
    concerned = f" ({violation.id})" if violation.id else ""
    return screen.escaped(f"message {violation.index}: {violation.rule}{concerned}: {violation.text}")


@dataclass
class _Validation:
    """Validates conversations, shows the violations, and counts them."""

    source: Format
    request: bool
    strict: bool
    as_json: bool
    invalid: int = 0
    violations: int = 0

    def check(self, conversation: Conversation) -> None:
        """Validate one conversation and show its violations."""
        payload = documents.unlabeled(conversation.payload)
        found = self.source.validate(payload, request=self.request, strict=self.strict)
        warnings = [] if self.strict else self.source.warnings(payload)
        self.invalid += bool(found)
        self.violations += len(found)
        if self.as_json:
            screen.show(documents.compact(self._fields(conversation, found, warnings)))
            return
        place = f"{conversation.label}: " if conversation.many else ""
        for violation in found:
            screen.show(place + described(violation))
        for warning in warnings:
            screen.show(f"{place}warning: {described(warning)}")
        if not conversation.many:
            self._show_one(conversation, found)

    def show_total(self, conversations: int) -> None:
        """Show the number of valid conversations."""
        valid = f"{conversations - self.invalid:,} of {counted(conversations, 'conversation')}"
        screen.show(f"{valid} valid for {self.source.name}, {counted(self.violations, 'violation')}")

    def _show_one(self, conversation: Conversation, found: list[Violation]) -> None:
        messages = counted(documents.size(conversation.payload, self.source), "message")
        if found:
            count = counted(len(found), "violation")
            screen.show(f"not valid for {self.source.name}: {count} in {messages}")
        else:
            screen.show(f"valid for {self.source.name}: {messages}")

    def _fields(
        self, conversation: Conversation, found: list[Violation], warnings: list[Violation]
    ) -> dict[str, Any]:
        return {
            **conversation.place,
            "messages": documents.size(conversation.payload, self.source),
            "valid": not found,
            "violations": [to_builtins(violation) for violation in found],
            "warnings": [to_builtins(warning) for warning in warnings],
        }
