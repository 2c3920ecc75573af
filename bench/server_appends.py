"""The cost of an append on a server: the latency of one client, and the throughput of 64 clients.

Every turn writes to new sessions, so no session grows long. Clients are tasks of one process. Each has its
own session and waits for its acknowledgement before it goes on. Ours is compared with the raw limit, with the
bare loops, which check nothing before they write, and with the peers.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from turnstate.message import Message

from .server_contest import Writer
from .session_contest import Place, taking_turns
from .session_messages import Book, agent, talk
from .window_print import goal, table, times

EACH = 40  # messages of one client in a turn
CLIENTS, CLIENT_EACH = 64, 20  # whole turns of the agent, which are four messages each

KINDS: dict[str, Callable[[int], list[Message]]] = {"agent": agent, "talk": talk}
"""The messages of an agent are questions, calls, results and answers; talk has no calls and results."""

RIVAL = "openai-agents"


class Goals(NamedTuple):
    """How much slower than raw one client may be, and how much faster 64 clients must be than the rival's."""

    raw: float | None
    rival: float


Spent = Mapping[tuple[str, str], Sequence[float]]
"""Times by contestant and kind of messages."""


def latency(writers: Sequence[Writer], folder: Path, goals: Goals, *, turns: int) -> None:
    """Measure one client and print; the first writer is ours, the second is raw."""
    books = {kind: Book(folder, f"latency {kind}", made(EACH)) for kind, made in KINDS.items()}
    by_name = {one.name: one for one in writers}

    def run(name: str, kind: str, number: int) -> list[float]:
        return by_name[name].append(Place(f"latency {kind} {number}"), books[kind], range(EACH))

    spent = _by_turns(list(by_name), turns, run)
    print("\nOne client: from a message to its acknowledgement (µs).")
    middle = _print(list(by_name), {"p10": _ranked(0.1), "p50": _ranked(0.5), "p95": _ranked(0.95)}, spent)
    if (most := goals.raw) is not None:
        for kind in KINDS:
            ratio = middle[writers[0].name, kind] / middle[writers[1].name, kind]
            goal(f"one client, {kind}: at most {most:g} × raw", times(ratio), ratio <= most)


def throughput(writers: Sequence[Writer], folder: Path, goals: Goals, *, turns: int) -> None:
    """Measure 64 clients and print; the first writer is ours, the second is raw."""
    total = CLIENTS * CLIENT_EACH
    books = {kind: Book(folder, f"clients {kind}", made(total)) for kind, made in KINDS.items()}
    by_name = {one.name: one for one in writers}

    def run(name: str, kind: str, number: int) -> list[float]:
        places = [Place(f"clients {kind} {number}", f"client {one}") for one in range(CLIENTS)]
        return [by_name[name].clients(places, books[kind])]

    spent = _by_turns(list(by_name), turns, run)
    print(f"\n{CLIENTS} clients: appends a second; the ratios are of time an append.")
    rate = {"a second": lambda series: f"{total / statistics.median(series):,.0f}"}
    middle = _print(list(by_name), rate, spent)
    for kind in KINDS if RIVAL in by_name else ():
        ratio = middle[RIVAL, kind] / middle[writers[0].name, kind]
        text = f"{CLIENTS} clients, {kind}: at least {goals.rival:g} × as many as {RIVAL}"
        goal(text, times(ratio), ratio >= goals.rival)


def verdict(costs: Mapping[str, float]) -> str:
    """Return a sentence that says which contestants are faster and slower than the first."""
    (ours, own), *others = costs.items()
    slower = [f"{name} ({times(own / cost)})" for name, cost in others if cost < own]
    quicker = [f"{name} ({times(cost / own)})" for name, cost in others if cost >= own]
    said = [
        f"{word} than {', '.join(names)}"
        for word, names in (("slower", slower), ("quicker", quicker))
        if names
    ]
    return f"{ours} is {'; '.join(said)}"


def _by_turns(names: Sequence[str], turns: int, run: Callable[[str, str, int], list[float]]) -> Spent:
    for name in names:
        for kind in KINDS:
            run(name, kind, -1)  # to warm up
    return taking_turns(names, list(KINDS), turns, run)


def _print(
    names: Sequence[str], shown: Mapping[str, Callable[[Sequence[float]], str]], spent: Spent
) -> Mapping[tuple[str, str], float]:
    """Print a table and which contestants are faster; return the medians."""
    ours, raw, *_ = names
    middle = {key: statistics.median(series) for key, series in spent.items()}
    head, rows = [""], [[name] for name in names]
    for kind in KINDS:
        head += [f"{kind}, {figure}" for figure in shown] + ["/ raw", "/ ours"]
        for row in rows:
            row += [write(spent[row[0], kind]) for write in shown.values()]
            row += [times(middle[row[0], kind] / middle[other, kind]) for other in (raw, ours)]
    table(head, rows)
    for kind in KINDS:
        print(f"{kind}: {verdict({name: middle[name, kind] for name in names})}")
    return middle


def _ranked(share: float) -> Callable[[Sequence[float]], str]:
    """Return a formatter of a quantile; a busy machine hardly affects the fastest tenth."""
    return lambda spent: f"{sorted(spent)[int(len(spent) * share)] * 1e6:,.0f}"
