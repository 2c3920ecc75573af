"""The report on a window as text: a bar, tables, and what was left out and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .. import catalog
from ..entry import Usage
from ..plain_text import counted, first_words
from ..report import ContextReport
from ..report.context import CATEGORIES
from . import screen
from .screen import styled, table

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


def context_lines(report: ContextReport) -> Iterator[str]:
    """Yield the lines of a report, safe to print."""
    title = f" “{report.title}”" if report.title else ""
    yield styled(screen.escaped(f"session {report.session}{title}"), bold=True)
    used = f"{counted(report.tokens, 'token')} in {counted(report.messages, 'message')}"
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
    """Return a bar of the categories; each one in use gets at least one cell."""
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
    """Yield lines about what is not sent in its original form."""
    if report.left_out:
        words = f": “{first_words(report.summary)}”" if report.summary else ""
        place = "a summary replaces them" if report.summary else "nothing replaces them"
        yield screen.escaped(f"{counted(report.left_out, 'message')} left out; {place}{words}")
    for what, ids in (("hidden behind one line", report.hidden), ("reduced to its two ends", report.reduced)):
        if ids:
            shown = ", ".join(ids[:SHOWN_IDS]) + (", …" if len(ids) > SHOWN_IDS else "")
            yield screen.escaped(f"{counted(len(ids), 'tool message')} {what}: {shown}")
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
    told = "" if report.cached is None else f"; {report.cached:.1%} cached, as reported"
    yield f"prompt cache over the last {count}, replayed: {report.reuse or 0:.1%} of the tokens reused{told}"
    if cost := cost_text([request.reported for request in report.requests if request.reported]):
        yield f"{cost}, for the last {count}"
    yield table(columns, rows, right=[column for column in columns if column != "when"])


def cost_text(usages: Sequence[Usage]) -> str:
    """Return what requests cost, and by which prices; empty if nothing is known about it."""
    costs = [catalog.cost(one) for one in usages]
    known = [one for one in costs if one is not None]
    if not known:
        return ""
    dates = sorted({one.as_of for one in known if one.as_of})
    if dates:
        how = f" by the prices of {dates[-1]}"
    else:
        how = " as reported" if all(one.is_reported for one in known) else " by your own prices"
    missing = len(costs) - len(known)
    without = f" and {counted(missing, 'request')} without a known price" if missing else ""
    return f"cost ${sum(one.amount for one in known):.4f}{how}{without}"


def _minute(timestamp: str) -> str:
    return timestamp[:16].replace("T", " ")
