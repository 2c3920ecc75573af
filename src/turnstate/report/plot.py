"""Plots as inline SVG: tokens per request with the cuts marked, and the categories of a window as a bar.

The drawing is stretched to the width of the page, so it contains lines and areas only; numbers are text next
to it. Colors and widths are classes of the page's stylesheet, since its security policy allows no others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from ..entry import Cut
from ..log.replay import Request
from .entry_lines import cut_reason

WIDTH, HEIGHT = 1_000, 100
MOST_POINTS = 800
"""The most points of the curve; with more requests, each stretch is drawn by its minimum and its maximum."""


def requests_plot(requests: Sequence[Request]) -> str:
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


def bar(usage: dict[str, int], names: dict[str, str]) -> str:
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
