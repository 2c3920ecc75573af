"""An inspection: what a check asks of a database, what it finds, and what is done about it.

    ((branch, seq, total, _),) = yield from asked("head", key=session)
    if case.found("its head is wrong", done="set again", seq=seq):
        case.mend("set_head", key=session, …)

A check is a generator: it yields the statements that it wants run, by the names that they have in the
SQL of every store, and is sent what they give. So one rule serves a database that is read in a thread
and one that is awaited. A fault is noted, and whoever found it is told whether to mend it: one piece of
code checks in the snapshot of a reader and mends in a transaction, where it looks again before it
touches anything. What mends waits until a check has read to its end.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, NamedTuple, TypeAlias, TypeVar

from ..values import Address, Finding, Recount

__all__ = ["Ask", "Check", "Checksum", "Inspection", "asked", "is_text", "strictly", "text"]

T = TypeVar("T")


class Ask(NamedTuple):
    """A statement to be run, by its name."""

    name: str
    given: dict[str, Any]


Check: TypeAlias = Generator[Ask, Any, T]

Checksum = Callable[[int, int, int, str, str, int, bytes], int]
"""Sums up an entry: session, branch, number, id, kind, tokens, body."""


def asked(name: str, /, **given: Any) -> Check[list[Any]]:
    """Have a statement run, and give its rows."""
    return list((yield Ask(name, given)))


class Inspection:
    """What was found in one transaction."""

    def __init__(
        self, checksum: Checksum, *, mends: bool, at: Address | None = None, recount: Recount | None = None
    ) -> None:
        self.checksum, self.recount, self._mends = checksum, recount, mends
        self.at = at or Address("", "")
        self.findings = list[Finding]()
        self._waiting = list[Ask]()

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
        self._waiting.append(Ask(name, given))

    def mended(self) -> Check[None]:
        """Have the statements run that wait."""
        waiting, self._waiting = self._waiting, []
        for name, given in waiting:
            yield from asked(name, **given)


def text(value: str | bytes) -> str:
    """Give a text that was read as bytes, since what is damaged may be none."""
    return value if isinstance(value, str) else value.decode(errors="replace")


def strictly(value: str | bytes) -> str:
    """Give a text that was read as bytes, or raise `UnicodeDecodeError`."""
    return value if isinstance(value, str) else value.decode()


def is_text(value: str | bytes) -> bool:
    """Tell whether bytes are a text."""
    try:
        strictly(value)
    except UnicodeDecodeError:
        return False
    return True
