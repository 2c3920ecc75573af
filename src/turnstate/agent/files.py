"""The files of an agent: line tracking and checkpoints, kept in step with the conversation.

The line tracker, which knows who wrote which line, is part of the conversation's state, and so are
checkpoints. A run appends to the log, so the state catches up before either is written. What a tool read or
wrote is recorded before its result is saved: after a crash the tracker knows every file that a result
mentions. A checkpoint is taken after the result is saved, so restoring it brings back the result together
with the files.
"""

from __future__ import annotations

from ..checkpoints import CheckpointManager
from ..conversation import ConversationState
from ..conversation.edits import LineTracking
from ..errors import CheckpointError, Conflict, InputError
from ..message import ToolCallRequest
from ..session import Session
from ..shadow.values import shown
from ..tools import ToolManager
from .events import CheckpointFailed, CheckpointSaved

ATTEMPTS = 5
"""How often a write is tried while another task, such as a background summary, writes to the log."""


class AgentFiles:
    """The line tracker and the checkpoints of one agent; there is no tracker without a workspace."""

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
        """Load the state of the conversation, or let it catch up with the log."""
        if self._checkpoints is not None:
            self._state, self.tracking = self._checkpoints.state, self._checkpoints.lines
        elif self._state is None and self._root is not None:
            self._state = await self._session.conversation()
            self.tracking = LineTracking(self._state, self._root)
        if self._state is not None:
            await self._commit(self._state)  # also writes what a canceled run had not

    async def record(self) -> None:
        """Save the line tracker if it has changed."""
        if self._state is not None and self._state.file_line_tracker != self._state.head.trackers:
            await self._commit(self._state)

    async def tool_finished(self, call: ToolCallRequest) -> CheckpointSaved | CheckpointFailed | None:
        """Take a checkpoint if the tool may have changed files; call this once its result is saved."""
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
        except Conflict:  # another task wrote first; the checkpoint is still in the state
            await self._commit(state)
            taken = state.head.checkpoints[-1][1]
        except CheckpointError as error:
            return CheckpointFailed(text=str(error))
        if taken is None:
            return None
        moving = tuple(shown(one.path) for one in self._checkpoints.left_out if one.moving)
        return CheckpointSaved(label=taken.label, tool=taken.tool, moving=moving)

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
    """Return the text of the user's newest message."""
    return next((one.text for one in reversed(state.head.messages) if one.role == "user"), "")
