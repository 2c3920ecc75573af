"""``turnstate show``: a session, a message, or the whole of an output that was shown shortened."""

from __future__ import annotations

import asyncio
import re

import click

from ..session.damage import Damage, Watched
from ..stores.values import SessionRow
from . import lookup, screen
from .access import as_json, managed, tenant_option, user_option
from .showing import ALL, Lines, Showing
from .store_option import EXIT_CODES

__all__ = ["command"]


def _range(_ctx: click.Context, _option: click.Parameter, given: str | None) -> Lines | None:
    if given is None:
        return None
    match = re.fullmatch(r"(\d{1,12})(-(\d{1,12})?)?", given, re.ASCII)
    if not match:
        raise click.BadParameter(f"{given!r:.40} is no range: write 100-200, 100- or 100")
    first = int(match[1])
    last = int(match[3]) if match[3] else ALL if match[2] else first
    if not 1 <= first <= last:
        raise click.BadParameter(f"{given!r:.40}: lines are counted from 1, the first one first")
    return Lines(first, last)


@click.command("show", epilog=EXIT_CODES)
@click.argument("id")
@tenant_option
@user_option
@click.option("--session", "within", metavar="ID", help="The session that a message is in, if you know it.")
@click.option("--last", type=click.IntRange(1), metavar="N", help="Only the newest N messages of a session.")
@click.option("--lines", callback=_range, metavar="A-B", help="Only these lines of an output or message.")
@as_json("Print one JSON object.")
@click.option("--markdown", "as_markdown", is_flag=True, help="Write Markdown, with nothing cut.")
@click.option("--raw", is_flag=True, help="Write an output or message to a pipe or file byte for byte.")
def command(
    id: str,
    store: str,
    tenant: str,
    user: str | None,
    within: str | None,
    last: int | None,
    lines: Lines | None,
    as_json: bool,
    as_markdown: bool,
    raw: bool,
) -> int:
    """Show a session, a message, or a tool's whole output.

    ID is that of a session (its beginning will do), of a message, or of an output as a line
    [Full output: ID] names it. An output is printed as the tool returned it, with the characters
    that a terminal would act on spelled out; --raw leaves them as they are. --lines counts as the
    frame above that line does. A message is looked for in all sessions, unless --session names one.

    \b
    Example:
      turnstate show 0197a1
      turnstate show 0197a1 --last 20
      turnstate show 0197a1c2-5b7e-7d80-a1b2-0123456789ab --lines 100-200
      turnstate show 0197a1c2-5b7e-7d80-a1b2-0123456789ab --raw > build.log
      turnstate show 0197a1 --markdown > conversation.md

    \b
    With --json, for a session what `sessions --json` tells of it, and
      messages  those on the path to the head, as Turnstate keeps them
    for a message its fields, and
      session   the session it is in
    for an output
      id, session, call, is_error, result
      text, lines, of  instead of the result, with --lines: which, of how many
    """
    if as_json and as_markdown:
        raise click.UsageError("give --json or --markdown, not both")
    showing = Showing(last=last, lines=lines, as_json=as_json, as_markdown=as_markdown, raw=raw)
    return asyncio.run(_show(showing, id, store, tenant, user, within))


async def _show(
    showing: Showing, id: str, store: str, tenant: str, user: str | None, within: str | None
) -> int:
    async with managed(store, tenant) as sessions:
        if within is None:
            found = await lookup.session_or_entry(sessions, id, user=user)
        else:
            found = await lookup.entry(sessions, await lookup.session(sessions, within, user=user), id)
        if not isinstance(found, SessionRow):
            showing.entry(*found, id)
            return 0
        damage = Damage()
        await showing.session(Watched(sessions.store, damage), found)
    for notice in damage.notices():
        screen.say(notice)
    return 1 if damage.lost else 0
