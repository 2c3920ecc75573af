"""An inspection: where one looks, what is found, and what is done about it on the spot.

    if case.found("its running total is wrong", done="worked out again", seq=7):
        case.mend("total_entry", entry=…, total=…)

A fault is noted, and whoever found it is told whether to mend it. So one piece of code checks in the
snapshot of a reader and mends in a transaction that has locked the session, where it looks again before
it touches anything. What mends waits until a check has read to its end.
"""

from __future__ import annotations

from typing import Any

from ...values import Address, Finding
from ..connections import Work

__all__ = ["Inspection"]


class Inspection:
    """What was found in one transaction."""

    def __init__(self, work: Work, *, mends: bool, at: Address | None = None) -> None:
        self.work, self._mends = work, mends
        self.at = at or Address("", "")
        self.findings = list[Finding]()
        self._waiting = list[tuple[str, dict[str, Any]]]()

    def found(
        self, fault: str, *, done: str = "", branch: int = 0, seq: int = 0, id: str = "", mends: bool = True
    ) -> bool:
        """Note a fault, and tell whether to mend it."""
        mends = mends and self._mends
        finding = Finding(
            tenant=self.at.tenant,
            session=self.at.session,
            branch=branch,
            seq=seq,
            id=id,
            fault=fault,
            done=done if mends else "",
        )
        self.findings.append(finding)
        return mends

    def mend(self, name: str, /, **given: Any) -> None:
        """Put a statement behind those that wait."""
        self._waiting.append((name, given))

    async def mended(self) -> None:
        """Run the statements that wait."""
        waiting, self._waiting = self._waiting, []
        for name, given in waiting:
            await self.work.rows(name, **given)
