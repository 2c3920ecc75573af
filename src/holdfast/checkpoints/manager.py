"""The checkpoint manager: moments that files and conversation go back to together.

A checkpoint is an entry in the conversation's log that names a snapshot of the files. So the history of
that moment is the log up to the entry, and nothing is copied: going back is a branch from there. Turns
and tools are numbered by what is on the path (`numbering`).

    async with a session:  checkpoints = await CheckpointManager.open(state, "…/project", session=session)
                           await checkpoints.tool_finished("fs_write", call=call.id)
                           await checkpoints.turn_finished("add a retry")
                           await checkpoints.restore("1.1")
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeVar

from msgspec import Struct

from .. import ids
from ..conversation import ConversationState
from ..conversation.tracking import LineTracking
from ..entry import Checkpoint, Restore
from ..errors import CheckpointError, GitMissing, UnknownCheckpoint
from ..home import Home
from ..ids import CallId
from ..message import Message, ToolCallResult
from . import intent as intents
from .intent import Intent
from .numbering import ASIDE, START, Numbers, Turn, description, numbers, turns
from .places import folder_for, is_in_repository
from .repository import ShadowRepository
from .values import Diff, LeftOut, Limits, Restored, Snapshot

if TYPE_CHECKING:
    from ..session import Session

__all__ = ["CheckpointManager", "WentBack"]

RAN = "[The tool ran before this moment was kept; its output is not in this history.]"
UNDONE = "[No result: the conversation went back to a moment when this tool had not finished.]"

T = TypeVar("T")


class WentBack(Struct, frozen=True, kw_only=True):
    """What a restore came to: the checkpoint, and what happened to the files, if they were meant."""

    label: str
    files: Restored | None
    conversation: bool


class CheckpointManager:
    """Checkpoints of one conversation and one work tree."""

    def __init__(
        self, state: ConversationState, repository: ShadowRepository, *, session: Session | None = None
    ) -> None:
        self.state, self.repository, self._session = state, repository, session
        self.left_out: tuple[LeftOut, ...] = ()
        self.lines = LineTracking(state, repository.work_tree, home=Path.home())

    @classmethod
    async def open(
        cls,
        state: ConversationState,
        work_tree: str | os.PathLike[str],
        *,
        session: Session | None = None,
        home: Home | None = None,
        limits: Limits | None = None,
        force: bool = False,
    ) -> Self:
        """Open the checkpoints of a conversation, begin with the start, and finish what was cut off."""
        home = home or Home.from_environment()
        tenant = session.row.tenant if session else ""
        folder = folder_for(home, tenant, state.conversation_id)
        repository = await asyncio.to_thread(
            lambda: ShadowRepository.open(
                folder, work_tree, limits=limits or Limits(), own=[home.path], force=force
            )
        )
        manager = cls(state, repository, session=session)
        await manager._finish_restore()
        if not state.head.checkpoints:
            await manager._keep(START, "the start")
        return manager

    @classmethod
    async def open_if_usual(
        cls,
        state: ConversationState,
        work_tree: str | os.PathLike[str],
        *,
        session: Session | None = None,
        home: Home | None = None,
    ) -> Self | None:
        """Open checkpoints where people expect them: in a Git repository, with git there; else give None."""
        if not is_in_repository(Path(work_tree)):
            return None
        try:
            return await cls.open(state, work_tree, session=session, home=home)
        except GitMissing:
            return None

    async def tool_finished(
        self, tool: str, *, call: CallId | None = None, summary: str = ""
    ) -> Checkpoint | None:
        """Keep the files if a tool has changed them; call it when its result is in the conversation."""
        if not await self._apart(self.repository.has_changes):
            return None
        return await self._keep(self.numbers.next_tool, summary or tool, tool=tool, call=call)

    async def turn_finished(self, said: str) -> Checkpoint | None:
        """Close a turn, under what the user had said; one that changed no files gets no checkpoint."""
        if not self.numbers.tools:
            return None
        return await self._keep(self.numbers.next_turn, said)

    async def keep(self, said: str) -> Checkpoint:
        """Keep the files as they are now, because the user asks for it."""
        return await self._keep(self.numbers.next_turn, said)

    @property
    def numbers(self) -> Numbers:
        """How many turns there were, and tools in the one under way."""
        return numbers(self._on_path())

    def turns(self) -> list[Turn]:
        """List the checkpoints of the path by turns."""
        return turns(self._on_path())

    def expand(self, label: str) -> Turn:
        """Show a turn with the tools in it."""
        found = next((turn for turn in self.turns() if turn.label == label), None)
        if found is None:
            raise UnknownCheckpoint(f"there is no turn {label}; turns() lists what there is")
        return found

    async def diff(self, label: str, other: str | None = None) -> Diff:
        """Compare a checkpoint with another, or with the files as they are now."""
        before = self._find(label)[1].commit
        after = self._find(other)[1].commit if other is not None else None
        return await self._apart(lambda: self.repository.diff(before, after))

    async def restore(
        self, label: str, *, files: bool = True, conversation: bool = True, hard: bool = False
    ) -> WentBack:
        """Go back to a checkpoint: its files, its conversation, or both; `undo_restore` goes forth again.

        Newer files stay, unless `hard`, which removes those that a checkpoint holds.
        """
        if not (files or conversation):
            raise CheckpointError("say what to restore: files, the conversation, or both")
        place, checkpoint = self._find(label)
        await self._settle()
        intent = Intent(
            label=label,
            commit=checkpoint.commit,
            place=place,
            undo=_tag(),
            files=files,
            conversation=conversation,
            hard=hard,
            head=self._log_head(),
        )
        await self._apart(lambda: intents.write(intent, self.repository.folder))
        return await self._carry_out(intent)

    async def undo_restore(self) -> WentBack:
        """Take the last restore back: the files as they were before it, and the conversation."""
        newest = next((one for one in reversed(self.state.head.entries) if isinstance(one, Restore)), None)
        if newest is None:
            raise UnknownCheckpoint("nothing was restored on this path")
        restored = None
        if newest.files:
            restored = await self._apart(lambda: self.repository.restore(newest.undo, hard=True, undo=_tag()))
        if newest.conversation and self._session is not None:
            await self._session.undo()
            await self._load()
        elif newest.conversation:
            self.state.undo_restore()
        await self._settle_lines()
        return WentBack(label=newest.label, files=restored, conversation=newest.conversation)

    async def enter_tangent(self) -> str:
        """Go aside, with the files of this moment kept; give the tangent's name."""
        name = self.state.begin_tangent()
        await self._keep(ASIDE, "before the tangent")
        return name

    async def leave_tangent(self, leave: Callable[[], None] | None = None, *, files: bool = True) -> WentBack:
        """Go back to the main conversation, by a way that the state knows, with the files of that moment.

        Files that were changed in the tangent become what they were, and new ones go; `undo_restore` is
        not for this: take the tangent up again, and its checkpoints are there.
        """
        own = reversed(self.state.head.entries.own)
        before = next((one for one in own if isinstance(one, Checkpoint) and one.label == ASIDE), None)
        restored = None
        if files and before is not None:
            commit = before.commit
            restored = await self._apart(lambda: self.repository.restore(commit, hard=True, undo=_tag()))
        (leave or self.state.exit_tangent_mode)()
        await self._settle_lines()
        return WentBack(label=ASIDE, files=restored, conversation=True)

    async def clean(self) -> int:
        """Remove the snapshots of all checkpoints; say how many bytes they took. Files and log stay."""
        return await self._apart(self.repository.clean)

    async def _keep(
        self, label: str, said: str, *, tool: str | None = None, call: CallId | None = None
    ) -> Checkpoint:
        taken: Snapshot = await self._apart(lambda: self.repository.snapshot(_tag(), said))
        self.left_out = taken.left_out
        checkpoint = Checkpoint(
            label=label,
            commit=taken.commit,
            description=description(said),
            at=self.state.os.now(),
            tool=tool,
            call=call,
            added=len(taken.changes.added),
            modified=len(taken.changes.modified),
            deleted=len(taken.changes.deleted),
        )
        self.state.add(checkpoint)
        await self._settle()
        return checkpoint

    async def _carry_out(self, intent: Intent) -> WentBack:
        """Restore the files, then the conversation, then forget the intent."""
        restored = None
        if intent.files:
            restored = await self._apart(
                lambda: self.repository.restore(intent.commit, hard=intent.hard, undo=intent.undo)
            )
        if intent.conversation:
            self._restore_conversation(intent)
        self.state.add(
            Restore(
                label=intent.label,
                commit=intent.commit,
                undo=restored.undo if restored else "",
                files=intent.files,
                conversation=intent.conversation,
            )
        )
        await self._settle_lines()
        await self._apart(lambda: intents.forget(self.repository.folder))
        return WentBack(label=intent.label, files=restored, conversation=intent.conversation)

    def _restore_conversation(self, intent: Intent) -> None:
        """Show that moment, and tell the calls that were under way then what became of them."""
        self.state.restore_moment(intent.place)
        checkpoint = self.state.head.checkpoints[-1][1]
        if calls := self.state.head.open_calls:
            results = (
                ToolCallResult(tool_call_id=call.id, result=RAN)
                if call.id == checkpoint.call
                else ToolCallResult(tool_call_id=call.id, result=UNDONE, is_error=True)
                for call in calls
            )
            self.state.add(Message.tool(results))

    async def _finish_restore(self) -> None:
        """Carry out what a process that died was about to restore, if the conversation is still before it."""
        intent = await self._apart(lambda: intents.read(self.repository.folder))
        if intent is None:
            return
        if intent.head == self._log_head() and len(self.state.head.entries) >= intent.place:
            await self._carry_out(intent)
        else:
            await self._apart(lambda: intents.forget(self.repository.folder))

    def _find(self, label: str) -> tuple[int, Checkpoint]:
        """Give a checkpoint of the path, and the number of entries up to it; a turn under way is its last."""
        found = list(self.state.head.checkpoints)
        for place, one in reversed(found):
            if one.label == label:
                return place, one
        if found and label == self.numbers.next_turn and found[-1][1].tool is not None:
            return found[-1]
        raise UnknownCheckpoint(f"there is no checkpoint {label} on this path; turns() lists what there is")

    def _on_path(self) -> list[Checkpoint]:
        return [one for _, one in self.state.head.checkpoints]

    def _log_head(self) -> tuple[int, int] | None:
        seen = self.state.seen
        return (seen.branch, seen.seq) if seen else None

    async def _settle(self) -> None:
        if self._session is not None:
            await self._session.commit(self.state)

    async def _settle_lines(self) -> None:
        """Keep the line tracker true: what a restore changed, the user did not."""
        await self._apart(self.lines.settle)
        await self._settle()

    async def _load(self) -> None:
        if self._session is not None:
            self.state.adopt(await self._session.conversation(os=self.state.os))

    async def _apart(self, work: Callable[[], T]) -> T:
        return await asyncio.to_thread(work)


def _tag() -> str:
    return f"c-{ids.message_id()}"
