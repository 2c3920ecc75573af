"""Windows of a session: made from what is loaded, with their decisions written into the log.

A decision is written only on the path it was made for: where somebody wrote meanwhile, what is new is
read and the window is made again. So two workers that cut at once leave one cut.

A window over much text is made in a thread, so that the loop goes on. One is made at a time: the tally is
taken out of what is loaded and put back afterwards.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ..context.head import Head
from ..context.manager import StateManager
from ..context.policy import Budget
from ..context.tally import Tally
from ..context.window import Window
from ..entry import Cut, Decision, Entry, Revert, Summary
from ..errors import Conflict, SessionError, TurnstateError
from ..log.outbox import Eviction
from ..stores.values import Parcel, Position, Receipt, Record
from ..tokens.exact import off_loop
from ..toolspec import ToolSpec
from .loaded import Loaded, Settings, load, refreshed
from .summaries import Summarizer
from .writer import SessionWriter

__all__ = ["WindowMaker"]

SPARE = 1_000
"""Messages that may be held beyond what the window shows, before they are let go."""


class _Made(NamedTuple):
    """A window, and the head of the path that it was made of."""

    window: Window
    head: Position


class WindowMaker:
    """Makes the windows of one session, and keeps what the next one can be made from."""

    def __init__(self, scribe: SessionWriter, manager: StateManager, summaries: Summarizer | None) -> None:
        self._scribe, self._manager, self._summaries = scribe, manager, summaries
        self._loaded: Loaded | None = None
        self._previous: Window | None = None
        self._making = asyncio.Lock()

    @property
    def known(self) -> Loaded | None:
        """What is held of the path as it was last seen."""
        return self._loaded

    @property
    def damage(self) -> list[str]:
        """What is to be told of entries that could not be read, or only by a scan."""
        return self._scribe.damage.notices(self._loaded.damaged if self._loaded else ())

    async def make(
        self, budget: Budget, *, tools: Sequence[ToolSpec], context: str | None, memory: str | None
    ) -> Window:
        """Make a window, and write down what had to be decided for it."""
        while True:
            loaded = await self.loaded(budget)
            made = await self._decided(loaded, budget, loaded.message_head(tools, context, memory))
            window = made.window
            if window.decisions:
                try:
                    await self.record(loaded, window.decisions, made.head)
                except Conflict:
                    continue
                if self._summaries and window.pending_cut:
                    self._summaries.replace(window.pending_cut, self._swap)
            elif self._summaries and not self._making.locked():  # else another thread has the tally
                self._summaries.prepare(window)
            self._previous = window
            self._let_go(loaded, window)
            return window

    async def preview(
        self, budget: Budget, *, tools: Sequence[ToolSpec], context: str | None, memory: str | None
    ) -> Window:
        """Make a window, and write nothing."""
        loaded = await self.loaded(budget)
        return (await self._decided(loaded, budget, loaded.message_head(tools, context, memory))).window

    @property
    def version(self) -> int:
        """The version of the session as last seen."""
        return self._scribe.row.version

    @property
    def limit(self) -> int | None:
        """The limit of the window that was made last."""
        return self._previous.limit if self._previous else None

    async def shown(self, budget: Budget) -> tuple[Loaded, Window]:
        """Make the window that shows what is decided already, fitting or not, and say what it is made of."""
        loaded = await self.loaded(budget)
        return loaded, await self.showing(loaded, budget, ())

    async def showing(self, loaded: Loaded, budget: Budget, more: Sequence[Decision]) -> Window:
        """Make the window that some more decisions would lead to, with no tools and no data before it."""

        def show(tally: Tally) -> Window:
            return self._manager.shown(tally, budget, head=head, decisions=decisions)

        async with self._making:
            head, decisions = loaded.message_head((), None, None), [*loaded.decisions, *more]
            return await self._made(loaded, budget, show)

    async def loaded(self, budget: Budget | None = None) -> Loaded:
        """Give the path as it is now: for a budget, or for whoever needs no window."""
        row = await self._scribe.refresh()
        known, settings = self._loaded, self._settings(budget)
        if known is not None and _serves(known, settings) and await refreshed(self._scribe.log, row, known):
            return known
        self._loaded = await load(self._scribe.log, row, settings)
        return self._loaded

    def grow(self, receipt: Receipt, entries: Sequence[Entry], records: Sequence[Record]) -> None:
        """Take in what was just written, if nothing was written between."""
        known = self._loaded
        if known is None or receipt.repeated or receipt.branch != known.head.branch:
            return
        if any(isinstance(entry, Revert) for entry in entries):
            self.forget()  # what holds again may not be loaded
            return
        if receipt.first == known.head.seq + 1:
            sizes = [(record.tokens, len(record.body)) for record in records]
            grown = [(entry, *size) for entry, size in zip(entries, sizes, strict=True)]
            known.grow(grown, receipt.head, records[-1].id if records else known.at_head)

    def forget(self) -> None:
        """Load anew the next time: the head is elsewhere."""
        self._loaded = self._previous = None

    async def _decided(self, loaded: Loaded, budget: Budget, head: Head) -> _Made:
        """Make a window, with the summary that was prepared for its cut if that is ready and fits."""

        def window(tally: Tally, more: Sequence[Decision] = ()) -> Window:
            known = [*decisions, *more]
            return self._manager.window(tally, budget, head=head, decisions=known, previous=previous)

        def decide(tally: Tally) -> Window:
            plain = window(tally)
            due = plain.tokens >= self._manager.policy.compact * plain.limit or _has_cut(plain.decisions)
            if not ready or not due:
                return plain
            prepared = window(tally, ready)
            if _has_cut(prepared.decisions):  # it has become too little
                return plain
            prepared.decisions = (*ready, *prepared.decisions)
            return prepared

        async with self._making:
            at, decisions, previous = loaded.head, list(loaded.decisions), self._previous
            ready = self._ready(loaded, budget)
            return _Made(await self._made(loaded, budget, decide), at)

    async def _made(self, loaded: Loaded, budget: Budget, make: Callable[[Tally], Window]) -> Window:
        """Make a window of the tally, which nobody else has meanwhile; in a thread if that takes long."""
        growth = loaded.growth(self._manager, budget)

        def made() -> tuple[Tally, Window | TurnstateError]:
            tally = growth.grown()
            try:
                return tally, make(tally)
            except TurnstateError as error:  # the tally is sound, and is kept
                return tally, error

        tally, outcome = await off_loop(made, large=growth.is_large)
        loaded.keep(tally)
        if isinstance(outcome, TurnstateError):
            raise outcome
        return outcome

    def _ready(self, loaded: Loaded, budget: Budget) -> tuple[Decision, ...]:
        """Give the cut that was prepared, with its summary, where it may be used."""
        ready = self._summaries.prepared(loaded.cut) if self._summaries else None
        return ready if ready is not None and self._may_use(ready[0], loaded, budget) else ()

    def _may_use(self, ready: Cut, loaded: Loaded, budget: Budget) -> bool:
        settings = self._settings(budget)
        return settings is not None and settings.fit(ready) and ready.kept_from in loaded.places

    async def _swap(self, summary: Summary) -> None:
        """Write a model's summary, if its cut is still the newest and this handle may write."""
        while True:
            try:
                loaded = await self.loaded()
                if loaded.cut is not None and loaded.cut.id == summary.cut:
                    await self.record(loaded, [summary])
                return
            except Conflict:
                continue
            except SessionError:
                return

    async def record(self, loaded: Loaded, decisions: Sequence[Decision], at: Position | None = None) -> None:
        """Write decisions that were made on a path, if it is still the path: up to `at`, or to its head."""
        head = at or loaded.head  # before anything is awaited: what is appended meanwhile was not decided on
        cuts = (one for one in decisions if isinstance(one, Cut))
        parcels = [self._parcel(loaded, one) for one in cuts if one.asked.get("operation") != "clear"]
        records = await self._scribe.records(decisions)
        receipt = await self._scribe.commit(records=records, expected_head=head, parcels=parcels)
        self.grow(receipt, decisions, records)

    def _parcel(self, loaded: Loaded, cut: Cut) -> Parcel:
        """Say which messages leave with a cut: those from the last cut on."""
        (first, last), head = loaded.fold.evicted(cut), loaded.head
        eviction = Eviction(
            epoch=self._scribe.epoch,
            branch=head.branch,
            seq=head.seq,
            cut=cut.id,
            first=first,
            last=last,
            summary=cut.summary,
        )
        return eviction.parcel(self._scribe.at, due=self._scribe.clock())

    def _settings(self, budget: Budget | None) -> Settings | None:
        if budget is None:
            return None
        return Settings(budget.limit, self._manager.policy.fingerprint, self._manager.counter.name)

    def _let_go(self, loaded: Loaded, window: Window) -> None:
        """Hold no more than a window needs, however long the process lives."""
        if len(loaded.messages) > 2 * len(window.messages) + SPARE:
            self._loaded = None


def _serves(loaded: Loaded, settings: Settings | None) -> bool:
    if loaded.whole or settings is None:
        return True
    cut = loaded.cut
    return cut is not None and settings.fit(cut)


def _has_cut(decisions: Sequence[Decision]) -> bool:
    return any(isinstance(one, Cut) for one in decisions)
