"""``turnstate memory``: show and change what is remembered about users, in the worker's memory engine."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

import click
import msgspec

from ... import folder_gate, ids
from ...errors import InputError, NotFound
from ...memory.engines import NoEngine
from ...memory.facts import Fact
from ...memory.port import Filter, MemoryEngine, Recollection, User
from ...memory.port import search as filtered_search
from ...plain_text import counted
from ...stores.values import Address
from ...terminal import screen
from ...terminal.screen import confirmed, styled
from .. import destination, documents
from ..engine import engine_option, existing_engine, opened_engine
from ..options import json_option, limit_option, output_options, yes_option
from ..store import EXIT_CODES, tenant_option

if TYPE_CHECKING:
    from ...memory.builtin import BuiltinEngine

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


def _user_option(command: Decorated) -> Decorated:
    return click.option("--user", metavar="NAME", required=True, help="User whose memory to use.")(command)


@click.group("memory", epilog=EXIT_CODES)
def command() -> None:
    """Show, search, change and delete what is remembered about users.

    Messages are added to memory when sessions end and when cuts remove them from a window; `turnstate
    worker` delivers them. A fact is something learned from them, with the messages that say so.

    \b
    Example:
      turnstate memory list
      turnstate memory list --user anna
      turnstate memory search --user anna "where did she move?"
      turnstate memory add --user anna "prefers window seats"
      turnstate memory update --user anna 3f2a9c0d1e4b5a67 Lisbon
      turnstate memory forget --user anna
    """


@command.command("list", epilog=EXIT_CODES)
@click.option("--user", metavar="NAME", help="List the facts of this user, not the users.")
@click.option("--all", "ended", is_flag=True, help="Also list facts that no longer hold.")
@click.option("--as-of", "as_of", metavar="DATE", help="List the facts that held at a date or time.")
@tenant_option
@engine_option
@json_option("Print one JSON object per line.")
def list_(
    user: str | None,
    ended: bool,
    as_of: str | None,
    store: str,
    tenant: str,
    engine: str | None,
    as_json: bool,
) -> int:
    """List the users about whom something is remembered, or the facts of one user.

    \b
    Example:
      turnstate memory list
      turnstate memory list --user anna --all
      turnstate memory list --user anna --as-of 2026-03-01

    \b
    With --json, one object per user: user, turns, dropped; or per fact:
      id, kind, slot, value, text   what is known
      said, ended                   when it was said, and when something newer took its place, or null
      since, until                  when it was said first, and its time limit, or null
      successor                     the fact that took its place, or null
      sources                       session and message of each message that says so
    """
    if user is None and (ended or as_of):
        raise click.UsageError("pass --user NAME with --all or --as-of")
    if ended and as_of:
        raise click.UsageError("pass --all or --as-of, not both")
    at = _moment(as_of) if as_of else None
    return asyncio.run(_list(store, engine, tenant, user, ended=ended, as_of=at, as_json=as_json))


def _moment(text: str) -> str:
    """Return a date as it is, and a time as messages have it."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise click.UsageError(f"{text!r:.40} is neither a date nor a time, such as 2026-03-01") from None
    if text == moment.date().isoformat():
        return text
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


async def _list(
    store: str,
    engine: str | None,
    tenant: str,
    user: str | None,
    *,
    ended: bool,
    as_of: str | None,
    as_json: bool,
) -> int:
    async with existing_engine(store, engine) as opened:
        if isinstance(opened, NoEngine):
            screen.say("nothing is remembered")
            return 0
        builtin = _builtin(opened)
        if user is None:
            rows = await builtin.users(tenant)
            if as_json:
                for one, turns, dropped in rows:
                    screen.show(documents.compact({"user": one.id, "turns": turns, "dropped": dropped}))
            elif rows:
                cells = [(one.id, f"{turns:,}", f"{dropped:,}") for one, turns, dropped in rows]
                screen.display(screen.table(("user", "turns", "dropped"), cells, right=("turns", "dropped")))
            return 0
        facts = await builtin.facts(User(tenant, user), as_of=None if ended else as_of or ids.now())
    for fact in facts:
        _show_fact(fact, as_json=as_json)
    if not facts:
        screen.say(f"no facts are known of {user}")
    return 0


@command.command("search", epilog=EXIT_CODES)
@click.argument("question", metavar="QUESTION...", nargs=-1, required=True)
@_user_option
@limit_option("Maximum number of results.", default=10)
@click.option(
    "--role", "roles", metavar="ROLE", multiple=True, help="Only user, assistant, tool, …; may be repeated."
)
@click.option("--session", metavar="ID", help="Only messages of this session.")
@click.option("--since", metavar="TIME", default="", help="Only messages from this date or time (UTC) on.")
@click.option("--until", metavar="TIME", default="", help="Only messages before this date or time (UTC).")
@click.option(
    "--min-score", metavar="N", type=float, default=0.0, help="Only results with this score, from 0 to 1."
)
@tenant_option
@engine_option
@json_option("Print one JSON object per result.")
def search(
    question: tuple[str, ...],
    user: str,
    limit: int,
    roles: tuple[str, ...],
    session: str | None,
    since: str,
    until: str,
    min_score: float,
    store: str,
    tenant: str,
    engine: str | None,
    as_json: bool,
) -> int:
    """Find the messages that answer a question about a user, the best first.

    If nothing is found, the exit code is 1.

    \b
    Example:
      turnstate memory search --user anna "which city did she move to?"
      turnstate memory search --user anna --role user --since 2025-06-01 "the flight"

    \b
    With --json, one object per result:
      session, message   the session and the id of the message
      role, timestamp    its author and time
      score, text        how well it fits, from 0 to 1, and what it says
    """
    where = Filter(roles=roles, session=session, since=since, until=until, min_score=min_score)
    found = asyncio.run(_search(store, engine, User(tenant, user), " ".join(question), limit, where))
    for hit in found:
        _show_hit(hit, as_json=as_json)
    if not found:
        screen.say("nothing found")
    return 0 if found else 1


async def _search(
    store: str, engine: str | None, user: User, question: str, limit: int, where: Filter
) -> list[Recollection]:
    async with existing_engine(store, engine) as opened:
        return await filtered_search(opened, user, question, limit, where)


@command.command("show", epilog=EXIT_CODES)
@click.argument("fact", metavar="[FACT]", required=False)
@_user_option
@tenant_option
@engine_option
@json_option("Print one JSON object.")
def show(fact: str | None, user: str, store: str, tenant: str, engine: str | None, as_json: bool) -> int:
    """Show the profile that a new session of a user begins with, or one fact with its sources and history.

    \b
    Example:
      turnstate memory show --user anna
      turnstate memory show --user anna 3f2a9c0d1e4b5a67
    """
    return asyncio.run(_show(store, engine, User(tenant, user), fact, as_json=as_json))


async def _show(store: str, engine: str | None, user: User, id: str | None, *, as_json: bool) -> int:
    async with existing_engine(store, engine) as opened:
        if id is None:
            text = await opened.profile(user)
            screen.show(documents.compact({"user": user.id, "profile": text}) if as_json else text)
            return 0 if text else 1
        builtin = _builtin(opened)
        found = [fact for fact in await builtin.facts(user) if fact.id.startswith(id)]
        history = await builtin.history(user, found[0].id) if found else []
    if len(found) != 1:
        raise NotFound(f"{'several facts begin' if found else 'no fact begins'} with {id!r:.40}")
    _show_fact(found[0], as_json=as_json)
    if not as_json:
        for source in found[0].sources:
            screen.show(f"  said in session {screen.escaped(source.session)}, message {source.message}")
        for fact in history:
            if fact.id != found[0].id:
                _show_fact(fact, as_json=False)
    return 0


@command.command("add", epilog=EXIT_CODES)
@click.argument("text", metavar="TEXT...", nargs=-1, required=True)
@_user_option
@tenant_option
@engine_option
@json_option("Print the fact as JSON.")
def add(text: tuple[str, ...], user: str, store: str, tenant: str, engine: str | None, as_json: bool) -> int:
    """Remember something about a user.

    \b
    Example:
      turnstate memory add --user anna "prefers window seats"
    """

    async def add() -> Fact:
        async with opened_engine(store, engine) as opened:
            return await _builtin(opened).remember(User(tenant, user), " ".join(text))

    fact = asyncio.run(add())
    if as_json:
        _show_fact(fact, as_json=True)
    else:
        screen.say(f"remembered as {fact.id}")
    return 0


@command.command("update", epilog=EXIT_CODES)
@click.argument("fact", metavar="FACT")
@click.argument("value", metavar="VALUE...", nargs=-1, required=True)
@click.option("--until", metavar="DATE", help="Date after which the fact is over.")
@_user_option
@tenant_option
@engine_option
@json_option("Print the fact as JSON.")
def update(
    fact: str,
    value: tuple[str, ...],
    until: str | None,
    user: str,
    store: str,
    tenant: str,
    engine: str | None,
    as_json: bool,
) -> int:
    """Correct a fact: give it another value. The old value is kept as its history.

    \b
    Example:
      turnstate memory update --user anna 3f2a9c0d1e4b5a67 Lisbon
    """

    end = _moment(until) if until else None
    if end and len(end) == len("2026-03-01"):
        end += "T23:59:59.999Z"

    async def update() -> Fact:
        async with opened_engine(store, engine) as opened:
            return await _builtin(opened).update(User(tenant, user), fact, value=" ".join(value), until=end)

    changed = asyncio.run(update())
    if as_json:
        _show_fact(changed, as_json=True)
    else:
        screen.say(f"changed; the fact is now {changed.id}")
    return 0


@command.command("forget", epilog=EXIT_CODES)
@click.option("--user", metavar="NAME", help="Forget everything about this user.")
@click.option("--session", metavar="ID", help="Forget what came from this session.")
@click.option("--fact", metavar="ID", help="With --user: forget only this fact.")
@click.option(
    "--history", is_flag=True, help="With --fact: also forget what it replaced and what replaced it."
)
@tenant_option
@engine_option
@yes_option
@json_option("Print what was forgotten as JSON.")
def forget(
    user: str | None,
    session: str | None,
    fact: str | None,
    history: bool,
    store: str,
    tenant: str,
    engine: str | None,
    yes: bool,
    as_json: bool,
) -> int:
    """Permanently delete what is remembered about a user or from a session.

    Messages that are still on their way are refused when they arrive. The sessions themselves stay;
    `turnstate sessions erase` deletes both.

    \b
    Example:
      turnstate memory forget --user anna
      turnstate memory forget --session 0197a1c2-5b7e-7d80-a1b2-0123456789ab
      turnstate memory forget --user anna --fact 3f2a9c0d1e4b5a67
    """
    if (user is None) == (session is None) or (fact and user is None) or (history and not fact):
        raise click.UsageError(
            "pass --user NAME, --user NAME with --fact ID and maybe --history, or --session ID"
        )
    what = f"the fact {fact}" if fact else f"everything about {user}" if user else f"session {session}"
    if not confirmed(f"Forget {what}?", yes=yes):
        return 1
    whose = User(tenant, user) if user is not None else Address(tenant, session or "")
    removed = asyncio.run(_forget(store, engine, whose, fact, history=history))
    if as_json:
        screen.show(documents.compact({"messages": removed} if not fact else {"fact": fact}))
    elif fact:
        screen.say(f"the fact {fact} is forgotten")
    else:
        screen.say(f"forgotten: {counted(removed, 'message')}")
    return 0


async def _forget(
    store: str, engine: str | None, whose: User | Address, fact: str | None, *, history: bool
) -> int:
    async with opened_engine(store, engine) as opened:
        if fact is None:
            return await opened.forget(whose)
        if not (isinstance(whose, User) and await _builtin(opened).drop(whose, fact, history=history)):
            raise NotFound(
                f"there is no fact {fact!r:.40}; list them with `turnstate memory list --user NAME`"
            )
    return 0


@command.command("export", epilog=EXIT_CODES)
@_user_option
@output_options
@tenant_option
@engine_option
def export(user: str, output: str | None, force: bool, store: str, tenant: str, engine: str | None) -> int:
    """Write everything that is remembered about a user as lines of JSON.

    \b
    Example:
      turnstate memory export --user anna -o anna.jsonl
    """

    async def export() -> None:
        async with existing_engine(store, engine) as opened:
            with destination.opened(output, force=force) as write:
                if not isinstance(opened, NoEngine):
                    async for line in _builtin(opened).export(User(tenant, user)):
                        write(line.decode().rstrip("\n"))

    asyncio.run(export())
    return 0


@command.command("import", epilog=EXIT_CODES)
@click.argument("file", metavar="[FILE]", required=False)
@_user_option
@tenant_option
@engine_option
@json_option("Print what was imported as JSON.")
def import_(file: str | None, user: str, store: str, tenant: str, engine: str | None, as_json: bool) -> int:
    """Add an exported memory to that of a user; what is already known is not added twice.

    \b
    Example:
      turnstate memory import --user anna anna.jsonl
    """

    async def restore(lines: BinaryIO) -> int:
        async with opened_engine(store, engine) as opened:
            return await _builtin(opened).restore(User(tenant, user), lines)

    try:
        with nullcontext(sys.stdin.buffer) if file in (None, "-") else folder_gate.stream(str(file)) as lines:
            turns = asyncio.run(restore(lines))
    except OSError as error:
        raise InputError(f"{file}: cannot be read: {error.strerror or error}") from None
    if as_json:
        screen.show(documents.compact({"turns": turns}))
    else:
        screen.say(f"imported {counted(turns, 'turn')}")
    return 0


def _builtin(engine: MemoryEngine) -> BuiltinEngine:
    from ...memory.builtin import BuiltinEngine

    if not isinstance(engine, BuiltinEngine):
        raise InputError("only the built-in engine can do that; pass --engine builtin:PATH")
    return engine


def _show_fact(fact: Fact, *, as_json: bool) -> None:
    if as_json:
        fields = msgspec.to_builtins(fact)
        fields["sources"] = [{"session": one.session, "message": one.message} for one in fact.sources]
        screen.show(documents.compact(fields))
        return
    until = f" until {fact.ended[:10]}" if fact.ended else ""
    head = styled(f"{fact.id}  {fact.kind:10} {fact.said[:10]}{until}", dim=True)
    what = f"{fact.slot}: {fact.value}" if fact.slot and fact.slot != fact.kind else fact.value
    screen.display(f"{head}  {screen.escaped(what)}")


def _show_hit(hit: Recollection, *, as_json: bool) -> None:
    if as_json:
        fields = ("session", "message", "role", "timestamp", "score", "text")
        screen.show(documents.compact({name: getattr(hit, name) for name in fields}))
        return
    head = screen.escaped(f"{hit.timestamp}  {hit.session}  {hit.message}  {hit.role}")
    screen.display(f"{styled(head, dim=True)}\n  {screen.escaped(' '.join(hit.text.split()), 200)}")
