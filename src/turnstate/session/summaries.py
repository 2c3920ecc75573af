"""Summaries by a model, in the background: prepared before a cut, or put in its digest's place after.

One request is under way at a time. What comes of it is used only if it still fits: the same cut is
the newest, the same epoch runs. A model that fails three times in a row is left alone, and the user
is told; the digests stand meanwhile, and the history is never touched.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from msgspec import Struct

from ..context.foresight import Foreseen, foreseen
from ..context.manager import StateManager
from ..context.summary import Failures, Refusal
from ..context.window import Window
from ..decision import Cut, Summary
from ..message import Message
from ..models import Model
from .asking import PATIENCE, Asked, ask, rooms

__all__ = ["Prepared", "Summaries"]

Spawn = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]


class Prepared(Struct, frozen=True):
    """A cut that is ready, with a model's summary of it, and the cut that it follows."""

    cut: Cut
    summary: Summary
    follows: str | None


class Summaries:
    """Asks a model to summarise, for one session."""

    def __init__(self, model: Model, manager: StateManager, spawn: Spawn) -> None:
        self._model, self._manager, self._spawn = model, manager, spawn
        self._task: asyncio.Task[None] | None = None
        self._prepared: Prepared | None = None
        self.failures = Failures()

    def prepared(self, follows: Cut | None) -> tuple[Cut, Summary] | None:
        """Give the cut that was prepared and its summary, if it follows the one that is newest now."""
        ready = self._prepared
        if ready is None or ready.follows != (follows.id if follows else None):
            return None
        return ready.cut, ready.summary

    def prepare(self, window: Window) -> None:
        """Begin with the summary of the coming cut, where a window is nearly full."""
        if window.tokens < self._manager.policy.warn * window.limit or not self._may_ask():
            return
        follows = window.view.cut.id if window.view.cut else None
        if self._prepared and self._prepared.follows == follows:
            return
        coming = foreseen(window, self._manager.policy)
        if coming is not None and self._has_room(coming.cut):
            self._task = self._spawn(self._prepare(coming, follows))

    def replace(
        self,
        cut: Cut,
        evicted: Sequence[Message],
        previous: str,
        swap: Callable[[Summary], Awaitable[None]],
    ) -> None:
        """Begin with a summary that takes the place of a cut's digest; `swap` writes it if it still fits."""
        if evicted and self._may_ask() and self._has_room(cut):
            self._task = self._spawn(self._replace(cut, evicted, previous, swap))

    def _has_room(self, cut: Cut) -> bool:
        """Tell whether a cut leaves room for more than to say that something was cut."""
        return cut.cap >= self._manager.policy.summary_least

    def _may_ask(self) -> bool:
        return self.failures.may_try and (self._task is None or self._task.done())

    async def _prepare(self, coming: Foreseen, follows: str | None) -> None:
        asked = Asked(cut=coming.cut, evicted=coming.evicted, previous=coming.previous)
        summary = await self.ask(asked)
        if isinstance(summary, Summary):
            self._prepared = Prepared(coming.cut, summary, follows)

    async def _replace(
        self,
        cut: Cut,
        evicted: Sequence[Message],
        previous: str,
        swap: Callable[[Summary], Awaitable[None]],
    ) -> None:
        summary = await self.ask(Asked(cut=cut, evicted=evicted, previous=previous))
        if isinstance(summary, Summary):
            await swap(summary)

    async def ask(self, asked: Asked, *, tries: int = 1, patience: float | None = None) -> Summary | Refusal:
        """Ask for a summary; after an error, which a long request may cause, again with less of the record.

        All tries together take at most `patience` seconds. A failure is counted once, however often it
        was tried.
        """
        outcome: Summary | Refusal = Refusal("error", self.failures.notice or "the model was not asked")
        if not self.failures.may_try:
            return outcome
        patience = PATIENCE if patience is None else patience
        until = time.monotonic() + patience
        for room in rooms(self._model)[:tries]:
            left = max(0.0, until - time.monotonic())
            outcome = await ask(self._model, asked, self._manager, room=room, patience=left)
            if isinstance(outcome, Summary):
                self.failures = self.failures.succeeded()
                return outcome
            if outcome.reason == "late":
                outcome = Refusal("late", f"the model gave no summary within {patience:g} seconds")
            if outcome.reason != "error":
                break
        if isinstance(outcome, Refusal):
            self.failures = self.failures.failed(outcome)
        return outcome
