"""``turnstate search``: find messages by their words in all sessions, newest first."""

from __future__ import annotations

import asyncio
import re

import click

from ... import search_terms
from ...session import SearchResult
from ...terminal import screen
from ...terminal.screen import styled
from .. import documents
from ..options import json_option, limit_option
from ..store import EXIT_CODES, managed, tenant_option, user_option

WIDTH = 100


@click.command("search", epilog=EXIT_CODES)
@click.argument("text", metavar="WORDS...", nargs=-1, required=True)
@tenant_option
@user_option
@limit_option("Maximum number of messages to show.", default=20)
@json_option("Print one JSON object per message.")
def command(
    text: tuple[str, ...], store: str, tenant: str, user: str | None, limit: int, as_json: bool
) -> int:
    """Find messages that contain all the words, in all sessions, newest first.

    Case and order do not matter. The text of messages, calls with their arguments, and tool
    outputs are searched. In a name like readConfigFile each part is found, too. If nothing is
    found, the exit code is 1.

    \b
    Example:
      turnstate search disk full
      turnstate search --user anna --json "nightly export"

    \b
    With --json, one object per message:
      session, id, seq   its session, id and position
      role, timestamp    its author and time
      snippet            an excerpt around the first word
    """
    return asyncio.run(_search(" ".join(text), store, tenant, user, limit, as_json=as_json))


async def _search(text: str, store: str, tenant: str, user: str | None, limit: int, *, as_json: bool) -> int:
    terms, count = search_terms.query(text), 0
    async with managed(store, tenant, to_read=True) as sessions:
        with screen.paged():
            async for found in sessions.search(text, user=user, limit=limit):
                count += 1
                _show(found, terms, as_json=as_json)
    if not count:
        screen.say("nothing found")
    elif count == limit:
        screen.say(f"showing the newest {limit:,}; --limit N shows more")
    return 0 if count else 1


def _show(found: SearchResult, terms: list[str], *, as_json: bool) -> None:
    message = found.message
    snippet = search_terms.snippet("\n".join(search_terms.searchable(message)), terms, WIDTH)
    if as_json:
        fields = {
            "session": found.session,
            "id": message.id,
            "seq": found.seq,
            "role": message.role,
            "timestamp": message.timestamp,
            "snippet": snippet,
        }
        screen.show(documents.compact(fields))
    else:
        head = f"{message.timestamp}  {found.session}  {message.id}  {message.role}"
        screen.display(f"{styled(screen.escaped(head), dim=True)}\n  {_highlighted(snippet, terms)}")


def _highlighted(snippet: str, terms: list[str]) -> str:
    """Return the snippet with the search terms in bold."""
    pattern = re.compile("|".join(map(re.escape, sorted(terms, key=len, reverse=True))), re.IGNORECASE)
    pieces, end = list[str](), 0
    for match in pattern.finditer(snippet):
        pieces += [screen.escaped(snippet[end : match.start()]), styled(screen.escaped(match[0]), bold=True)]
        end = match.end()
    return "".join([*pieces, screen.escaped(snippet[end:])])
