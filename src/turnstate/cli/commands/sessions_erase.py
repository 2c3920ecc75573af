"""``turnstate sessions destroy|erase``: the only deletions there are, and nobody is surprised by one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import click
import msgspec

from ...cli_kit import screen
from ...cli_kit.screen import agreed, yes_option
from ...errors import NotFound
from ...home import Home
from ...memory.engines import open_engine
from ...memory.port import MemoryEngine
from ...session import Erasure, SessionManager
from ...snapshots import Snapshots
from ...snapshots.snapshots import FOLDER
from ...stores.values import Address, Filter, Removed, SessionRow
from .. import documents, lookup
from ..store import EXIT_CODES, as_json, existing, managed, tenant_option, user_option
from ..times import iso
from .sessions import entries

__all__ = ["COMMANDS"]


@click.command("destroy", epilog=EXIT_CODES)
@click.argument("id")
@tenant_option
@user_option
@yes_option
@as_json("Print what was deleted as JSON.")
def destroy(id: str, store: str, tenant: str, user: str | None, yes: bool, as_json: bool) -> int:
    """Delete a session: its log, its words for search, what waits for delivery, its checkpoints.

    There is no way back. All of the ID is asked for. The bytes may stay in the store's file
    until they are written over; erase leaves none.

    \b
    Example:
      turnstate sessions destroy 0197a1c2-5b7e-7d80-a1b2-0123456789ab
    """
    row = asyncio.run(_one(store, tenant, id, user))
    if not agreed(f"Delete {_described(row)}?", yes=yes):
        return 1
    removed = asyncio.run(_destroy(store, tenant, id, user))
    if as_json:
        screen.show(documents.compact({"id": id, **msgspec.to_builtins(removed)}))
    else:
        screen.say(f"session {id} is deleted: {_counts(removed)}")
    return 0


@click.command("erase", epilog=EXIT_CODES)
@click.option("--session", "id", metavar="ID", help="Erase this session.")
@click.option("--user", metavar="NAME", help="Erase all sessions of this user.")
@tenant_option
@click.option("--engine", metavar="NAME", help="The memory engine to erase from.  [default: the worker's]")
@click.option(
    "--snapshots", metavar="FOLDER", default=FOLDER, show_default=True, help="Where snapshots are kept."
)
@yes_option
@as_json("Print the receipt as JSON.")
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
    """Delete a session, or all there is of a user, such that no byte is left, and give a receipt.

    Log, index, parcels, snapshots, the files that checkpoints hold and long-term memory: everything
    goes, and there is no way back. Give --session, --user, or both for a session that must be this user's.

    \b
    Example:
      turnstate sessions erase --user anna
      turnstate sessions erase --session 0197a1c2-5b7e-7d80-a1b2-0123456789ab --yes

    \b
    With --json, the receipt:
      at           when
      sessions     by id: how many entries, branches, keys and parcels it had
      snapshots    how many files, and
      memories     how many remembered messages were deleted
      checkpoints  how many sessions had checkpoints, which were deleted
      scrubbed     whether no byte of the sessions is left in the store's files
    """
    if id is None and user is None:
        raise click.UsageError("say what to erase: --session ID or --user NAME")
    rows = asyncio.run(_doomed(store, tenant, id, user))
    what = _described(rows[0]) if id is not None else f"all of {user}: {screen.counted(len(rows), 'session')}"
    if not agreed(f"Erase {what}, with snapshots, checkpoints and memories?", yes=yes):
        return 1
    receipt = asyncio.run(_erase(store, tenant, id, user, engine, snapshots))
    _show(receipt, as_json=as_json)
    if not receipt.scrubbed:
        screen.say("deleted, but bytes may be left in the store's files: others used it all the time")
        screen.say("(erase again at a quieter moment), or it keeps a log of writes of its own")
    return 0 if receipt.scrubbed else 1


async def _one(store: str, tenant: str, id: str, user: str | None) -> SessionRow:
    async with managed(store, tenant) as sessions:
        return await _exactly(sessions, id, user)


async def _doomed(store: str, tenant: str, id: str | None, user: str | None) -> list[SessionRow]:
    async with managed(store, tenant) as sessions:
        if id is not None:
            return [await _exactly(sessions, id, user)]
        return [row async for row in lookup.walk(sessions, Filter(user=user))]


async def _exactly(sessions: SessionManager, id: str, user: str | None) -> SessionRow:
    row = await sessions.store.get(Address(sessions.tenant, id))
    if user not in (None, row.user):
        raise NotFound(f"there is no session {id}")
    return row


async def _destroy(store: str, tenant: str, id: str, user: str | None) -> Removed:
    async with managed(store, tenant) as sessions:
        return await sessions.destroy(id, user=user)


async def _erase(
    store: str, tenant: str, id: str | None, user: str | None, engine: str | None, snapshots: str
) -> Erasure:
    async with existing(store) as kept, _remembering(engine) as memory:
        sessions = SessionManager(kept, tenant=tenant, memory=memory, snapshots=Snapshots(snapshots))
        return await sessions.erase(session=id, user=user)


@asynccontextmanager
async def _remembering(name: str | None) -> AsyncIterator[MemoryEngine]:
    """Open a memory engine; the worker's own, where it never worked, knows nothing."""
    own = Home.from_environment().path / "memory"
    engine = await open_engine(name or (f"jsonl:{own}" if own.exists() else "none"))
    try:
        yield engine
    finally:
        await engine.close()


def _described(row: SessionRow) -> str:
    named = f" “{row.title}”" if row.title else ""
    whose = f" of {row.user}" if row.user else ""
    return f"session {row.id}{named}{whose}, {entries(row.seq)}"


def _counts(removed: Removed) -> str:
    branches = "1 branch" if removed.branches == 1 else f"{removed.branches:,} branches"
    return f"{entries(removed.entries)} on {branches}"


def _show(receipt: Erasure, *, as_json: bool) -> None:
    if as_json:
        screen.show(documents.compact({**msgspec.to_builtins(receipt), "at": iso(receipt.at)}))
        return
    for id, removed in receipt.sessions.items():
        screen.show(f"{screen.escaped(id)}  {_counts(removed)}")
    counts = [
        screen.counted(len(receipt.sessions), "session"),
        screen.counted(receipt.snapshots, "snapshot"),
        f"{receipt.memories:,} remembered messages",
        *(
            [f"checkpoints of {screen.counted(receipt.checkpoints, 'session')}"]
            if receipt.checkpoints
            else []
        ),
    ]
    left = "no byte of the sessions is left" if receipt.scrubbed else "some bytes may be left"
    screen.show(f"erased at {iso(receipt.at)}: {', '.join(counts)}; {left}")


COMMANDS = {"destroy": destroy, "erase": erase}
