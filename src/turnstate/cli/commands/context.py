"""``turnstate context``: print what the window of a session contains, what it does not, and why."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

import click

from ...cli_kit import screen
from ...cli_kit.screen import styled, table
from ...context.policy import Budget
from ...plain_text import first_words
from ...report import ContextReport, read_context
from ...report.context import CATEGORIES
from .. import documents, picker
from ..completion import session_argument
from ..options import json_option
from ..settings import model_option
from ..store import EXIT_CODES, managed, tenant_option, user_option

__all__ = ["bar", "command", "context_lines"]

BAR = 60
"""Cells of the bar."""

COLORS = {
    "system": "magenta",
    "bootstrap": "magenta",
    "tools": "yellow",
    "context": "yellow",
    "memory": "cyan",
    "summary": "blue",
    "short_term": "green",
    "immediate": "bright_green",
    "free": "bright_black",
}
SIGNS = {
    "system": "▚",
    "bootstrap": "▚",
    "tools": "▞",
    "context": "▞",
    "memory": "▒",
    "summary": "▓",
    "short_term": "█",
    "immediate": "▉",
    "free": "·",
}
SHOWN_IDS = 5
SHOWN_DECISIONS = 12


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

    A bar and a table by category; then what is hidden or shortened, the decisions behind it, and
    how much of the last requests a prompt cache could reuse. Requests are replayed from the
    recorded decisions; usage that the provider reported is shown beside them. Nothing is written.

    Without --budget, the budget of the last recorded decision is used, else that of --model, else
    that of the last model that answered. What a program adds to a request without storing it, such
    as tools or recalled memory, is not in the log and so not in the table.

    ID is an id, a title, a unique beginning of either, or `last`; without it, a terminal offers a
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
    async with managed(store, tenant) as sessions:
        row = await picker.chosen(sessions, id, user=user)
        report = await read_context(sessions, row, budget=budget, model=model, last=last)
    if as_json:
        screen.show(documents.compact(report.to_json()))
    else:
        with screen.paged():
            screen.display("\n".join(context_lines(report)))
    return 0


def context_lines(report: ContextReport) -> Iterator[str]:
    """Yield the lines of a report, safe to print."""
    title = f" “{report.title}”" if report.title else ""
    yield styled(screen.escaped(f"session {report.session}{title}"), bold=True)
    used = f"{screen.counted(report.tokens, 'token')} in {screen.counted(report.messages, 'message')}"
    if report.limit is None:
        yield f"{used} · no budget is known; pass --budget N · {report.counter}"
    else:
        share = f"{report.tokens / report.limit:.0%}"
        source = f" (from {report.limit_from})" if report.limit_from != "given" else ""
        yield f"{used} · {share} of {report.limit:,}{source} · {report.counter}"
    yield ""
    yield bar(report.usage)
    yield ""
    yield _usage_table(report)
    if lines := list(_left_out(report)):
        yield ""
        yield from lines
    if report.decisions:
        yield ""
        yield _decision_table(report)
    if report.requests:
        yield ""
        yield from _request_lines(report)


def bar(usage: dict[str, int], width: int = BAR) -> str:
    """Return a bar of the categories; whatever is used gets at least one cell."""
    total = sum(usage.values())
    cells, end = list[str](), 0.0
    filled = 0
    for category, tokens in usage.items():
        end += tokens / total * width if total else 0
        size = max(round(end) - filled, 1 if tokens and category != "free" else 0)
        size = min(size, width - filled)
        filled += size
        cells.append(styled(SIGNS[category] * size, fg=COLORS[category]))
    return "".join(cells)


def _usage_table(report: ContextReport) -> str:
    whole = report.limit or report.tokens or 1
    rows = [
        (SIGNS[name], CATEGORIES[name], f"{tokens:,}", f"{tokens / whole:.1%}")
        for name, tokens in report.usage.items()
        if tokens or name in ("system", "summary", "immediate", "short_term")
    ]
    if report.limit is None:
        rows = [row for row in rows if row[1] != "free"]
    return table(("", "category", "tokens", "share"), rows, right=("tokens", "share"))


def _left_out(report: ContextReport) -> Iterator[str]:
    """Yield what is not sent as it was said."""
    if report.left_out:
        words = f": “{first_words(report.summary)}”" if report.summary else ""
        place = "a summary replaces them" if report.summary else "nothing replaces them"
        yield screen.escaped(f"{screen.counted(report.left_out, 'message')} left out; {place}{words}")
    for what, ids in (("hidden behind one line", report.hidden), ("reduced to its two ends", report.reduced)):
        if ids:
            shown = ", ".join(ids[:SHOWN_IDS]) + (", …" if len(ids) > SHOWN_IDS else "")
            yield screen.escaped(f"{screen.counted(len(ids), 'tool message')} {what}: {shown}")
    for repair in report.repairs[:SHOWN_IDS]:
        yield screen.escaped(f"repaired: {repair}")
    for event in report.due:
        yield screen.escaped(f"the next window decides: {event}")


def _decision_table(report: ContextReport) -> str:
    newest = report.decisions[-SHOWN_DECISIONS:]
    rows = [
        (f"{one.seq:,}", _minute(one.at), one.what, "yes" if one.holds else "no", one.why) for one in newest
    ]
    more = len(report.decisions) - len(newest)
    lead = f"the newest of {len(report.decisions):,} decisions:\n" if more else ""
    return lead + table(("entry", "when", "decision", "holds", "why"), rows, right=("entry",))


def _request_lines(report: ContextReport) -> Iterator[str]:
    reported = any(request.reported for request in report.requests)
    columns = ["entry", "when", "tokens", "reused", "share"]
    columns += ["reported", "cached (reported)"] if reported else []
    rows = list[Sequence[str]]()
    for request in report.requests:
        reused = request.reused or 0
        share = f"{reused / request.tokens:.0%}" if request.tokens else ""
        row = [f"{request.seq:,}", _minute(request.timestamp), f"{request.tokens:,}", f"{reused:,}", share]
        if reported:
            usage = request.reported
            row += [f"{usage.input:,}", f"{usage.cached:,}"] if usage else ["", ""]
        rows.append(row)
    count = f"{len(report.requests):,} requests" if len(report.requests) > 1 else "request"
    yield f"prompt cache over the last {count}, replayed: {report.reuse or 0:.1%} of the tokens reused"
    yield table(columns, rows, right=[column for column in columns if column != "when"])


def _minute(timestamp: str) -> str:
    return timestamp[:16].replace("T", " ")
