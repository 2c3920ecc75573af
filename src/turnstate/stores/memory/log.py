"""The log of the memory store: take a change whole, and read what was taken.

A change is planned on what is kept, without touching it; only a plan that stands is carried out.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import NotFound
from ..admission import admitted, advanced
from ..values import Address, Branch, Change, Hit, Receipt, Row, Span
from .state import Kept, Port, written

__all__ = ["MemoryLog"]


class MemoryLog(Port):
    """Append to sessions, and read them."""

    async def commit(self, change: Change) -> Receipt:
        """Take a change whole, or raise the first check that fails and take nothing."""
        with self._state.lock:
            kept = self._state.kept(change.at)
            if repeated := admitted(kept.row, change, kept.known(change.key)):
                return repeated
            return self._take(kept, change)

    async def read(
        self, at: Address, span: Span, *, limit: int | None = None, newest: bool = False
    ) -> list[Row]:
        """Give a run of entries in order; with a limit the first ones, or the newest."""
        with self._state.lock:
            rows = self._state.kept(at).slice(span)
        if limit is None or limit >= len(rows):
            return rows
        return rows[len(rows) - limit :] if newest else rows[:limit]

    async def find(self, at: Address, ids: Sequence[str]) -> list[Row]:
        """Give the entries with these ids, those that there are, in the order of the log."""
        with self._state.lock:
            known = self._state.kept(at).by_id
            found = [known[id] for id in set(ids) if id in known]
        return sorted(found, key=lambda row: (row.branch, row.seq))

    async def newest(self, at: Address, spans: Sequence[Span], kinds: Sequence[str]) -> dict[str, Row]:
        """Give the newest entry of each kind on a path, whose newest span comes first."""
        missing, found = set(kinds), dict[str, Row]()
        with self._state.lock:
            kept = self._state.kept(at)
            for span in spans:
                for row in reversed(kept.slice(span)):
                    if row.kind in missing:
                        missing.remove(row.kind)
                        found[row.kind] = row
                    if not missing:
                        return found
        return found

    async def branches(self, at: Address) -> list[Branch]:
        """Give all branches of a session in the order of their making."""
        with self._state.lock:
            return list(self._state.kept(at).branches.values())

    async def search(
        self, tenant: str, words: Sequence[str], *, user: str | None, before: int | None, limit: int
    ) -> list[Hit]:
        """Give the entries that hold all the words, newest first, from behind a mark on."""
        wanted, hits = frozenset(words), list[Hit]()
        if not wanted or limit < 1:
            return hits
        with self._state.lock:
            index, sessions = self._state.index, self._state.sessions
            end = len(index) if before is None else min(before, len(index))
            for mark in range(end - 1, -1, -1):
                entry = index[mark]
                if entry is None or entry.at.tenant != tenant or not wanted <= entry.words:
                    continue
                if user is not None and sessions[entry.at].row.user != user:
                    continue
                hits.append(Hit(session=entry.at.session, row=entry.row, mark=mark))
                if len(hits) == limit:
                    break
        return hits

    def _take(self, kept: Kept, change: Change) -> Receipt:
        made = _forked(kept, change)
        branch = made.id if made else kept.row.branch if change.select is None else change.select
        seq = made.fork_seq if made else kept.tip(branch)
        total = kept.total(made.parent if made else branch, seq)
        kept.check_new(change.records)
        rows = written(change.records, branch=branch, seq=seq, total=total)
        after = advanced(kept.row, change, branch=branch, seq=seq, total=total)
        receipt = Receipt(
            epoch=after.epoch, version=after.version, branch=branch, first=seq + 1, last=after.seq
        )
        if made:
            kept.branches[made.id], kept.rows[made.id] = made, []
        kept.row = after
        self._state.append(kept, rows)
        for parcel in change.parcels:
            self._state.outbox.setdefault(parcel.id, parcel)
        if change.key:
            kept.remember(change.key, receipt, change.now)
        return receipt


def _forked(kept: Kept, change: Change) -> Branch | None:
    fork = change.fork
    if fork is None:
        return None
    if fork.parent is not None and not 0 <= fork.seq <= kept.tip(fork.parent):
        raise NotFound(f"branch {fork.parent} of session {kept.row.id} has no entry {fork.seq}")
    return Branch(
        id=len(kept.branches) + 1,
        parent=fork.parent,
        fork_seq=0 if fork.parent is None else fork.seq,
        created=change.now,
        name=fork.name,
        operation=fork.operation,
        former=kept.row.branch,
    )
