"""The files of an agent: whose lines they are, and checkpoints, both kept in step with the conversation.

The line tracker is part of the conversation's state, and so are checkpoints. A run appends to the log, so the
state catches up before each of them is written. What a tool read or wrote is recorded before its result is
saved: after a crash the tracker knows every file that a result speaks of. A checkpoint is taken after the
result, so that restoring it brings the result back together with the files.
"""

from __future__ import annotations

from ..checkpoints import CheckpointManager
from ..conversation import ConversationState
from ..conversation.edits import LineTracking
from ..errors import CheckpointError, Conflict, InputError
from ..message import ToolCallRequest
from ..session import Session
from ..tools import ToolManager
from .events import CheckpointFailed, CheckpointSaved

__all__ = ["AgentFiles"]

ATTEMPTS = 5
"""Writes that are tried while another task, such as a summary in the background, writes to the log."""


class AgentFiles:
    """The line tracker and the checkpoints of one agent; without a workspace there are none."""

    def __init__(self, session: Session, tools: ToolManager, checkpoints: CheckpointManager | None) -> None:
        self._session, self._tools, self._checkpoints = session, tools, checkpoints
        self._root = tools.workspace.root if tools.workspace else None
        self._state: ConversationState | None = None
        self.tracking: LineTracking | None = None
        if checkpoints is None:
            return
        if checkpoints.state.conversation_id != session.id:
            raise InputError(
                f"the checkpoints are of {checkpoints.state.conversation_id}, not of {session.id}"
            )
        if self._root is not None and checkpoints.repository.work_tree != self._root:
            tree = checkpoints.repository.work_tree
            raise InputError(f"the checkpoints are of {tree}, and the tools work in {self._root}")

    async def begin(self) -> None:
        """Load the state of the conversation, or let it catch up with what was said since."""
        if self._checkpoints is not None:
            self._state, self.tracking = self._checkpoints.state, self._checkpoints.lines
        elif self._state is None and self._root is not None:
            self._state = await self._session.conversation()
            self.tracking = LineTracking(self._state, self._root)
        if self._state is not None:
            await self._commit(self._state)  # also what a run that was cancelled had not written

    async def record(self) -> None:
        """Write what the line tracker has learned."""
        if self._state is not None and self._state.file_line_tracker != self._state.head.trackers:
            await self._commit(self._state)

    async def tool_finished(self, call: ToolCallRequest) -> CheckpointSaved | CheckpointFailed | None:
        """Take a checkpoint if a tool changed files; call it when its result is saved."""
        return await self._take(call) if self._may_change(call) else None

    async def resumed(self) -> CheckpointSaved | CheckpointFailed | None:
        """Take the checkpoint that an interrupted run could not take after its last result."""
        timeline = self._state.head if self._state else None
        if timeline is None or not timeline.messages or timeline.messages[-1].role != "tool":
            return None
        asked = next((one for one in reversed(timeline.messages) if one.tool_calls), None)
        waiting = {call.id for call in timeline.open_calls}
        done = [call for call in asked.tool_calls if call.id not in waiting] if asked else []
        last = next((call for call in reversed(done) if self._may_change(call)), None)
        return await self._take(last) if last else None

    async def turn_finished(self) -> CheckpointSaved | CheckpointFailed | None:
        """Take the checkpoint of the turn, if one of its tools changed files."""
        return await self._take(None)

    def _may_change(self, call: ToolCallRequest) -> bool:
        known = self._tools.get(call.name)
        return known is not None and known.changes_files

    async def _take(self, call: ToolCallRequest | None) -> CheckpointSaved | CheckpointFailed | None:
        if self._checkpoints is None:
            return None
        state = self._checkpoints.state
        await self._session.catch_up(state)
        try:
            if call is not None:
                taken = await self._checkpoints.tool_finished(call.name, call=call.id)
            else:
                taken = await self._checkpoints.turn_finished(_asked(state))
        except Conflict:  # the checkpoint is in the state, and another task was quicker
            await self._commit(state)
            taken = state.head.checkpoints[-1][1]
        except CheckpointError as error:
            return CheckpointFailed(text=str(error))
        return None if taken is None else CheckpointSaved(label=taken.label, tool=taken.tool)

    async def _commit(self, state: ConversationState) -> None:
        for attempt in range(1, ATTEMPTS + 1):
            await self._session.catch_up(state)
            try:
                await self._session.commit(state)
            except Conflict:
                if attempt == ATTEMPTS:
                    raise
            else:
                return


def _asked(state: ConversationState) -> str:
    """Return the newest words of the user."""
    return next((one.text for one in reversed(state.head.messages) if one.role == "user"), "")
