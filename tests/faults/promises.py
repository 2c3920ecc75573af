"""What was promised compared with what is stored: the check that all fault tests share.

An append is *asked* for, then perhaps *acknowledged*. Afterwards the log may hold what was asked and must
hold what was acknowledged: each append completely or not at all, nothing twice, its messages in order.
The text of a message, `<append>/<number>`, identifies its append.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tests.faults.fork_server import Reply


def texts(name: str, size: int) -> list[str]:
    """Return the texts of the messages of one append."""
    return [f"{name}/{number}" for number in range(size)]


@dataclass
class Promises:
    """The appends of one history."""

    asked: dict[str, int] = field(default_factory=dict)  # name of the append: number of its messages
    acked: list[str] = field(default_factory=list)

    def ask(self, name: str, size: int = 1) -> str:
        """Record that an append is about to be tried."""
        self.asked[name] = size
        return name

    def hear(self, replies: Iterable[Reply]) -> None:
        """Record what workers acknowledged."""
        self.acked += [reply["ack"] for reply in replies if "ack" in reply]

    def broken_by(self, stored: Sequence[str]) -> list[str]:
        """Compare with the texts of a stored log, and return every promise that it breaks."""
        counts = Counter(stored)
        there = Counter(text.rpartition("/")[0] for text in counts)
        return [
            *(f"lost: {name}" for name in self.acked if not there[name]),
            *(f"torn: {name}" for name, n in there.items() if name in self.asked and n != self.asked[name]),
            *(f"twice: {text}" for text, count in counts.items() if count > 1),
            *(f"never asked for: {name}" for name in there if name not in self.asked),
            *_shuffled(stored),
        ]


def _shuffled(stored: Sequence[str]) -> list[str]:
    """Return the appends whose messages are not consecutive and in order."""
    last: dict[str, int] = {}
    found = list[str]()
    for position, text in enumerate(stored):
        name, _, number = text.rpartition("/")
        if int(number) and last.get(name) != position - 1:
            found.append(f"shuffled: {name}")
        last[name] = position
    return found


def losses(broken: Iterable[str]) -> int:
    """Count the lost appends among broken promises."""
    return sum("lost: " in complaint for complaint in broken)
