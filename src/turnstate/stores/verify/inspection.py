"""An inspection: how a rule queries a database, reports faults, and repairs them.

    ((branch, seq, total, _),) = yield from asked("head", key=session)
    if case.found("its head is wrong", done="set again", seq=seq):
        case.mend("set_head", key=session, …)

A rule is pure: a generator that yields the statements it needs, by name, and is sent their rows. So one rule
serves SQLite, which is read in a thread, PostgreSQL, which is awaited, and Redis, which answers the same
names from hashes. `Inspection.found` records a fault and returns True if it should be repaired: the same code
checks in a reader's snapshot and repairs in a transaction, where it checks again before it changes anything.
Repairs run after the rule has finished reading.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, NamedTuple, TypeAlias, TypeVar

from ..values import Address, Finding, Recount

T = TypeVar("T")


class Statement(NamedTuple):
    """A statement to run, by its name."""

    name: str
    given: dict[str, Any]


Check: TypeAlias = Generator[Statement, Any, T]

Checksum = Callable[[int, int, int, str, str, int, bytes], int]
"""Computes the checksum of an entry: session, branch, number, id, kind, tokens, body."""


def asked(name: str, /, **given: Any) -> Check[list[Any]]:
    """Run a statement, and return its rows."""
    return list((yield Statement(name, given)))


class Inspection:
    """The faults found in one transaction, and the repairs that are queued for them."""

    def __init__(
        self, checksum: Checksum, *, mends: bool, at: Address | None = None, recount: Recount | None = None
    ) -> None:
        self.checksum, self.recount, self._mends = checksum, recount, mends
        self.at = at or Address("", "")
        self.findings = list[Finding]()
        self._waiting = list[Statement]()

    def found(
        self, fault: str, *, done: str = "", branch: int = 0, seq: int = 0, id: str = "", mends: bool = True
    ) -> bool:
        """Record a fault; return True if it should be repaired."""
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
        """Queue a statement that repairs a fault."""
        self._waiting.append(Statement(name, given))

    def mended(self) -> Check[None]:
        """Run the queued repairs."""
        waiting, self._waiting = self._waiting, []
        for name, given in waiting:
            yield from asked(name, **given)


def text(value: str | bytes) -> str:
    """Return text that was read as bytes, with replacement characters for invalid UTF-8."""
    return value if isinstance(value, str) else value.decode(errors="replace")


def strictly(value: str | bytes) -> str:
    """Return text that was read as bytes, or raise `UnicodeDecodeError`."""
    return value if isinstance(value, str) else value.decode()


def is_text(value: str | bytes) -> bool:
    """Return True if bytes are valid UTF-8."""
    try:
        strictly(value)
    except UnicodeDecodeError:
        return False
    return True
