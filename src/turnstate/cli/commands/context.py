"""``turnstate context``: print what the window of a session contains, what it does not, and why."""

from __future__ import annotations

import asyncio

import click

from ...context.policy import Budget
from ...report import read_context
from ...terminal import lookup, screen
from ...terminal.session_text import context_lines
from .. import documents
from ..completion import session_argument
from ..options import json_option, model_option
from ..store import EXIT_CODES, managed, tenant_option, user_option


@click.command("context", epilog=EXIT_CODES)
@session_argument(required=False)
@tenant_option
@user_option
@click.option("--budget", type=click.IntRange(1), metavar="N", help="Tokens for the whole request.")
@model_option("Without --budget and decisions: the window of this model.")
@click.option(
    "--requests",
    "last",
    type=click.IntRange(0, 1_000),
    default=10,
    show_default=True,
    metavar="N",
    help="Replay the last N requests.",
)
@json_option("Print one JSON object.")
def command(
    id: str | None,
    store: str,
    tenant: str,
    user: str | None,
    budget: int | None,
    model: str | None,
    last: int,
    as_json: bool,
) -> int:
    """Show what the next window of a session contains, what was left out, and why.

    Prints a bar and a table by category, then what is hidden or shortened, the decisions behind it,
    and how much of the last requests a prompt cache could reuse. Requests are replayed from the
    recorded decisions; usage that the provider reported is shown beside them. Nothing is written.

    Without --budget, the budget of the last request or decision is used, else that of --model, else
    that of the last model that answered. What a program adds to a request without storing it, such
    as tools or recalled memory, is not in the log and so not in the table.

    ID is an id, a title, a unique prefix of either, or `last`; without it, a terminal offers a
    list.

    \b
    Example:
      turnstate context last
      turnstate context 0197a1 --budget 8000
      turnstate context 0197a1 --requests 100 --json

    \b
    With --json, one object:
      session, title, counter, tokens, messages
      limit, limit_from   the budget and where it comes from, or null
      usage               tokens by category
      left_out, summary   messages left out, and the text in their place
      hidden, reduced     ids of messages whose output is hidden or shortened
      repairs, due        what is repaired; what the next window decides
      decisions           a list of {seq, at, what, why, holds}
      requests            a list of {seq, reply, timestamp, tokens, reused,
                          limit, reported}
      reuse               the part of their tokens that was reused
      cached              the part that providers report as cached, or null
    """
    asked = Budget(budget) if budget is not None else None
    return asyncio.run(_context(id, store, tenant, user, asked, model, last, as_json=as_json))


async def _context(
    id: str | None,
    store: str,
    tenant: str,
    user: str | None,
    budget: Budget | None,
    model: str | None,
    last: int,
    *,
    as_json: bool,
) -> int:
    async with managed(store, tenant, to_read=True) as sessions:
        row = await lookup.chosen(sessions, id, user=user)
        report = await read_context(sessions, row, budget=budget, model=model, last=last)
    if as_json:
        screen.show(documents.compact(report.to_json()))
    else:
        with screen.paged():
            screen.display("\n".join(context_lines(report)))
    return 0
