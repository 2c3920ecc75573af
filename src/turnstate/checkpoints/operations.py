"""Operations on a conversation: restore a checkpoint, undo a restore, leave a tangent.

An operation is a value, so it can be recorded before it is applied. It can see from a conversation
whether it was applied already and whether it still can be; that is how the next process finishes what a
crashed one began. If everything else is in the log, applying an operation is one write: all or nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Literal

from msgspec import Struct

from ..conversation import ConversationState
from ..entry import RAN, UNDONE, Answer, Checkpoint, Restore
from ..session import Session
from ..session.timelines import branch_of

__all__ = ["Bring", "LeaveTangent", "Operation", "RestoreOperation", "Undo", "newest_restore"]

Bring = Literal["nothing", "tail", "summary"]


class RestoreOperation(Struct, frozen=True, kw_only=True, tag="restore", tag_field="operation"):
    """Restore a checkpoint; ``number`` is the number of its entry in the log."""

    label: str
    commit: str
    number: int
    files: bool
    conversation: bool

    def is_done(self, state: ConversationState, name: str) -> bool:
        """Return True if the conversation has this restore."""
        return any(one.undo == name for _, one in _restores(state))

    def is_possible(self, state: ConversationState) -> bool:
        """Return True if the checkpoint is still at its place."""
        place = self.number - state.head.first
        if not self.conversation or not 0 <= place < len(state.head.entries):
            return not self.conversation
        entry = state.head.entries[place]
        return isinstance(entry, Checkpoint) and entry.commit == self.commit

    async def apply(self, state: ConversationState, _session: Session | None, name: str) -> None:
        """Go back to the checkpoint, and answer the calls that were open then."""
        if self.conversation:
            state.restore_moment(self.number - state.head.first + 1)
            for answer in _answers(state, state.head.checkpoints[-1][1]):
                state.add(answer)
        state.add(
            Restore(
                label=self.label,
                commit=self.commit,
                undo=name,
                files=self.files,
                conversation=self.conversation,
            )
        )


class Undo(Struct, frozen=True, kw_only=True, tag="undo", tag_field="operation"):
    """Undo a restore; ``number`` is the number of its entry in the log, ``undoes`` its name."""

    label: str
    number: int
    undoes: str
    files: bool
    conversation: bool

    def is_done(self, state: ConversationState, name: str) -> bool:
        """Return True if the restore is off the path or recorded as undone."""
        names = [one.undo for _, one in _restores(state)]
        return self.undoes not in names if self.conversation else name in names

    def is_possible(self, state: ConversationState) -> bool:
        """Return True if the restore is on the path."""
        return any(one.undo == self.undoes for _, one in _restores(state))

    async def apply(self, state: ConversationState, session: Session | None, name: str) -> None:
        """Return to the branch before the restore; a restore of files only is recorded as undone."""
        if not self.conversation:
            state.add(Restore(label=self.label, commit="", undo=name, conversation=False, undone=self.number))
        elif session is None:
            state.undo_restore()
        else:
            await session._undo_restore(branch_of(state, self.number))
            state.adopt(await session.conversation(os=state.os))


class LeaveTangent(Struct, frozen=True, kw_only=True, tag="leave", tag_field="operation"):
    """Leave a tangent; ``kept`` labels the checkpoint of its files that no other one holds."""

    tangent: str
    bring: Bring = "nothing"
    summary: str | None = None
    kept: str = ""
    at: int = 0

    @property
    def label(self) -> str:
        """The label of the checkpoint that the files go back to."""
        return "tangent"

    @property
    def conversation(self) -> bool:
        """True: the conversation always goes back."""
        return True

    def is_done(self, state: ConversationState, _name: str) -> bool:
        """Return True if the conversation is outside the tangent and those inside it."""
        return self.tangent not in _tangents(state)

    def is_possible(self, state: ConversationState) -> bool:
        """Return True if the tangent is the current one."""
        return self.tangent in islice(_tangents(state), 1)

    def record_files(self, state: ConversationState, name: str) -> None:
        """Add a checkpoint of the tangent's files to the tangent, in a write before the operation's own."""
        if self.kept and not _ends_with_files(state, name):
            text = "when the tangent was left"
            state.add(Checkpoint(label=self.kept, commit=name, description=text, at=self.at))

    def has_recorded_files(self, state: ConversationState, name: str) -> bool:
        """Return True if the checkpoint of the tangent's files is the last entry in it."""
        return self.is_possible(state) and _ends_with_files(state, name)

    async def apply(self, state: ConversationState, _session: Session | None, _name: str) -> None:
        """Go back to where the tangent began."""
        match self.bring:
            case "nothing":
                state.exit_tangent_mode()
            case "tail":
                state.exit_tangent_mode_with_tail()
            case "summary":
                state.exit_tangent_mode_with_summary(self.summary)


Operation = RestoreOperation | Undo | LeaveTangent


def newest_restore(state: ConversationState) -> tuple[int, Restore] | None:
    """Return the newest restore on the path that was not undone, and its number in the log."""
    undone = set[int]()
    for number, one in _restores(state):
        if one.undone:
            undone.add(one.undone)
        elif number not in undone:
            return number, one
    return None


def _restores(state: ConversationState) -> Iterator[tuple[int, Restore]]:
    number = state.head.first + len(state.head.entries)
    for entry in reversed(state.head.entries):
        number -= 1
        if isinstance(entry, Restore):
            yield number, entry


def _tangents(state: ConversationState) -> Iterator[str]:
    """Yield the names of the tangents that contain the head, the innermost first."""
    timeline = state.head
    while timeline.parent is not None:
        yield timeline.name
        timeline = timeline.parent


def _ends_with_files(state: ConversationState, name: str) -> bool:
    entries = state.head.entries
    last = entries[-1] if entries else None
    return isinstance(last, Checkpoint) and last.commit == name


def _answers(state: ConversationState, checkpoint: Checkpoint) -> list[Answer]:
    """Return answers for the calls that were open at a checkpoint: some had run by then."""
    return [
        Answer.give(call.id, RAN, is_error=False)
        if call.id in checkpoint.ran
        else Answer.give(call.id, UNDONE)
        for call in state.head.open_calls
    ]
