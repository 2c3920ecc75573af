"""Log entries as text for a terminal: messages with their calls and outputs, decisions as one line.

Long calls and outputs are cut, with the command that shows all of them. Control characters are escaped.
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
    ModelChange,
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

__all__ = ["entry_text"]

MAX_LINES = 12
MAX_CHARS = 2_000


def entry_text(id: str, entry: Entry | None, *, whole: bool = False) -> str:
    """Return the text of one log entry; long calls and outputs of a message are cut unless `whole`."""
    if entry is None:
        return styled(harmless(f"[{id} is damaged]"), bold=True)
    if isinstance(entry, Message):
        kind = f" ({entry.kind})" if entry.kind else ""
        heading = f"{entry.role}{kind} · {entry.timestamp} · {entry.id}"
        return "\n".join([styled(harmless(heading), bold=True), *_message_lines(entry, whole=whole)])
    return styled(harmless(_decision_line(entry)), dim=True)


def _message_lines(message: Message, *, whole: bool) -> Iterator[str]:
    for part in message.parts:
        if text := wire_text.described(part):
            yield harmless(text)
    for call in message.tool_calls:
        text = f"→ {call.name} {wire_text.args_text(call)}"
        yield harmless(text if whole else _short(text, message.id))
    for result in message.tool_results:
        text = f"{'✗' if result.is_error else '←'} {_output(result)}"
        yield harmless(text if whole else _short(text, output_id(message, result)))


def _output(result: ToolCallResult) -> str:
    return "\n".join(output_texts(result.result)).rstrip("\n")


def _short(text: str, id: str) -> str:
    """Return the beginning of a text, and the command that shows the rest."""
    lines = text.split("\n")
    shown = "\n".join(lines[:MAX_LINES])[:MAX_CHARS]
    if shown == text:
        return text
    return f"{shown}\n… of {screen.counted(len(lines), 'line')}: turnstate show {id}"


def _decision_line(entry: Entry) -> str:
    match entry:
        case Prompt(text=text):
            return f"— prompt: {text}"
        case Bootstrap(text=text):
            return f"— facts about the user: {text}"
        case ModelChange(id=id, counter=counter):
            return f"— model: {id or 'none'}, counted by {counter}"
        case Cut(asked=asked, kept_from=kept, summary=summary):
            start = f"starts at {kept}" if kept else "starts here"
            return f"— {asked.get('operation', 'cut')}: the window {start}; {summary}".rstrip("; ")
        case Revert(at=at):
            return f"— entry {at} is reverted"
        case Mask(ids=ids, saved=saved, each=each) if each:
            outputs = screen.counted(len(ids), "output")
            return f"— {outputs} shortened to {each:,} tokens each, {saved:,} tokens saved"
        case Mask(ids=ids, saved=saved):
            return f"— {screen.counted(len(ids), 'output')} hidden, {saved:,} tokens saved"
        case Summary():
            return f"— summary: {entry.shown}"
        case Answer(call=call, text=text):
            return f"— {call} has no result: {text}"
        case Usage(input=0, output=0, model=model):
            return f"— answered by {model or 'an unnamed model'}; no token usage reported"
        case Usage(input=input, output=output):
            return f"— token usage: {input:,} in, {output:,} out"
        case Note(text=text):
            return f"— {text}"
        case Settings(fields=fields):
            return f"— settings: {', '.join(fields)}"
        case FileLines(path=path):
            return f"— line counts of {path}"
        case Tangent(started=started):
            return "— tangent started" if started else "— tangent left"
        case Checkpoint(label=label, description=description):
            return f"— checkpoint {label}: {description}"
        case Restore(label=label, undone=undone) if undone:
            return f"— restore of checkpoint {label} undone"
        case Restore(label=label, conversation=conversation):
            return (
                f"— checkpoint {label} restored"
                if conversation
                else f"— files of checkpoint {label} restored"
            )
        case _:
            return f"— {type(entry).__name__}"
