"""``turnstate tree``: print the branches of a session, and what happened on them."""

from __future__ import annotations

import asyncio

import click

from ...log.path import Damage, WatchedLog
from ...report import read_tree
from ...terminal import lookup, screen
from ...terminal.session_text import tree_lines
from .. import documents
from ..completion import session_argument
from ..options import json_option
from ..store import EXIT_CODES, managed, tenant_option, user_option


@click.command("tree", epilog=EXIT_CODES)
@session_argument(required=False)
@tenant_option
@user_option
@json_option("Print one JSON object.")
def command(id: str | None, store: str, tenant: str, user: str | None, as_json: bool) -> int:
    """Show the branches of a session: forks, tangents and restores, with cuts and checkpoints.

    Each line begins with the number of its entry. Branches are shown where they begin, with the
    time and the first words of the user there; ● marks the branch with the head. `turnstate show
    ID --branch N` shows what was said on one of them.

    ID is an id, a title, a unique prefix of either, or `last`; without it, a terminal offers a
    list.

    \b
    Example:
      turnstate tree last
      turnstate tree 0197a1 --json

    \b
    With --json, one object:
      session, title, branch, seq  the session and its head
      branches  a list of {id, parent, after, operation, name, created, messages,
                last, first_words, first_at, last_at, upto, marks}
      marks     of a branch: a list of {seq, at, what, text}
    """
    return asyncio.run(_tree(id, store, tenant, user, as_json=as_json))


async def _tree(id: str | None, store: str, tenant: str, user: str | None, *, as_json: bool) -> int:
    async with managed(store, tenant, to_read=True) as sessions:
        row, damage = await lookup.chosen(sessions, id, user=user), Damage()
        tree = await read_tree(WatchedLog(sessions.store, damage), row)
    if as_json:
        screen.show(documents.compact(tree.to_json()))
    else:
        with screen.paged():
            screen.display("\n".join(tree_lines(tree)))
    for notice in damage.notices():
        screen.say(notice)
    return 1 if damage.lost else 0
