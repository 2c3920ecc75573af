"""Everything that the page of a session shows, read from the log in one pass over its branches."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from ..log.path import entries_of, rows_forwards, spans
from ..log.replay import PathEntry, Request, replayed
from ..session import SessionManager
from ..stores.port import Log
from ..stores.values import SessionRow
from ..tokens import counter
from .context import ContextReport, context_of
from .tree import Tree, TreeBranch, TreeReader, own_span


class Page(Struct, frozen=True, kw_only=True):
    """A session: its path to the head, the rest of its branches, its requests, and its next window."""

    row: SessionRow
    tree: Tree
    path: list[PathEntry]
    entries: dict[int, list[PathEntry]]
    requests: list[Request]
    context: ContextReport | None

    def others(self) -> Iterator[tuple[TreeBranch, list[PathEntry]]]:
        """Yield the branches that are not completely on the path, with their entries that are not on it."""
        for branch in self.tree.branches:
            rest = [one for one in self.entries[branch.id] if one[0].seq > branch.upto]
            if rest:
                yield branch, rest


async def read_page(sessions: SessionManager, row: SessionRow, *, log: Log | None = None) -> Page:
    """Read a session for its page; ``log`` is the store, or a log that watches for damage."""
    log = log or sessions.store
    branches = await log.branches(row.address)
    reader, entries = TreeReader(row, branches), dict[int, list[PathEntry]]()
    for branch in branches:
        rows = [one async for one in rows_forwards(log, row.address, [own_span(branch)])]
        for one in rows:
            reader.add(one)
        entries[branch.id] = list(zip(rows, await entries_of(rows), strict=True))
    path = [
        one
        for span in reversed(spans(branches, row.head))
        for one in entries[span.branch]
        if span.first <= one[0].seq <= span.last
    ]
    context = await context_of(sessions, row, path, last=0)
    requests = replayed(path, counter(row.counter), sessions.policy, limit=context.limit)
    return Page(row=row, tree=reader.tree(), path=path, entries=entries, requests=requests, context=context)
