"""``turnstate export qcli``: a session as the Q command line keeps a conversation."""

from __future__ import annotations

import asyncio

import click

from ..archive import is_half_made
from ..conversation import original
from ..errors import Busy
from . import destination, lookup, screen
from .access import managed, tenant_option, user_option
from .store_option import EXIT_CODES

__all__ = ["command"]


@click.command("qcli", epilog=EXIT_CODES)
@click.argument("id", metavar="SESSION")
@click.option(
    "-o",
    "--out",
    "--output",
    "output",
    metavar="FILE",
    help="Write to this file, which appears complete or not at all.",
)
@click.option("--force", is_flag=True, help="Replace the file if it exists.")
@click.option("--row", "as_row", is_flag=True, help="On one line, as a row of the database.")
@click.option("--quiet", is_flag=True, help="Do not tell what had to be left out.")
@tenant_option
@user_option
def command(
    id: str,
    output: str | None,
    force: bool,
    as_row: bool,
    quiet: bool,
    store: str,
    tenant: str,
    user: str | None,
) -> int:
    """Write a session as the Q command line saves a conversation.

    What came from there and was not changed goes back equal. The file can be read with its /load.
    A conversation that was compacted is written as its summary and what followed.

    \b
    Example:
      turnstate export qcli 0d0f6a52 --out talk.json
    """
    return asyncio.run(_export(id, store, tenant, user, output, force=force, as_row=as_row, quiet=quiet))


async def _export(
    id: str,
    store: str,
    tenant: str,
    user: str | None,
    output: str | None,
    *,
    force: bool,
    as_row: bool,
    quiet: bool,
) -> int:
    async with managed(store, tenant) as sessions:
        row = await lookup.session(sessions, id, user=user)
        if is_half_made(row):
            raise Busy(f"session {row.id} is being imported; wait for it, or import it again")
        session = await sessions.open(row.id)
        state = await session.conversation()
        for notice in session.notices:
            screen.say(f"session {row.id}: {notice}")
        with destination.opened(output, force=force, end="") as write:
            write(original.row(state) if as_row else original.saved(state))
    if not quiet:
        for note in original.left_out(state):
            screen.say(f"session {row.id}: note: {note}")
    return 0
