"""Acts: what a restore, its undoing, and the leaving of a tangent do to the conversation.

An act is a value, so that it can be written down before it is done. It can tell from a conversation
whether it was done there already, and whether it still can be: that is how the next process finishes
what one that died had begun. Where all else that a conversation says is in the log, an act is one write:
it is done, or it is not.
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


class RestoreOperation(Struct, frozen=True, kw_only=True, tag="restore", tag_field="act"):
    """Go back to a checkpoint; ``number`` is that of its entry in the log."""

    label: str
    commit: str
    number: int
    files: bool
    conversation: bool

    def is_done(self, state: ConversationState, name: str) -> bool:
        """Return True if the conversation knows of this restore."""
        return any(one.undo == name for _, one in _restores(state))

    def is_possible(self, state: ConversationState) -> bool:
        """Return True if the checkpoint stands where it stood."""
        place = self.number - state.head.first
        if not self.conversation or not 0 <= place < len(state.head.entries):
            return not self.conversation
        entry = state.head.entries[place]
        return isinstance(entry, Checkpoint) and entry.commit == self.commit

    async def do(self, state: ConversationState, _session: Session | None, name: str) -> None:
        """Show that moment, and tell the calls that were under way then what became of them."""
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


class Undo(Struct, frozen=True, kw_only=True, tag="undo", tag_field="act"):
    """Take a restore back; ``number`` is that of its entry in the log, ``undoes`` its name."""

    label: str
    number: int
    undoes: str
    files: bool
    conversation: bool

    def is_done(self, state: ConversationState, name: str) -> bool:
        """Return True if the restore is off the path, or noted as undone."""
        names = [one.undo for _, one in _restores(state)]
        return self.undoes not in names if self.conversation else name in names

    def is_possible(self, state: ConversationState) -> bool:
        """Return True if the restore is on the path."""
        return any(one.undo == self.undoes for _, one in _restores(state))

    async def do(self, state: ConversationState, session: Session | None, name: str) -> None:
        """Show what was there before the restore, also in the log; one of files alone is noted as undone."""
        if not self.conversation:
            state.add(Restore(label=self.label, commit="", undo=name, conversation=False, undone=self.number))
        elif session is None:
            state.undo_restore()
        else:
            await session.undo_restore(branch_of(state, self.number))
            state.adopt(await session.conversation(os=state.os))


class LeaveTangent(Struct, frozen=True, kw_only=True, tag="leave", tag_field="act"):
    """Go back from a tangent; ``kept`` is what its files are called that no checkpoint holds yet."""

    tangent: str
    bring: Bring = "nothing"
    summary: str | None = None
    kept: str = ""
    at: int = 0

    @property
    def label(self) -> str:
        """What the moment is called that the files go back to."""
        return "tangent"

    @property
    def conversation(self) -> bool:
        """It always goes back."""
        return True

    def is_done(self, state: ConversationState, _name: str) -> bool:
        """Return True if the conversation is outside of the tangent, and of those within it."""
        return self.tangent not in _under_way(state)

    def is_possible(self, state: ConversationState) -> bool:
        """Return True if the tangent is the one that would be left."""
        return self.tangent in islice(_under_way(state), 1)

    def record_files(self, state: ConversationState, name: str) -> None:
        """Note the files that the tangent leaves behind, in the tangent: a write before the act's own."""
        if self.kept and not _ends_with_files(state, name):
            told = "when the tangent was left"
            state.add(Checkpoint(label=self.kept, commit=name, description=told, at=self.at))

    def has_recorded_files(self, state: ConversationState, name: str) -> bool:
        """Return True if the files that the tangent leaves behind are the last that was noted in it."""
        return self.is_possible(state) and _ends_with_files(state, name)

    async def do(self, state: ConversationState, _session: Session | None, _name: str) -> None:
        """Go back to where the tangent began from."""
        match self.bring:
            case "nothing":
                state.exit_tangent_mode()
            case "tail":
                state.exit_tangent_mode_with_tail()
            case "summary":
                state.exit_tangent_mode_with_summary(self.summary)


Operation = RestoreOperation | Undo | LeaveTangent


def newest_restore(state: ConversationState) -> tuple[int, Restore] | None:
    """Return the newest restore of the path that was not undone, and its number in the log."""
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


def _under_way(state: ConversationState) -> Iterator[str]:
    """Name the tangents that lead to the head, the innermost first."""
    timeline = state.head
    while timeline.parent is not None:
        yield timeline.name
        timeline = timeline.parent


def _ends_with_files(state: ConversationState, name: str) -> bool:
    entries = state.head.entries
    last = entries[-1] if entries else None
    return isinstance(last, Checkpoint) and last.commit == name


def _answers(state: ConversationState, checkpoint: Checkpoint) -> list[Answer]:
    """Answer the calls that were under way at a checkpoint: some had run by then."""
    return [
        Answer.give(call.id, RAN, is_error=False)
        if call.id in checkpoint.ran
        else Answer.give(call.id, UNDONE)
        for call in state.head.open_calls
    ]
