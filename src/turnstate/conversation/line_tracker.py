"""The line tracker's record of one file: how many lines it had, who changed them, and when.

Lines end with a newline; a last line without one counts, too. A carriage return is part of its line,
and so is every other character that only some programs treat as a line ending.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from difflib import SequenceMatcher
from typing import Any, Literal

import msgspec

from ..entry import FileLines
from ..errors import InvalidPayload
from ..value import Value

LONGEST_HISTORY = 20
"""How many of a file's newest changes are remembered; the log has the older ones."""

MOST_COMPARED = 1_000_000
"""Maximum pairs of lines that are compared in order; in longer texts, moved lines are not noticed."""


Who = Literal["agent", "user", "restore"]


class LineChange(Value, frozen=True, kw_only=True):
    """A change to a file: by whom, when, how many lines, and after how many entries of the conversation."""

    by: Who
    at: int
    added: int = 0
    removed: int = 0
    entry: int = 0


class FileLineTracker(Value, frozen=True, kw_only=True, omit_defaults=False):
    """Line counts around the agent's last write to a file, and what is known about the file since.

    ``sha256`` is the digest of what the agent last read or wrote, ``lines`` its number of lines, and
    ``history`` the newest changes. Once a write ``is_reported``, so are the user's changes before it.
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

        After a write is reported, this is 0 until the next write begins.
        """
        return 0 if self.is_reported else self.before_fswrite_lines - self.prev_fswrite_lines

    @property
    def lines_by_agent(self) -> int:
        """Lines that the agent's last write added and removed, together."""
        return self.lines_added_by_agent + self.lines_removed_by_agent

    def remembering(self, *changes: LineChange) -> tuple[LineChange, ...]:
        """Return the history with these changes added."""
        return (*self.history, *changes)[-LONGEST_HISTORY:]


def line_count(data: bytes) -> int:
    """Count lines."""
    return data.count(b"\n") + (1 if data and not data.endswith(b"\n") else 0)


def churn(old: str, new: str) -> tuple[int, int]:
    """Count the lines added and removed between two texts; a lost final newline is a change."""
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
    """Read a record; raise `InvalidPayload` with the path if it is invalid."""
    try:
        return msgspec.convert(document, FileLineTracker)
    except msgspec.ValidationError as error:
        raise InvalidPayload(f"not a line tracker: {error}", path=at) from None


def track(known: dict[str, FileLineTracker], entry: object) -> None:
    """Take one more entry into what is known about files; an unreadable record is dropped."""
    if isinstance(entry, FileLines):
        known.pop(entry.path, None)
        if entry.record is not None:
            with suppress(InvalidPayload):
                known[entry.path] = tracker_from_json(entry.record)
