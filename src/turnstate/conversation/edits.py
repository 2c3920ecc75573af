"""Edits of files: who changed which lines, and whether the user changed a file since the agent saw it.

Call `LineTracking` around the agent's reads and writes. It compares files by digest. Pipes and devices are
not read, and huge files are compared by size alone.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from threading import Lock
from typing import NamedTuple
from urllib.parse import quote_from_bytes, unquote_to_bytes

from msgspec import Struct, structs

from .. import folder_gate
from ..errors import InputError
from ..ids import Clock, wall_clock
from .line_tracker import FileLineTracker, LineChange, Who, churn, line_count

__all__ = ["ABSENT", "LARGEST", "EditConflict", "LineTracking", "Look", "look"]

LARGEST = 64 * 1024 * 1024
"""Maximum bytes of a file that is read."""

ABSENT, OTHER, UNREADABLE = "absent", "other", "unreadable"

_READING = folder_gate.READING | os.O_NONBLOCK | os.O_NOCTTY


class Look(NamedTuple):
    """A file as it was found: its digest, or a word if it has none, and its number of lines."""

    digest: str
    lines: int = 0


def look(path: bytes) -> Look:
    """Return what is at a path, without ever blocking or raising."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return Look(OTHER)
        with folder_gate.opened(path, _READING) as descriptor:
            return _looked_into(descriptor)
    except (FileNotFoundError, NotADirectoryError):
        return Look(ABSENT)
    except (OSError, ValueError):
        return Look(UNREADABLE)


def _looked_into(descriptor: int) -> Look:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        return Look(OTHER)
    if status.st_size > LARGEST:
        return Look(f"large:{status.st_size}")
    pieces, size = list[bytes](), 0
    while size <= status.st_size and (piece := os.read(descriptor, status.st_size + 1 - size)):
        pieces.append(piece)
        size += len(piece)
    data = b"".join(pieces)
    return Look(hashlib.sha256(data).hexdigest(), line_count(data))


_BYTES = "bytes:"
"""The prefix of a path that is not valid UTF-8; other paths begin with a slash."""


class EditConflict(Struct, frozen=True, kw_only=True):
    """The user changed a file since the agent last read or wrote it; ``lines`` is the difference."""

    path: str
    lines: int
    gone: bool = False


class LineTracking:
    """Tracks the files of one conversation: the records as the log has them, and what is new."""

    def __init__(
        self,
        root: Path,
        known: Mapping[str, FileLineTracker] | None = None,
        *,
        home: Path | None = None,
        now: Clock = wall_clock,
        entries: Callable[[], int] = lambda: 0,
    ) -> None:
        """Track files under a root; `entries` returns how many entries the conversation has."""
        self._root, self._home, self._now, self._entries = root.absolute(), home, now, entries
        self._lock = Lock()  # tools track files in threads
        self._recorded = dict(known or {})
        self._new = dict[str, FileLineTracker]()
        self._noticed = dict[str, LineChange]()  # the user's changes, until the agent reads or writes

    @property
    def records(self) -> dict[str, FileLineTracker]:
        """What is known about each file, also what is not recorded yet."""
        with self._lock:
            return {**self._recorded, **self._new}

    @property
    def unrecorded(self) -> dict[str, FileLineTracker]:
        """What the log does not have yet; pass it to `recorded` once it is there."""
        with self._lock:
            return dict(self._new)

    def recorded(self, records: Mapping[str, FileLineTracker]) -> None:
        """Note that the log has these records now; a file may have changed again meanwhile."""
        with self._lock:
            self._recorded |= records
            self._new = {path: one for path, one in self._new.items() if one != records.get(path)}

    def known(self, records: Mapping[str, FileLineTracker]) -> None:
        """Note that the log has these records now and no others; what it does not have yet stays."""
        with self._lock:
            self._recorded = dict(records)
            self._new = {path: one for path, one in self._new.items() if one != records.get(path)}

    def canonical(self, path: str | os.PathLike[str]) -> str:
        """Return the path under which a file is tracked: absolute, with all symbolic links resolved."""
        text = os.fspath(path)
        if "\0" in text:
            raise InputError("a path must not contain a NUL character")
        if self._home is not None and (text == "~" or text.startswith("~/")):
            text = str(self._home) + text[1:]
        real = os.path.realpath(self._root / text)
        try:
            real.encode()
        except UnicodeEncodeError:
            return _BYTES + quote_from_bytes(os.fsencode(real))
        return real

    def read(self, path: str | os.PathLike[str]) -> None:
        """Record that the agent has seen a file as it is now, or that it does not exist."""
        name, known, found = self._before(path)
        changes = self._by_user(known, found)
        self._noticed.pop(name, None)
        self._set(
            name,
            structs.replace(
                known, sha256=found.digest, lines=found.lines, history=known.remembering(*changes)
            ),
        )

    def before_write(self, path: str | os.PathLike[str], *, creates: bool) -> EditConflict | None:
        """Record a file before the agent writes it; return a conflict if the user has changed it.

        The conflict is returned again until the agent reads or writes the file. Set `creates` for a write
        that replaces the whole file.
        """
        name, known, found = self._before(path)
        prev = known.after_fswrite_lines  # reported or not, lines that the agent left are not the user's
        if known.is_first_write:
            prev = 0 if creates else found.lines
        self._set(
            name,
            structs.replace(
                known, prev_fswrite_lines=prev, before_fswrite_lines=found.lines, is_reported=False
            ),
        )
        self._noticed.pop(name, None)
        for change in self._by_user(known, found):
            self._noticed[name] = change
            return EditConflict(path=name, lines=found.lines - known.lines, gone=found.digest == ABSENT)
        return None

    def after_write(self, path: str | os.PathLike[str], *, added: int, removed: int = 0) -> FileLineTracker:
        """Record what the agent wrote or deleted; the user's next delta is counted from here."""
        name, known, found = self._before(path)
        by_user = [self._noticed.pop(name)] if name in self._noticed else []
        noted = structs.replace(
            known,
            after_fswrite_lines=found.lines,
            lines_added_by_agent=added,
            lines_removed_by_agent=removed,
            is_first_write=False,
            sha256=found.digest,
            lines=found.lines,
            history=known.remembering(*by_user, self._change("agent", added, removed)),
        )
        self._set(name, noted)
        return noted

    def created(self, path: str | os.PathLike[str], text: str) -> FileLineTracker:
        """Record that the agent wrote a whole file: all of its lines are the agent's."""
        return self.after_write(path, added=line_count(text.encode(errors="replace")))

    def inserted(self, path: str | os.PathLike[str], text: str) -> FileLineTracker:
        """Record that the agent inserted or appended lines."""
        return self.after_write(path, added=line_count(text.encode(errors="replace")))

    def replaced(self, path: str | os.PathLike[str], old: str, new: str) -> FileLineTracker:
        """Record that the agent replaced one text with another."""
        added, removed = churn(old, new)
        return self.after_write(path, added=added, removed=removed)

    def reported(self, path: str | os.PathLike[str]) -> None:
        """Record that a successful write was reported: the user's lines are counted from here."""
        name = self.canonical(path)
        known = self._known(name)
        self._set(
            name, structs.replace(known, prev_fswrite_lines=known.after_fswrite_lines, is_reported=True)
        )

    def follow(
        self,
        known: Mapping[str, FileLineTracker],
        put_back: Iterable[str | os.PathLike[str]] = (),
    ) -> tuple[str, ...]:
        """Use other records after the conversation moved or files were restored; return updated paths.

        A file that is as the agent knew it before the move, or that was restored, is not the user's edit.
        """
        former, ours = self.records, {self.canonical(path) for path in put_back}
        with self._lock:
            self._recorded, self._new = dict(known), {}
        others = list[str]()
        for name, one in known.items():
            found = look(_path(name))
            before = former.get(name, one)
            if one.sha256 != found.digest and (name in ours or before.sha256 == found.digest):
                self._set(name, self._settled(one, found))
                others.append(name)
        self._noticed.clear()
        return tuple(others)

    def _before(self, path: str | os.PathLike[str]) -> tuple[str, FileLineTracker, Look]:
        name = self.canonical(path)
        return name, self._known(name), look(_path(name))

    def _by_user(self, known: FileLineTracker, found: Look) -> list[LineChange]:
        """Return the user's change to a file since the agent last saw it, if any."""
        if not known.sha256 or known.sha256 == found.digest:
            return []
        delta = found.lines - known.lines
        return [self._change("user", max(0, delta), max(0, -delta))]

    def _settled(self, known: FileLineTracker, found: Look) -> FileLineTracker:
        delta = found.lines - known.lines
        return structs.replace(
            known,
            prev_fswrite_lines=found.lines,
            before_fswrite_lines=found.lines,
            after_fswrite_lines=found.lines,
            is_reported=True,
            sha256=found.digest,
            lines=found.lines,
            history=known.remembering(self._change("restore", max(0, delta), max(0, -delta))),
        )

    def _known(self, name: str) -> FileLineTracker:
        with self._lock:
            return self._new.get(name) or self._recorded.get(name) or FileLineTracker()

    def _set(self, name: str, known: FileLineTracker) -> None:
        with self._lock:
            self._new[name] = known

    def _change(self, by: Who, added: int, removed: int) -> LineChange:
        return LineChange(by=by, at=self._now(), added=added, removed=removed, entry=self._entries())


def _path(name: str) -> bytes:
    return unquote_to_bytes(name.removeprefix(_BYTES)) if name.startswith(_BYTES) else os.fsencode(name)
