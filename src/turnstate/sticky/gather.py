"""Gathers the files of all paths into the one text that is sent, and reports every file that is not in it.

Files are in the user's order, each once, at its first mention. If they are too large together, the largest
are left out until the rest fits (of two equal ones, the later), so that as many as possible stay. The same
rule, by bytes, bounds what is read at all. A file that cannot be read does not affect others.

The text is rebuilt only when a file in it changes. Until then it stays the same, byte for byte, so the prompt
cache can reuse it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from msgspec import Struct

from ..tokens import Counter
from .pattern import Workspace
from .reading import Candidate, ReadCache, Refused, checked_status, find, refusal
from .sticky_paths import Dropped, Gathered, StickyFile, StickyPath, entry

MAX_TOTAL_BYTES = 32 * 1024 * 1024
"""The most bytes of all files together: several times any model's window, read in a second or two."""


class _Weighed(Struct, frozen=True):
    file: Candidate
    status: os.stat_result


class _Written(Struct, frozen=True):
    kept: StickyFile
    content: str


class Gatherer:
    """Gathers files repeatedly and remembers what it has read."""

    def __init__(self) -> None:
        self._cache = ReadCache()
        self._tokens: dict[tuple[str, str, str], int] = {}
        self._last = Gathered()

    def gather(
        self, paths: Iterable[StickyPath], workspace: Workspace, *, limit: int, counter: Counter
    ) -> Gathered:
        """Read the files that the paths match, and keep those that fit in ``limit`` tokens."""
        rows = _found(paths, workspace)
        weighed = [_weighed(row) if isinstance(row, Candidate) else row for row in rows]
        read = [
            self._written(row, workspace, counter) if isinstance(row, _Weighed) else row
            for row in _bounded(weighed)
        ]
        chosen = _chosen(read, limit)
        self._drop_stale(rows, read, counter)
        self._last = self._composed(
            [row for row in chosen if isinstance(row, _Written)],
            tuple(row for row in chosen if isinstance(row, Dropped)),
        )
        return self._last

    def _written(self, row: _Weighed, workspace: Workspace, counter: Counter) -> _Written | Dropped:
        shown = row.file.shown
        try:
            content, sha256 = self._cache.text(row.file.real, row.status, workspace.clock)
        except Refused as refused:
            return Dropped(shown, refused.reason, refused.why)
        except OSError as error:
            return refusal(shown, error)
        key = (shown, sha256, counter.name)
        if key not in self._tokens:
            self._tokens[key] = counter.count(entry(shown, content)).tokens
        return _Written(StickyFile(shown, self._tokens[key], sha256), content)

    def _composed(self, written: Sequence[_Written], dropped: tuple[Dropped, ...]) -> Gathered:
        files = tuple(row.kept for row in written)
        text = self._last.text
        if _contents(files) != _contents(self._last.files):
            text = "".join(entry(row.kept.path, row.content) for row in written) or None
        return Gathered(text=text, files=files, dropped=dropped)

    def _drop_stale(
        self,
        rows: Sequence[Candidate | Dropped],
        read: Sequence[_Written | Dropped],
        counter: Counter,
    ) -> None:
        self._cache.keep({row.real for row in rows if isinstance(row, Candidate)})
        now = {(row.kept.path, row.kept.sha256, counter.name) for row in read if isinstance(row, _Written)}
        self._tokens = {key: tokens for key, tokens in self._tokens.items() if key in now}


def fitting(sizes: Sequence[int], limit: int) -> set[int]:
    """Return the indices that stay: the largest go first until the rest fits, of two equal ones the later."""
    kept, total = set[int](), 0
    for index in sorted(range(len(sizes)), key=lambda index: (sizes[index], index)):
        total += sizes[index]
        if total > limit:
            break
        kept.add(index)
    return kept


def _found(paths: Iterable[StickyPath], workspace: Workspace) -> list[Candidate | Dropped]:
    """Return every file once, in the user's order, along with what was left out."""
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
    stay = _staying(sizes, MAX_TOTAL_BYTES)
    return [
        Dropped(row.file.shown, "limit", _too_much(row.status.st_size, MAX_TOTAL_BYTES, "bytes"))
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
    return f"it has {size:,} {unit}; the largest are left out until the rest fits in {limit:,}"


def _contents(files: Iterable[StickyFile]) -> list[tuple[str, str]]:
    return [(file.path, file.sha256) for file in files]
