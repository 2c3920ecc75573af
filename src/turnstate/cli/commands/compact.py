"""``turnstate compact``: replace all but the newest exchanges of a conversation with a summary."""

from __future__ import annotations

import asyncio
from typing import Any

import click

from ...context.cut import Compaction, Strategy
from ...context.policy import Budget
from ...plain_text import counted, harmless
from ...session import Session
from ...terminal import lookup, screen
from .. import documents
from ..completion import session_argument
from ..options import json_option
from ..store import EXIT_CODES, managed, tenant_option, user_option
from .branching import changed


@click.command("compact", epilog=EXIT_CODES)
@session_argument()
@click.option(
    "--keep", type=click.IntRange(0), default=Strategy().keep, show_default=True, metavar="N",
    help="Newest exchanges to keep complete.",
)  # fmt: skip
@click.option("--budget", type=click.IntRange(1), metavar="N", help="Tokens of the requests that follow.")
@click.option("--preview", is_flag=True, help="Show what would happen, and write nothing.")
@tenant_option
@user_option
@json_option("Print one JSON object.")
def command(
    id: str,
    keep: int,
    budget: int | None,
    preview: bool,
    store: str,
    tenant: str,
    user: str | None,
    as_json: bool,
) -> int:
    """Replace all but the newest exchanges of a conversation with a summary.

    The summary is a digest that is computed without a model. All messages stay in the log;
    `turnstate undo` brings them back into the window.

    \b
    Example:
      turnstate compact last --preview
      turnstate compact 0197a1 --keep 5

    \b
    With --json, one object:
      session, messages              its id, and the number of messages replaced
      tokens_before, tokens_after    of the window
      summary, source                the text in their place, and who wrote it
      head                           of the session afterwards; not with --preview
    """
    limits, strategy = Budget(budget) if budget is not None else None, Strategy(keep=keep)
    if preview:
        return asyncio.run(_preview(id, store, tenant, user, limits, strategy, as_json=as_json))

    async def change(session: Session) -> tuple[str, dict[str, Any]]:
        done = await session.compact(limits, strategy=strategy, model=False)
        return f"{_words(done)}; undo takes it back", _fields(done)

    return changed(store, tenant, user, id, change, as_json=as_json)


async def _preview(
    id: str,
    store: str,
    tenant: str,
    user: str | None,
    budget: Budget | None,
    strategy: Strategy,
    *,
    as_json: bool,
) -> int:
    async with managed(store, tenant) as sessions:
        row = await lookup.session(sessions, id, user=user)
        planned = await (await sessions.open(row.id, user=user)).preview_compact(budget, strategy=strategy)
    if as_json:
        screen.show(documents.compact({"session": row.id, **_fields(planned)}))
    else:
        screen.say(f"session {row.id}: {_words(planned)}; nothing was written")
        screen.display(harmless(planned.summary))
    return 0


def _words(done: Compaction) -> str:
    replaced = f"a {done.source} replaces {counted(done.messages, 'message')}"
    return f"{replaced}; {done.tokens_before:,} tokens become {done.tokens_after:,}"


def _fields(done: Compaction) -> dict[str, Any]:
    return {
        "messages": done.messages,
        "tokens_before": done.tokens_before,
        "tokens_after": done.tokens_after,
        "summary": done.summary,
        "source": done.source,
    }
