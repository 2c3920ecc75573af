"""Windows of a session: made from the loaded path, with their decisions written to the log.

A decision is written only on the path it was made for: if another writer wrote meanwhile, the new entries are
read and the window is made again. So two workers that cut at the same time leave one cut.

The loaded path and its tallies are kept while they are useful: two budgets that alternate read nothing again.
A window over a lot of text is made in a thread, so that it does not block the event loop. Windows are made
one at a time, since all are made by the same live window.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from msgspec import structs

from ..context.cut import (
    MAX_CONVERSATION_STATE_HISTORY_LEN,
    Compaction,
    PendingCut,
    Strategy,
    capped,
    compacted,
    compaction,
)
from ..context.live_window import LiveWindow, known_counts
from ..context.policy import Budget, Policy
from ..context.summary import Refusal
from ..context.view import serving
from ..context.window import Window
from ..entry import Cut, Decision, Summary
from ..errors import Conflict, SessionError, StoreUnavailable, TurnstateError
from ..ids import utc
from ..log.fold import Loaded
from ..log.path import entries_of, load
from ..log.records import eviction
from ..stores.port import Reads
from ..stores.values import Position, SessionRow, Span
from ..threads import ENTRIES, INLINE, MESSAGE, PASSED, off_loop
from ..tokens.cost import is_ready
from ..toolspec import ToolSpec
from .summaries import SHARES, Summarizer
from .writer import SessionWriter

SPARE = 1_000
"""How many messages may be held beyond what the latest windows show before they are released."""

LATEST = 4
"""How many windows count as the latest: enough to include those of two budgets that alternate."""


class _Made(NamedTuple):
    """A window, the loaded path it was made from, and the head of the path at that time."""

    window: Window
    loaded: Loaded
    head: Position


class WindowMaker:
    """Makes the windows of one session, and keeps what the next window can be made from.

    That is the loaded path, and the live window of its messages. Other tasks may load the path anew at any
    time, so `_live_window` decides whether the live window is still that of the path.
    """

    def __init__(self, writer: SessionWriter, policy: Policy, summaries: Summarizer) -> None:
        self._writer, self._policy, self._summaries = writer, policy, summaries
        self._loaded: Loaded | None = None
        self._live: LiveWindow | None = None  # made with the first window, and after each move of the head
        self._tallied: Loaded | None = None  # the path that the tallies of the live window are made from
        self._moves = writer.moves
        self._limit: int | None = None
        self._lengths = deque[int](maxlen=LATEST)
        self._making = asyncio.Lock()
        self.unrecorded = ""  # why the decisions of the last window could not be written

    @property
    def known(self) -> Loaded | None:
        """The part of the path that is held, with everything that this handle wrote to it."""
        if self._moves != self._writer.moves:
            self._hold(None)
            self._moves, self._live = self._writer.moves, None  # no request was sent on the new path
        elif self._loaded and self._writer.written:
            written, self._writer.written = self._writer.written, []
            for receipt, entries, records, active in written:
                head = self._loaded.head
                if (receipt.branch, receipt.first) != (head.branch, head.seq + 1):
                    continue  # something was written in between: `loaded` reads both
                sizes = [(record.tokens, len(record.body)) for record in records]
                grown = [(entry, *size) for entry, size in zip(entries, sizes, strict=True)]
                at_head = records[-1].id if records else self._loaded.at_head
                self._loaded.grow(grown, Position(receipt.branch, receipt.last), at_head)
                self._loaded.active = active
        return self._loaded

    def _hold(self, loaded: Loaded | None) -> None:
        """Hold this part of the path from now on, and have the writer note what is written to it."""
        self._loaded, self._writer.written = loaded, None if loaded is None else []

    @property
    def damage(self) -> list[str]:
        """Notices about entries that could not be read, or only by a scan."""
        return self._writer.damage.notices(self._loaded.damaged if self._loaded else ())

    async def make(
        self,
        budget: Budget,
        *,
        tools: Sequence[ToolSpec],
        context: str | None,
        memory: str | None,
        dropped: tuple[str, ...] = (),
    ) -> Window:
        """Make a window, and write the decisions made for it; `dropped` are sticky files it leaves out."""
        at_cap = tuple[Decision, ...]()
        while True:
            window, loaded, head = await self._decided(budget, tools, context, memory, dropped)
            if window.decisions:
                due = tuple(one for one in window.decisions if isinstance(one, Cut) and one.asked)
                try:
                    await self.record(loaded, due or window.decisions, head)
                    self.unrecorded = ""
                except Conflict:
                    continue
                except StoreUnavailable as error:  # a full or read-only disk: reading is still possible
                    self.unrecorded = (
                        f"what a window leaves out could not be recorded: {error}; the window is complete, "
                        "and the next one decides again"
                    )
                    return window
                if due:  # written alone: cuts that are made with it have to know what it archives
                    at_cap = due
                    continue
                if window.pending_cut:
                    self._summaries.replace(window.pending_cut, self._swap)
            elif not self._making.locked():  # otherwise another thread is using the tally
                self._summaries.prepare(window)
            self._limit = window.limit
            if self._live:
                self._live.sent(window)
            self._lengths.append(len(window.messages))
            if len(loaded.messages) > 2 * max(self._lengths) + SPARE:  # however long the process lives
                self._hold(None)
            return structs.replace(window, decisions=(*at_cap, *window.decisions)) if at_cap else window

    async def preview(
        self,
        budget: Budget,
        *,
        tools: Sequence[ToolSpec],
        context: str | None,
        memory: str | None,
        dropped: tuple[str, ...] = (),
    ) -> Window:
        """Make a window without writing anything."""
        return (await self._decided(budget, tools, context, memory, dropped)).window

    async def loaded(self, budget: Budget | None = None) -> Loaded:
        """Return the path as it is now, loaded for windows under a budget if one is given."""
        if (known := self.known) is not None:
            current = await _refreshed(self._writer.log, await self._writer.refresh(), known)
            if current and (known.whole or _serves(known, budget, self._policy)):
                return known
        wanted = partial(serving, limit=budget.limit, policy=self._policy) if budget else None
        short = self._writer.row.seq <= ENTRIES
        loaded = await self._writer.read(lambda row, log: load(log, row, wanted), small=short)
        self._hold(loaded)
        self._writer.knows_model(loaded.head, loaded.fold.model)
        return loaded

    async def _decided(
        self,
        budget: Budget,
        tools: Sequence[ToolSpec],
        context: str | None,
        memory: str | None,
        dropped: tuple[str, ...],
    ) -> _Made:
        """Make a window; use the summary prepared for its cut if that is ready and fits."""

        async with self._making:
            loaded = await self.loaded(budget)
            preface = loaded.preface(tools, context, memory)
            at, decisions, live = loaded.head, list(loaded.decisions), self._live_window(loaded, budget)
            coming = self._summaries.prepared
            ready = self._ready(*coming, loaded, live) if coming else ()

            def decide() -> Window:
                window = live.window(preface, decisions, dropped=dropped)
                if window.tally.exchanges(window.view.kept) > MAX_CONVERSATION_STATE_HISTORY_LEN:
                    cut = self._capped(loaded)
                    return live.window(preface, decisions, ahead=[cut], dropped=dropped) if cut else window
                is_due = window.pending_cut or window.tokens >= self._policy.compact_at * window.limit
                if not ready or not is_due:
                    return window
                prepared = live.window(preface, decisions, ahead=ready, dropped=dropped)
                return window if prepared.pending_cut else prepared  # the prepared cut may not be enough

            return _Made(await self._made(loaded, live, decide), loaded, at)

    def _capped(self, loaded: Loaded) -> Cut | None:
        counter = self._writer.counter(loaded.fold.model)
        return capped(loaded.messages, loaded.decisions, self._policy, counter, stored=True)

    def _live_window(self, loaded: Loaded, budget: Budget) -> LiveWindow:
        """Return the live window of the loaded path under a budget; only one caller may use it at a time."""
        counter = self._writer.counter(loaded.fold.model)
        live = self._live
        if live is None:
            live = LiveWindow(counter, self._policy, stored=True, whole=loaded.whole)
        elif self._tallied is not loaded or live.counter.name != counter.name:
            live = live.restarted(counter, whole=loaded.whole)
        self._live, self._tallied = live, loaded
        return live.under(budget, loaded.decisions)

    async def _made(self, loaded: Loaded, live: LiveWindow, make: Callable[[], Window]) -> Window:
        """Add missing messages to the tally and make a window, in a thread if that takes long."""
        messages, sizes = loaded.messages[live.length :], loaded.counts[live.length :]
        others = max(0, loaded.counted_from - live.length)  # counted by another counter: count again
        counts = known_counts(messages[others:], sizes[others:], live.limits)

        def made() -> Window:
            live.grow(messages, counts)
            return make()

        unknown = 0
        if len(counts) < len(messages):
            known = {message.id for message, _ in counts}
            unknown = sum(size for one, (_, size) in zip(messages, sizes, strict=True) if one.id not in known)
        work = unknown + MESSAGE * len(messages)
        ready = live.length or is_ready(live.counter)  # after the first window, the counter is ready
        if work <= INLINE and loaded.bytes <= PASSED and ready:
            return made()
        try:
            return await off_loop(made, large=True)
        except TurnstateError:  # such as a budget that is too small: the thread has ended, the tally is sound
            raise
        except BaseException:
            # The task was canceled, or its loop stopped, but nothing stops a thread: it may still be at work
            # on the tally. The next window starts over with one of its own (`_live_window`).
            self._tallied = None
            raise

    def _ready(
        self, follows: str | None, cut: Cut, summary: Summary, loaded: Loaded, live: LiveWindow
    ) -> tuple[Decision, ...]:
        """Return a prepared cut and its summary if usable: made for about this limit and the same scale."""
        newest = loaded.cut
        if follows != (newest.id if newest else None) or cut.kept_from not in loaded.places:
            return ()
        near = self._policy.are_near(cut.limit, live.limit)
        return (cut, summary) if near and cut.scale == live.limits.scale else ()

    async def _swap(self, summary: Summary) -> None:
        """Write a model's summary, if its cut is still in force and this handle may write."""
        while True:
            try:
                loaded = await self.loaded()
                if any(isinstance(one, Cut) and one.id == summary.cut for one in loaded.fold.in_force):
                    await self.record(loaded, [summary])
                return
            except Conflict:
                continue
            except SessionError:
                return

    async def record(self, loaded: Loaded, decisions: Sequence[Decision], at: Position | None = None) -> None:
        """Write decisions that were made on a path up to `at`, or its head, if that is still the path."""
        head = at or loaded.head  # taken before any await: entries appended later were not decided on
        decisions = [loaded.fold.archiving(one) if isinstance(one, Cut) else one for one in decisions]
        cuts = [one for one in decisions if isinstance(one, Cut)]
        writer, now = self._writer, self._writer.clock()
        parcels = [
            parcel
            for one in cuts
            for parcel in eviction(loaded.fold, one, writer.at, epoch=writer.epoch, after=head, due=now)
        ]
        records = await self._writer.records(decisions, large=False)  # they hold no long text
        receipt = await self._writer.commit(records=records, expected_head=head, parcels=parcels)
        self._writer.wrote(receipt, decisions, records)

    # Compaction on request: the cut is planned on what is shown now, a model is asked if there is one, and
    # then cut and summary are written together. Messages that arrive meanwhile stay after the cut. Without a
    # model, or if it fails, the digest replaces what was cut: compaction never depends on a model.

    async def compact(
        self,
        budget: Budget | None,
        strategy: Strategy,
        focus: str | None,
        *,
        model: bool,
        patience: float | None,
    ) -> Compaction:
        """Compact the conversation and return the outcome.

        If another process meanwhile cut the conversation, reset the session or took the lease, nothing is
        written, and the error says so.
        """
        budget = await self._last_budget(budget)
        loaded, plan = await self._compaction(budget, strategy, focus)
        base, summary, refused = loaded.cut, None, ""
        if model and self._summaries.model:
            answer = await self._summaries.ask(plan, strategy=strategy, tries=len(SHARES), patience=patience)
            summary, refused = (None, answer.text) if isinstance(answer, Refusal) else (answer, "")
        while True:
            loaded = await self.loaded(budget)  # others may have written while the model worked
            if loaded.cut != base or not _is_there(plan.cut, loaded):
                raise Conflict(
                    "another process cut this conversation meanwhile; nothing was compacted, try again",
                    version=self._writer.row.version,
                    head=loaded.head,
                )
            outcome, decisions = await self._compacted(loaded, budget, plan, summary, refused)
            try:
                await self.record(loaded, decisions)
            except Conflict:
                continue
            return structs.replace(outcome, time=utc(self._writer.clock()))

    async def preview_compact(self, budget: Budget | None, strategy: Strategy) -> Compaction:
        """Return the outcome that a compaction without a model would have; write nothing and ask no model."""
        budget = await self._last_budget(budget)
        loaded, plan = await self._compaction(budget, strategy, None)
        return (await self._compacted(loaded, budget, plan, None, ""))[0]

    async def _last_budget(self, given: Budget | None) -> Budget:
        """Return the given budget, or the one that the session was last used with."""
        if given is not None:
            return given
        limit = self._limit
        if limit is None:
            cut = (await self.loaded()).cut
            limit = cut.limit if cut else 0
        return Budget(limit) if limit else Budget.UNLIMITED

    async def _compaction(
        self, budget: Budget, strategy: Strategy, focus: str | None
    ) -> tuple[Loaded, PendingCut]:
        """Plan a compaction of what is shown now; return the plan and the path it is made from."""
        async with self._making:
            loaded = await self.loaded(budget)
            window = await self._shown(loaded, budget, ())
        plan = compaction(window, self._policy, strategy, focus=focus)
        if plan is None:
            exchanges = f"{strategy.keep} exchange{'s' * (strategy.keep != 1)}"
            raise SessionError(
                f"there is nothing to compact: the conversation has only the {exchanges} that "
                "compaction keeps, or fewer"
            )
        return loaded, plan

    async def _compacted(
        self, loaded: Loaded, budget: Budget, plan: PendingCut, summary: Summary | None, refused: str
    ) -> tuple[Compaction, tuple[Decision, ...]]:
        """Return the outcome of a compaction, measured by the resulting window, and its decisions."""
        plan = structs.replace(plan, cut=loaded.fold.archiving(plan.cut))
        async with self._making:
            after = await self._shown(loaded, budget, [plan.cut, *([summary] if summary else [])])
        return compacted(plan, summary, after.tokens, refused=refused)

    async def _shown(self, loaded: Loaded, budget: Budget, more: Sequence[Decision]) -> Window:
        """Make the window that results from the recorded decisions and `more`, whether it fits or not."""
        live = self._live_window(loaded, budget)
        preface, decisions = loaded.preface((), None, None), [*loaded.decisions, *more]
        return await self._made(loaded, live, lambda: live.shown(preface, decisions))


def _is_there(cut: Cut, loaded: Loaded) -> bool:
    """Return True if what a cut keeps is still on the path.

    The last message that it covers counts only if nothing after it is kept: it may be an answer that windows
    add to a call without one, and that no log has.
    """
    ids = [cut.kept_from or cut.covers[1], *cut.pinned]
    return all(loaded.fold.place_of(id) is not None for id in ids)


def _serves(loaded: Loaded, budget: Budget | None, policy: Policy) -> bool:
    """Return True if a part has all that a window may need; without a budget, all from the newest cut on."""
    if budget is None:
        return loaded.cut is not None and loaded.holds(loaded.cut)
    cuts = serving(loaded.fold.in_force, budget.limit, policy)
    return bool(cuts) and all(map(loaded.holds, cuts))


async def _refreshed(log: Reads, row: SessionRow, loaded: Loaded) -> bool:
    """Fold in newer entries; return False if the path has to be loaded again."""
    if row.branch != loaded.head.branch or row.seq < loaded.head.seq:
        return False
    if row.seq > loaded.head.seq or row.active != loaded.active:
        head, id = loaded.head, loaded.at_head  # read it again: a store may have lost it and continued
        rows = await log.read(row.address, Span(row.branch, head.seq, row.seq))
        if rows and rows[0].seq == head.seq and id not in ("", rows[0].id) and not rows[0].damaged:
            return False
        if any(one.kind == "revert" for one in rows):
            return False  # the cut that is in force again may be before the loaded part
        for one, entry in zip(rows, await entries_of(rows), strict=True):
            if one.seq > loaded.head.seq:  # this handle may have written some of them meanwhile
                loaded.add(one, entry)
        loaded.active = row.active
    return True
