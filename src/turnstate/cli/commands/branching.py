"""``turnstate branch|fork|rewind|undo``: the branches of a session, and moving its head.

Nothing is deleted: a fork or rewind begins a new branch, and undo returns to the former one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import click
from msgspec import structs

from ...errors import NotFound
from ...log.path import tip
from ...report import Tree, read_tree
from ...session import Branch, Session
from ...stores.port import Log
from ...stores.values import SessionRow, Span
from ...terminal import lookup, screen
from ...terminal.screen import table
from ...terminal.times import ago, iso
from .. import documents
from ..completion import session_argument
from ..options import json_option
from ..store import EXIT_CODES, managed, tenant_option, user_option

COLUMNS = ("", "branch", "begins at", "how", "messages", "created", "name", "first words")


@click.command("branch", epilog=EXIT_CODES)
@session_argument(required=False)
@tenant_option
@user_option
@json_option("Print one JSON object per branch.")
def branch(id: str | None, store: str, tenant: str, user: str | None, as_json: bool) -> int:
    """List the branches of a session; ● marks the one with the head.

    `turnstate show ID --branch N` shows the conversation on a branch, and `turnstate fork ID --at
    MESSAGE` continues from any message of any branch.

    \b
    Example:
      turnstate branch last
      turnstate branch 0197a1 --json

    \b
    With --json, one object per branch:
      id, parent, after   its number, and where it begins
      operation           create, fork, rewind, tangent, restore or reset
      name, created, messages, first_words
      head                true if the head is on it
    """
    tree = asyncio.run(_tree(id, store, tenant, user))
    if as_json:
        for fields in _branch_fields(tree):
            screen.show(documents.compact(fields))
        return 0
    rows = [
        (
            "●" if one.id == tree.branch else "",
            str(one.id),
            f"{one.parent}:{one.after:,}" if one.parent is not None else "",
            one.operation,
            f"{one.messages:,}",
            ago(one.created),
            one.name,
            one.first_words,
        )
        for one in tree.branches
    ]
    screen.display(table(COLUMNS, rows, right=("branch", "messages")))
    return 0


@click.command("fork", epilog=EXIT_CODES)
@session_argument()
@click.option("--at", metavar="MESSAGE", help="Continue from this message.  [default: the head]")
@click.option("--name", metavar="NAME", default="", help="A name for the new branch.")
@tenant_option
@user_option
@json_option("Print the branch as JSON.")
def fork(id: str, at: str | None, name: str, store: str, tenant: str, user: str | None, as_json: bool) -> int:
    """Continue a conversation on a new branch, from its head or from any message of any branch.

    The old branch stays as it is. Within a group of tool calls and results, the fork is made before
    the group. `turnstate undo` returns to the old branch.

    \b
    Example:
      turnstate fork last --name "another attempt"
      turnstate fork 0197a1 --at 0197a1c2-5b7e-7d80-a1b2-0123456789ab
    """

    async def change(session: Session) -> tuple[str, dict[str, Any]]:
        made = await session.fork(at=at, name=name)
        return f"continues on branch {made.id} after entry {made.fork_seq:,}", _moved(made)

    return changed(store, tenant, user, id, change, as_json=as_json)


@click.command("rewind", epilog=EXIT_CODES)
@session_argument()
@click.argument("message")
@tenant_option
@user_option
@json_option("Print the new branch as JSON.")
def rewind(id: str, message: str, store: str, tenant: str, user: str | None, as_json: bool) -> int:
    """Make a message the last one of a conversation. What came after it stays in the log.

    Within a group of tool calls and results, the conversation ends before the group. `turnstate
    undo` brings everything back.

    \b
    Example:
      turnstate rewind last 0197a1c2-5b7e-7d80-a1b2-0123456789ab
    """

    async def change(session: Session) -> tuple[str, dict[str, Any]]:
        made = await session.rewind(to=message)
        return f"ends at entry {made.fork_seq:,} now; undo brings the rest back", _moved(made)

    return changed(store, tenant, user, id, change, as_json=as_json)


@click.command("undo", epilog=EXIT_CODES)
@session_argument()
@tenant_option
@user_option
@json_option("Print what was undone as JSON.")
def undo(id: str, store: str, tenant: str, user: str | None, as_json: bool) -> int:
    """Undo the newest compaction, fork, rewind, tangent or restore of a conversation.

    Files stay as they are; for those, use `turnstate checkpoint undo`. Run it again to undo the
    operation before.

    \b
    Example:
      turnstate undo last
    """

    async def change(session: Session) -> tuple[str, dict[str, Any]]:
        undone = await session.undo()
        return f"{undone} undone", {"undone": undone}

    return changed(store, tenant, user, id, change, as_json=as_json)


def changed(
    store: str,
    tenant: str,
    user: str | None,
    id: str,
    change: Callable[[Session], Awaitable[tuple[str, dict[str, Any]]]],
    *,
    as_json: bool,
) -> int:
    """Change one session and report the result: as text, or as JSON with the session and its head."""

    async def run() -> tuple[SessionRow, str, dict[str, Any]]:
        async with managed(store, tenant) as sessions:
            row = await lookup.session(sessions, id, user=user)
            text, fields = await change(await sessions.open(row.id, user=user))
            return await sessions.store.get(row.address), text, fields

    row, text, fields = asyncio.run(run())
    if as_json:
        head = {"session": row.id, "head": {"branch": row.branch, "seq": row.seq}}
        screen.show(documents.compact({**head, **fields}))
    else:
        screen.say(f"session {row.id}: {text}")
    return 0


async def at_branch(log: Log, row: SessionRow, name: str) -> SessionRow:
    """Return a session with its head moved to the end of a branch, named by its number or its name."""
    branches = await log.branches(row.address)
    found = [one for one in branches if str(one.id) == name] or [one for one in branches if one.name == name]
    if not found:
        known = ", ".join(str(one.id) for one in branches[:20])
        raise NotFound(f"session {row.id} has no branch {name}; there are {known}")
    end = await tip(log, row.address, found[-1])
    last = await log.read(row.address, Span(end.branch, end.seq, end.seq))
    total = last[0].total if last else row.total
    return structs.replace(row, branch=end.branch, seq=end.seq, total=total)


async def _tree(id: str | None, store: str, tenant: str, user: str | None) -> Tree:
    async with managed(store, tenant, to_read=True) as sessions:
        row = await lookup.chosen(sessions, id, user=user)
        return await read_tree(sessions.store, row)


def _branch_fields(tree: Tree) -> list[dict[str, Any]]:
    return [
        {
            "id": one.id,
            "parent": one.parent,
            "after": one.after,
            "operation": one.operation,
            "name": one.name,
            "created": iso(one.created),
            "messages": one.messages,
            "first_words": one.first_words,
            "head": one.id == tree.branch,
        }
        for one in tree.branches
    ]


def _moved(made: Branch) -> dict[str, Any]:
    return {"branch": made.id, "parent": made.parent, "after": made.fork_seq, "operation": made.operation}
