"""An inspection: where one looks, what is found, and whether it is mended on the spot.

What is checked is written to by others all the time. Entries never change, so they are compared as they
are read; a repair is one script, which does nothing where the session is no longer the one that was read.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...values import Address, Finding, Recount
from ..layout import session_keys
from ..scripts import script
from ..server import Server

__all__ = ["Edit", "Inspection"]

Edit = tuple[bytes, ...]
"""A command, the kind of its key (`entry`, `index` and so on), and what follows the key."""


class Inspection:
    """The check of one session, or of what belongs to none."""

    def __init__(
        self,
        server: Server,
        *,
        repair: bool,
        at: Address | None = None,
        keys: Sequence[bytes] = (),
        recount: Recount | None = None,
    ) -> None:
        self.server, self.repair, self.recount = server, repair, recount
        self.at = at or Address("", "")
        self.keys = session_keys(self.at) if at else list(keys)
        self.born, self.head = b"", b""

    async def found(
        self,
        fault: str,
        *,
        done: str = "",
        edits: Sequence[Edit] = (),
        branch: int = 0,
        seq: int = 0,
        id: str = "",
        of_head: bool = False,
    ) -> Finding:
        """Mend a fault if asked to, and give what was found; ``of_head`` guards what appends change."""
        mended = self.repair and bool(edits) and await self._mended(edits, of_head=of_head)
        return Finding(
            tenant=self.at.tenant,
            session=self.at.session,
            branch=branch,
            seq=seq,
            id=id,
            fault=fault,
            done=done if mended else "",
        )

    def key(self, kind: bytes) -> bytes:
        """Give the key of a kind."""
        return self.keys[self._number(kind) - 1]

    async def _mended(self, edits: Sequence[Edit], *, of_head: bool) -> bool:
        arguments = [self.born, self.head if of_head and self.born else b""]
        for command, kind, *rest in edits:
            arguments += (command, b"%d" % len(rest), b"%d" % self._number(kind), *rest)
        return bool(await self.server.run(script("mend"), self.keys, arguments, twice=True))

    def _number(self, kind: bytes) -> int:
        return next(n for n, key in enumerate(self.keys, 1) if key.split(b":", 3)[2] == kind)
