"""A session as text: its row, its log entries, the tree of its branches, and the report on its window.

All text is safe to print: control characters are escaped. Long calls and outputs of a message are cut,
followed by the command that shows all of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from .. import catalog, wire_text
from ..archive import is_incomplete
from ..context.reduction import output_id, output_texts
from ..entry import Entry, Usage
from ..ids import wall_clock
from ..message import Message, ToolCallResult
from ..plain_text import counted, first_words, harmless
from ..report import ContextReport, Mark, Tree, TreeBranch
from ..report.context import CATEGORIES
from ..report.entry_lines import described
from ..stores.values import SessionRow
from .screen import escaped, styled, table
from .times import ago, iso

MAX_LINES = 12
MAX_CHARS = 2_000
"""Where a call or output of a message is cut."""

ROLE_COLORS = {"user": "blue", "assistant": "green", "tool": "yellow", "system": "magenta"}
"""The color of a message's heading."""

BAR = 60
"""Cells of the bar."""

CATEGORY_COLORS = {
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


def state(row: SessionRow) -> str:
    """Return the state of a session: live, leased, idle, ended or importing."""
    now = wall_clock()
    if is_incomplete(row):
        return "importing"
    if row.ended is not None:
        return "ended"
    if row.lease_until > now:
        return "leased"
    return "idle" if row.is_idle(now) else "live"


def row_fields(row: SessionRow) -> dict[str, Any]:
    """Return the metadata of a session as JSON fields."""
    return {
        "id": row.id,
        "tenant": row.tenant,
        "user": row.user,
        "title": row.title,
        "tags": list(row.tags),
        "state": state(row),
        "entries": row.seq,
        "tokens": row.total,
        "counter": row.counter,
        "created": iso(row.created),
        "active": iso(row.active),
        "idle": row.idle / 1000 or None,
        "ended": iso(row.ended) if row.ended is not None else None,
        "reason": row.reason or None,
        "epoch": row.epoch,
        "version": row.version,
        "branch": row.branch,
        "meta": row.meta,
    }


def row_text(row: SessionRow) -> str:
    """Describe a session so that a person recognizes it: id, title, user, size and time."""
    named = f" “{row.title}”" if row.title else ""
    whose = f" of {row.user}" if row.user else ""
    return f"session {row.id}{named}{whose}, {entry_count(row.seq)}, last used {ago(row.active)}"


def entry_count(count: int) -> str:
    """Return a count of entries as text."""
    return "1 entry" if count == 1 else f"{count:,} entries"


def entry_text(id: str, entry: Entry | None, *, whole: bool = False) -> str:
    """Return the text of one log entry; long calls and outputs of a message are cut unless `whole`."""
    if entry is None:
        return styled(harmless(f"[{id} is damaged]"), bold=True)
    if isinstance(entry, Message):
        kind = f" ({entry.kind})" if entry.kind else ""
        heading = f"{entry.role}{kind} · {entry.timestamp} · {entry.id}"
        title = styled(harmless(heading), bold=True, fg=ROLE_COLORS[entry.role])
        return "\n".join([title, *_message_lines(entry, whole=whole)])
    return styled(harmless(f"— {described(entry)}"), dim=True)


def _message_lines(message: Message, *, whole: bool) -> Iterator[str]:
    for part in message.parts:
        if text := wire_text.described(part):
            yield harmless(text)
    for call in message.tool_calls:
        text = f"→ {call.name} {wire_text.args_text(call)}"
        yield harmless(text if whole else _short(text, message.id))
    for result in message.tool_results:
        text = f"{'✗' if result.is_error else '←'} {_output(result)}"
        yield harmless(text if whole else _short(text, output_id(message, result)))


def _output(result: ToolCallResult) -> str:
    return "\n".join(output_texts(result.result)).rstrip("\n")


def _short(text: str, id: str) -> str:
    """Return the beginning of a text, and the command that shows the rest."""
    lines = text.split("\n")
    shown = "\n".join(lines[:MAX_LINES])[:MAX_CHARS]
    if shown == text:
        return text
    return f"{shown}\n… of {counted(len(lines), 'line')}: turnstate show {id}"


def tree_lines(tree: Tree) -> Iterator[str]:
    """Yield the lines of a tree, safe to print."""
    title = f" “{tree.title}”" if tree.title else ""
    yield styled(escaped(f"session {tree.session}{title}"), bold=True)
    branches = "1 branch" if len(tree.branches) == 1 else f"{len(tree.branches):,} branches"
    messages = counted(tree.messages, "message")
    yield f"{branches} · {messages} · head at {tree.seq:,} of branch {tree.branch}"
    width = len(f"{max((branch.last for branch in tree.branches), default=0):,}")
    for root in tree.children(None):
        yield ""
        yield _branch_line(tree, root)
        yield from _inside(tree, root, "", width)


def _inside(tree: Tree, branch: TreeBranch, indent: str, width: int) -> Iterator[str]:
    """Yield the lines below a branch: its marks and children in the order of the log."""
    items: list[tuple[int, int, Mark | TreeBranch]] = [(mark.seq, 0, mark) for mark in branch.marks]
    items += [(child.after, child.id, child) for child in tree.children(branch.id)]
    items.sort(key=lambda item: item[:2])
    for place, (number, _, item) in enumerate(items):
        last = place == len(items) - 1
        stem = styled(f"{indent}{'└─' if last else '├─'} {number:>{width},} ", dim=True)
        if isinstance(item, Mark):
            yield f"{stem} {_mark_text(item)}"
        else:
            yield f"{stem} {_branch_line(tree, item)}"
            yield from _inside(tree, item, f"{indent}{'  ' if last else '│ '} {' ' * width}  ", width)


def _branch_line(tree: Tree, branch: TreeBranch) -> str:
    how = {"create": "begin", "reset": "next epoch"}.get(branch.operation, branch.operation)
    own = branch.name if branch.name and branch.operation == "fork" else ""
    details = [
        f"{how} {own}".rstrip(),
        counted(branch.messages, "message"),
        _minute(branch.first_at or iso(branch.created)),
        f"“{branch.first_words}”" if branch.first_words else "",
    ]
    mark = "●" if branch.id == tree.branch else "○"
    name = styled(f"branch {branch.id}", bold=branch.upto > 0 or branch.id == tree.branch)
    return f"{mark} {name} {escaped(' · '.join(filter(None, details)))}"


def _mark_text(mark: Mark) -> str:
    when = f" · {_minute(mark.at)}" if mark.at else ""
    return f"{styled(mark.what, bold=True)}{escaped(f'{when} · {mark.text}' if mark.text else when)}"


def context_lines(report: ContextReport) -> Iterator[str]:
    """Yield the lines of a report, safe to print."""
    title = f" “{report.title}”" if report.title else ""
    yield styled(escaped(f"session {report.session}{title}"), bold=True)
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
        cells.append(styled(SIGNS[category] * size, fg=CATEGORY_COLORS[category]))
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
        yield escaped(f"{counted(report.left_out, 'message')} left out; {place}{words}")
    for what, ids in (("hidden behind one line", report.hidden), ("reduced to its two ends", report.reduced)):
        if ids:
            shown = ", ".join(ids[:SHOWN_IDS]) + (", …" if len(ids) > SHOWN_IDS else "")
            yield escaped(f"{counted(len(ids), 'tool message')} {what}: {shown}")
    for repair in report.repairs[:SHOWN_IDS]:
        yield escaped(f"repaired: {repair}")
    for event in report.due:
        yield escaped(f"the next window decides: {event}")


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
