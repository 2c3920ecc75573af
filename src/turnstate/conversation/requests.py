"""Requests: the window of a conversation that is to be sent next, made anew only where something changed.

Messages go in with the tool names that exist now. The tally grows with the conversation; another
strand, budget or set of tools begins a new one.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..context.head import Head
from ..context.manager import StateManager
from ..context.policy import Budget
from ..context.tally import Tally
from ..context.window import Window
from ..entry import Decision
from ..toolspec import ToolSpec
from .timeline import Timeline
from .tools import repaired

__all__ = ["Requests"]


class Requests:
    """Makes the windows of one conversation."""

    def __init__(self) -> None:
        self._made_for: tuple[object, ...] = ()
        self._tally: Tally | None = None
        self._previous: Window | None = None

    def make(
        self,
        strand: Timeline,
        manager: StateManager,
        budget: Budget,
        *,
        context: str | None,
        tools: Sequence[ToolSpec],
        more: Sequence[Decision] = (),
    ) -> Window:
        """Make the window of a strand; `more` are decisions that are looked at and not taken yet."""
        tally = self._grown(strand, manager, budget, frozenset(spec.name for spec in tools))
        head = Head(
            system=strand.fold.prompt, bootstrap=strand.fold.bootstrap, context=context, tools=tuple(tools)
        )
        decisions = [*strand.decisions, *more]
        window = manager.window(tally, budget, head=head, decisions=decisions, previous=self._previous)
        if not more:
            self._previous = window
        return window

    def shown(
        self, strand: Timeline, manager: StateManager, budget: Budget, *, tools: Sequence[ToolSpec]
    ) -> Window:
        """Make the window of a strand under what is decided already, whether it fits or not."""
        tally = self._grown(strand, manager, budget, frozenset(spec.name for spec in tools))
        head = Head(system=strand.fold.prompt, bootstrap=strand.fold.bootstrap, tools=tuple(tools))
        return manager.shown(tally, budget, head=head, decisions=strand.decisions)

    def _grown(self, strand: Timeline, manager: StateManager, budget: Budget, names: frozenset[str]) -> Tally:
        stored = _is_stored(strand)
        wanted = (strand, budget.limit, manager.counter.name, manager.policy.fingerprint, names, stored)
        messages = strand.messages
        if self._tally is None or self._made_for != wanted or self._tally.length > len(messages):
            self._made_for, self._previous = wanted, None
            known = (repaired(message, names) for message in messages)
            self._tally = manager.tally(known, budget, stored=stored)
        for message in messages[self._tally.length :]:
            self._tally.add(repaired(message, names))
        return self._tally


def _is_stored(strand: Timeline) -> bool:
    """Return True if a log holds the timeline, or will: then whole outputs can be found there."""
    while not strand.recorded and strand.source is not None:
        strand = strand.source
    return strand.recorded
