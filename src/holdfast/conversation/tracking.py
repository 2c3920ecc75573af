"""Tracking who changes which lines, around the agent's reads and writes, and conflicts before they hurt.

    tracking.read(path)                                the agent has seen these bytes
    conflict = tracking.before_write(path, creates=…)  the user changed them since? Say so, and ask
    tracking.after_write(path, added, removed)         whose lines they are now

The records are a part of the conversation's state: they go back with it. When the conversation went
elsewhere (a restore, a tangent that was left), files that are no longer what the agent knew were not
changed by the user; that is noted before the next question is answered.
"""

from __future__ import annotations

import hashlib
import os
import stat
from contextlib import suppress
from pathlib import Path

from msgspec import Struct, structs

from .state import ConversationState
from .tracker import FileLineTracker, LineChange, Who, churn, line_count

__all__ = ["Conflict", "LineTracking"]

LARGEST = 256 * 1024 * 1024
"""Bytes; a larger file is not looked into."""


class Conflict(Struct, frozen=True, kw_only=True):
    """The user changed a file since the agent last read or wrote it; ``lines`` is how many it has more."""

    path: str
    lines: int
    gone: bool = False


class LineTracking:
    """Tracks the files of one conversation."""

    def __init__(self, state: ConversationState, root: Path, *, home: Path | None = None) -> None:
        self._state, self._root, self._home = state, root.absolute(), home
        self._strand = state.head

    def canonical(self, path: str | os.PathLike[str]) -> str:
        """Give the one spelling under which a file is tracked: absolute, every link followed."""
        text = os.fspath(path)
        if self._home is not None and (text == "~" or text.startswith("~/")):
            text = str(self._home) + text[1:]
        return os.path.realpath(self._root / text)

    def read(self, path: str | os.PathLike[str]) -> None:
        """Note that the agent has seen a file as it is now."""
        self._follow()
        name = self.canonical(path)
        data = _bytes(name)
        if data is not None:
            self._set(name, structs.replace(self._known(name), sha256=_digest(data)))

    def before_write(self, path: str | os.PathLike[str], *, creates: bool) -> Conflict | None:
        """Note how a file is before the agent writes it; say so if the user changed it since.

        `creates` is for a write that makes the file anew, whatever it holds.
        """
        self._follow()
        name = self.canonical(path)
        known, data = self._known(name), _bytes(name)
        lines = line_count(data or b"")
        prev = known.prev_fswrite_lines
        if known.is_first_write:
            prev = 0 if creates else lines
        changed = bool(known.sha256) and known.sha256 != _digest(data)
        delta = lines - known.after_fswrite_lines if not known.is_first_write else 0
        noted = structs.replace(known, prev_fswrite_lines=prev, before_fswrite_lines=lines)
        if changed:
            seen = _digest(data) if data is not None else ""
            by_user = self._change("user", max(0, delta), max(0, -delta))
            noted = structs.replace(noted, sha256=seen, history=noted.remembering(by_user))
        self._set(name, noted)
        return Conflict(path=name, lines=delta, gone=data is None) if changed else None

    def after_write(self, path: str | os.PathLike[str], *, added: int, removed: int = 0) -> FileLineTracker:
        """Note what the agent wrote; the next delta of the user counts from here."""
        self._follow()
        name = self.canonical(path)
        known, data = self._known(name), _bytes(name)
        change = self._change("agent", added, removed)
        noted = structs.replace(
            known,
            after_fswrite_lines=line_count(data or b""),
            lines_added_by_agent=added,
            lines_removed_by_agent=removed,
            is_first_write=False,
            sha256=_digest(data) if data is not None else "",
            history=known.remembering(change),
        )
        self._set(name, noted)
        return noted

    def created(self, path: str | os.PathLike[str], text: str) -> FileLineTracker:
        """Note that the agent wrote a file anew: all of its lines are the agent's."""
        return self.after_write(path, added=line_count(text.encode()))

    def inserted(self, path: str | os.PathLike[str], text: str) -> FileLineTracker:
        """Note that the agent put lines in, or behind the last."""
        return self.after_write(path, added=line_count(text.encode()))

    def replaced(self, path: str | os.PathLike[str], old: str, new: str) -> FileLineTracker:
        """Note that the agent put one text in the place of another."""
        added, removed = churn(old, new)
        return self.after_write(path, added=added, removed=removed)

    def reported(self, path: str | os.PathLike[str]) -> None:
        """Note that a successful write was told: from here on the user's lines are counted anew."""
        name = self.canonical(path)
        known = self._known(name)
        self._set(name, structs.replace(known, prev_fswrite_lines=known.after_fswrite_lines))

    def settle(self) -> tuple[str, ...]:
        """Take the files as they are now for what the agent knows; say which were others.

        For when they were put back, or the conversation was: what differs then is nobody's edit.
        """
        others = list[str]()
        for name, known in [*self._state.file_line_tracker.items()]:
            data = _bytes(name)
            digest = _digest(data) if data is not None else ""
            if known.sha256 == digest:
                continue
            lines = line_count(data or b"")
            delta = lines - known.after_fswrite_lines
            change = self._change("restore", max(0, delta), max(0, -delta))
            self._set(
                name,
                structs.replace(
                    known,
                    prev_fswrite_lines=lines,
                    before_fswrite_lines=lines,
                    after_fswrite_lines=lines,
                    sha256=digest,
                    history=known.remembering(change),
                ),
            )
            others.append(name)
        self._strand = self._state.head
        return tuple(others)

    def _follow(self) -> None:
        """Settle, where the conversation has gone elsewhere since."""
        if self._state.head is not self._strand:
            self.settle()

    def _known(self, name: str) -> FileLineTracker:
        return self._state.file_line_tracker.get(name, FileLineTracker())

    def _set(self, name: str, known: FileLineTracker) -> None:
        self._state.file_line_tracker = {**self._state.file_line_tracker, name: known}

    def _change(self, by: Who, added: int, removed: int) -> LineChange:
        entries = self._state.head.first - 1 + len(self._state.head.entries)
        return LineChange(by=by, at=self._state.os.now(), added=added, removed=removed, entry=entries)


def _bytes(name: str) -> bytes | None:
    """Give the bytes of a regular file; None where there is none, or none that can be read."""
    with suppress(OSError):
        opened = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(opened, "rb") as file:
            status = os.fstat(opened)
            if stat.S_ISREG(status.st_mode) and status.st_size <= LARGEST:
                return file.read(LARGEST)
    return None


def _digest(data: bytes | None) -> str:
    return hashlib.sha256(data).hexdigest() if data is not None else ""
