"""``turnstate convert``: rewrite conversations for another provider, or as a transcript."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import click

from ... import formats
from ...errors import InputError
from ...formats.exports import jsonl, markdown
from ...formats.port import Format
from ...message import Message
from ...plain_text import harmless
from ...terminal import screen
from .. import destination, documents, options
from ..documents import Conversation, walk
from .validate import described

Transcript = Callable[[Conversation, Sequence[Message]], str]


def _markdown(conversation: Conversation, messages: Sequence[Message]) -> str:
    """Return Markdown, with a title if the conversation is one of several."""
    text = harmless(markdown(messages).rstrip("\n"))
    return text if not conversation.many else f"# {conversation.label}\n\n{text}\n"


def _jsonl(conversation: Conversation, messages: Sequence[Message]) -> str:
    """Return JSON Lines: a header, then one message per line; a file can hold only one conversation."""
    if conversation.many:
        raise InputError("jsonl holds one conversation, one message per line; convert them one by one")
    return "".join(jsonl(messages)).rstrip("\n")


TRANSCRIPTS: dict[str, Transcript] = {"markdown": _markdown, "jsonl": _jsonl}
"""The formats that `convert` writes besides the provider formats."""


def _target(_ctx: click.Context, _option: click.Parameter, name: str) -> Format | Transcript:
    return TRANSCRIPTS.get(name) or options.named_format(name, *TRANSCRIPTS)


@click.command("convert", epilog=options.EPILOG)
@options.files
@options.format_option("--from", "source", "Provider format of the input.", required=True)
@click.option(
    "--to",
    "target",
    metavar="NAME",
    required=True,
    callback=_target,
    help="Provider format of the output; or markdown; or jsonl, one message per line.",
)
@options.output_options
@options.quiet_option
@options.keep_going
def command(
    files: tuple[str, ...],
    source: Format,
    target: Format | Transcript,
    output: str | None,
    force: bool,
    quiet: bool,
    keep_going: bool,
) -> int:
    """Rewrite conversations, tool calls and tool definitions for another provider, or as Markdown.

    FILE is a JSON document (a list of messages, or an object that contains one) or JSONL with one
    conversation, or one message, per line; without it, or with -, standard input is read. The output has the
    same shape: an indented document, or compact JSONL. Fields that the provider does not define,
    like the id of a line, are passed on. What the target format cannot express is reported on
    stderr, and so is what the provider would reject in the result; the result is written anyway.

    \b
    Example:
      turnstate convert --from openai-chat --to anthropic messages.json
      turnstate convert --from anthropic --to gemini -o out.jsonl in.jsonl
      turnstate convert --from openai-chat --to markdown messages.json

    The output is already JSON, so there is no --json.
    """
    with destination.opened(output, force=force) as write:
        conversion = (
            _Conversion(source, target, quiet, write)
            if isinstance(target, Format)
            else _Transcription(source, target, write)
        )
        result = walk(files, source, conversion.convert, keep_going=keep_going, flag="--from")
    if result.bad:
        return 2
    return 1 if conversion.rejected else 0


@dataclass
class _Conversion:
    """Converts and writes conversations, and counts those that the provider would reject."""

    source: Format
    target: Format
    quiet: bool
    write: destination.Write
    rejected: int = 0

    def convert(self, conversation: Conversation) -> None:
        """Convert and write one conversation, and report what was lost or would be rejected."""
        rendering = formats.convert(conversation.payload, self.source, self.target)
        fields = documents.annotations_of(conversation.payload, self.source)
        payload = documents.annotated(rendering.document, fields, self.target)
        self.write(documents.compact(payload) if conversation.many else documents.indented(payload))
        lost = [
            f"the field `{key}` is replaced by the provider's own"
            for key in documents.clashes(payload, fields)
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
    """Writes conversations as transcripts, which no provider can reject."""

    source: Format
    transcript: Transcript
    write: destination.Write
    rejected: int = 0

    def convert(self, conversation: Conversation) -> None:
        """Write one conversation."""
        self.write(self.transcript(conversation, self.source.parse(conversation.payload)))
