"""Lets a person pick a session instead of pasting its id.

The newest sessions are listed on stderr, each with a number and the beginning of its last message. A number
picks a session, words filter the list by id, title, user and tags, and Enter picks the first. Without a
terminal there is no one to ask, and a session must be named.
"""

from __future__ import annotations

from collections.abc import Sequence

import click

from ..cli_kit import lookup, screen
from ..cli_kit.times import ago
from ..errors import NotFound
from ..log.entries import last_messages
from ..log.path import path_to
from ..plain_text import first_words
from ..session import SessionManager
from ..stores.values import Filter, SessionRow

SHOWN = 15
COLUMNS = ("", "id", "active", "entries", "title", "last words")
LAST = 3  # messages that are searched for the last words: tool results have none
NAMING = "an id, the beginning of one, a title, or last"


def can_pick() -> bool:
    """True if the list can be shown and the answer read."""
    return screen.can_ask() and screen.on_terminal()


async def chosen(sessions: SessionManager, name: str | None, *, user: str | None = None) -> SessionRow:
    """Return the named session; without a name, ask the user to pick one."""
    if name is not None:
        return await lookup.session(sessions, name, user=user)
    if not can_pick():
        raise click.UsageError(f"name a session: {NAMING}; {lookup.ADVICE}")
    rows = [row async for row in lookup.walk(sessions, Filter(user=user), order="active")]
    if not rows:
        raise NotFound(f"this store has no session yet; {lookup.FIRST_STEPS}")
    return await _picked(sessions, rows)


async def _picked(sessions: SessionManager, rows: Sequence[SessionRow]) -> SessionRow:
    """Ask until one session is picked; raise `click.Abort` if none is wanted."""
    shown = rows
    while True:
        screen.flush()
        cells = [await _cells(sessions, number, row) for number, row in enumerate(shown[:SHOWN], start=1)]
        click.echo(screen.table(COLUMNS, cells, right=("", "entries")), err=True)
        if len(shown) > SHOWN:
            click.echo(f"… and {len(shown) - SHOWN:,} more; type words to filter", err=True)
        answer = click.prompt(
            "Number, words, Enter for 1, q to quit", default="1", show_default=False, err=True
        )
        answer = answer.strip()
        if answer in ("q", "quit"):
            raise click.Abort
        if answer.isdecimal() and 1 <= int(answer) <= min(len(shown), SHOWN):
            return shown[int(answer) - 1]
        found = matching(rows, answer)
        if len(found) == 1:
            return found[0]
        if not found:
            click.echo(f"nothing matches {screen.escaped(answer, 60)}; all sessions again:", err=True)
        shown = found or rows


def matching(rows: Sequence[SessionRow], words: str) -> list[SessionRow]:
    """Return the sessions whose id, title, user or tags contain all the words."""
    wanted = words.casefold().split()
    return [row for row in rows if all(word in _searched(row) for word in wanted)]


def _searched(row: SessionRow) -> str:
    return "\n".join((row.id, row.title, row.user or "", *row.tags)).casefold()


async def _cells(sessions: SessionManager, number: int, row: SessionRow) -> tuple[str, ...]:
    path = await path_to(sessions.store, row.address, row.head)
    last = [one.text for one in await last_messages(sessions.store, row.address, path, LAST) if one.text]
    words = first_words(last[-1]) if last else ""
    return str(number), row.id, ago(row.active), f"{row.seq:,}", first_words(row.title, 30), words
