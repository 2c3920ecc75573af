"""Detects acknowledged writes that a server lost, in a power cut or in a failover.

Such a server comes back with an earlier, consistent state, so its log does not show that anything is missing.
Only the process that got the acknowledgement can know: a store remembers how far each session had advanced
and the newest entry that it wrote, and every append checks that this entry is still there. `verify` reports
what is missing. A new process remembers nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, NamedTuple

from ...errors import StoreDamaged
from ..values import Address, Change, Finding, Position, Receipt, SessionRow
from .layout import session_key, text
from .rows import born, session
from .server import Server, script

MAX_SESSIONS = 10_000
"""The most sessions that are remembered, those used last: a few megabytes."""

_STEP = 100


class Own(NamedTuple):
    """An entry that this store wrote, and its position."""

    place: Position
    id: str


class Sighting(NamedTuple):
    """How far a session had advanced at some time, in numbers that only grow as long as nothing is lost."""

    born: int  # a later session of the same name has a higher number
    epoch: int
    version: int
    head: Position
    own: Own | None = None

    @property
    def rank(self) -> tuple[int, int, int, int]:
        """The sort key for sightings of a session: while the version is the same, so is the branch."""
        return self.born, self.epoch, self.version, self.head.seq


class Loss(NamedTuple):
    """What was known, and where the log was found to end; None if the session was gone.

    If others have written as much since (``written_over``), only this store's entry is known to be missing.
    """

    known: Sighting
    found: Position | None
    written_over: bool = False


class LossDetector:
    """Remembers how far sessions had advanced, and which of them went back to an earlier state."""

    def __init__(self, most: int = MAX_SESSIONS) -> None:
        self._most = most
        self._known: OrderedDict[Address, Sighting] = OrderedDict()
        self._losses: OrderedDict[Address, Loss] = OrderedDict()

    def known(self, at: Address) -> Sighting | None:
        """Return the last sighting of a session; read it before a request, whose answer must not be older."""
        return self._known.get(at)

    def all_known(self) -> list[tuple[Address, Sighting]]:
        """Return the last sightings of all sessions."""
        return list(self._known.items())

    def saw(self, row: SessionRow, *, born: int, known: Sighting | None) -> None:
        """Record a session that was read."""
        now = Sighting(born, row.epoch, row.version, row.head)
        if known and now.rank < known.rank:
            self.lost(row.address, known, now.head)
        self._keep(row.address, now)

    def wrote(
        self, change: Change, receipt: Receipt, *, born: int, known: Sighting | None, gone: bool
    ) -> None:
        """Record an acknowledged change; ``gone`` means that the entry known before it was missing."""
        if receipt.repeated:  # an old receipt does not show where the log ends now
            return
        before, at = Position(receipt.branch, receipt.first - 1), change.at
        own = Own(receipt.head, change.records[-1].id) if change.records else None
        now = Sighting(born, receipt.epoch, receipt.version, receipt.head, own)
        if known and (gone or now.rank < known.rank):
            self.lost(at, known, before, written_over=now.rank > known.rank)
        self._keep(at, now)

    def lost(
        self, at: Address, known: Sighting, found: Position | None, *, written_over: bool = False
    ) -> None:
        """Record that a session went back to an earlier state, and expect only what is there from now on."""
        if at not in self._known:  # it was removed in the meantime
            return
        if self._known[at] == known:
            del self._known[at]
        if at not in self._losses or self._losses[at].known != known:
            self._losses[at] = Loss(known, found, written_over)
        _shorten(self._losses, self._most)

    def forget(self, at: Address) -> None:
        """Forget what is known about a session."""
        self._known.pop(at, None)
        self._losses.pop(at, None)

    def loss(self, at: Address) -> str:
        """Describe what is known to be missing from a session; return an empty string if nothing is."""
        loss = self._losses.get(at)
        return _finding(at, loss).fault if loss else ""

    def findings(self) -> list[Finding]:
        """Return what is missing."""
        return [_finding(at, loss) for at, loss in self._losses.items()]

    def _keep(self, at: Address, now: Sighting) -> None:
        known = self._known.get(at)
        if known is None or known.rank < now.rank:
            same = known is not None and known.born == now.born
            own = now.own or (known.own if known and same else None)
            self._known[at] = now._replace(own=own)
        self._known.move_to_end(at)
        _shorten(self._known, self._most)


async def compare_with_server(server: Server, losses: LossDetector) -> None:
    """Compare everything that is known with the server, and record what is missing."""
    everything = losses.all_known()
    for start in range(0, len(everything), _STEP):
        some = everything[start : start + _STEP]
        calls = [([session_key(at, b"row")], ()) for at, _ in some]
        rows = await server.run_all(script("hashes"), calls, twice=True)
        owns = [(at, known.own) for at, known in some if known.own]
        asked = [("HGET", session_key(at, b"id"), text(own.id)) for at, own in owns]
        places = dict(zip((at for at, _ in owns), await server.ask_all(asked), strict=True))
        for (at, known), (flat,) in zip(some, rows, strict=True):
            _compare(losses, at, known, flat, places.get(at))


def _compare(
    losses: LossDetector, at: Address, known: Sighting, flat: list[Any], place: bytes | None
) -> None:
    if not flat:
        losses.lost(at, known, None)
        return
    try:
        row = session(at, flat)
    except StoreDamaged:  # other checks report it
        return
    now = Sighting(born(flat), row.epoch, row.version, row.head)
    gone = known.own is not None and place != b"%d:%d" % known.own.place
    if now.rank < known.rank or (gone and now.born == known.born):
        losses.lost(at, known, row.head, written_over=now.rank >= known.rank)


def _finding(at: Address, loss: Loss) -> Finding:
    known, found, written_over = loss
    own = known.own if known.own and (written_over or known.own.place == known.head) else None
    branch, seq = own.place if own else known.head
    if found is None:
        where = "the session does not exist: it was removed by another process, or it is lost"
    elif written_over:
        where = f"other entries were written since, up to entry {found.seq} of branch {found.branch}"
    else:
        where = f"the log was found to end at entry {found.seq} of branch {found.branch}"
    return Finding(
        tenant=at.tenant,
        session=at.session,
        branch=branch,
        seq=seq,
        id=own.id if own else "",
        fault=f"entry {seq} of branch {branch} was acknowledged and is missing; {where}",
    )


def _shorten(remembered: OrderedDict[Address, Any], most: int) -> None:
    while len(remembered) > most:
        remembered.popitem(last=False)
