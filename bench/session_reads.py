"""Reading in an open store: the last messages of a session, and a session with a window of all of it.

Raw SQLite fetches the same number of bodies and decodes them, in the same thread; a peer reads its newest
items from an open session. Our window also checks, counts and validates what it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from .session_contest import Place, medians, taking_turns
from .session_messages import Book, agent
from .session_ours import Ours
from .session_peer import FilePeer
from .session_raw import Raw
from .window_print import goal, ms, table, times

LAST, OF = 20, 600
WHOLE = 100
ROUNDS = 60
GOAL_LAST, GOAL_PEER, GOAL_WINDOW = 3.0, 1.0, 4.0

Read = Callable[[], float]


def report(ours: Ours, raw: Raw, peers: Sequence[FilePeer], folder: Path, *, rounds: int = ROUNDS) -> None:
    """Measure and print."""
    book, long, short = Book(folder, "reads", agent(OF)), Place("long.db"), Place("short.db")
    contestants: list[Ours | Raw | FilePeer] = [ours, raw, *peers]
    for one in contestants:
        one.fill(long, book, range(OF))
        one.fill(short, book, range(WHOLE))
    last, window = f"the last {LAST} of {OF}", f"open a session and its window, {WHOLE} messages"
    reads: dict[tuple[str, str], Read] = {
        **{(one.name, last): lambda one=one: one.newest(long, LAST) for one in contestants},  # type: ignore[misc]
        (ours.name, window): lambda: ours.opened_window(short),
        (raw.name, window): lambda: raw.newest(short, WHOLE),
    }

    def run(name: str, case: str, _: int) -> list[float]:
        return [reads[name, case]()] if (name, case) in reads else []

    found = medians(taking_turns([one.name for one in contestants], [last, window], rounds, run))
    for one in contestants:
        for place in (long, short):
            one.close(place.file)
    print("\nReading in an open store (ms).")
    names = [one.name for one in contestants]
    rows = []
    for case in (last, window):
        mine = found[ours.name, case]
        ratios = [times(mine / found[name, case]) if (name, case) in found else "–" for name in names[1:]]
        rows.append([case, *(ms(found.get((name, case))) for name in names), *ratios])
    table(["", *names, *(f"ours / {name}" for name in names[1:])], rows)
    _judge(f"{last}: at most {GOAL_LAST:g} × raw", found[ours.name, last] / found[raw.name, last], GOAL_LAST)
    for peer in peers:
        ratio = found[ours.name, last] / found[peer.name, last]
        _judge(f"{last}: at most {GOAL_PEER:g} × {peer.name}", ratio, GOAL_PEER)
    ratio = found[ours.name, window] / found[raw.name, window]
    _judge(f"{window}: at most {GOAL_WINDOW:g} × raw", ratio, GOAL_WINDOW)


def _judge(text: str, ratio: float, most: float) -> None:
    goal(text, times(ratio), ratio <= most)
