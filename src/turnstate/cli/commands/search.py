"""``turnstate search``: messages by their words, in all sessions, the newest first."""

from __future__ import annotations

import asyncio
import re

import click

from ... import search_terms
from ...cli_kit import screen
from ...cli_kit.screen import styled
from ...session import SearchResult
from .. import documents
from ..store import EXIT_CODES, as_json, managed, tenant_option, user_option

__all__ = ["command"]

WIDTH = 100


@click.command("search", epilog=EXIT_CODES)
@click.argument("text", metavar="WORDS...", nargs=-1, required=True)
@tenant_option
@user_option
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=20,
    show_default=True,
    metavar="N",
    help="The most messages to show.",
)
@as_json("Print one JSON object a message.")
def command(
    text: tuple[str, ...], store: str, tenant: str, user: str | None, limit: int, as_json: bool
) -> int:
    """Find messages that hold all the words, in all sessions, the newest first.

    Words are found whatever their case, and in any order: what people and models said, calls
    with their arguments, and outputs of tools. Of a name like readConfigFile each part is found,
    too. Nothing found exits with 1.

    \b
    Example:
      turnstate search disk full
      turnstate search --user anna --json "nightly export"

    \b
    With --json, one object a message:
      session, id, seq   where it is
      role, timestamp    who said it, and when
      snippet            a line of it, around the first word
    """
    return asyncio.run(_search(" ".join(text), store, tenant, user, limit, as_json=as_json))


async def _search(text: str, store: str, tenant: str, user: str | None, limit: int, *, as_json: bool) -> int:
    terms, count = search_terms.query(text), 0
    async with managed(store, tenant) as sessions:
        async for found in sessions.search(text, user=user, limit=limit):
            count += 1
            _show(found, terms, as_json=as_json)
    if not count:
        screen.say("nothing found")
    elif count == limit:
        screen.say(f"the newest {limit:,} are shown; --limit N shows more")
    return 0 if count else 1


def _show(found: SearchResult, terms: list[str], *, as_json: bool) -> None:
    message = found.message
    snippet = search_terms.snippet("\n".join(search_terms.searchable(message)), terms, WIDTH)
    if as_json:
        told = {
            "session": found.session,
            "id": message.id,
            "seq": found.seq,
            "role": message.role,
            "timestamp": message.timestamp,
            "snippet": snippet,
        }
        screen.show(documents.compact(told))
    else:
        head = f"{message.timestamp}  {found.session}  {message.id}  {message.role}"
        screen.display(f"{styled(screen.escaped(head), dim=True)}\n  {_highlighted(snippet, terms)}")


def _highlighted(snippet: str, terms: list[str]) -> str:
    """Make the words stand out, as far as they stand in the snippet as they were asked for."""
    pattern = re.compile("|".join(map(re.escape, sorted(terms, key=len, reverse=True))), re.IGNORECASE)
    pieces, end = list[str](), 0
    for match in pattern.finditer(snippet):
        pieces += [screen.escaped(snippet[end : match.start()]), styled(screen.escaped(match[0]), bold=True)]
        end = match.end()
    return "".join([*pieces, screen.escaped(snippet[end:])])
