"""Compacts a session on request: a preview, a model's summary or the digest, one write.

The cut is planned on what is shown now, a model is asked if there is one, and then cut and summary are
written together. Messages that came meanwhile stay after the cut. If another process cut meanwhile, reset
the session or took the lease, nothing is written, and the error says so. Without a model, or with one that
fails, the digest replaces what left: compaction never depends on a model.
"""

from __future__ import annotations

from msgspec import structs

from ..context.cut import Compaction, PendingCut, Strategy, compacted, compaction
from ..context.policy import Budget, Policy
from ..context.summary import Refusal
from ..entry import Cut, Decision, Summary
from ..errors import Conflict, SessionError
from ..ids import utc
from ..log.fold import Loaded
from .summaries import SHARES, Summarizer
from .windows import WindowMaker

__all__ = ["Compaction", "Compactor"]


class Compactor:
    """Compacts one session."""

    def __init__(self, windows: WindowMaker, policy: Policy, summaries: Summarizer | None) -> None:
        self._windows, self._policy, self._summaries = windows, policy, summaries

    async def preview(self, budget: Budget | None, strategy: Strategy) -> Compaction:
        """Return what a compaction without a model would come to; write nothing and ask no model."""
        budget = await self._budget(budget)
        loaded, plan = await self._plan(budget, strategy, None)
        return (await self._outcome(loaded, budget, plan, None, ""))[0]

    async def compact(
        self,
        budget: Budget | None,
        strategy: Strategy,
        focus: str | None,
        *,
        model: bool,
        patience: float | None,
    ) -> Compaction:
        """Compact, and return what it came to."""
        budget = await self._budget(budget)
        loaded, plan = await self._plan(budget, strategy, focus)
        base, summary, refused = loaded.cut, None, ""
        if model and self._summaries:
            answer = await self._summaries.ask(plan, strategy=strategy, tries=len(SHARES), patience=patience)
            summary, refused = (None, answer.text) if isinstance(answer, Refusal) else (answer, "")
        while True:
            loaded = await self._windows.loaded(budget)  # a model takes its time, and others go on
            if loaded.cut != base or not _is_there(plan.cut, loaded):
                raise Conflict(
                    "another process cut this conversation meanwhile; nothing was compacted, try again",
                    version=self._windows.version,
                    head=loaded.head,
                )
            outcome, decisions = await self._outcome(loaded, budget, plan, summary, refused)
            try:
                await self._windows.record(loaded, decisions)
            except Conflict:
                continue
            return structs.replace(outcome, time=utc(self._windows.clock()))

    async def _budget(self, given: Budget | None) -> Budget:
        """Return the given budget, or the one that the session was used with last."""
        if given is not None:
            return given
        limit = self._windows.limit
        if limit is None:
            cut = (await self._windows.loaded()).cut
            limit = cut.limit if cut else 0
        return Budget(limit) if limit else Budget.UNLIMITED

    async def _plan(self, budget: Budget, strategy: Strategy, focus: str | None) -> tuple[Loaded, PendingCut]:
        loaded, window = await self._windows.shown(budget)
        plan = compaction(window, self._policy, strategy, focus=focus)
        if plan is None:
            raise SessionError(
                f"there is nothing to compact: the conversation has no more than the {strategy.keep} "
                "exchanges that are to be kept"
            )
        return loaded, plan

    async def _outcome(
        self, loaded: Loaded, budget: Budget, plan: PendingCut, summary: Summary | None, refused: str
    ) -> tuple[Compaction, tuple[Decision, ...]]:
        plan = structs.replace(plan, cut=loaded.fold.archiving(plan.cut))
        made: list[Decision] = [plan.cut, *([summary] if summary else [])]
        after = await self._windows.showing(loaded, budget, made)
        return compacted(plan, summary, after.tokens, refused=refused)


def _is_there(cut: Cut, loaded: Loaded) -> bool:
    """Return True if what a cut keeps is still on the path."""
    ids = [*([cut.kept_from] if cut.kept_from else []), *cut.pinned, cut.covers[1]]
    return all(id in loaded.places for id in ids)
