"""``turnstate convert``: the same conversations, in the format of another provider, or as a transcript."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import click

from ... import formats
from ...cli_kit import screen
from ...cli_kit.screen import harmless
from ...errors import InputError
from ...formats.exports import jsonl, markdown
from ...formats.port import Format
from ...message import Message
from .. import destination, documents, options
from ..documents import Conversation, walk
from .validate import described

__all__ = ["TRANSCRIPTS", "Transcript", "command"]

# Conversations in no provider's format: Markdown for people, JSON Lines as Turnstate keeps messages.


Transcript = Callable[[Conversation, Sequence[Message]], str]


def _markdown(conversation: Conversation, messages: Sequence[Message]) -> str:
    """Write Markdown; among many, each conversation has a title."""
    text = harmless(markdown(messages).rstrip("\n"))
    return text if conversation.line is None else f"# {conversation.label}\n\n{text}\n"


def _jsonl(conversation: Conversation, messages: Sequence[Message]) -> str:
    """Write a header and a message a line, which is one conversation."""
    if conversation.line is not None:
        raise InputError("jsonl holds one conversation, a message a line; convert the lines one by one")
    return "".join(jsonl(messages)).rstrip("\n")


TRANSCRIPTS: dict[str, Transcript] = {"markdown": _markdown, "jsonl": _jsonl}
"""What `convert` writes besides the formats of providers."""


def _found(_ctx: click.Context, _option: click.Parameter, name: str) -> Format | Transcript:
    return TRANSCRIPTS.get(name) or formats.get(name)


@click.command("convert", epilog=options.EPILOG)
@options.file
@options.format_option("--from", "source", "Provider format of the input.", required=True)
@click.option(
    "--to",
    "target",
    metavar="NAME",
    required=True,
    callback=_found,
    help="Provider format of the output; or markdown, for people; or jsonl, a message a line.",
)
@click.option("--output", metavar="FILE", help="Write to this file, which appears complete or not at all.")
@click.option("--force", is_flag=True, help="Replace the --output file if it exists.")
@click.option("--quiet", is_flag=True, help="Do not tell what had to be left out.")
@options.keep_going
def command(
    file: str | None,
    source: Format,
    target: Format | Transcript,
    output: str | None,
    force: bool,
    quiet: bool,
    keep_going: bool,
) -> int:
    """Rewrite conversations, tool calls and definitions for another provider, or for people.

    FILE is a JSON document (a list of messages, or an object that holds one) or JSONL with a
    conversation a line; nothing or - is standard input. The output has the same shape: an
    indented document, or compact JSONL. Fields that are none of the provider's, like the id of
    a line, are passed on. What the other provider cannot be given is told on stderr, and so is
    what it would reject in the result, which is written nevertheless.

    \b
    Example:
      turnstate convert --from openai-chat --to anthropic messages.json
      turnstate convert --from anthropic --to gemini --output out.jsonl in.jsonl
      turnstate convert --from openai-chat --to markdown messages.json

    The output is JSON as the provider takes it; there is nothing more that --json could give.
    """
    with destination.opened(output, force=force) as write:
        conversion = (
            _Conversion(source, target, quiet, write)
            if isinstance(target, Format)
            else _Transcription(source, target, write)
        )
        result = walk(file, conversion.convert, keep_going=keep_going)
    if result.bad:
        return 2
    return 1 if conversion.rejected else 0


@dataclass
class _Conversion:
    """Conversations, written as they are converted, and how many the provider would reject."""

    source: Format
    target: Format
    quiet: bool
    write: destination.Write
    rejected: int = 0

    def convert(self, conversation: Conversation) -> None:
        """Convert one conversation, write it, and tell what is to be known about it."""
        rendering = formats.convert(conversation.payload, self.source, self.target)
        fields = documents.annotations_of(conversation.payload, self.source)
        payload = documents.annotated(rendering.payload, fields, self.target)
        self.write(documents.indented(payload) if conversation.line is None else documents.compact(payload))
        lost = [
            f"the field `{key}` gives way to the provider's own" for key in documents.clashes(payload, fields)
        ]
        if not self.quiet:
            for note in (*rendering.left_out, *lost):
                screen.say(f"{conversation.where}: note: {note}")
        violations = self.target.validate(payload)
        self.rejected += bool(violations)
        for violation in violations:
            screen.say(
                f"{conversation.where}: {self.target.name} would reject the result: {described(violation)}"
            )


@dataclass
class _Transcription:
    """Conversations, written as no provider takes them, so that none rejects them."""

    source: Format
    transcript: Transcript
    write: destination.Write
    rejected: int = 0

    def convert(self, conversation: Conversation) -> None:
        """Write one conversation."""
        self.write(self.transcript(conversation, self.source.parse(conversation.payload)))
