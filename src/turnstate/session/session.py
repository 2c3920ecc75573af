"""A session: the handle of one conversation, from any process, on any store.

It holds nothing that the store does not hold. In memory it keeps the part of the log that windows are
made from, and it checks the store before it trusts that part. Any number of handles may be open on one
session; a lease makes one of them the only writer. A handle belongs to one epoch: after a reset by any
process it raises `EpochEnded`, and the handle that `reset` returned continues.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path
from typing import Any

from msgspec import structs

from .. import catalog, telemetry
from ..catalog import ModelInfo
from ..context.cut import DEFAULT_STRATEGY, Compaction, Strategy
from ..context.manager import StateManager
from ..context.policy import Budget, Policy, check_budget
from ..context.preface import check_tools
from ..context.snapshot import ContextSnapshot
from ..context.window import Window
from ..conversation import ConversationState, Os
from ..entry import Entry, Prompt, Usage
from ..errors import Conflict, InputError, SessionError
from ..memory.port import Recollection
from ..message import Message
from ..models import Model
from ..snapshots.content import to_snapshot
from ..snapshots.writer import SnapshotWriter
from ..sticky import Gathered
from ..stores.port import GivesNotices, ReportsLosses
from ..stores.values import Fork, Lease, Receipt, SessionRow
from ..toolspec import ToolSpec
from ..value import check_kind, check_number, check_whole
from . import leases
from .append import append, interrupted, write
from .branching import begin_epoch, end_of, place_of, undo, undo_restore
from .commit import StateCommit
from .conversation import catch_up, load
from .info import Branch
from .memory import UserMemory
from .names import (
    checked,
    checked_meta,
    checked_prompt,
    checked_tags,
    model_change,
)
from .reader import SessionReader
from .state import State
from .summaries import Summarizer
from .turn import Pending, Turn, pending
from .windows import WindowMaker
from .writer import SessionWriter


class Session(SessionReader):
    """One conversation."""

    def __init__(
        self,
        writer: SessionWriter,
        policy: Policy,
        *,
        reopened: Callable[[SessionRow], Session],
        summaries: Summarizer,
    ) -> None:
        super().__init__(writer)
        self._policy, self._summaries = policy, summaries
        self._reopened = reopened
        self._keeper: SnapshotWriter | None = None
        self._memory: UserMemory | None = None
        self._files: tuple[Path, ...] = ()  # of its manager on this machine, including checkpoints
        self._windows = WindowMaker(writer, policy, summaries)
        summaries.spent = self._spent
        self._committing = asyncio.Lock()
        self.state = State(self._log, self._log)
        """Named values that programs keep with the conversation; no model reads them."""

    @property
    def notices(self) -> tuple[str, ...]:
        """Problems to show to the user: damage, losses, files that others change, what keeps failing."""
        model = self._summaries.failures.notice
        disk = self._keeper.failure if self._keeper else ""
        store, lost = self._writer.store, ""
        if isinstance(store, ReportsLosses) and (found := store.lost(self._writer.at)):
            lost = f"the store lost acknowledged data: {found}; send the missing messages again"
        files = store.notices if isinstance(store, GivesNotices) else ()
        memory = self._memory.notice if self._memory else ""
        notices = (*self._windows.damage, lost, *files, self._windows.unrecorded, model, disk, memory)
        return tuple(notice for notice in notices if notice)

    @property
    def has_memory(self) -> bool:
        """True if there is a long-term memory for `recall` and `remember`."""
        return self._memory is not None

    async def append(
        self, *messages: Message, expected_version: int | None = None, key: str | None = None
    ) -> Receipt:
        """Add messages, all of them or none, and return once they are as durable as the store promises."""
        receipt = await append(
            self._writer, self._windows, messages, expected_version=expected_version, key=key
        )
        if self._keeper:
            self._keeper.appended(messages[-1])
        return receipt

    def turn(
        self,
        words: str | Message | None = None,
        *,
        budget: Budget,
        tools: Sequence[ToolSpec] = (),
        context: str | None = None,
        memory: str | None = None,
        lease: bool = False,
        key: str | None = None,
    ) -> Turn:
        """Begin a turn with the user's words, or continue the pending one: ``async with session.turn(…)``.

        If another writer intervenes, the next step raises `Conflict`; `lease` keeps others out while the
        block runs. Words already saved under the same `key` are not saved again, and the turn continues.
        """
        return Turn(
            self,
            self._writer,
            words,
            budget=budget,
            tools=tools,
            context=context,
            memory=memory,
            lease=lease,
            key=key,
        )

    async def pending(self) -> Pending | None:
        """Return what is unfinished: a prompt, calls, or a paused reply; None if nothing is."""
        await self._windows.loaded()
        return self._pending()

    def _pending(self) -> Pending | None:
        """Return what is unfinished as far as this handle has seen."""
        known = self._windows.known
        if known is None:
            return None
        fold = known.fold
        return pending(known.messages, fold.started, paused=fold.paused, ended_early=fold.ended_early)

    async def _calibrations(self) -> tuple[Mapping[str, Any], str]:
        """Return the calibrations learned from reported usage, by model, and the counter, as last seen."""
        fold = (self._windows.known or await self._windows.loaded()).fold
        return fold.calibration, self._writer.counter(fold.model).name

    async def _write(self, entries: Sequence[Entry]) -> Receipt:
        return await write(self._writer, entries)

    async def window(
        self,
        budget: Budget,
        *,
        tools: Sequence[ToolSpec] = (),
        context: str | Gathered | None = None,
        memory: str | None = None,
    ) -> Window:
        """Return the window to send; the decisions made for it are written to the log.

        `context` is the text of sticky files, or the result of `ContextManager.gather`, whose dropped files
        are then in the window's report.
        """
        check_budget(budget)
        check_tools(tools)
        text, dropped = _sticky(context)
        return await self._windows.make(budget, tools=tools, context=text, memory=memory, dropped=dropped)

    async def preview(
        self,
        budget: Budget,
        *,
        tools: Sequence[ToolSpec] = (),
        context: str | Gathered | None = None,
        memory: str | None = None,
    ) -> Window:
        """Return the window that `window` would return, without writing anything."""
        check_budget(budget)
        check_tools(tools)
        text, dropped = _sticky(context)
        return await self._windows.preview(budget, tools=tools, context=text, memory=memory, dropped=dropped)

    async def recall(self, query: str, k: int = 6) -> list[Recollection]:
        """Search the user's long-term memory for a question, and return the best results first."""
        check_whole("k", k, least=0)
        return await self._required_memory().search(query, k)

    async def remember(self, text: str) -> None:
        """Store a note about the user in long-term memory; erasing this session erases the note."""
        await self._required_memory().remember(text, self.id)

    def _required_memory(self) -> UserMemory:
        if self._memory is None:
            why = "it has no user" if self._row.user is None else "its manager was opened without memory=…"
            raise InputError(f"session {self.id} has no long-term memory: {why}")
        return self._memory

    async def _recalled(self) -> str | None:
        """Return what memory has for the user's newest words, as text for a window."""
        if self._memory is None:
            return None
        loaded = await self._windows.loaded()
        asked = next((message.text for message in reversed(loaded.messages) if message.role == "user"), "")
        known = {(self.id, str(message.id)) for message in loaded.messages}
        return await self._memory.recalled(asked, self._writer.counter(loaded.fold.model), known)

    async def snapshot(self) -> ContextSnapshot:
        """Return a snapshot: preface, summary and kept messages."""
        loaded = await self._windows.loaded()
        manager = StateManager(self._writer.counter(loaded.fold.model), self._policy)
        return to_snapshot(loaded, self._row, manager, self._writer.clock())

    def _keep_snapshots(self, keeper: SnapshotWriter) -> None:
        """Write a snapshot after each turn and round of tools, and at the end if something is unsaved."""
        self._keeper = keeper
        self._writer.watch(keeper.changed)

    async def system(self) -> str | None:
        """Return the system prompt in force, or None if there is none."""
        return (await self._windows.loaded()).fold.prompt

    async def set_system(self, text: str) -> Receipt:
        """Set the system prompt from here on."""
        return await write(self._writer, [Prompt(checked_prompt(text))])

    async def model(self) -> ModelInfo | None:
        """Return the model in force at the head; None if no model was set."""
        await self._writer.refresh()
        _, model = await self._writer.model()
        return catalog.named(model.id) if model and model.id else None

    async def set_model(self, id: str) -> ModelInfo:
        """Set the model from here on: its counter counts messages and measures windows.

        Earlier messages keep their stored count, but a window counts them again. A rewind to a message
        before this brings the former model back.
        """
        changed = model_change(id)
        await self._writer.refresh()
        if (await self._writer.model())[1] != changed:
            await write(self._writer, [changed])
        return catalog.named(changed.id)

    def summarize_with(self, model: Model) -> None:
        """Let a model write the summaries of this handle from now on, instead of its manager's model."""
        self._summaries.model = model

    async def fork(self, *, at: str | None = None, name: str = "") -> Branch:
        """Continue from a message of any branch, or from the head, on a new branch."""
        return await self._branch("fork", at, checked(name, "a branch name", empty=True))

    async def rewind(self, to: str, *, exact: bool = False) -> Branch:
        """Make a message the last one of the path. What came after it stays in the log.

        Between calls and their results, the path goes back to before the calls; with `exact` it ends at
        the message, and the missing results may still arrive.
        """
        return await self._branch("rewind", to, "", exact=exact)

    async def compact(
        self,
        budget: Budget | None = None,
        *,
        focus: str | None = None,
        strategy: Strategy | None = None,
        model: bool = True,
        patience: float | None = None,
    ) -> Compaction:
        """Replace all but the newest exchanges with a summary; `undo` reverts it.

        The session's model writes it if there is one and `model` is true; otherwise a digest is used. The
        model has `patience` seconds, 120 by default; after that the digest is used, and `refused` says why.
        """
        check_budget(budget, optional=True)
        if strategy is not None:
            check_kind("strategy", strategy, Strategy)
        if focus is not None:
            check_kind("focus", focus, str)
        if patience is not None:
            check_number("patience", patience, least=0, most=86_400, above=True)
        with telemetry.traced(
            "turnstate.compact", {"gen_ai.conversation.id": self._writer.at.session}
        ) as span:
            outcome = await self._windows.compact(
                budget, strategy or DEFAULT_STRATEGY, focus, model=model, patience=patience
            )
            span.set({"turnstate.messages": outcome.messages, "turnstate.tokens": outcome.tokens_after})
            return outcome

    async def _spent(self, usage: Usage) -> None:
        """Write the usage of a request for a summary, unless this handle may no longer write."""
        with suppress(SessionError):
            known, _ = await self._calibrations()  # the newest usage entry carries them
            await self._write([structs.replace(usage, calibration=dict(known))])

    async def preview_compact(
        self, budget: Budget | None = None, *, strategy: Strategy | None = None
    ) -> Compaction:
        """Return what `compact` would do without a model, without writing anything."""
        check_budget(budget, optional=True)
        check_kind("strategy", strategy, Strategy, optional=True)
        return await self._windows.preview_compact(budget, strategy or DEFAULT_STRATEGY)

    async def conversation(self, *, os: Os | None = None) -> ConversationState:
        """Load the conversation as a state: history, tangents, tools, sticky files; `commit` writes it."""
        return await load(self._writer, self._windows, os=os, policy=self._policy)

    async def catch_up(self, state: ConversationState) -> None:
        """Add what was appended since a state was loaded or committed; the cost depends on what is new.

        Uncommitted entries of the state come after it; raise `Conflict` if they cannot, because the head
        is now on another branch, in the log or in the state.
        """
        async with self._committing:
            await catch_up(self._writer, self._windows, state)

    async def commit(self, state: ConversationState) -> Receipt | None:
        """Write the entries of a state that the log does not have yet; return None if there are none."""
        async with self._committing:  # tasks that share a state write one after the other
            receipt = await StateCommit(self._writer, state).run()
            if receipt and state.head.lacks_a_start:  # an undo or a restore led to what is not loaded
                state.adopt(await load(self._writer, self._windows, os=state.os, policy=state.policy))
        if self._keeper and receipt and state.head.messages:
            self._keeper.appended(state.head.messages[-1])
        return receipt

    async def undo(self) -> str:
        """Undo the newest operation (see `log.undo` for the rule), and return its name; files stay."""
        return await undo(self._writer)

    async def _undo_restore(self, branch: int) -> None:
        """Move the head to where it was before the restore that created a branch."""
        await undo_restore(self._writer, branch)

    async def reset(self, *, system: str | None = None) -> Session:
        """End this conversation and return the handle of the next, which begins under the same id.

        A reset overrides a lease: its holder and every other earlier handle get `EpochEnded`. The history
        goes to the memory engine, once.
        """
        lease: Lease | None = None
        try:
            while not await begin_epoch(self._writer, self._windows, self._memory, system):
                lease = await leases.seized(self._writer) or lease
        finally:
            if lease is not None:  # after a reset it has ended in any case
                await self._writer.store.release(self._writer.at, lease, now=self._writer.clock())
        if self._keeper:
            await self._keeper.stop()
        session = self._reopened(self._writer.row)
        session._memory = self._memory
        if session._keeper:
            await session._keeper.restart()
        return session

    async def end(self, reason: str = "closed") -> Receipt:
        """End this conversation; it stays readable, and `reset` begins the next."""
        reason = checked(reason, "a reason")
        while True:
            await self._writer.refresh()
            try:
                return await self._writer.end(reason)
            except Conflict:
                continue

    async def _answer_interrupted_calls(self) -> None:
        """Answer calls that were running when a process ended; their real results may still arrive."""
        while True:
            loaded = await self._windows.loaded()
            answers, head = interrupted(loaded), loaded.head
            if not answers:
                return
            with suppress(Conflict):  # another worker answered them, or went on
                await write(self._writer, answers, expected_head=head)
                return

    async def rename(self, title: str) -> None:
        """Set the title."""
        await self._describe(title=checked(title, "a title", empty=True))

    async def tag(self, *tags: str) -> None:
        """Replace the tags."""
        await self._describe(tags=checked_tags(tags))

    async def annotate(self, meta: dict[str, Any], *, expected: dict[str, Any] | None = None) -> None:
        """Replace the metadata: any JSON object.

        With `expected`, the metadata as it was read, raise `Conflict` if it has changed since.
        """
        was = None if expected is None else checked_meta(expected)
        await self._describe(meta=checked_meta(meta), expected=was)

    def lease(
        self, *, seconds: float = 30.0, holder: str | None = None, take_over: bool = False
    ) -> AbstractAsyncContextManager[Lease]:
        """Hold the lease while a block runs: ``async with session.lease(): …``."""
        return leases.leased(self._writer, seconds, holder, take_over=take_over)

    async def acquire(
        self, *, seconds: float = 30.0, holder: str | None = None, take_over: bool = False
    ) -> Lease:
        """Take the lease until it is released or expires; raise `Busy` while another worker has it.

        With `take_over` it is taken from that worker, whose next write raises `Fenced`.
        """
        return await leases.acquire(self._writer, seconds, holder, take_over=take_over)

    async def renew(self, *, seconds: float = 30.0) -> Lease:
        """Extend the lease; raise `Fenced` if another worker has it now."""
        return await leases.renew(self._writer, seconds)

    async def release(self) -> None:
        """Release the lease."""
        await leases.release(self._writer)

    async def _log(self) -> SessionWriter:
        return self._writer

    async def _branch(self, operation: str, id: str | None, name: str, *, exact: bool = False) -> Branch:
        check_kind("the id of a message", id, str, optional=True)
        find = place_of if exact else end_of
        while True:
            row = await self._writer.refresh()
            place = row.head if id is None else await find(self._writer.log, self._writer.at, id)
            fork = Fork(parent=place.branch, seq=place.seq, name=name, operation=operation)
            try:
                receipt = await self._writer.commit(fork=fork, expected_head=row.head)
            except Conflict:
                continue
            self._writer.moved_head()
            return next(branch for branch in await self.branches() if branch.id == receipt.branch)

    async def _describe(self, **changes: Any) -> None:
        await self._writer.refresh()
        await self._writer.store.update(self._writer.at, **changes)
        await self._writer.refresh()


def _sticky(context: str | Gathered | None) -> tuple[str | None, tuple[str, ...]]:
    """Return the text of sticky files, and the files that it leaves out."""
    return (context.text, context.left_out) if isinstance(context, Gathered) else (context, ())
