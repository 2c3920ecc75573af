"""The line tracker's record of one file: how many lines there were, and whose changes they are."""

from __future__ import annotations

from ..value import Value

__all__ = ["FileLineTracker"]


class FileLineTracker(Value, frozen=True, kw_only=True, omit_defaults=False):
    """Line counts around the agent's last write to a file."""

    prev_fswrite_lines: int = 0
    before_fswrite_lines: int = 0
    after_fswrite_lines: int = 0
    lines_added_by_agent: int = 0
    lines_removed_by_agent: int = 0
    is_first_write: bool = True

    @property
    def lines_by_user(self) -> int:
        """Lines that the user added since the agent's last write; fewer than none, if they were removed."""
        return self.before_fswrite_lines - self.prev_fswrite_lines

    @property
    def lines_by_agent(self) -> int:
        """Lines that the agent's last write added and removed, together."""
        return self.lines_added_by_agent + self.lines_removed_by_agent
