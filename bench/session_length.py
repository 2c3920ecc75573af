"""Whether a session of 100,000 messages is as fast as one of 100: to append to, and to open.

All sessions end alike: they are the newest parts of one long history, and the same messages are added to all
of them. Opening is everything from the file to the first window, whose cut was recorded before. A peer opens
its session and reads as many messages as our window has, or all if it cannot read fewer. The slow contestants
run after the others, since their writes keep the disk busy for a while.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from .session_contest import Contestant, Place, Portion, Windowing, medians, taking_turns
from .session_messages import Book, agent
from .session_peer import FilePeer
from .window_print import goal, ms, table, times

SIZES = (100, 10_000, 100_000)
BUDGETS = (128_000, 8_000, 4_000)
"""With the last, even the shortest session has to be cut, so that like is compared with like."""
ROUNDS, EACH = 16, 16
READS = 15
A_TURN = 2.0  # seconds that one turn of a slow contestant may take

GOAL = 1.2
GOAL_PEER, AT = 2.5, 8_000
"""The maximum ratio to a peer's time for the same number of messages, at the budget `AT`."""

Figures = Mapping[tuple[str, int], float]
Groups = tuple[list[str], list[str]]


def report(
    ours: Windowing,
    quick: Sequence[Contestant],
    slow: Sequence[Contestant],
    folder: Path,
    *,
    sizes: Sequence[int] = SIZES,
    budgets: Sequence[int] = BUDGETS,
    rounds: int = ROUNDS,
) -> None:
    """Measure and print reading and appending."""
    contestants: dict[str, Contestant] = {one.name: one for one in (ours, *quick, *slow)}
    groups = [ours.name, *(one.name for one in quick)], [one.name for one in slow]
    longest = max(sizes)
    book = Book(folder, "history", agent(longest + rounds * EACH))
    for size in sizes:
        for one in contestants.values():
            one.fill(_place(size), book, range(longest - size, longest))
    for budget in budgets:
        _reading(ours, contestants, groups, budget, sizes)
    _appending(ours.name, contestants, groups, book, range(longest, len(book.messages)), sizes)
    for one in contestants.values():
        for size in sizes:
            one.close(_place(size).file)


def _reading(
    ours: Windowing, contestants: dict[str, Contestant], groups: Groups, budget: int, sizes: Sequence[int]
) -> None:
    made = {size: ours.window(_place(size), budget) for size in sizes}

    def read(name: str, size: int, _: int) -> list[float]:
        return [contestants[name].read(_place(size), Portion(budget, made[size][0]))]

    found = _medians(groups, sizes, READS, read)
    full = [size for size in sizes if made[size][1]]
    shown = ", ".join(f"{made[size][0]:,} of {size:,}" for size in sizes)
    print(f"\nOpen and first window of {budget:,} tokens (ms); messages in our window: {shown}.")
    if len(full) < len(sizes):
        print(
            f"No cut was needed for {', '.join(f'{size:,}' for size in sizes if size not in full)} messages."
        )
    _print(ours.name, contestants, found, sizes, full)
    if full and full[0] == sizes[0] and len(full) > 1:
        ratio = found[ours.name, full[-1]] / found[ours.name, full[0]]
        text = f"open and window at {budget:,}: {full[-1]:,} messages at most {GOAL:g} × {full[0]:,}"
        goal(text, times(ratio), ratio <= GOAL)
    for name in (one for one in groups[0] if budget == AT and isinstance(contestants[one], FilePeer)):
        for size in full:
            ratio = found[ours.name, size] / found[name, size]
            text = f"open and window at {budget:,}, {size:,} messages: at most {GOAL_PEER:g} × {name}"
            goal(text, times(ratio), ratio <= GOAL_PEER)


def _appending(
    ours: str,
    contestants: dict[str, Contestant],
    groups: Groups,
    book: Book,
    added: range,
    sizes: Sequence[int],
) -> None:
    def append(name: str, size: int, number: int) -> list[float]:
        first = added.start + number * EACH
        return contestants[name].append(_place(size), book, range(first, first + EACH), seconds=A_TURN)

    found = _medians(groups, sizes, len(added) // EACH, append)
    print("\nAppend of one message, durable (ms).")
    _print(ours, contestants, found, sizes, sizes)
    ratio = found[ours, sizes[-1]] / found[ours, sizes[0]]
    goal(f"append: {sizes[-1]:,} messages at most {GOAL:g} × {sizes[0]:,}", times(ratio), ratio <= GOAL)


def _medians(
    groups: Groups, sizes: Sequence[int], rounds: int, run: Callable[[str, int, int], list[float]]
) -> Figures:
    """Run the groups one after the other; within a group, contestants take turns."""
    return {
        key: one for group in groups for key, one in medians(taking_turns(group, sizes, rounds, run)).items()
    }


def _print(
    ours: str,
    contestants: Mapping[str, Contestant],
    found: Figures,
    sizes: Sequence[int],
    full: Sequence[int],
) -> None:
    growth = [f"{full[-1]:,} / {full[0]:,}"] if len(full) > 1 else []
    head = ["", "durability", *(f"{size:,}" for size in sizes), *growth]
    head += [f"/ ours at {size:,}" for size in sizes]
    rows = []
    for name, one in contestants.items():
        cells = [name, str(one.settings), *(ms(found[name, size]) for size in sizes)]
        cells += [times(found[name, full[-1]] / found[name, full[0]])] if growth else []
        rows.append([*cells, *(times(found[name, size] / found[ours, size]) for size in sizes)])
    table(head, rows)


def _place(size: int) -> Place:
    return Place(f"{size}.db")
