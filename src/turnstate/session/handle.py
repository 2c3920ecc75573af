"""A handle: what a session, its turns and its manager share of one open session.

It holds nothing that the store does not hold: the writer, the windows with the part of the log that they are
made from, and what the manager attached.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import structs

from ..context.manager import StateManager
from ..context.policy import Budget, Policy, check_budget
from ..context.preface import check_tools
from ..context.snapshot import ContextSnapshot
from ..context.window import Window
from ..entry import Entry, Usage
from ..errors import Conflict, InputError, SessionError
from ..log.operations import Operation
from ..message import Message
from ..snapshots.content import to_snapshot
from ..snapshots.writer import SnapshotWriter
from ..sticky import Gathered
from ..stores.values import Receipt
from ..toolspec import ToolSpec
from .append import append, interrupted, write
from .lines import LineRecords
from .operate import Operated, ask, operate
from .pending import Pending, pending
from .summaries import Summarizer
from .user_memory import UserMemory
from .windows import WindowMaker
from .writer import SessionWriter


class Handle:
    """One open session of a manager."""

    def __init__(
        self,
        writer: SessionWriter,
        policy: Policy,
        summaries: Summarizer,
        *,
        memory: UserMemory | None = None,
        files: tuple[Path, ...] = (),
    ) -> None:
        self.writer, self.policy, self.summaries = writer, policy, summaries
        self.windows = WindowMaker(writer, policy, summaries)
        self.lines = LineRecords(writer)
        self.memory = memory
        self.files = files  # of the manager on this machine: checkpoints leave them alone
        self.keeper: SnapshotWriter | None = None
        summaries.spent = self._spent

    def keep_snapshots(self, keeper: SnapshotWriter) -> None:
        """Write a snapshot after each turn and round of tools, and at the end if something is unsaved."""
        self.keeper = keeper
        self.writer.watch(keeper.changed)

    async def snapshot(self) -> ContextSnapshot:
        """Return a snapshot: preface, summary and kept messages."""
        loaded = await self.windows.loaded()
        manager = StateManager(self.writer.counter(loaded.fold.model), self.policy)
        return to_snapshot(loaded, self.writer.row, manager, self.writer.clock())

    async def append(
        self, *messages: Message, expected_version: int | None = None, key: str | None = None
    ) -> Receipt:
        """Add messages, all of them or none."""
        receipt = await append(self.writer, messages, expected_version=expected_version, key=key)
        self._kept(messages)
        return receipt

    async def write(self, entries: Sequence[Entry]) -> Receipt:
        """Write entries at the head, wherever it is."""
        return await write(self.writer, entries)

    async def ask(self, operation: Operation) -> Any:
        """Run an operation that only reads, and return its result."""
        return await ask(self.writer, operation)

    async def operate(self, operation: Operation, *, anywhere: bool = False) -> Operated:
        """Run an operation and write its effect."""
        outcome = await operate(self.writer, operation, anywhere=anywhere)
        self._kept([entry for entry in outcome.effect.entries if isinstance(entry, Message)])
        return outcome

    def _kept(self, messages: Sequence[Message]) -> None:
        if self.keeper and messages:
            self.keeper.appended(messages[-1])

    # What is pending, and the window to send.

    async def pending(self) -> Pending | None:
        """Return what is unfinished: a prompt, calls, or a paused reply; None if nothing is."""
        await self.windows.loaded()
        return self.seen_pending()

    def seen_pending(self) -> Pending | None:
        """Return what is unfinished as far as this handle has seen."""
        known = self.windows.known
        if known is None:
            return None
        fold = known.fold
        return pending(known.messages, fold.started, paused=fold.paused, ended_early=fold.ended_early)

    async def window(
        self,
        budget: Budget,
        *,
        tools: Sequence[ToolSpec] = (),
        context: str | Gathered | None = None,
        memory: str | None = None,
        preview: bool = False,
    ) -> Window:
        """Return the window to send; its decisions are written, unless it is a preview."""
        check_budget(budget)
        check_tools(tools)
        text, dropped = (context.text, context.left_out) if isinstance(context, Gathered) else (context, ())
        make = self.windows.preview if preview else self.windows.make
        return await make(budget, tools=tools, context=text, memory=memory, dropped=dropped)

    async def calibrations(self) -> tuple[Mapping[str, Any], str]:
        """Return the calibrations learned from reported usage, by model, and the counter, as last seen."""
        fold = (self.windows.known or await self.windows.loaded()).fold
        return fold.calibration, self.writer.counter(fold.model).name

    async def answer_interrupted_calls(self) -> None:
        """Answer calls that were running when a process ended; their real results may still arrive."""
        while True:
            loaded = await self.windows.loaded()
            answers, head = interrupted(loaded), loaded.head
            if not answers:
                return
            with suppress(Conflict):  # another worker answered them, or went on
                await write(self.writer, answers, expected_head=head)
                return

    async def _spent(self, usage: Usage) -> None:
        """Write the usage of a request for a summary, unless this handle may no longer write."""
        with suppress(SessionError):
            known, _ = await self.calibrations()  # the newest usage entry carries them
            await self.write([structs.replace(usage, calibration=dict(known))])

    # Long-term memory.

    def required_memory(self) -> UserMemory:
        """Return the memory of the session's user; raise `InputError` if there is none."""
        if self.memory is None:
            row = self.writer.row
            why = "it has no user" if row.user is None else "its manager was opened without memory=…"
            raise InputError(f"session {row.id} has no long-term memory: {why}")
        return self.memory

    async def recalled(self) -> str | None:
        """Return what memory has for the user's newest words, as text for a window."""
        if self.memory is None:
            return None
        loaded = await self.windows.loaded()
        asked = next((message.text for message in reversed(loaded.messages) if message.role == "user"), "")
        known = {(self.writer.row.id, str(message.id)) for message in loaded.messages}
        return await self.memory.recalled(asked, self.writer.counter(loaded.fold.model), known)
