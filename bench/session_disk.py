"""Bytes on the disk for each byte of JSON, after messages were appended one by one.

Sizes are taken after everything was closed, so nothing is pending in a log. A peer that stores the whole
state with each step grows with the square of a session's length; it gets only the first messages, and its
ratio refers to those.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from turnstate.message import Message

from .session_contest import OnDisk, Place, disk_bytes
from .session_messages import Book, agent, brief, realistic
from .session_ours import Ours
from .window_print import goal, table, times

MESSAGES, LONG = 10_000, 2_000
FEW = 400
"""Messages for a peer that stores everything again with each step."""
GOAL, GOAL_BRIEF = 1.6, 1.8  # for an agent's messages, and for messages of about 100 bytes
BRIEF = "brief messages"


class Use(Struct, frozen=True):
    """The bytes on the disk, and the bytes of JSON that they store."""

    stored: int
    raw: int

    @property
    def ratio(self) -> float:
        """Bytes on the disk for each byte of JSON."""
        return self.stored / self.raw


def report(
    contestants: Sequence[OnDisk], slow: Sequence[str], folder: Path, *, count: int = MESSAGES
) -> None:
    """Measure and print; the slow contestants get only a few messages."""
    sets = {
        "generated conversations": realistic(count),
        BRIEF: brief(count),
        "one long session": [agent(min(count, LONG))],
    }
    found = dict[tuple[str, str], Use]()
    for name, conversations in sets.items():
        book = Book(folder, name, [message for one in conversations for message in one])
        for one in contestants:
            most = FEW if one.name in slow else count
            found[one.name, name] = _written(one, f"{name}.db", book, spans(conversations, most))
    print("\nDisk: bytes for each byte of UTF-8 JSON, messages appended one by one.")
    for name, conversations in sets.items():
        raw, number = found[contestants[0].name, name].raw, sum(map(len, conversations))
        print(
            f"{name}: {number:,} in {len(conversations):,} sessions, {raw / number:,.0f} bytes of JSON each"
        )
    _print(contestants, slow, list(sets), found)


def spans(conversations: Sequence[Sequence[Message]], most: int) -> list[range]:
    """Return the range of each conversation in a book, up to a total number of messages."""
    found, first = list[range](), 0
    for one in conversations:
        if first >= most:
            break
        found.append(range(first, min(first + len(one), most)))
        first += len(one)
    return found


def _written(one: OnDisk, file: str, book: Book, parts: Sequence[range]) -> Use:
    for number, span in enumerate(parts):
        one.append(Place(file, f"session {number}"), book, span)
    if isinstance(one, Ours):
        one.catch_up(file)
    one.close(file)
    return Use(disk_bytes(one.folder, file), book.size(range(parts[-1].stop)))


def _print(
    contestants: Sequence[OnDisk],
    slow: Sequence[str],
    names: Sequence[str],
    found: dict[tuple[str, str], Use],
) -> None:
    rows = []
    for one in contestants:
        label = f"{one.name}, first {FEW:,}" if one.name in slow else one.name
        rows.append([label, *(times(found[one.name, name].ratio) for name in names)])
    table(["", *names], rows)
    ours = contestants[0].name
    for name in names:
        ratio, most = found[ours, name].ratio, GOAL_BRIEF if name == BRIEF else GOAL
        goal(f"disk, {name}: at most {most:g} × the JSON, index included", times(ratio), ratio <= most)
