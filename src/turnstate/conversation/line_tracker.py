"""The line tracker's record of one file: how many lines there were, whose changes they are, and when.

Lines end with a newline; a last line without one counts, too. A carriage return is a part of its line,
and so is everything else that only some programs take for the end of a line.
"""

from __future__ import annotations

from collections import Counter
from difflib import SequenceMatcher
from typing import Any, Literal

import msgspec

from ..errors import InvalidPayload
from ..value import Value

__all__ = [
    "FileLineTracker",
    "LineChange",
    "Who",
    "churn",
    "line_count",
    "tracker_from_json",
    "tracker_to_json",
]

LONGEST_HISTORY = 20
"""Changes that are remembered of a file, the newest; the log has the older ones."""

MOST_COMPARED = 1_000_000
"""Pairs of lines that are compared in their order; in longer texts a line that moved is not noticed."""


Who = Literal["agent", "user", "restore"]


class LineChange(Value, frozen=True, kw_only=True):
    """A change of a file: by whom, when, how many lines, and after how many entries of the conversation."""

    by: Who
    at: int
    added: int = 0
    removed: int = 0
    entry: int = 0


class FileLineTracker(Value, frozen=True, kw_only=True, omit_defaults=False):
    """Line counts around the agent's last write to a file, and what is known of it since.

    ``sha256`` says what the agent last read or wrote, and ``lines`` how many lines that had; ``history``
    are the newest changes. A write that ``is_reported`` is over: what the user did before it was said, too.
    """

    prev_fswrite_lines: int = 0
    before_fswrite_lines: int = 0
    after_fswrite_lines: int = 0
    lines_added_by_agent: int = 0
    lines_removed_by_agent: int = 0
    is_first_write: bool = True
    sha256: str = ""
    lines: int = 0
    history: tuple[LineChange, ...] = ()
    is_reported: bool = True

    @property
    def lines_by_user(self) -> int:
        """Lines that the user added between the agent's last two writes; negative if lines were removed.

        After a write was reported it is 0, until the next one begins.
        """
        return 0 if self.is_reported else self.before_fswrite_lines - self.prev_fswrite_lines

    @property
    def lines_by_agent(self) -> int:
        """Lines that the agent's last write added and removed, together."""
        return self.lines_added_by_agent + self.lines_removed_by_agent

    def remembering(self, *changes: LineChange) -> tuple[LineChange, ...]:
        """Return the history with more changes."""
        return (*self.history, *changes)[-LONGEST_HISTORY:]


def line_count(data: bytes) -> int:
    """Count lines."""
    return data.count(b"\n") + (1 if data and not data.endswith(b"\n") else 0)


def churn(old: str, new: str) -> tuple[int, int]:
    """Count the lines that were added and removed between two texts; a lost last newline is a change."""
    before, after = _with_ends(old), _with_ends(new)
    if len(before) * len(after) > MOST_COMPARED:
        lost, found = Counter(before), Counter(after)
        return (found - lost).total(), (lost - found).total()
    added = removed = 0
    for what, i, j, k, m in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if what != "equal":
            added, removed = added + m - k, removed + j - i
    return added, removed


def _with_ends(text: str) -> list[str]:
    """Return lines with their newlines, without an empty one at the end."""
    *whole, rest = text.split("\n")
    return [f"{line}\n" for line in whole] + ([rest] if rest else [])


def tracker_to_json(tracker: FileLineTracker) -> dict[str, Any]:
    """Return a record as plain JSON."""
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(tracker))
    return plain


def tracker_from_json(document: Any, *, at: str = "$") -> FileLineTracker:
    """Read a record; raise `InvalidPayload` with the path if it is not one."""
    try:
        return msgspec.convert(document, FileLineTracker)
    except msgspec.ValidationError as error:
        raise InvalidPayload(f"not a line tracker: {error}", path=at) from None
