"""``turnstate sessions``: list, rename, tag, end and reset sessions, set a model, expire idle sessions.

Without a subcommand, ``turnstate sessions`` lists them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import click

from ...plain_text import counted
from ...session import Session
from ...stores.values import SessionFilter, SessionRow
from ...terminal import lookup, screen
from ...terminal.screen import table
from ...terminal.session_text import row_fields, row_text, state
from ...terminal.times import ago, time_option
from .. import documents
from ..completion import session_argument
from ..lazy_group import LazyCommand, LazyGroup
from ..options import json_option, limit_option
from ..store import EXIT_CODES, managed, tenant_option, user_option

DEFAULT = "list"
COLUMNS = ("id", "user", "state", "active", "entries", "tokens", "tags", "title")
NUMBERS = ("entries", "tokens")


class _SessionsGroup(LazyGroup):
    """A group that runs ``list`` if no subcommand is given."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names):
            args = [DEFAULT, *args]
        return super().parse_args(ctx, args)


@click.group(
    "sessions",
    cls=_SessionsGroup,
    lazy={
        "destroy": LazyCommand("sessions_erase", "Delete a session.", "destroy"),
        "erase": LazyCommand("sessions_erase", "Erase a session or a user, with a receipt.", "erase"),
    },
    epilog=EXIT_CODES,
)
def command() -> None:
    """List, describe, end and delete sessions.

    Without a subcommand, sessions are listed; the options of list may follow directly. An ID may be
    a title, `last`, or a unique prefix; the commands that delete or reset ask before they accept
    one, and need the whole id without a terminal.

    \b
    Example:
      turnstate sessions
      turnstate sessions --user anna --since 7d --json
      turnstate sessions list --help
      turnstate sessions rename 0197a1 "The nightly export"
      turnstate sessions tag 0197a1 urgent --remove later
      turnstate sessions set-model 0197a1 claude-sonnet-5-5
      turnstate sessions erase --user anna
    """


@command.command("list", short_help="List sessions, newest first.", epilog=EXIT_CODES)
@tenant_option
@user_option
@click.option("--tag", metavar="NAME", help="Only sessions with this tag.")
@time_option("--since", "Only sessions used at this time or later.")
@time_option("--until", "Only sessions last used before this time.")
@click.option("--live/--ended", default=None, help="Only live sessions, or only ended ones.")
@limit_option("Maximum number to list; 0 lists all.", default=50, least=0)
@json_option("Print one JSON object per session.")
def list_command(
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
    """List sessions, newest first by creation time.

    WHEN is a date or a time (2025-06-30, 2025-06-30T12:00; UTC unless it has an offset), or how long
    ago: 45s, 30m, 12h, 7d, 2w.

    \b
    Example:
      turnstate sessions
      turnstate sessions list --live --tag urgent --limit 0
      turnstate sessions --since 7d --json

    \b
    With --json, one object per session:
      id, tenant, user, title, tags, meta
      state            live, leased, idle, ended or importing
      entries, tokens  of the path to the head
      created, active, ended, reason
      idle             seconds of inactivity after which it expires, or null
      epoch, version, branch, counter
    """
    which = SessionFilter(user=user, tag=tag, since=since, until=until, live=live)
    return asyncio.run(_list(store, tenant, which, limit, as_json=as_json))


async def _list(store: str, tenant: str, which: SessionFilter, limit: int, *, as_json: bool) -> int:
    listed, count, more = list[SessionRow](), 0, False
    async with managed(store, tenant, to_read=True) as sessions:
        async for row in lookup.walk(sessions, which):
            if more := 0 < limit == count:
                break
            count += 1
            if as_json:
                screen.show(documents.compact(row_fields(row)))
            else:
                listed.append(row)
    if listed:
        with screen.paged():
            screen.display(table(COLUMNS, map(_cells, listed), right=NUMBERS))
    if more:
        screen.say(f"showing the newest {limit:,}; --limit 0 shows all")
    elif not count:
        screen.say(f"no sessions found{'' if which != SessionFilter() else f'; {lookup.FIRST_STEPS}'}")
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


@command.command("rename", short_help="Change the title of a session.", epilog=EXIT_CODES)
@session_argument()
@click.argument("title")
@tenant_option
@user_option
@json_option("Print the session as JSON.")
def rename(id: str, title: str, store: str, tenant: str, user: str | None, as_json: bool) -> int:
    """Change the title of a session.

    \b
    Example:
      turnstate sessions rename 0197a1 "The nightly export"
    """

    async def change(session: Session) -> str:
        await session.rename(title)
        return f"renamed to {title!r}" if title else "has no title now"

    return asyncio.run(_change(store, tenant, user, id, change, as_json=as_json))


@command.command("tag", short_help="Add or remove tags of a session.", epilog=EXIT_CODES)
@session_argument()
@click.argument("tags", metavar="[TAG]...", nargs=-1)
@click.option("--remove", "removed", metavar="TAG", multiple=True, help="Remove this tag.")
@tenant_option
@user_option
@json_option("Print the session as JSON.")
def tag(
    id: str,
    tags: Sequence[str],
    removed: Sequence[str],
    store: str,
    tenant: str,
    user: str | None,
    as_json: bool,
) -> int:
    """Add tags to a session, or remove some.

    \b
    Example:
      turnstate sessions tag 0197a1 urgent billing
      turnstate sessions tag 0197a1 --remove urgent
    """
    if not tags and not removed:
        raise click.UsageError("name the tags to add or to --remove")

    async def change(session: Session) -> str:
        left = sorted({*session.info.tags, *tags} - set(removed))
        await session.tag(*left)
        return f"tagged {', '.join(left)}" if left else "has no tags now"

    return asyncio.run(_change(store, tenant, user, id, change, as_json=as_json))


@command.command("set-model", short_help="Set the model of a session.", epilog=EXIT_CODES)
@session_argument()
@click.argument("model")
@tenant_option
@user_option
@json_option("Print the session as JSON.")
def set_model(id: str, model: str, store: str, tenant: str, user: str | None, as_json: bool) -> int:
    """Set the model of a session from here on: its tokens are counted as that model's.

    \b
    Example:
      turnstate sessions set-model 0197a1 claude-sonnet-5-5
    """

    async def change(session: Session) -> str:
        found = await session.set_model(model)
        return f"uses {found.id} from here on, counted by {found.counter}"

    return asyncio.run(_change(store, tenant, user, id, change, as_json=as_json))


@command.command("end", short_help="End a conversation; it stays readable.", epilog=EXIT_CODES)
@session_argument()
@click.option("--reason", metavar="TEXT", default="closed", show_default=True, help="Why it ends.")
@tenant_option
@user_option
@json_option("Print the session as JSON.")
def end(id: str, reason: str, store: str, tenant: str, user: str | None, as_json: bool) -> int:
    """End a conversation: it accepts no more messages, and its history goes to long-term memory.

    It stays readable. reset starts the next conversation under the same id.

    \b
    Example:
      turnstate sessions end 0197a1
    """

    async def change(session: Session) -> str:
        await session.end(reason)
        return "ended"

    return asyncio.run(_change(store, tenant, user, id, change, as_json=as_json))


@command.command("reset", short_help="End a conversation and start the next.", epilog=EXIT_CODES)
@session_argument()
@tenant_option
@user_option
@json_option("Print the session as JSON.")
def reset(id: str, store: str, tenant: str, user: str | None, as_json: bool) -> int:
    """End a conversation and start the next with the same id and the same system prompt.

    The old messages stay in the log and go to long-term memory. The ID must be complete, unless
    the command can ask on a terminal.

    \b
    Example:
      turnstate sessions reset 0197a1
    """

    async def change(session: Session) -> str:
        following = await session.reset()
        return f"starts again: epoch {following.info.epoch}"

    row = asyncio.run(_precise(store, tenant, user, id))
    if row.id != id and not screen.confirmed(
        f"Reset {row_text(row)}?",
        yes=False,
        warning="Its messages stay in the log",
        refused="nothing was reset",
    ):
        return 1
    return asyncio.run(_change(store, tenant, user, row.id, change, as_json=as_json))


@command.command("expire", short_help="End sessions that were idle for too long.", epilog=EXIT_CODES)
@tenant_option
@json_option("Print one JSON object per session.")
def expire(store: str, tenant: str, as_json: bool) -> int:
    """End the sessions that were idle for longer than their limit.

    The limit is set when a session is created; by default there is none. An expired session also
    ends when it is opened; run this command periodically for those that are not.

    \b
    Example:
      turnstate sessions expire
    """
    return asyncio.run(_expire(store, tenant, as_json=as_json))


async def _change(
    store: str,
    tenant: str,
    user: str | None,
    id: str,
    change: Callable[[Session], Awaitable[str]],
    *,
    as_json: bool,
) -> int:
    """Change one session and report the result: as text, or as the JSON fields of the changed session."""
    async with managed(store, tenant) as sessions:
        row = await lookup.session(sessions, id, user=user)
        done = await change(await sessions.open(row.id, user=user))
        if as_json:
            screen.show(documents.compact(row_fields(await sessions.store.get(row.address))))
        else:
            screen.say(f"session {row.id} {done}")
    return 0


async def _precise(store: str, tenant: str, user: str | None, id: str) -> SessionRow:
    async with managed(store, tenant, to_read=True) as sessions:
        return await lookup.precise(sessions, id, user=user, asks=screen.can_ask())


async def _expire(store: str, tenant: str, *, as_json: bool) -> int:
    count = 0
    async with managed(store, tenant) as sessions:
        while ended := await sessions.expire():
            count += len(ended)
            for id in ended:
                screen.show(documents.compact({"id": id, "result": "ended"}) if as_json else id)
    screen.say(f"{counted(count, 'session')} ended")
    return 0
