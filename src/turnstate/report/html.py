"""A session as one self-contained HTML page: no network, no other file, and readable without its script.

The conversation at the head comes first, its turns folded, with cuts and their summaries where they were
made; other branches follow, linked from the tree and from the place where they begin. A short script adds
search. Everything that comes from the session is escaped, and a content security policy allows only this
style and this script, by their hashes. Characters that reorder or hide text are written as escapes.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Sequence
from functools import cache
from html import escape
from importlib.resources import files

from msgspec import Struct

from .. import wire_text
from ..context.reduction import output_texts
from ..entry import Answer, Bootstrap, Checkpoint, Cut, Entry, Mask, Note, Prompt, Summary, Usage
from ..log.path import entries_of, rows_forwards, spans
from ..log.replay import PathEntry, Request, replayed
from ..message import Message, ToolCallResult
from ..part import ReasoningPart
from ..plain_text import counted, first_words, harmless
from ..session import SessionManager
from ..stores.port import Log
from ..stores.values import SessionRow
from ..tokens import counter
from .context import CATEGORIES, ContextReport, context_of
from .entry_lines import cut_reason, described
from .tree import Mark, Tree, TreeBranch, TreeReader, own_span

OPEN_TURNS = 2
"""The number of newest turns that are not folded."""

LONG_LINES = 15
LONG_CHARS = 1_500
"""A longer output is folded on its own."""

ROLES = {"user": "u", "assistant": "a", "tool": "o", "system": "s"}
INSIDE = (Answer, Usage, Note, Mask)
"""Entries that are shown inside a turn; others appear between turns."""

WIDTH, HEIGHT = 1_000, 100
"""The size of a plot. It is stretched to the width of the page, so it contains lines and areas only."""

MOST_POINTS = 800
"""The most points of the curve; with more requests, each stretch is drawn by its minimum and its maximum."""


class Page(Struct, frozen=True, kw_only=True):
    """A session: its path to the head, the rest of its branches, its requests, and its next window."""

    row: SessionRow
    tree: Tree
    path: list[PathEntry]
    entries: dict[int, list[PathEntry]]
    requests: list[Request]
    context: ContextReport | None

    def others(self) -> Iterator[tuple[TreeBranch, list[PathEntry]]]:
        """Yield the branches that are not completely on the path, with their entries that are not on it."""
        for branch in self.tree.branches:
            rest = [one for one in self.entries[branch.id] if one[0].seq > branch.upto]
            if rest:
                yield branch, rest


async def read_page(sessions: SessionManager, row: SessionRow, *, log: Log | None = None) -> Page:
    """Read a session for its page; ``log`` is the store, or a log that watches for damage."""
    log = log or sessions.store
    branches = await log.branches(row.address)
    reader, entries = TreeReader(row, branches), dict[int, list[PathEntry]]()
    for branch in branches:
        rows = [one async for one in rows_forwards(log, row.address, [own_span(branch)])]
        for one in rows:
            reader.add(one)
        entries[branch.id] = list(zip(rows, await entries_of(rows), strict=True))
    path = [
        one
        for span in reversed(spans(branches, row.head))
        for one in entries[span.branch]
        if span.first <= one[0].seq <= span.last
    ]
    context = await context_of(sessions, row, path, last=0)
    requests = replayed(path, counter(row.counter), sessions.policy, limit=context.limit)
    return Page(row=row, tree=reader.tree(), path=path, entries=entries, requests=requests, context=context)


def html_page(page: Page) -> Iterator[str]:
    """Yield the page in pieces."""
    row = page.row
    title = _text(row.title or row.id)
    yield from _head(title)
    yield f"<header><h1>{title}</h1><p class=k>{_facts(page)}</p></header>\n"
    yield from _requests(page)
    if page.context:
        yield from _window(page.context)
    yield from _tree(page)
    yield '<form hidden><input type=search aria-label=Search placeholder="Search the page">'
    yield "<button type=button>Unfold all</button><output></output></form>\n<main>\n"
    forks = _forks(page)
    yield f"<section id=b{row.branch}><h2>The conversation</h2>\n"
    yield from _entries(page.path, forks, opened=OPEN_TURNS)
    yield "</section>\n"
    for branch, rest in page.others():
        anchor = "" if branch.upto else f" id=b{branch.id}"
        beside = f" · what came after entry {branch.upto:,}" if branch.upto else ""
        yield f"<section{anchor}><h2>{_text(_heading(branch) + beside)}</h2>\n"
        yield from _entries(rest, forks)
        yield "</section>\n"
    yield f"</main>\n<script>{_resource('page.js')}</script>\n</body>\n</html>\n"


@cache
def _resource(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _head(title: str) -> Iterator[str]:
    style, script = _resource("page.css"), _resource("page.js")
    policy = (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    yield '<!doctype html>\n<html lang=en dir=ltr>\n<head>\n<meta charset="utf-8">\n'
    yield f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
    yield '<meta name="referrer" content="no-referrer">\n'
    yield f"<title>{title}</title>\n<style>{style}</style>\n</head>\n<body>\n"


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _text(text: str) -> str:
    """Return text from the session as HTML that contains no markup."""
    return escape(harmless(text))


def _facts(page: Page) -> str:
    row = page.row
    known = [
        f"session {row.id}",
        f"user {row.user}" if row.user else "",
        f"tags {', '.join(row.tags)}" if row.tags else "",
        counted(page.tree.messages, "message"),
        "1 branch" if len(page.tree.branches) == 1 else f"{len(page.tree.branches):,} branches",
        f"{row.total:,} tokens at the head",
        f"epoch {row.epoch}" if row.epoch > 1 else "",
        f"ended: {row.reason}" if row.ended is not None else "",
    ]
    return _text(" · ".join(one for one in known if one))


# Above the conversation: the plot, the window, the tree.


def _requests(page: Page) -> Iterator[str]:
    if not page.requests:
        return
    most = max(page.requests, key=lambda one: one.tokens).tokens
    cuts = sum(isinstance(one, Cut) for request in page.requests for one in request.decided)
    last = page.requests[-1]
    yield "<section><h2>Tokens per request</h2><figure>\n"
    yield _requests_plot(page.requests)
    yield f"<div class=axis><span>request 1</span><span>request {len(page.requests):,}</span></div>"
    budget = f", of a budget of {last.limit:,} (dashed)" if last.limit else ""
    yield f"<figcaption>Peak {most:,} tokens, last request {last.tokens:,}{budget}; "
    yield f"{counted(cuts, 'cut')} (vertical lines; solid: on request). Replayed from the log.</figcaption>"
    yield "</figure></section>\n"


def _window(report: ContextReport) -> Iterator[str]:
    whole = report.limit or report.tokens or 1
    of = f" of {report.limit:,}" if report.limit else ""
    yield f"<section><h2>The next request: {report.tokens:,}{of} tokens</h2>{_bar(report.usage, CATEGORIES)}"
    yield "<table>"
    for number, (category, tokens) in enumerate(report.usage.items()):
        if tokens:
            key = f'<svg class=key viewBox="0 0 1 1"><rect class=c{number} width=1 height=1 /></svg>'
            yield f"<tr><td>{key} {CATEGORIES[category]}</td><td class=n>{tokens:,}</td>"
            yield f"<td class=n>{tokens / whole:.1%}</td></tr>"
    yield "</table>"
    if report.left_out:
        yield f"<p>{counted(report.left_out, 'message')} left out of the window; all of them are below.</p>"
    yield "</section>\n"


def _tree(page: Page) -> Iterator[str]:
    if len(page.tree.branches) == 1 and not page.tree.branches[0].marks:
        return
    yield "<nav><h2>Tree</h2><ul>"
    for root in page.tree.children(None):
        yield from _branch(page, root)
    yield "</ul></nav>\n"


def _branch(page: Page, branch: TreeBranch) -> Iterator[str]:
    target = page.row.branch if branch.upto else branch.id
    yield f"<li>{'●' if branch.id == page.row.branch else '○'} "
    yield f"<a href=#b{target}>{_text(_heading(branch))}</a>"
    items: list[tuple[int, int, Mark | TreeBranch]] = [(mark.seq, 0, mark) for mark in branch.marks]
    items += [(child.after, child.id, child) for child in page.tree.children(branch.id)]
    if items:
        yield "<ul>"
        for _, _, item in sorted(items, key=lambda item: item[:2]):
            if isinstance(item, Mark):
                yield f"<li><a href=#e{branch.id}-{item.seq}>{item.seq:,}</a> {_text(item.what)} "
                yield f"<span class=k>{_text(item.text)}</span>"
            else:
                yield from _branch(page, item)
        yield "</ul>"


def _heading(branch: TreeBranch) -> str:
    parts = [
        f"branch {branch.id}",
        "begin" if branch.operation == "create" else branch.operation,
        f"after entry {branch.after:,} of branch {branch.parent}" if branch.parent is not None else "",
        counted(branch.messages, "message"),
        f"“{branch.first_words}”" if branch.first_words else "",
    ]
    return " · ".join(part for part in parts if part)


def _forks(page: Page) -> dict[tuple[int, int], list[TreeBranch]]:
    """Return the branches that are not on the path, by the place where they begin."""
    forks = dict[tuple[int, int], list[TreeBranch]]()
    for branch in page.tree.branches:
        if branch.parent is not None and not branch.upto:
            forks.setdefault((branch.parent, branch.after), []).append(branch)
    return forks


# The conversation: turns, and what is between them.


def _entries(
    entries: Sequence[PathEntry], forks: dict[tuple[int, int], list[TreeBranch]], *, opened: int = 0
) -> Iterator[str]:
    """Yield entries as folded turns, with decisions and forks between them."""
    turns = sum(isinstance(entry, Message) and entry.role == "user" for _, entry in entries)
    seen, inside = 0, False
    for row, entry in entries:
        anchor = f"e{row.branch}-{row.seq}"
        starts = isinstance(entry, Message) and entry.role == "user"
        stays = isinstance(entry, INSIDE) or (isinstance(entry, Message) and not starts)
        if inside and not stays:
            yield "</details>\n"
            inside = False
        if isinstance(entry, Message):
            seen += starts
            if not inside:
                unfolded = " open" if opened and seen > turns - opened else ""
                yield f"<details class=turn{unfolded}><summary>{_summary(entry)}</summary>\n"
                inside = True
            yield from _message(entry, anchor)
        elif entry is None:
            yield f"<p class=mark id={anchor}>entry {row.seq:,} is damaged</p>\n"
        else:
            yield from _decision(entry, anchor)
        for branch in forks.get((row.branch, row.seq), ()):
            yield "</details>\n" if inside else ""
            inside = False
            yield f"<p class=mark>→ <a href=#b{branch.id}>{_text(_heading(branch))}</a></p>\n"
    if inside:
        yield "</details>\n"


def _summary(message: Message) -> str:
    words = first_words(message.text, 110) or message.role
    return f"{_text(words)} <span class=k>{_time(message)}</span>"


def _time(message: Message) -> str:
    return _text(message.timestamp[:19].replace("T", " "))


def _message(message: Message, anchor: str) -> Iterator[str]:
    kind = f" ({message.kind})" if message.kind else ""
    yield f"<article class={ROLES[message.role]} id={anchor}><h4><b>{message.role}{_text(kind)}</b> "
    yield f"{_time(message)} <code>{_text(message.id)}</code></h4>"
    for part in message.parts:
        if text := wire_text.described(part):
            thought = isinstance(part, ReasoningPart)
            yield _folded("reasoning", text) if thought else f"<div class=t>{_text(text)}</div>"
    for call in message.tool_calls:
        yield _output(f"→ {call.name} ", wire_text.args_text(call))
    for result in message.tool_results:
        yield _result(result)
    yield "</article>\n"


def _result(result: ToolCallResult) -> str:
    text = "\n".join(output_texts(result.result)).rstrip("\n")
    return _output("✗ " if result.is_error else "← ", text, failed=result.is_error)


def _output(sign: str, text: str, *, failed: bool = False) -> str:
    """Return a call or an output; a long one is folded."""
    style, lines = " class=x" if failed else "", text.count("\n") + 1
    if lines <= LONG_LINES and len(text) <= LONG_CHARS:
        return f"<pre{style}>{_text(sign)}{_text(text)}</pre>"
    words = _text(f"{sign}{first_words(text)}")
    return (
        f"<details><summary><code{style}>{words}</code> <span class=k>{counted(lines, 'line')}</span>"
        f"</summary><pre{style}>{_text(text)}</pre></details>"
    )


def _decision(entry: Entry, anchor: str) -> Iterator[str]:
    match entry:
        case Cut(asked=asked, summary=summary):
            yield f'<div class="mark cut" id={anchor}><b>{_text(str(asked.get("operation", "cut")))}</b> '
            yield f"{_text(cut_reason(entry))}{_folded('Summary', summary)}</div>\n"
        case Summary():
            yield f'<div class="mark cut" id={anchor}><b>summary</b> by a model'
            yield f"{_folded('Summary', entry.shown)}</div>\n"
        case Prompt(text=text) | Bootstrap(text=text):
            name = "System prompt" if isinstance(entry, Prompt) else "Facts about the user"
            yield f"<div class=mark id={anchor}>{_folded(name, text)}</div>\n"
        case Checkpoint(label=label, description=description):
            yield f"<p class=mark id={anchor}><b>checkpoint {_text(label)}</b> {_text(description)}</p>\n"
        case _:
            yield f"<p class=mark id={anchor}>{_text(described(entry))}</p>\n"


def _folded(name: str, text: str) -> str:
    return f"<details><summary>{name}</summary><div class=t>{_text(text)}</div></details>" if text else ""


# Plots as inline SVG. Colors and widths are classes of the style, since the security policy allows no others.


def _requests_plot(requests: Sequence[Request]) -> str:
    """Return the plot of tokens per request; empty if there is no request."""
    if not requests:
        return ""
    limit = max((one.limit or 0 for one in requests), default=0)
    top = max(*(one.tokens for one in requests), limit, 1) * 1.05
    points = [(_x(place, len(requests)), _y(requests[place].tokens, top)) for place in _chosen(requests)]
    curve = " ".join(f"{x:g},{y:g}" for x, y in points)
    lines = [
        f'<polygon class="area" points="{points[0][0]:g},{HEIGHT} {curve} {points[-1][0]:g},{HEIGHT}"/>',
        f'<polyline class="curve" points="{curve}"/>',
        *_limit_line(requests, top),
        *_cut_lines(requests),
    ]
    return (
        f'<svg class="plot" viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" role="img" '
        f'aria-label="Tokens of {len(requests):,} requests">{"".join(lines)}</svg>'
    )


def _bar(usage: dict[str, int], names: dict[str, str]) -> str:
    """Return the categories of a window as one bar."""
    total, left, cells = sum(usage.values()) or 1, 0.0, list[str]()
    for number, (category, tokens) in enumerate(usage.items()):
        width = tokens / total * WIDTH
        if tokens:
            title = escape(f"{names[category]}: {tokens:,} tokens")
            cells.append(
                f'<rect class="c{number}" x="{left:g}" y="0" width="{width:g}" height="{HEIGHT}">'
                f"<title>{title}</title></rect>"
            )
        left += width
    return (
        f'<svg class="bar" viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" role="img" '
        f'aria-label="The window by category">{"".join(cells)}</svg>'
    )


def _x(place: int, count: int) -> float:
    return round(place / max(1, count - 1) * WIDTH, 1)


def _y(tokens: float, top: float) -> float:
    return round(HEIGHT - tokens / top * HEIGHT, 1)


def _chosen(requests: Sequence[Request]) -> list[int]:
    """Return the positions to draw: all, or the minimum and the maximum of each stretch."""
    if len(requests) <= MOST_POINTS:
        return list(range(len(requests)))
    size = 2 * len(requests) / MOST_POINTS
    chosen = {0, len(requests) - 1}
    for number in range(MOST_POINTS // 2):
        stretch = range(int(number * size), min(len(requests), int((number + 1) * size)))
        chosen.add(min(stretch, key=lambda place: requests[place].tokens))
        chosen.add(max(stretch, key=lambda place: requests[place].tokens))
    return sorted(chosen)


def _limit_line(requests: Sequence[Request], top: float) -> Iterator[str]:
    """Yield the budget as a line with steps where it changed."""
    corners, last = list[str](), 0
    for place, request in enumerate(requests):
        if request.limit and request.limit != last:
            x = _x(place, len(requests))
            corners += [f"{x:g},{_y(last, top):g}"] if last else []
            corners.append(f"{x:g},{_y(request.limit, top):g}")
            last = request.limit
    if corners:
        corners.append(f"{WIDTH},{_y(last, top):g}")
        yield f'<polyline class="limit" points="{" ".join(corners)}"><title>the budget</title></polyline>'


def _cut_lines(requests: Sequence[Request]) -> Iterator[str]:
    for place, request in enumerate(requests):
        for decision in request.decided:
            if isinstance(decision, Cut):
                x, kind = _x(place, len(requests)), "asked" if decision.asked else "cutline"
                title = escape(f"before request {place + 1:,}: {cut_reason(decision)}")
                yield f'<line class="{kind}" x1="{x:g}" y1="0" x2="{x:g}" y2="{HEIGHT}">'
                yield f"<title>{title}</title></line>"
