"""Gathering: from paths to the one text that is sent, and a word about every file that is not in it.

Files stand in the user's order, each once, where it is first named. When they are too many, the
largest go first until the rest fits, of two alike the later: so as many stay as can. The same rule,
by bytes, bounds what is read at all. A file that cannot be read costs no other file anything.

The text is made anew only when a file that is in it changed, so it stays the same object, byte for
byte, for as long as the prompt cache can use it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from msgspec import Struct

from ..tokens import Counter
from .files import Candidate, ReadCache, Refused, checked_status, find, refusal
from .pattern import Workspace
from .state import Dropped, Gathered, Kept, StickyPath, entry

__all__ = ["MOST_BYTES_TOGETHER", "Gatherer", "fitting"]

MOST_BYTES_TOGETHER = 32 * 1024 * 1024
"""Of all files; several times what fits in any model's window, and read in a second or two."""


class _Weighed(Struct, frozen=True):
    file: Candidate
    status: os.stat_result


class _Written(Struct, frozen=True):
    kept: Kept
    content: str


class Gatherer:
    """Gathers again and again, and remembers what it read."""

    def __init__(self) -> None:
        self._shelf = ReadCache()
        self._tokens: dict[tuple[str, str, str], int] = {}
        self._last = Gathered()

    def gather(
        self, paths: Iterable[StickyPath], workspace: Workspace, *, limit: int, counter: Counter
    ) -> Gathered:
        """Read the files that paths stand for, and keep those that fit in so many tokens."""
        rows = _found(paths, workspace)
        weighed = [_weighed(row) if isinstance(row, Candidate) else row for row in rows]
        read = [
            self._written(row, workspace, counter) if isinstance(row, _Weighed) else row
            for row in _bounded(weighed)
        ]
        chosen = _chosen(read, limit)
        self._forget_all_but(rows, read, counter)
        self._last = self._composed(
            [row for row in chosen if isinstance(row, _Written)],
            tuple(row for row in chosen if isinstance(row, Dropped)),
        )
        return self._last

    def _written(self, row: _Weighed, workspace: Workspace, counter: Counter) -> _Written | Dropped:
        shown = row.file.shown
        try:
            content, sha256 = self._shelf.text(row.file.real, row.status, workspace.clock)
        except Refused as refused:
            return Dropped(shown, refused.reason, refused.why)
        except OSError as error:
            return refusal(shown, error)
        key = (shown, sha256, counter.name)
        if key not in self._tokens:
            self._tokens[key] = counter.count(entry(shown, content)).tokens
        return _Written(Kept(shown, self._tokens[key], sha256), content)

    def _composed(self, written: Sequence[_Written], dropped: tuple[Dropped, ...]) -> Gathered:
        files = tuple(row.kept for row in written)
        text = self._last.text
        if _contents(files) != _contents(self._last.files):
            text = "".join(entry(row.kept.path, row.content) for row in written) or None
        return Gathered(text=text, files=files, dropped=dropped)

    def _forget_all_but(
        self,
        rows: Sequence[Candidate | Dropped],
        read: Sequence[_Written | Dropped],
        counter: Counter,
    ) -> None:
        self._shelf.keep({row.real for row in rows if isinstance(row, Candidate)})
        now = {(row.kept.path, row.kept.sha256, counter.name) for row in read if isinstance(row, _Written)}
        self._tokens = {key: tokens for key, tokens in self._tokens.items() if key in now}


def fitting(sizes: Sequence[int], limit: int) -> set[int]:
    """Choose what stays: the largest go first until the rest fits, of two alike the later."""
    kept, total = set[int](), 0
    for index in sorted(range(len(sizes)), key=lambda index: (sizes[index], index)):
        total += sizes[index]
        if total > limit:
            break
        kept.add(index)
    return kept


def _found(paths: Iterable[StickyPath], workspace: Workspace) -> list[Candidate | Dropped]:
    """Return every file once, in the user's order, and what there is to say."""
    rows, seen = list[Candidate | Dropped](), set[str]()
    for path in paths:
        found = find(path.path, path.owner, workspace)
        for file in found.files:
            if file.real not in seen:
                seen.add(file.real)
                rows.append(file)
        rows += found.dropped
    return rows


def _weighed(file: Candidate) -> _Weighed | Dropped:
    try:
        return _Weighed(file, checked_status(os.lstat(file.real)))
    except Refused as refused:
        return Dropped(file.shown, refused.reason, refused.why)
    except OSError as error:
        return refusal(file.shown, error)


def _bounded(rows: Sequence[_Weighed | Dropped]) -> list[_Weighed | Dropped]:
    sizes = {i: row.status.st_size for i, row in enumerate(rows) if isinstance(row, _Weighed)}
    stay = _staying(sizes, MOST_BYTES_TOGETHER)
    return [
        Dropped(row.file.shown, "limit", _too_much(row.status.st_size, MOST_BYTES_TOGETHER, "bytes"))
        if isinstance(row, _Weighed) and i not in stay
        else row
        for i, row in enumerate(rows)
    ]


def _chosen(rows: Sequence[_Written | Dropped], limit: int) -> list[_Written | Dropped]:
    sizes = {i: row.kept.tokens for i, row in enumerate(rows) if isinstance(row, _Written)}
    stay = _staying(sizes, limit)
    return [
        Dropped(row.kept.path, "limit", _too_much(row.kept.tokens, limit, "tokens"))
        if isinstance(row, _Written) and i not in stay
        else row
        for i, row in enumerate(rows)
    ]


def _staying(sizes: dict[int, int], limit: int) -> set[int]:
    positions = list(sizes)
    return {positions[index] for index in fitting(list(sizes.values()), limit)}


def _too_much(size: int, limit: int, unit: str) -> str:
    return f"it has {size:,} {unit}; the largest go first until the rest fits in {limit:,}"


def _contents(files: Iterable[Kept]) -> list[tuple[str, str]]:
    return [(file.path, file.sha256) for file in files]
