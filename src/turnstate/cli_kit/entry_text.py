"""Log entries as text for a terminal: messages with their calls and outputs, decisions as one line.

Long calls and outputs are cut, followed by the command that shows all of it. Control characters are escaped.
"""

from __future__ import annotations

from collections.abc import Iterator

from .. import wire_text
from ..context.reduction import output_id, output_texts
from ..entry import Entry
from ..message import Message, ToolCallResult
from ..plain_text import counted, harmless
from ..report.entry_lines import described
from .screen import styled

MAX_LINES = 12
MAX_CHARS = 2_000

COLORS = {"user": "blue", "assistant": "green", "tool": "yellow", "system": "magenta"}
"""The color of a message's heading, by its role."""


def entry_text(id: str, entry: Entry | None, *, whole: bool = False) -> str:
    """Return the text of one log entry; long calls and outputs of a message are cut unless `whole`."""
    if entry is None:
        return styled(harmless(f"[{id} is damaged]"), bold=True)
    if isinstance(entry, Message):
        kind = f" ({entry.kind})" if entry.kind else ""
        heading = f"{entry.role}{kind} · {entry.timestamp} · {entry.id}"
        title = styled(harmless(heading), bold=True, fg=COLORS[entry.role])
        return "\n".join([title, *_message_lines(entry, whole=whole)])
    return styled(harmless(f"— {described(entry)}"), dim=True)


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
    return f"{shown}\n… of {counted(len(lines), 'line')}: turnstate show {id}"
