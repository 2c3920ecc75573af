"""``turnstate sessions rename|tag|end|reset|expire``: what is done to sessions that stay."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import click

from ..session import Session
from . import document, lookup, screen
from .access import as_json, managed, tenant_option, user_option
from .store_option import EXIT_CODES

__all__ = ["VERBS"]


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
                screen.show(document.compact({"id": id, "result": "ended"}) if as_json else id)
    screen.say(f"{screen.counted(count, 'session')} ended")
    return 0


VERBS = {"rename": rename, "tag": tag, "end": end, "reset": reset, "expire": expire}
