"""``turnstate sessions``: which there are, and what is done to one of them.

Without a verb they are listed. A verb is a command in a module of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from importlib import import_module
from typing import Any

import click

from ...archive import is_incomplete
from ...cli_kit import screen
from ...cli_kit.screen import table
from ...clock import wall_clock
from ...session import Session
from ...stores.values import Filter, SessionRow
from .. import documents, lookup
from ..store import EXIT_CODES, as_json, managed, tenant_option, user_option
from ..times import ago, iso, moment_option

__all__ = [
    "COMMANDS",
    "command",
    "entries",
    "fields",
    "list_command",
    "state",
]

VERBS = {
    "list": ("sessions", "List sessions, the newest first."),
    "rename": ("sessions", "Give a session another title."),
    "tag": ("sessions", "Add tags to a session, or take some away."),
    "end": ("sessions", "End a conversation; it stays readable."),
    "reset": ("sessions", "End a conversation and begin the next under its id."),
    "expire": ("sessions", "End the sessions that were left idle for too long."),
    "destroy": ("sessions_erase", "Delete a session."),
    "erase": ("sessions_erase", "Delete a session, or all of a user's, with a receipt."),
}
"""Every verb, in the order of the help, with its module and its summary."""

DEFAULT = "list"


class _Verbs(click.Group):
    """A group that lists where no verb is given, and imports a verb when it runs."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names):
            args = [DEFAULT, *args]
        return super().parse_args(ctx, args)

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        module: Any = import_module(f".{VERBS[cmd_name][0]}", __package__)
        command: click.Command = module.COMMANDS[cmd_name]
        return command

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in VERBS.items()])


@click.group("sessions", cls=_Verbs, epilog=EXIT_CODES)
def command() -> None:
    """List sessions, describe them, end them, delete them.

    Without a command they are listed; the options of list can follow at once. Where an ID is
    asked for, the beginning of one will do as long as no other begins so. Only what deletes
    wants all of it.

    \b
    Example:
      turnstate sessions
      turnstate sessions --user anna --since 7d --json
      turnstate sessions list --help
      turnstate sessions rename 0197a1 "The nightly export"
      turnstate sessions tag 0197a1 urgent --remove later
      turnstate sessions erase --user anna
    """


# ``turnstate sessions rename|tag|end|reset|expire``: what is done to sessions that stay.


@click.command("rename", epilog=EXIT_CODES)
@click.argument("id")
@click.argument("title")
@tenant_option
@user_option
def rename(id: str, title: str, store: str, tenant: str, user: str | None) -> int:
    """Give a session another title.

    \b
    Example:
      turnstate sessions rename 0197a1 "The nightly export"
    """

    async def change(session: Session) -> str:
        await session.rename(title)
        return f"is called {title!r} now" if title else "has no title now"

    return asyncio.run(_changed(store, tenant, user, id, change))


@click.command("tag", epilog=EXIT_CODES)
@click.argument("id")
@click.argument("tags", metavar="[TAG]...", nargs=-1)
@click.option("--remove", "removed", metavar="TAG", multiple=True, help="Take this tag away.")
@tenant_option
@user_option
def tag(
    id: str, tags: Sequence[str], removed: Sequence[str], store: str, tenant: str, user: str | None
) -> int:
    """Add tags to a session, or take some away.

    \b
    Example:
      turnstate sessions tag 0197a1 urgent billing
      turnstate sessions tag 0197a1 --remove urgent
    """
    if not tags and not removed:
        raise click.UsageError("say which tags to add or to --remove")

    async def change(session: Session) -> str:
        left = sorted({*session.row.tags, *tags} - set(removed))
        await session.tag(*left)
        return f"is tagged {', '.join(left)} now" if left else "has no tags now"

    return asyncio.run(_changed(store, tenant, user, id, change))


@click.command("end", epilog=EXIT_CODES)
@click.argument("id")
@click.option("--reason", metavar="TEXT", default="closed", show_default=True, help="Why it ends.")
@tenant_option
@user_option
def end(id: str, reason: str, store: str, tenant: str, user: str | None) -> int:
    """End a conversation: nothing can be added, and its history goes to long-term memory.

    It stays readable, and reset begins the next conversation under the same id.

    \b
    Example:
      turnstate sessions end 0197a1
    """

    async def change(session: Session) -> str:
        await session.end(reason)
        return "has ended"

    return asyncio.run(_changed(store, tenant, user, id, change))


@click.command("reset", epilog=EXIT_CODES)
@click.argument("id")
@tenant_option
@user_option
def reset(id: str, store: str, tenant: str, user: str | None) -> int:
    """End a conversation and begin the next under the same id and with the same system prompt.

    What was said stays in the log, and goes to long-term memory.

    \b
    Example:
      turnstate sessions reset 0197a1
    """

    async def change(session: Session) -> str:
        anew = await session.reset()
        return f"begins anew: epoch {anew.row.epoch}"

    return asyncio.run(_changed(store, tenant, user, id, change))


@click.command("expire", epilog=EXIT_CODES)
@tenant_option
@as_json("Print one JSON object a session.")
def expire(store: str, tenant: str, as_json: bool) -> int:
    """End the sessions that were left idle for longer than they may be.

    How long that is was said when a session was made; most sessions never expire. They also end
    when somebody opens them, so this is for those that nobody opens: run it from time to time.

    \b
    Example:
      turnstate sessions expire
    """
    return asyncio.run(_expire(store, tenant, as_json=as_json))


async def _changed(
    store: str, tenant: str, user: str | None, id: str, change: Callable[[Session], Awaitable[str]]
) -> int:
    async with managed(store, tenant) as sessions:
        row = await lookup.session(sessions, id, user=user)
        session = await sessions.open(row.id, user=user)
        screen.say(f"session {row.id} {await change(session)}")
    return 0


async def _expire(store: str, tenant: str, *, as_json: bool) -> int:
    count = 0
    async with managed(store, tenant) as sessions:
        while ended := await sessions.expire():
            count += len(ended)
            for id in ended:
                screen.show(documents.compact({"id": id, "result": "ended"}) if as_json else id)
    screen.say(f"{screen.counted(count, 'session')} ended")
    return 0


CHANGES = {"rename": rename, "tag": tag, "end": end, "reset": reset, "expire": expire}


# A session as commands tell it: the fields that programs read, and what state it is in.


def state(row: SessionRow) -> str:
    """Say whether a session is live, written by somebody, ended, or not yet imported."""
    now = wall_clock()
    if is_incomplete(row):
        return "importing"
    if row.ended is not None:
        return "ended"
    if row.lease_until > now:
        return "leased"
    return "idle" if row.is_idle(now) else "live"


def fields(row: SessionRow) -> dict[str, Any]:
    """Give what is known of a session, for programs."""
    return {
        "id": row.id,
        "tenant": row.tenant,
        "user": row.user,
        "title": row.title,
        "tags": list(row.tags),
        "state": state(row),
        "entries": row.seq,
        "tokens": row.total,
        "counter": row.counter,
        "created": iso(row.created),
        "active": iso(row.active),
        "idle": row.idle / 1000 or None,
        "ended": iso(row.ended) if row.ended is not None else None,
        "reason": row.reason or None,
        "epoch": row.epoch,
        "version": row.version,
        "branch": row.branch,
        "meta": row.meta,
    }


def entries(count: int) -> str:
    """Write how many entries there are."""
    return "1 entry" if count == 1 else f"{count:,} entries"


# ``turnstate sessions list``: which sessions there are.


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
                screen.show(documents.compact(fields(row)))
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


COMMANDS = {"list": list_command, **CHANGES}
