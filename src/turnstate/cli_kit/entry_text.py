"""A conversation for people at a terminal: who said what, long output cut to its beginning.

What is cut says how to see all of it. Characters that a terminal would act on are spelled out.
"""

from __future__ import annotations

from collections.abc import Iterator

from .. import wire_text
from ..context.reduction import output_id, output_texts
from ..entry import (
    Answer,
    Bootstrap,
    Checkpoint,
    Cut,
    Entry,
    FileLines,
    Mask,
    Note,
    Prompt,
    Restore,
    Revert,
    Settings,
    Summary,
    Tangent,
    Usage,
)
from ..message import Message, ToolCallResult
from . import screen
from .screen import harmless, styled

__all__ = ["told"]

MOST_LINES = 12
LONGEST = 2_000


def told(id: str, entry: Entry | None, *, whole: bool = False) -> str:
    """Tell one entry of a log; a message whole, or with its long calls and outputs cut."""
    if entry is None:
        return styled(harmless(f"[{id} is damaged]"), bold=True)
    if isinstance(entry, Message):
        kind = f" ({entry.kind})" if entry.kind else ""
        heading = f"{entry.role}{kind} · {entry.timestamp} · {entry.id}"
        return "\n".join([styled(harmless(heading), bold=True), *_said(entry, whole=whole)])
    return styled(harmless(_noted(entry)), dim=True)


def _said(message: Message, *, whole: bool) -> Iterator[str]:
    for part in message.parts:
        if text := wire_text.described(part):
            yield harmless(text)
    for call in message.tool_calls:
        text = f"→ {call.name} {wire_text.args_text(call.args)}"
        yield harmless(text if whole else _short(text, message.id))
    for result in message.tool_results:
        text = f"{'✗' if result.is_error else '←'} {_output(result)}"
        yield harmless(text if whole else _short(text, output_id(message, result)))


def _output(result: ToolCallResult) -> str:
    return "\n".join(output_texts(result.result)).rstrip("\n")


def _short(text: str, id: str) -> str:
    """Give the beginning of a text, and where the rest is."""
    lines = text.split("\n")
    shown = "\n".join(lines[:MOST_LINES])[:LONGEST]
    if shown == text:
        return text
    return f"{shown}\n… of {screen.counted(len(lines), 'line')}: turnstate show {id}"


def _noted(entry: Entry) -> str:
    match entry:
        case Prompt(text=text):
            return f"— prompt: {text}"
        case Bootstrap(text=text):
            return f"— what is known of the user: {text}"
        case Cut(asked=asked, kept_from=kept, summary=summary):
            begins = f"begins at {kept}" if kept else "begins here"
            return f"— {asked.get('operation', 'cut')}: the window {begins}; {summary}".rstrip("; ")
        case Revert(at=at):
            return f"— entry {at} is taken back"
        case Mask(ids=ids, saved=saved, each=each) if each:
            outputs = screen.counted(len(ids), "output")
            return f"— {outputs} shortened to {each:,} tokens each, {saved:,} tokens saved"
        case Mask(ids=ids, saved=saved):
            return f"— {screen.counted(len(ids), 'output')} hidden, {saved:,} tokens saved"
        case Summary():
            return f"— summary: {entry.shown}"
        case Answer(call=call, text=text):
            return f"— {call} never got a result: {text}"
        case Usage(input=0, output=0, model=model):
            return f"— answered by {model or 'a model without a name'}; no tokens were counted"
        case Usage(input=input, output=output):
            return f"— the provider counted {input:,} tokens in and {output:,} out"
        case Note(text=text):
            return f"— {text}"
        case Settings(fields=fields):
            return f"— settings: {', '.join(fields)}"
        case FileLines(path=path):
            return f"— the lines of {path}"
        case Tangent(started=started):
            return "— a tangent begins" if started else "— back from a tangent"
        case Checkpoint(label=label, description=description):
            return f"— checkpoint {label}: {description}"
        case Restore(label=label, undone=undone) if undone:
            return f"— the files are as they were before checkpoint {label} was restored"
        case Restore(label=label, conversation=conversation):
            return f"— back to checkpoint {label}" if conversation else f"— files of checkpoint {label}"
        case _:
            return f"— {type(entry).__name__}"
