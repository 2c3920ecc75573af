"""Tasks that write to sessions while their server fails, and the check afterwards.

The writers run in the test process, since it is the server that fails. They use the public API and repeat
an append under its key after a typed error; any other error fails the test. The answers they got are
compared with what a store that is opened afterwards reads.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from tests.faults.promises import Promises, losses, texts
from turnstate import Message
from turnstate.errors import StoreUnavailable
from turnstate.session import Session, SessionManager
from turnstate.stores.values import Span

PAUSE = 0.02  # seconds before a writer repeats an append
PATIENCE = 60.0  # seconds without progress until the writers count as hung
END = 2**31 - 1
USER = "u1"


class Writers:
    """Writers on some sessions, several for each."""

    def __init__(self, sessions: Sequence[Session], *, lanes: int = 3, keyed: bool = True) -> None:
        self.sessions, self._lanes, self._keyed = sessions, lanes, keyed
        self.promises = {session.id: Promises() for session in sessions}
        self.errors = Counter[str]()
        self.longest = 0.0  # seconds that an append took, or its refusal
        self._enough = False

    @property
    def acked(self) -> int:
        """The number of acknowledged appends."""
        return sum(len(one.acked) for one in self.promises.values())

    async def __aenter__(self) -> Self:
        self._writers = [
            asyncio.create_task(self._write(session, lane))
            for session in self.sessions
            for lane in range(self._lanes)
        ]
        return self

    async def __aexit__(self, kind: type[BaseException] | None, _: object, __: TracebackType | None) -> None:
        self._enough = True
        outcomes = await asyncio.gather(*self._writers, return_exceptions=True)
        if kind is None and (wrong := [one for one in outcomes if one is not None]):
            raise wrong[0]

    async def more(self, count: int, *, of: Session | None = None) -> None:
        """Return when that many more appends were acknowledged, in total or for one session."""
        watched = [self.promises[of.id]] if of else list(self.promises.values())
        started, deadline = sum(len(one.acked) for one in watched), time.monotonic() + PATIENCE
        while sum(len(one.acked) for one in watched) < started + count:
            if any(writer.done() for writer in self._writers):
                return  # the reason is raised at the end
            assert time.monotonic() < deadline, f"nothing is acknowledged any more: {self.errors}"
            await asyncio.sleep(0.001)

    async def failed(self) -> None:
        """Return when one more append has failed."""
        started, deadline = self.errors.total(), time.monotonic() + PATIENCE
        while self.errors.total() == started:
            if any(writer.done() for writer in self._writers):
                return  # the reason is raised at the end
            assert time.monotonic() < deadline, "no append fails"
            await asyncio.sleep(0.001)

    async def make(self, session: Session, names: Sequence[str]) -> None:
        """Make these appends, one after the other."""
        for name in names:
            await self.insist(session, name)

    async def insist(self, session: Session, name: str) -> None:
        """Append one message, and repeat it until it is acknowledged or the writers are stopped."""
        promises = self.promises[session.id]
        promises.ask(name)
        while not self._enough:
            started = time.monotonic()
            try:
                await self.append(session, name)
            except StoreUnavailable as error:
                self.errors[type(error).__name__] += 1
                await asyncio.sleep(PAUSE)
            else:
                promises.acked.append(name)
                return
            finally:
                self.longest = max(self.longest, time.monotonic() - started)

    async def append(self, session: Session, name: str) -> None:
        """Append one message; planted bugs override this."""
        (text,) = texts(name, 1)
        await session.append(Message.user(text), key=name if self._keyed else None)

    async def _write(self, session: Session, lane: int) -> None:
        number = 0
        while not self._enough:
            await self.insist(session, f"{lane}-{number}")
            number += 1


class HastyWriters(Writers):
    """Treats failed appends as done: the bug that the harness has to catch."""

    async def append(self, session: Session, name: str) -> None:
        try:
            await super().append(session, name)
        except StoreUnavailable as error:
            self.errors[type(error).__name__] += 1


class Judgement:
    """What a store that is opened afterwards finds in the sessions."""

    def __init__(self) -> None:
        self.broken = dict[str, list[str]]()  # by session
        self.unsound = list[str]()

    @property
    def lost(self) -> int:
        """The number of acknowledged appends that are missing."""
        return sum(losses(complaints) for complaints in self.broken.values())

    @property
    def doubled(self) -> int:
        """The number of appends that are stored twice or more."""
        return sum("twice: " in one for complaints in self.broken.values() for one in complaints)

    @property
    def losers(self) -> set[str]:
        """The sessions in which acknowledged appends are missing."""
        return {id for id, complaints in self.broken.items() if losses(complaints)}

    @property
    def wrong(self) -> list[str]:
        """All faults except losses."""
        return self.unsound + [
            one for complaints in self.broken.values() for one in complaints if not one.startswith("lost: ")
        ]


async def judged(url: str, writers: Writers) -> Judgement:
    """Open the store again, and compare its sessions with the answers the writers got."""
    judgement = Judgement()
    async with await SessionManager.open(url) as fresh:
        judgement.unsound = [f"verify: {one.fault}" async for one in fresh.store.verify(repair=False)]
        for id, promises in writers.promises.items():
            session = await fresh.open(id, user=USER)
            rows = await fresh.store.read(session._row.address, Span(1, 1, END))
            if [row.seq for row in rows] != list(range(1, len(rows) + 1)):
                judgement.unsound.append(f"session {id} has gaps")
            judgement.broken[id] = promises.broken_by(
                [str(message.content) for message in await session.messages()]
            )
    return judgement


async def reported(sessions: SessionManager) -> dict[str, str]:
    """Return what the store that was open all the time reports as missing, by session."""
    return {one.session: one.fault async for one in sessions.store.verify(repair=False)}
