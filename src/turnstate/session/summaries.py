"""Summaries by a model, in the background: prepared before a cut, or replacing its digest afterwards.

One request is in progress at a time. Its result is used only if it still fits: the same cut is the
newest, and the epoch has not ended. A model that fails three times in a row is no longer asked, and the
user gets a notice; digests are used instead, and the history is never changed.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from ..catalog import model as model_named
from ..context.cut import DEFAULT_STRATEGY, PendingCut, Strategy, foreseen
from ..context.policy import Policy
from ..context.summary import Failures, Refusal, accepted, facts_of, text_cap
from ..context.summary_prompt import EXCERPT_CHARS, SummaryRequest, request
from ..context.window import Window
from ..entry import SUMMARY, Cut, Summary, Usage
from ..models import Model, ModelRequest, UsageReported, complete
from ..tokens import conversation_cost
from ..tokens import counter as counter_named

# Asking a model for a summary: what it is shown, how long it may take, and what is accepted from it.


PATIENCE = 120.0
"""Maximum seconds that a model may take, including all tries; by then the conversation has moved on."""

CHARS_PER_TOKEN = 2
"""Assumed for the record: half of what English has, since code and other languages have fewer."""

SHARES = (1, 4, 16)

Spent = Callable[[Usage], Awaitable[None]]


def rooms(model: Model) -> tuple[int, ...]:
    """Return how many characters of the record a model is shown on the first try and on later ones."""
    window = model_named(model.name).context_window
    most = min(EXCERPT_CHARS, window * CHARS_PER_TOKEN)
    return tuple(most // share for share in SHARES)


async def ask(
    model: Model,
    pending: PendingCut,
    policy: Policy,
    *,
    strategy: Strategy,
    room: int,
    patience: float,
    spent: Spent | None = None,
) -> Summary | Refusal:
    """Ask once for the summary of a pending cut; return a refusal with the reason if there is none.

    `spent` is called with the usage that the provider reported, even if the answer is refused.
    """
    cut, focus = pending.cut, pending.cut.asked.get("focus")
    counter, cap = counter_named(cut.counter), text_cap(cut, policy)
    facts = facts_of(cut, counter, policy)
    left = cap - counter.count(facts).tokens
    wanted = request(
        pending.evicted,
        pending.previous_summary,
        cap=left,
        focus=focus,
        facts=cut.summary,
        room=room,
        longest=strategy.longest if strategy.truncate else room,
    )
    question = ModelRequest(messages=wanted.messages, max_output=2 * left)
    try:
        answer = await complete(model, question, patience=patience)
    except TimeoutError:
        return Refusal("late", "the model gave no summary in time")
    except Exception as error:  # a model's adapter may raise anything; the session must continue
        return Refusal("error", f"{type(error).__name__}: {error}"[:200])
    if answer.usage and spent:
        await spent(_usage(answer.usage, model.name, cut))
    if answer.reason == "length":
        return Refusal("cut-off", f"the summary was cut off by its length limit of {2 * left:,} tokens")
    text = accepted(
        answer.message.text,
        wanted,
        counter=counter,
        replaced_tokens=conversation_cost(pending.evicted, counter).tokens,
        template=policy.summary_template,
        facts=facts,
        cap=cap,
    )
    if isinstance(text, Refusal):
        return text
    source = {"model": model.name, "prompt": _digest(wanted), **({"focus": focus} if focus else {})}
    return Summary(cut=cut.id, text=text, facts=facts, source=source)


def _usage(reported: UsageReported, model: str, cut: Cut) -> Usage:
    details = {**reported.details, "purpose": SUMMARY, "cut": cut.id}
    return Usage(
        input=reported.input,
        output=reported.output,
        cached=reported.cached,
        model=reported.model or model,
        details=details,
    )


def _digest(request: SummaryRequest) -> str:
    """Return a digest of a request; the log determines it, so it can be computed again and compared."""
    return hashlib.sha256(f"{request.system}\0{request.user}".encode()).hexdigest()


Spawn = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]


class Summarizer:
    """Asks a model to summarize, for one session; without a model it asks nobody."""

    def __init__(self, model: Model | None, policy: Policy, spawn: Spawn) -> None:
        self.model, self._policy, self._spawn = model, policy, spawn
        self._task: asyncio.Task[None] | None = None
        self.prepared: tuple[str | None, Cut, Summary] | None = None
        """The id of the cut in force, if there is one; the cut that may follow it, and its summary."""
        self.failures = Failures()
        self.spent: Spent | None = None  # writes the usage of each request into the log

    def prepare(self, window: Window) -> None:
        """Start the summary of the coming cut if a window is nearly full."""
        if window.tokens < self._policy.warn_at * window.limit or not self._may_ask():
            return
        follows = next((one.id for one in reversed(window.applied) if isinstance(one, Cut)), None)
        if self.prepared and self.prepared[0] == follows:
            return
        coming = foreseen(window, self._policy)
        if coming is not None and self._has_room(coming.cut):
            self._task = self._spawn(self._prepare(coming, follows))

    def replace(self, pending: PendingCut, swap: Callable[[Summary], Awaitable[None]]) -> None:
        """Start a summary that replaces a cut's digest; `swap` writes it if it still fits."""
        if pending.evicted and self._may_ask() and self._has_room(pending.cut):
            self._task = self._spawn(self._replace(pending, swap))

    def _has_room(self, cut: Cut) -> bool:
        """Return True if a cut leaves room for a useful summary."""
        return cut.cap >= self._policy.summary_least

    def _may_ask(self) -> bool:
        is_free = self._task is None or self._task.done()
        return self.model is not None and self.failures.may_try and is_free

    async def _prepare(self, pending: PendingCut, follows: str | None) -> None:
        summary = await self.ask(pending)
        if isinstance(summary, Summary):
            self.prepared = (follows, pending.cut, summary)

    async def _replace(self, pending: PendingCut, swap: Callable[[Summary], Awaitable[None]]) -> None:
        summary = await self.ask(pending)
        if isinstance(summary, Summary):
            await swap(summary)

    async def ask(
        self,
        pending: PendingCut,
        *,
        strategy: Strategy = DEFAULT_STRATEGY,
        tries: int = 1,
        patience: float | None = None,
    ) -> Summary | Refusal:
        """Ask for a summary; after an error, which a long request may cause, retry with less of the record.

        All tries together take at most `patience` seconds. A failure is counted once, no matter how many
        tries there were.
        """
        outcome: Summary | Refusal = Refusal("error", self.failures.notice or "the model was not asked")
        model = self.model  # for all tries, even if another one is chosen meanwhile
        if model is None or not self.failures.may_try:
            return outcome
        patience = PATIENCE if patience is None else patience
        until = time.monotonic() + patience
        for room in rooms(model)[:tries]:
            left = max(0.0, until - time.monotonic())
            outcome = await ask(
                model,
                pending,
                self._policy,
                strategy=strategy,
                room=room,
                patience=left,
                spent=self.spent,
            )
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


# Background work that ends with its owner and whose errors are not lost.


_log = logging.getLogger("turnstate.session")


class Background:
    """Background tasks, which are awaited only at the end."""

    def __init__(self) -> None:
        self._tasks = set[asyncio.Task[None]]()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def settled(self) -> None:
        """Wait until no task is running."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def cancel(self) -> None:
        """Cancel all running tasks and wait until they end."""
        for task in self._tasks:
            task.cancel()
        await self.settled()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            _log.warning("work in the background failed: %s: %s", type(error).__name__, error)
