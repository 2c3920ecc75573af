"""What ``turnstate show`` prints: a session from its head back, an entry, or an output as it was."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import click

from .. import codec
from ..archive.path import conversation, rows_of
from ..context import lines as text_lines
from ..context.reduce import full_range, output_texts
from ..errors import NotFound, StoreDamaged
from ..formats.markdown import markdown
from ..message import Message, ToolCallResult
from ..session.loading import entry_of, path_to, rows_backwards
from ..stores.port import Log
from ..stores.values import MESSAGE, Row, SessionRow
from . import document, screen
from .moments import iso
from .screen import harmless, styled
from .session_fields import entries, fields, state
from .telling import told

__all__ = ["ALL", "Lines", "Showing"]

ALL = 10**12
"""A line behind the last of any text."""


class Lines(NamedTuple):
    """Some lines of a text, from 1, both ends included."""

    first: int
    last: int


@dataclass(frozen=True)
class Showing:
    """What to show of what is found, and how."""

    last: int | None
    lines: Lines | None
    as_json: bool
    as_markdown: bool
    raw: bool = False

    async def session(self, log: Log, row: SessionRow) -> None:
        """Show a session: what is known of it, and its messages."""
        if self.lines:
            raise click.UsageError(f"--lines is for a message or an output, and {row.id} is a session")
        if not (self.as_json or self.as_markdown):
            await self._tell(log, row)
            return
        found = await conversation(log, row)
        messages = found.messages[-self.last :] if self.last else found.messages
        if self.as_json:
            told = {**fields(row), "messages": [codec.to_builtins(message) for message in messages]}
            screen.show(document.compact(told))
        else:
            _document(markdown(messages if self.last else found.told))

    def entry(self, session: SessionRow, row: Row, id: str) -> None:
        """Show an entry, or the output that the id means."""
        if self.last is not None:
            raise click.UsageError(f"--last is for a session, and {id} is a message")
        entry, call = entry_of(row), id[len(row.id) + 1 :]
        if entry is None:
            raise StoreDamaged(
                f"the entry {row.id} of session {session.id} is damaged; run `turnstate verify`"
            )
        if not isinstance(entry, Message):
            screen.show(row.body.decode()) if self.as_json else _print(told(row.id, entry))
        elif result := _meant(entry, call):
            self._output(session, entry, result, id)
        else:
            self._message(session, entry)

    async def _tell(self, log: Log, row: SessionRow) -> None:
        _print(_heading(row))
        if self.last is None:
            async for one in rows_of(log, row):
                _print(f"\n{told(one.id, entry_of(one))}")
        else:
            for one in await _newest(log, row, self.last):
                _print(f"\n{told(one.id, entry_of(one))}")

    def _message(self, session: SessionRow, message: Message) -> None:
        if self.lines:
            self._text(message.text, {"id": message.id, "session": session.id})
        elif self.as_json:
            screen.show(document.compact({**codec.to_builtins(message), "session": session.id}))
        elif self.as_markdown:
            _document(markdown([message]))
        else:
            _print(told(message.id, message, whole=True))

    def _output(self, session: SessionRow, message: Message, result: ToolCallResult, id: str) -> None:
        place = {"id": id, "session": session.id, "call": result.tool_call_id, "is_error": result.is_error}
        if self.as_json and not self.lines:
            screen.show(document.compact({**place, "result": result.result}))
        elif self.as_markdown and not self.lines:
            _document(markdown([message.replace(tool_results=(result,))]))
        else:
            self._text("\n".join(output_texts(result.result)), place)

    def _text(self, text: str, place: dict[str, Any]) -> None:
        shown = full_range(text, *self.lines) if self.lines else text
        if self.as_json:
            first, last = self.lines or (1, ALL)
            of = text_lines.count(text)
            told = {**place, "text": shown, "lines": [first, min(last, of)], "of": of}
            screen.show(document.compact(told))
        elif self.raw:
            _document(shown)
        else:
            _print(harmless(shown))


def _heading(row: SessionRow) -> str:
    known = [
        f"user {row.user}" if row.user else "",
        f"tags {', '.join(row.tags)}" if row.tags else "",
        f"{state(row)}{f' ({row.reason})' if row.reason else ''}",
        entries(row.seq),
        f"{row.total:,} tokens",
        f"epoch {row.epoch}" if row.epoch > 1 else "",
        f"created {iso(row.created)}",
        f"active {iso(row.active)}",
    ]
    title = f" “{row.title}”" if row.title else ""
    said = " · ".join(one for one in known if one)
    return f"{styled(screen.escaped(f'session {row.id}{title}'), bold=True)}\n{screen.escaped(said)}"


async def _newest(log: Log, row: SessionRow, count: int) -> list[Row]:
    """Give the entries from the newest messages on, so many of them."""
    found, messages = list[Row](), 0
    async for one in rows_backwards(log, row.address, await path_to(log, row.address, row.head)):
        found.append(one)
        messages += one.kind == MESSAGE
        if messages == count:
            break
    return found[::-1]


def _meant(message: Message, call: str) -> ToolCallResult | None:
    """Give the output that is meant: that of a call, or the only one."""
    if not call:
        return message.tool_results[0] if len(message.tool_results) == 1 else None
    for result in message.tool_results:
        if result.tool_call_id == call:
            return result
    raise NotFound(f"message {message.id} answers no call {call}")


def _print(text: str) -> None:
    """Print harmless text that may bring its own line end."""
    screen.display(text.removesuffix("\n"))


def _document(text: str) -> None:
    """Write a text as it is, but for a terminal."""
    screen.show(text.removesuffix("\n"))
