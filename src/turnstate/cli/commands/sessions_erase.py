"""``turnstate sessions destroy|erase``: the commands that delete sessions, after a confirmation."""

from __future__ import annotations

import asyncio

import click
import msgspec

from ...plain_text import counted
from ...session import Erasure, SessionManager
from ...snapshots import FOLDER, Snapshots
from ...stores.values import Removed, SessionFilter, SessionRow
from ...terminal import lookup, screen
from ...terminal.screen import confirmed
from ...terminal.session_text import entry_count, row_text
from ...terminal.times import iso
from .. import documents
from ..completion import session_argument
from ..engine import engine_option, existing_engine
from ..options import json_option, yes_option
from ..store import EXIT_CODES, existing, managed, tenant_option, user_option


@click.command("destroy", epilog=EXIT_CODES)
@session_argument()
@tenant_option
@user_option
@yes_option
@json_option("Print what was deleted as JSON.")
def destroy(id: str, store: str, tenant: str, user: str | None, yes: bool, as_json: bool) -> int:
    """Delete a session: its log, search index, pending deliveries and checkpoints.

    This cannot be undone. The ID must be complete, unless the command can ask on a terminal.
    Deleted bytes may stay in the store's file until they are overwritten; use erase to leave none.

    \b
    Example:
      turnstate sessions destroy 0197a1c2-5b7e-7d80-a1b2-0123456789ab
    """
    row = asyncio.run(_one(store, tenant, id, user, yes=yes))
    if not confirmed(f"Delete {row_text(row)}?", yes=yes):
        return 1
    removed = asyncio.run(_destroy(store, tenant, row.id, user))
    if as_json:
        screen.show(documents.compact({"id": row.id, **msgspec.to_builtins(removed)}))
    else:
        screen.say(f"session {row.id} deleted: {_counts(removed)}")
    return 0


@click.command("erase", epilog=EXIT_CODES)
@click.option("--session", "id", metavar="ID", help="Erase this session.")
@click.option("--user", metavar="NAME", help="Erase all sessions of this user.")
@tenant_option
@engine_option
@click.option(
    "--snapshots", metavar="FOLDER", default=FOLDER, show_default=True, help="Folder of the snapshots."
)
@yes_option
@json_option("Print the receipt as JSON.")
def erase(
    id: str | None,
    user: str | None,
    store: str,
    tenant: str,
    engine: str | None,
    snapshots: str,
    yes: bool,
    as_json: bool,
) -> int:
    """Erase a session, or all data of a user, without leaving a byte, and print a receipt.

    Deletes log, search index, pending deliveries, snapshots, checkpoints and long-term memory. This
    cannot be undone. Pass --session, --user, or both for a session that must belong to that user.

    \b
    Example:
      turnstate sessions erase --user anna --yes
      turnstate sessions erase --session 0197a1c2-5b7e-7d80-a1b2-0123456789ab

    \b
    With --json, the receipt:
      at           time of the deletion
      sessions     by id: number of entries, branches, keys and parcels
      snapshots    number of deleted snapshot files
      memories     number of deleted messages in long-term memory
      checkpoints  number of sessions whose checkpoints were deleted
      scrubbed     true if the store has no byte of the sessions left
    """
    if id is None and user is None:
        raise click.UsageError("pass --session ID or --user NAME")
    if id is not None:
        row = asyncio.run(_one(store, tenant, id, user, yes=yes))
        id, what = row.id, row_text(row)
    else:
        rows = asyncio.run(_matching(store, tenant, user))
        what = f"all data of {user}: {counted(len(rows), 'session')}"
    if not confirmed(f"Erase {what}, with snapshots, checkpoints and memories?", yes=yes):
        return 1
    receipt = asyncio.run(_erase(store, tenant, id, user, engine, snapshots))
    _show(receipt, as_json=as_json)
    if not receipt.scrubbed:
        screen.say("deleted, but bytes may be left in the store's files: the store was in use throughout")
        screen.say("(erase again when it is quiet), or it keeps its own write log")
    return 0 if receipt.scrubbed else 1


async def _one(store: str, tenant: str, id: str, user: str | None, *, yes: bool) -> SessionRow:
    async with managed(store, tenant) as sessions:
        return await lookup.precise(sessions, id, user=user, asks=screen.can_ask() and not yes)


async def _matching(store: str, tenant: str, user: str | None) -> list[SessionRow]:
    async with managed(store, tenant) as sessions:
        return [row async for row in lookup.walk(sessions, SessionFilter(user=user))]


async def _destroy(store: str, tenant: str, id: str, user: str | None) -> Removed:
    async with managed(store, tenant) as sessions:
        return await sessions.destroy(id, user=user)


async def _erase(
    store: str, tenant: str, id: str | None, user: str | None, engine: str | None, snapshots: str
) -> Erasure:
    async with existing(store) as opened, existing_engine(store, engine) as memory:
        sessions = SessionManager(opened, tenant=tenant, memory=memory, snapshots=Snapshots(snapshots))
        return await sessions.erase(session=id, user=user)


def _counts(removed: Removed) -> str:
    branches = "1 branch" if removed.branches == 1 else f"{removed.branches:,} branches"
    return f"{entry_count(removed.entries)} on {branches}"


def _show(receipt: Erasure, *, as_json: bool) -> None:
    if as_json:
        screen.show(documents.compact({**msgspec.to_builtins(receipt), "at": iso(receipt.at)}))
        return
    for id, removed in receipt.sessions.items():
        screen.show(f"{screen.escaped(id)}  {_counts(removed)}")
    counts = [
        counted(len(receipt.sessions), "session"),
        counted(receipt.snapshots, "snapshot"),
        f"{counted(receipt.memories, 'message')} in memory",
        *([f"checkpoints of {counted(receipt.checkpoints, 'session')}"] if receipt.checkpoints else []),
    ]
    left = "no byte of the sessions is left" if receipt.scrubbed else "some bytes may be left"
    screen.show(f"erased at {iso(receipt.at)}: {', '.join(counts)}; {left}")
