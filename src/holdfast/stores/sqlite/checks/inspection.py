"""An inspection: where one looks, what is found, and whether it is mended on the spot.

    if case.found("its running total is wrong", done="worked out again", seq=7):
        db.execute(...)

A fault is noted, and whoever found it is told whether to mend it. So one piece of code checks in the
snapshot of a reader and mends in the transaction of the writer, where it looks again before it
touches anything: what another process has changed since is seen.
"""

from __future__ import annotations

import apsw

from ...values import Address, Finding

__all__ = ["Inspection"]


class Inspection:
    """What was found in one transaction."""

    def __init__(self, db: apsw.Connection, *, mend: bool, at: Address | None = None) -> None:
        self.db, self.mend = db, mend
        self.at = at or Address("", "")
        self.findings = list[Finding]()

    def found(
        self, fault: str, *, done: str = "", branch: int = 0, seq: int = 0, id: str = "", mends: bool = True
    ) -> bool:
        """Note a fault, and tell whether to mend it."""
        mend = self.mend and mends
        finding = Finding(
            tenant=self.at.tenant,
            session=self.at.session,
            branch=branch,
            seq=seq,
            id=id,
            fault=fault,
            done=done if mend else "",
        )
        self.findings.append(finding)
        return mend
