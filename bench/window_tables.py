"""The tables of the times of windows, and their goals."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from .window_print import goal, ms, table, times
from .window_speed import Times

COLD_GOAL = 2.0  # times the bare tokenizing of what the window keeps
PEER_GOAL, PEER_SIZE = 100.0, 10_000
ADDED_GOAL = 0.2e-3
FLAT_GOAL, SHORT, LONG = 1.2, 100, 100_000

_CASE = ("messages", "budget")


def report(found: Sequence[Times]) -> None:
    """Print what was measured."""
    _cold(found)
    _known(found)
    _added(found)
    _flat(found)


def _cold(found: Sequence[Times]) -> None:
    print("\nCold, from plain messages, for a single use (ms).")
    print(
        "Beside it tokenizers alone, over the texts of the window: as sent, and whole, before old output was"
    )
    print("hidden; tiktoken, which the goal is for and the peer uses, and toktok, which we use.")
    head = (
        *_CASE,
        "Turnstate",
        "tiktoken, sent",
        "tiktoken, whole",
        "toktok, whole",
        "ours / sent",
        "ours / whole",
        "ours / toktok",
        "peer",
        "peer / ours",
    )
    rows = []
    for one in found:
        raw = [
            ms(one.raw_sent),
            ms(one.raw_whole),
            ms(one.own_whole),
            times(one.cold / one.raw_sent),
            times(one.cold / one.raw_whole),
            times(one.cold / one.own_whole),
        ]
        rows.append(
            [*_case(one), ms(one.cold), *raw, ms(one.peer_exact), times(_ratio(one.peer_exact, one.cold))]
        )
    table(head, rows)
    for one in found:
        ratio = one.cold / one.raw_whole
        text = f"cold, {_name(one)}: at most {COLD_GOAL:g} × tiktoken over what it keeps"
        goal(text, times(ratio), ratio <= COLD_GOAL)


def _known(found: Sequence[Times]) -> None:
    print("\nCounts known: the cut planned for the first time, again, and taken from the record (ms).")
    print("The peer counts at every call; `known` is the same with its counts looked up.")
    head = (
        *_CASE,
        *(names := ("first plan", "planned", "recorded")),
        "peer",
        "peer, known",
        *(f"peer / {name}" for name in names),
        *(f"known / {name}" for name in names),
    )
    rows = []
    for one in found:
        ours = (one.first, one.planned, one.recorded)
        ratios = [times(_ratio(peer, spent)) for peer in (one.peer_exact, one.peer_known) for spent in ours]
        rows.append([*_case(one), *map(ms, (*ours, one.peer_exact, one.peer_known)), *ratios])
    table(head, rows)
    for one in found:
        for name, spent in (("recorded", one.recorded), ("planned", one.planned)):
            ratio = _ratio(one.peer_exact, spent)
            if one.size == PEER_SIZE and ratio is not None:
                text = f"counts known, {name}, {_name(one)}: at least {PEER_GOAL:g} × faster than the peer"
                goal(text, times(ratio), ratio >= PEER_GOAL)


def _added(found: Sequence[Times]) -> None:
    print("\nOne message added, and the window (ms). The peer cannot do that: it starts over.")
    head = (*_CASE, "median", "mean with cuts", "longest", "peer", "peer / median")
    rows = []
    for one in found:
        figures = (_middle(one), statistics.mean(one.added), max(one.added), one.peer_exact)
        rows.append([*_case(one), *map(ms, figures), times(_ratio(one.peer_exact, _middle(one)))])
    table(head, rows)
    for one in found:
        goal(
            f"added, {_name(one)}: at most {ADDED_GOAL * 1000:g} ms",
            f"{ms(_middle(one))} ms",
            _middle(one) <= ADDED_GOAL,
        )


def _flat(found: Sequence[Times]) -> None:
    """Compare the longest conversation with the shortest, at the limits that both fill."""
    cases = {(one.limit, one.size): one for one in found}
    for (limit, size), long in cases.items():
        short = cases.get((limit, SHORT))
        if size != LONG or short is None:
            continue
        ratios = {"median": _middle(long) / _middle(short)}
        ratios["mean with cuts"] = statistics.mean(long.added) / statistics.mean(short.added)
        for name, ratio in ratios.items():
            text = f"added, {name} at {limit:,}: {LONG:,} messages at most {FLAT_GOAL:g} × {SHORT:,}"
            goal(text, times(ratio), ratio <= FLAT_GOAL)


def _case(one: Times) -> tuple[str, str]:
    return f"{one.size:,}", f"{one.limit:,}"


def _name(one: Times) -> str:
    return f"{one.size:,} at {one.limit:,}"


def _middle(one: Times) -> float:
    return statistics.median(one.added)


def _ratio(one: float | None, other: float) -> float | None:
    return None if one is None else one / other
