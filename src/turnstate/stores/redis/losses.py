"""A witness of what was acknowledged, for servers that may lose it: in a power cut, in a failover.

Such a server comes back with an earlier state that is sound in itself, so its log does not show that
anything is missing. Whoever heard the acknowledgement can tell: a store remembers how far it saw each
session, and the newest entry that it wrote, and every append asks whether that entry is still there.
`verify` tells what was found missing. Only this process remembers; a new one cannot know.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, NamedTuple

from ...errors import StoreDamaged
from ..values import Address, Change, Finding, Position, Receipt, SessionRow
from .layout import session_key, text
from .rows import born, session
from .server import Server, script

__all__ = ["MOST_SESSIONS", "Sighting", "Witness", "look_for"]

MOST_SESSIONS = 10_000
"""Those that were used last: a few megabytes."""

_AT_ONCE = 100


class Own(NamedTuple):
    """An entry that this store wrote, and where."""

    place: Position
    id: str


class Sighting(NamedTuple):
    """How far a session was once, in numbers that only grow as long as nothing is lost."""

    born: int  # another session under the same name is born later
    epoch: int
    version: int
    head: Position
    own: Own | None = None

    @property
    def rank(self) -> tuple[int, int, int, int]:
        """Put it among all others of its session: while the version stays, so does the branch."""
        return self.born, self.epoch, self.version, self.head.seq


class Loss(NamedTuple):
    """What was known, and where the log was found to end; none where the session was gone.

    Where others had written as much since, only the own entry is known to be missing.
    """

    known: Sighting
    found: Position | None
    written_over: bool = False


class Witness:
    """Remembers how far sessions were, and which of them went back."""

    def __init__(self, most: int = MOST_SESSIONS) -> None:
        self._most = most
        self._known: OrderedDict[Address, Sighting] = OrderedDict()
        self._losses: OrderedDict[Address, Loss] = OrderedDict()

    def known(self, at: Address) -> Sighting | None:
        """Give what is known of a session before it is asked for; the answer cannot be less."""
        return self._known.get(at)

    def all_known(self) -> list[tuple[Address, Sighting]]:
        """Give everything that is known."""
        return list(self._known.items())

    def saw(self, row: SessionRow, *, born: int, known: Sighting | None) -> None:
        """Take in a session that was read."""
        now = Sighting(born, row.epoch, row.version, row.head)
        if known and now.rank < known.rank:
            self.lost(row.address, known, now.head)
        self._keep(row.address, now)

    def wrote(
        self, change: Change, receipt: Receipt, *, born: int, known: Sighting | None, gone: bool
    ) -> None:
        """Take in a change that was acknowledged; ``gone`` says that the entry known before was missing."""
        if receipt.repeated:  # tells what once was, and not where the log ends now
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
        """Note that a session went back, and expect no more than what is there."""
        if at not in self._known:  # it was removed meanwhile
            return
        if self._known[at] == known:
            del self._known[at]
        if at not in self._losses or self._losses[at].known != known:
            self._losses[at] = Loss(known, found, written_over)
        _shorten(self._losses, self._most)

    def forget(self, at: Address) -> None:
        """Expect nothing of a session any more."""
        self._known.pop(at, None)
        self._losses.pop(at, None)

    def loss(self, at: Address) -> str:
        """Return what is known to be missing of a session; empty if nothing is."""
        loss = self._losses.get(at)
        return _finding(at, loss, repair=False).fault if loss else ""

    def findings(self, *, repair: bool) -> list[Finding]:
        """Tell what is missing; a repair is to go on from what is there."""
        found = [_finding(at, loss, repair=repair) for at, loss in self._losses.items()]
        if repair:
            self._losses.clear()
        return found

    def _keep(self, at: Address, now: Sighting) -> None:
        known = self._known.get(at)
        if known is None or known.rank < now.rank:
            same = known is not None and known.born == now.born
            own = now.own or (known.own if known and same else None)
            self._known[at] = now._replace(own=own)
        self._known.move_to_end(at)
        _shorten(self._known, self._most)


async def look_for(server: Server, witness: Witness) -> None:
    """Compare all that is known with what is there, and note what is missing."""
    everything = witness.all_known()
    for start in range(0, len(everything), _AT_ONCE):
        some = everything[start : start + _AT_ONCE]
        calls = [([session_key(at, b"row")], ()) for at, _ in some]
        rows = await server.run_all(script("hashes"), calls, twice=True)
        owns = [(at, known.own) for at, known in some if known.own]
        asked = [("HGET", session_key(at, b"id"), text(own.id)) for at, own in owns]
        places = dict(zip((at for at, _ in owns), await server.ask_all(asked), strict=True))
        for (at, known), (flat,) in zip(some, rows, strict=True):
            _compare(witness, at, known, flat, places.get(at))


def _compare(witness: Witness, at: Address, known: Sighting, flat: list[Any], place: bytes | None) -> None:
    if not flat:
        witness.lost(at, known, None)
        return
    try:
        row = session(at, flat)
    except StoreDamaged:  # other checks tell
        return
    now = Sighting(born(flat), row.epoch, row.version, row.head)
    gone = known.own is not None and place != b"%d:%d" % known.own.place
    if now.rank < known.rank or (gone and now.born == known.born):
        witness.lost(at, known, row.head, written_over=now.rank >= known.rank)


def _finding(at: Address, loss: Loss, *, repair: bool) -> Finding:
    known, found, written_over = loss
    own = known.own if known.own and (written_over or known.own.place == known.head) else None
    branch, seq = own.place if own else known.head
    if found is None:
        where = "the session is not there: somebody removed it, or it is lost"
    elif written_over:
        where = f"something else was written since, up to entry {found.seq} of branch {found.branch}"
    else:
        where = f"the log was found to end at entry {found.seq} of branch {found.branch}"
    return Finding(
        tenant=at.tenant,
        session=at.session,
        branch=branch,
        seq=seq,
        id=own.id if own else "",
        fault=f"entry {seq} of branch {branch} was acknowledged and is missing; {where}",
        done="what is there counts from now on" if repair else "",
    )


def _shorten(remembered: OrderedDict[Address, Any], most: int) -> None:
    while len(remembered) > most:
        remembered.popitem(last=False)
