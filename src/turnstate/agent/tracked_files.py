"""The files of an agent: line tracking and checkpoints, kept in step with the conversation.

What a tool read or wrote is recorded before its result is saved: after a crash the tracker knows every file
that a result mentions. A checkpoint is taken after the result is saved, so restoring it brings back the
result together with the files.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from ..checkpoints import CheckpointManager
from ..conversation.edits import LineTracking
from ..errors import CheckpointError, InputError
from ..message import Message, ToolCallRequest
from ..session import Session
from ..session.lines import TrackedLines
from ..shadow.values import shown
from ..tools import ToolManager
from .events import CheckpointFailed, CheckpointSaved

FEW = 40
"""How many messages are read first for the user's words, or for the calls of an interrupted run."""


class AgentFiles:
    """The line tracker and the checkpoints of one agent; there is no tracker without a workspace."""

    def __init__(self, session: Session, tools: ToolManager, checkpoints: CheckpointManager | None) -> None:
        self._session, self._tools, self._checkpoints = session, tools, checkpoints
        root = tools.workspace.root if tools.workspace else None
        self._lines: TrackedLines | None = None
        if checkpoints is None:
            self._lines = TrackedLines(session, root) if root is not None else None
            return
        if checkpoints.session.id != session.id:
            raise InputError(f"the checkpoints are of {checkpoints.session.id}, not of {session.id}")
        if root is not None and checkpoints.repository.work_tree != root:
            tree = checkpoints.repository.work_tree
            raise InputError(f"the checkpoints are of {tree}, and the tools work in {root}")
        self._lines = checkpoints.tracked

    @property
    def tracking(self) -> LineTracking | None:
        """The line tracker; None without a workspace."""
        return self._lines.tracking if self._lines else None

    async def begin(self) -> None:
        """Take over what the log knows about files, and write what a canceled run had not."""
        if self._lines is not None:
            await self._lines.begin()

    async def record(self) -> None:
        """Save the line tracker if it has changed."""
        if self._lines is not None:
            await self._lines.record()

    async def tool_finished(self, call: ToolCallRequest) -> CheckpointSaved | CheckpointFailed | None:
        """Take a checkpoint if the tool may have changed files; call this once its result is saved."""
        return await self._take(call) if self._may_change(call) else None

    async def resumed(self) -> CheckpointSaved | CheckpointFailed | None:
        """Take the checkpoint that an interrupted run could not take after its last result."""
        if self._checkpoints is None:
            return None
        pending = await self._session.pending()
        if pending is None or not pending.answered:
            return None
        done = {result.tool_call_id for result in pending.answered}
        async for message in self._said():
            for call in reversed(message.tool_calls):
                if call.id in done and self._may_change(call):
                    return await self._take(call)
            done -= {call.id for call in message.tool_calls}
            if not done:
                break
        return None

    async def turn_finished(self) -> CheckpointSaved | CheckpointFailed | None:
        """Take the checkpoint of the turn, if one of its tools changed files."""
        return await self._take(None)

    def _may_change(self, call: ToolCallRequest) -> bool:
        known = self._tools.get(call.name)
        return known is not None and known.changes_files

    async def _take(self, call: ToolCallRequest | None) -> CheckpointSaved | CheckpointFailed | None:
        if self._checkpoints is None:
            return None
        try:
            if call is not None:
                taken = await self._checkpoints.tool_finished(call.name, call=call.id)
            elif (await self._checkpoints.numbers()).tools:
                taken = await self._checkpoints.turn_finished(await self._asked())
            else:
                taken = None
        except CheckpointError as error:
            return CheckpointFailed(text=str(error))
        if taken is None:
            return None
        moving = tuple(shown(one.path) for one in self._checkpoints.left_out if one.moving)
        return CheckpointSaved(label=taken.label, tool=taken.tool, moving=moving)

    async def _asked(self) -> str:
        """Return the text of the user's newest message."""
        async for message in self._said():
            if message.role == "user":
                return message.text
        return ""

    async def _said(self) -> AsyncIterator[Message]:
        """Yield the messages, the newest first; only as many are read as are asked for."""
        last, seen = FEW, 0
        while True:
            said = await self._session.messages(last=last)
            for message in said[: len(said) - seen][::-1]:
                yield message
            if len(said) < last:
                return
            last, seen = 4 * last, len(said)
