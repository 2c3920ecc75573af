"""How long one client waits until a message is durable, by the kind of message.

Ours is compared with a raw insert of the same bytes, on a WAL that grows and on one that already has its
final size, like ours, and with the bare rows and words that we write. The first two ratios are the total cost
of Turnstate; the third is its cost without that of the tables and the index. A tool's results are checked
before they are accepted: they must answer a call.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from .session_contest import Contestant, Place, taking_turns
from .session_messages import Book, kinds
from .session_raw import Bare, Made, cutter
from .window_print import goal, table, times

KINDS = ("question", "calls", "results", "answer", "report")
TURNS, ROUNDS = 50, 5  # turns of each contestant, and rounds of all kinds in each
WARM_UP = 10  # rounds
GOAL, GOAL_GROWN, GOAL_PEER = 1.6, 2.6, 0.85

BARE = "bare loop"

Run = Callable[[range], list[float]]
Series = Mapping[tuple[str, str], Sequence[float]]


def report(contestants: Sequence[Contestant], folder: Path, *, turns: int = TURNS) -> None:
    """Measure and print; the first contestant is ours, the second is raw, the third raw on a grown WAL."""
    book = Book(folder, "kinds", kinds(WARM_UP + turns * ROUNDS))
    records, place = [cutter()(message) for message in book.messages], Place("latency.db")
    bare = Bare(folder, "bare.db", [place.session])
    runs: dict[str, Run] = {one.name: partial(one.append, place, book) for one in contestants}
    runs[BARE] = lambda span: bare.write(
        [(place.session, record) for record in records[span.start : span.stop]], _as_it_is, at_once=1
    )
    series = _measured(runs, turns)
    bare.close()
    for one in contestants:
        one.close(place.file)
    durable = {one.name: str(one.settings) for one in contestants} | {BARE: str(bare.settings)}
    print("\nOne client: from a message to its acknowledgement (µs).")
    print("; ".join(f"{name}: {setting}" for name, setting in durable.items()))
    _print(list(runs), records[: len(KINDS)], series)


def by_kind(spent: Sequence[float]) -> dict[str, Sequence[float]]:
    """Split the times of whole rounds by the kind of message."""
    return {kind: spent[place :: len(KINDS)] for place, kind in enumerate(KINDS)}


def _measured(runs: Mapping[str, Run], turns: int) -> Series:
    for run in runs.values():
        run(range(WARM_UP * len(KINDS)))

    def run_once(name: str, _: str, number: int) -> list[float]:
        each = ROUNDS * len(KINDS)
        first = WARM_UP * len(KINDS) + number * each
        return runs[name](range(first, first + each))

    spent = taking_turns(list(runs), ["all"], turns, run_once)
    return {(name, kind): series for name in runs for kind, series in by_kind(spent[name, "all"]).items()} | {
        (name, "all"): spent[name, "all"] for name in runs
    }


def _print(names: Sequence[str], samples: Sequence[Made], series: Series) -> None:
    ours, raw, grown, *peers, _ = names
    middle = {key: statistics.median(spent) for key, spent in series.items()}
    said = {kind: f"{kind}, {one.tokens} tokens" for kind, (one, _) in zip(KINDS, samples, strict=True)}
    head = [
        "",
        *names,
        "ours / raw",
        "ours / grown",
        "ours / bare",
        "quickest tenth: ours / raw",
        "worst of 100: ours",
        "raw",
    ]
    rows = []
    for kind in (*KINDS, "all"):
        cells = [said.get(kind, kind), *(_us(middle[name, kind]) for name in names)]
        cells += [times(middle[ours, kind] / middle[other, kind]) for other in (raw, grown, BARE)]
        cells.append(times(_ranked(series[ours, kind], 0.1) / _ranked(series[raw, kind], 0.1)))
        rows.append([*cells, *(_us(_ranked(series[name, kind], 0.99)) for name in (ours, raw))])
    table(head, rows)
    for other, most in ((raw, GOAL), (grown, GOAL_GROWN), *((peer, GOAL_PEER) for peer in peers)):
        ratio = middle[ours, "all"] / middle[other, "all"]
        goal(f"append: at most {most:g} × {other}", times(ratio), ratio <= most)


def _ranked(spent: Sequence[float], share: float) -> float:
    """Return the time below which a share of all times is."""
    return sorted(spent)[int(len(spent) * share)]


def _us(seconds: float) -> str:
    return f"{seconds * 1e6:,.0f}"


def _as_it_is(record: Made) -> Made:
    return record
