"""Durable appends per second: one client and 64, each with its own session, and 64 on one session.

Clients are tasks of one process; each waits for its acknowledgement before it goes on. The bare loop writes
the same rows and words to the same schema, as many per transaction as there are clients: once with rows that
are prepared in advance, once with rows that it makes from the messages, as we must. We write the words later,
so a second number includes the time until all of them are indexed. How long our clients wait is measured in
separate runs.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from turnstate.message import Message

from .session_contest import Place, taking_turns
from .session_messages import Book, agent, reports, talk
from .session_ours import Ours
from .session_peer import FilePeer
from .session_raw import Bare, Made, cutter
from .window_print import goal, table, times

T = TypeVar("T")

TURNS = 5
EACH = 20  # messages per client if there are 64
GOAL, GOAL_INDEXED, GOAL_PEER = 0.6, 0.4, 8.0
GOAL_WAIT = 0.025  # seconds that 99 of 100 appends of ours may wait

INDEXED = "Turnstate and its index"
READY, MADE = "bare loop", "bare loop that makes the rows"


class Case(Struct, frozen=True):
    """What is written, by how many clients, and where."""

    name: str
    messages: Callable[[int], list[Message]]
    clients: int
    count: int
    shared: bool = False

    def places(self, number: int) -> list[Place]:
        """Return a session for every client that is new in this turn."""
        sessions = ("shared" if self.shared else f"client {one}" for one in range(self.clients))
        return [Place(f"clients {self.name} {number}.db", session) for session in sessions]


CASES = (
    Case("1 client, agent", agent, 1, 240),
    Case("64 clients, agent", agent, 64, 64 * EACH),
    Case("64 clients, talk", talk, 64, 64 * EACH),
    Case("64 clients, reports of 400 tokens", reports, 64, 64 * EACH),
    Case("64 clients on one session, talk", talk, 64, 64 * EACH, shared=True),
)


def report(
    ours: Ours, peers: Sequence[FilePeer], folder: Path, *, cases: Sequence[Case] = CASES, turns: int = TURNS
) -> None:
    """Measure and print."""
    books = {case: Book(folder, case.name, case.messages(case.count)) for case in cases}
    record = cutter()
    ready = {case: [record(message) for message in book.messages] for case, book in books.items()}
    everybody: list[Ours | FilePeer] = [ours, *peers]
    parties = {one.name: one for one in everybody}

    def run(name: str, case: Case, number: int) -> list[float]:
        places = case.places(number)
        if name == READY:
            return [_bare(folder / "bare", places, ready[case], lambda one: one)]
        if name == MADE:
            return [_bare(folder / "bare", places, books[case].messages, record)]
        if name == INDEXED:
            places = case.places(number + turns)
            spent = ours.clients(places, books[case]) + ours.catch_up(places[0].file)
            ours.close(places[0].file)
            return [spent]
        spent = parties[name].clients(places, books[case])
        parties[name].close(places[0].file)
        return [spent]

    (folder / "bare").mkdir()
    names = [*parties, INDEXED, READY, MADE]
    spent = taking_turns(names, cases, turns, run)
    rates = {key: key[1].count / statistics.median(series) for key, series in spent.items()}
    print("\nThroughput: durable appends a second.")
    print("; ".join(f"{one.name}: {one.settings}" for one in parties.values()) + "; bare: as ours")
    _print(names, cases, rates, [peer.name for peer in peers])
    _print_waits(ours, books, turns)


def by_turns(places: Sequence[Place], given: Sequence[T]) -> list[tuple[str, T]]:
    """Return what clients write concurrently in order: the first of each, the second of each, and so on."""
    each = len(given) // len(places)
    return [
        (place.session, given[client * each + step])
        for step in range(each)
        for client, place in enumerate(places)
    ]


def _bare(folder: Path, places: Sequence[Place], given: Sequence[T], made: Callable[[T], Made]) -> float:
    loop = Bare(folder, places[0].file, [place.session for place in places])
    spent = loop.write(by_turns(places, given), made, at_once=len(places))
    loop.close()
    for file in folder.iterdir():
        file.unlink()
    return sum(spent)


def _print_waits(ours: Ours, books: Mapping[Case, Book], turns: int) -> None:
    for case, book in books.items():
        waits = list[float]()
        for number in range(2 * turns, 3 * turns):
            places = case.places(number)
            waits += ours.waits(places, book)
            ours.close(places[0].file)
        late = sorted(waits)[int(len(waits) * 0.99)]
        text = f"{case.name}: 99 of 100 wait at most {GOAL_WAIT * 1000:g} ms"
        goal(text, f"{late * 1000:.1f} ms", late <= GOAL_WAIT)


def _print(
    names: Sequence[str],
    cases: Sequence[Case],
    rates: Mapping[tuple[str, Case], float],
    peers: Sequence[str],
) -> None:
    ours = names[0]
    head = ["", *names, f"ours / {READY}", "ours / the one that makes them"]
    rows = []
    for case in cases:
        ratios = [rates[ours, case] / rates[other, case] for other in (READY, MADE)]
        rows.append([case.name, *(f"{rates[name, case]:,.0f}" for name in names), *map(times, ratios)])
    table(head, rows)
    for case in cases:
        ratio = rates[ours, case] / rates[READY, case]
        if case.clients > 1:
            goal(f"{case.name}: at least {GOAL:g} × the bare loop", times(ratio), ratio >= GOAL)
            indexed = rates[INDEXED, case] / rates[READY, case]
            aim = f"the same, until all is indexed: at least {GOAL_INDEXED:g} ×"
            goal(aim, times(indexed), indexed >= GOAL_INDEXED)
            for peer in peers:
                ratio = rates[ours, case] / rates[peer, case]
                goal(f"{case.name}: at least {GOAL_PEER:g} × {peer}", times(ratio), ratio >= GOAL_PEER)
