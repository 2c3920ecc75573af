"""``turnstate sessions list``: which sessions there are."""

from __future__ import annotations

import asyncio

import click

from ..stores.values import Filter, SessionRow
from . import document, lookup, screen
from .access import as_json, managed, tenant_option, user_option
from .moments import ago, moment_option
from .session_fields import fields, state
from .store_option import EXIT_CODES
from .table import table

__all__ = ["VERBS", "command"]

COLUMNS = ("id", "user", "state", "active", "entries", "tokens", "tags", "title")
NUMBERS = ("entries", "tokens")


@click.command("list", epilog=EXIT_CODES)
@tenant_option
@user_option
@click.option("--tag", metavar="NAME", help="Only sessions with this tag.")
@moment_option("--since", "Only sessions used at this moment or later.")
@moment_option("--until", "Only sessions last used before this moment.")
@click.option("--live/--ended", default=None, help="Only sessions that go on, or only those that ended.")
@click.option(
    "--limit",
    type=click.IntRange(0),
    default=50,
    show_default=True,
    metavar="N",
    help="The most to list; 0 is all.",
)
@as_json("Print one JSON object a session.")
def command(
    store: str,
    tenant: str,
    user: str | None,
    tag: str | None,
    since: int | None,
    until: int | None,
    live: bool | None,
    limit: int,
    as_json: bool,
) -> int:
    """List sessions, the newest first by the moment of their making.

    WHEN is a date or a time (2025-06-30, 2025-06-30T12:00, in UTC unless it says otherwise), or
    how long ago: 45s, 30m, 12h, 7d, 2w.

    \b
    Example:
      turnstate sessions
      turnstate sessions list --live --tag urgent --limit 0
      turnstate sessions --since 7d --json

    \b
    With --json, one object a session:
      id, tenant, user, title, tags, meta
      state            live, leased, idle, ended or importing
      entries, tokens  of the path to the head
      created, active, ended, reason
      idle             the seconds after which it ends by itself, or null
      epoch, version, branch, counter
    """
    which = Filter(user=user, tag=tag, since=since, until=until, live=live)
    return asyncio.run(_list(store, tenant, which, limit, as_json=as_json))


async def _list(store: str, tenant: str, which: Filter, limit: int, *, as_json: bool) -> int:
    listed, count, more = list[SessionRow](), 0, False
    async with managed(store, tenant) as sessions:
        async for row in lookup.walk(sessions, which):
            if more := 0 < limit == count:
                break
            count += 1
            if as_json:
                screen.show(document.compact(fields(row)))
            else:
                listed.append(row)
    if listed:
        screen.display(table(COLUMNS, map(_cells, listed), right=NUMBERS))
    if more:
        screen.say(f"the newest {limit:,} are shown; --limit 0 shows all")
    elif not count:
        screen.say("there are no such sessions")
    return 0


def _cells(row: SessionRow) -> tuple[str, ...]:
    return (
        row.id,
        row.user or "",
        state(row),
        ago(row.active),
        f"{row.seq:,}",
        f"{row.total:,}",
        ", ".join(row.tags),
        row.title,
    )


VERBS = {"list": command}
