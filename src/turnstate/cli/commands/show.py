"""``turnstate show``: print a session, a message, or a complete tool output."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from typing import Any, NamedTuple

import click

from ... import codec
from ...archive.adopt import conversation, rows_of
from ...context import text as text_lines
from ...context.reduction import full_range, output_texts
from ...errors import NotFound, StoreDamaged
from ...formats.exports import markdown
from ...log.path import Damage, WatchedLog, entry_of, path_to, rows_backwards
from ...message import Message, ToolCallResult
from ...plain_text import harmless
from ...stores.port import Log
from ...stores.values import MESSAGE, Row, SessionRow
from ...terminal import lookup, screen
from ...terminal.screen import styled
from ...terminal.session_text import entry_count, entry_text, row_fields, state
from ...terminal.times import iso
from .. import documents
from ..completion import session_argument
from ..options import json_option
from ..store import EXIT_CODES, managed, tenant_option, user_option
from .branching import at_branch

LAST_LINE = 10**12
"""A line number after the last line of any text."""


class LineRange(NamedTuple):
    """A range of lines, counted from 1, both ends included."""

    first: int
    last: int


@dataclass(frozen=True)
class EntryView:
    """Shows a session, message or output: which part of it, and in which form."""

    last: int | None
    lines: LineRange | None
    as_json: bool
    as_markdown: bool
    raw: bool = False

    async def session(self, log: Log, row: SessionRow) -> None:
        """Show the metadata and the messages of a session."""
        if self.lines:
            raise click.UsageError(f"--lines applies to a message or an output, but {row.id} is a session")
        if not (self.as_json or self.as_markdown):
            await self._print_session(log, row)
            return
        found = await conversation(log, row)
        messages = found.messages[-self.last :] if self.last else found.messages
        if self.as_json:
            listed = [codec.to_builtins(message) for message in messages]
            screen.show(documents.compact({**row_fields(row), "messages": listed}))
        else:
            _document(markdown(messages if self.last else found.all_messages))

    def entry(self, session: SessionRow, row: Row, id: str) -> None:
        """Show an entry, or the tool output that the id names."""
        if self.last is not None:
            raise click.UsageError(f"--last applies to a session, but {id} is a message")
        entry, call = entry_of(row), id[len(row.id) + 1 :]
        if entry is None:
            raise StoreDamaged(f"entry {row.id} of session {session.id} is damaged; run `turnstate verify`")
        if not isinstance(entry, Message):
            screen.show(row.body.decode()) if self.as_json else _print(entry_text(row.id, entry))
        elif result := _named_result(entry, call):
            self._output(session, entry, result, id)
        else:
            self._message(session, entry)

    async def _print_session(self, log: Log, row: SessionRow) -> None:
        _print(_heading(row))
        if self.last is None:
            async for one in rows_of(log, row):
                _print(f"\n{entry_text(one.id, entry_of(one))}")
        else:
            for one in await _newest(log, row, self.last):
                _print(f"\n{entry_text(one.id, entry_of(one))}")

    def _message(self, session: SessionRow, message: Message) -> None:
        if self.lines:
            self._text(message.text, {"id": message.id, "session": session.id})
        elif self.as_json:
            screen.show(documents.compact({**codec.to_builtins(message), "session": session.id}))
        elif self.as_markdown:
            _document(markdown([message]))
        else:
            _print(entry_text(message.id, message, whole=True))

    def _output(self, session: SessionRow, message: Message, result: ToolCallResult, id: str) -> None:
        place = {"id": id, "session": session.id, "call": result.tool_call_id, "is_error": result.is_error}
        if self.as_json and not self.lines:
            screen.show(documents.compact({**place, "result": result.result}))
        elif self.as_markdown and not self.lines:
            _document(markdown([message.replace(tool_results=(result,))]))
        else:
            self._text("\n".join(output_texts(result.result)), place)

    def _text(self, text: str, place: dict[str, Any]) -> None:
        shown = full_range(text, *self.lines) if self.lines else text
        if self.as_json:
            first, last = self.lines or (1, LAST_LINE)
            of = text_lines.count(text)
            fields = {**place, "text": shown, "lines": [first, min(last, of)], "of": of}
            screen.show(documents.compact(fields))
        elif self.raw:
            _document(shown)
        else:
            _print(harmless(shown))


def _heading(row: SessionRow) -> str:
    known = [
        f"user {row.user}" if row.user else "",
        f"tags {', '.join(row.tags)}" if row.tags else "",
        f"{state(row)}{f' ({row.reason})' if row.reason else ''}",
        entry_count(row.seq),
        f"{row.total:,} tokens",
        f"epoch {row.epoch}" if row.epoch > 1 else "",
        f"created {iso(row.created)}",
        f"active {iso(row.active)}",
    ]
    title = f" “{row.title}”" if row.title else ""
    details = " · ".join(one for one in known if one)
    return f"{styled(screen.escaped(f'session {row.id}{title}'), bold=True)}\n{screen.escaped(details)}"


async def _newest(log: Log, row: SessionRow, count: int) -> list[Row]:
    """Return the entries from the oldest of the newest `count` messages to the head."""
    found, messages = list[Row](), 0
    async for one in rows_backwards(log, row.address, await path_to(log, row.address, row.head)):
        found.append(one)
        messages += one.kind == MESSAGE
        if messages == count:
            break
    return found[::-1]


def _named_result(message: Message, call: str) -> ToolCallResult | None:
    """Return the result of a call, or the only result if no call is named."""
    if not call:
        return message.tool_results[0] if len(message.tool_results) == 1 else None
    for result in message.tool_results:
        if result.tool_call_id == call:
            return result
    raise NotFound(f"message {message.id} has no result for call {call}")


def _print(text: str) -> None:
    """Print harmless text, without doubling its final newline."""
    screen.display(text.removesuffix("\n"))


def _document(text: str) -> None:
    """Write a document, unchanged except on a terminal."""
    screen.show(text.removesuffix("\n"))


def _range(_ctx: click.Context, _option: click.Parameter, given: str | None) -> LineRange | None:
    if given is None:
        return None
    match = re.fullmatch(r"(\d{1,12})(-(\d{1,12})?)?", given, re.ASCII)
    if not match:
        raise click.BadParameter(f"{given!r:.40} is not a range: write 100-200, 100- or 100")
    first = int(match[1])
    last = int(match[3]) if match[3] else LAST_LINE if match[2] else first
    if not 1 <= first <= last:
        raise click.BadParameter(f"{given!r:.40}: lines start at 1, and the first must not be after the last")
    return LineRange(first, last)


@click.command("show", epilog=EXIT_CODES)
@session_argument(required=False)
@tenant_option
@user_option
@click.option("--session", "within", metavar="ID", help="The session that contains the message, if known.")
@click.option("--branch", metavar="N", help="The conversation on this branch of a session.")
@click.option("--last", type=click.IntRange(1), metavar="N", help="Only the newest N messages of a session.")
@click.option("--lines", callback=_range, metavar="A-B", help="Only these lines of an output or message.")
@json_option("Print one JSON object.")
@click.option("--markdown", "as_markdown", is_flag=True, help="Write complete Markdown.")
@click.option("--raw", is_flag=True, help="Write an output or message byte for byte.")
def command(
    id: str | None,
    store: str,
    tenant: str,
    user: str | None,
    within: str | None,
    branch: str | None,
    last: int | None,
    lines: LineRange | None,
    as_json: bool,
    as_markdown: bool,
    raw: bool,
) -> int:
    """Show a session, a message, or a complete tool output.

    ID is the id of a session (or its title, a unique prefix, or `last`), of a message, or of
    an output as in a line [Full output: ID]. Without an ID, a terminal offers a list. An output is
    printed as the tool returned it, with control characters escaped; --raw leaves them as they are.
    --lines counts lines as the shortened output in the window does. A message is looked up in
    all sessions, unless --session names one.

    \b
    Example:
      turnstate show last
      turnstate show 0197a1 --last 20
      turnstate show 0197a1 --branch 2
      turnstate show 0197a1c2-5b7e-7d80-a1b2-0123456789ab --lines 100-200
      turnstate show 0197a1c2-5b7e-7d80-a1b2-0123456789ab --raw > build.log
      turnstate show 0197a1 --markdown > conversation.md

    \b
    With --json, for a session the fields of `sessions --json`, and
      messages  those on the path to the head, as Turnstate stores them
    for a message its fields, and
      session   the session that contains it
    for an output
      id, session, call, is_error, result
      text, lines, of  with --lines, instead of the result: range and total
    """
    if as_json and as_markdown:
        raise click.UsageError("pass --json or --markdown, not both")
    view = EntryView(last=last, lines=lines, as_json=as_json, as_markdown=as_markdown, raw=raw)
    return asyncio.run(_show(view, id, store, tenant, user, within, branch))


async def _show(
    view: EntryView,
    id: str | None,
    store: str,
    tenant: str,
    user: str | None,
    within: str | None,
    branch: str | None,
) -> int:
    async with managed(store, tenant, to_read=True) as sessions:
        if id is None:
            found: SessionRow | lookup.EntryPlace = await lookup.chosen(sessions, within, user=user)
        elif within is None:
            found = await lookup.session_or_entry(sessions, id, user=user)
        else:
            found = await lookup.entry(sessions, await lookup.session(sessions, within, user=user), id)
        if not isinstance(found, SessionRow):
            if branch is not None:
                raise click.UsageError(f"--branch applies to a session, but {id} is a message")
            with screen.paged():
                view.entry(*found, id or "")
            return 0
        damage = Damage()
        if branch is not None:
            found = await at_branch(sessions.store, found, branch)
        with screen.paged():
            await view.session(WatchedLog(sessions.store, damage), found)
    for notice in damage.notices():
        screen.say(notice)
    return 1 if damage.lost else 0
