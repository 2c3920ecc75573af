"""Restores files and conversation as one recoverable operation: files first, then one write to the log.

    write the intent → restore the files → mark them as placed → commit pending entries of the conversation →
    apply the operation in one write → remove the intent

That one write decides. If it is refused, or the process dies between two steps, the log is read: if it
has the operation, the files stay; if it is unchanged, the next process completes the operation; if
another process continued the conversation, the files are put back as they were.

An operation (restore a checkpoint, undo a restore, leave a tangent) is a value, so it can be recorded before
it is applied. Given a conversation, it can tell whether it was already applied and whether it still can be.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import ClassVar, Literal

import msgspec
from msgspec import Struct, structs

from .. import files, ids
from ..conversation import ConversationState
from ..conversation.edits import LineTracking
from ..entry import RAN, UNDONE, Answer, Checkpoint, Restore
from ..errors import CheckpointError, CheckpointsBusy, CheckpointsDamaged, SessionError
from ..session import Session
from ..session.commit import branch_of, head_of
from ..shadow.repository import ShadowRepository
from ..shadow.restore import NAME as JOURNAL
from ..shadow.values import RestoredFiles

Bring = Literal["nothing", "tail", "summary"]
NAME = "intent.json"
LOCK = "intent.lock"
_DRAFT = "intent.json.draft"  # not *.tmp, which the sweep of the shadow repository removes
_LOCK_SECONDS = 60.0  # a restore of a large tree takes less


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
        entries, place = state.head.entries, self.number - state.head.first
        entry = entries[place] if 0 <= place < len(entries) else None
        return not self.conversation or (isinstance(entry, Checkpoint) and entry.commit == self.commit)

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
    """Leave a tangent; ``kept`` labels the checkpoint of files that no other checkpoint holds, if any."""

    tangent: str
    bring: Bring = "nothing"
    summary: str | None = None
    kept: str = ""
    at: int = 0

    label: ClassVar[str] = "tangent"  # the checkpoint that the files go back to
    conversation: ClassVar[bool] = True  # the conversation always goes back

    def is_done(self, state: ConversationState, _name: str) -> bool:
        """Return True if the conversation is neither in the tangent nor in one nested in it."""
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
    """Return answers for the calls that were open at a checkpoint; some of them may have run by then."""
    return [
        Answer.give(call.id, RAN, is_error=False)
        if call.id in checkpoint.ran
        else Answer.give(call.id, UNDONE)
        for call in state.head.open_calls
    ]


class Intent(Struct, frozen=True, kw_only=True):
    """A planned change to the files and the conversation; removed when both agree.

    ``name`` is unique and tags the snapshot of the files before the change. ``files`` names the snapshot to
    restore, if any. ``head`` is where the log ended before. ``placed`` is set once the files are restored.
    """

    name: str
    operation: Operation
    files: str = ""
    hard: bool = False
    head: tuple[int, int] | None = None
    placed: bool = False


@asynccontextmanager
async def locked(folder: Path) -> AsyncIterator[None]:
    """Hold the lock for restoring files and conversation; it is released if its holder dies."""
    try:
        deadline = time.monotonic() + _LOCK_SECONDS
        while (lock := files.try_lock(folder / LOCK)) is None:
            if time.monotonic() > deadline:
                raise CheckpointsBusy(f"another process is restoring a checkpoint of {folder}; wait for it")
            await asyncio.sleep(0.02)
    except OSError as error:
        raise CheckpointsDamaged(
            f"the checkpoints in {folder} cannot be locked: {error.strerror}; "
            "`turnstate checkpoint clean SESSION` removes what is left of them"
        ) from None
    try:
        yield
    finally:
        files.unlock(lock)


def write(intent: Intent, folder: Path) -> None:
    """Write an intent durably, replacing its earlier state."""
    try:
        files.replace(folder / NAME, msgspec.json.encode(intent), draft=_DRAFT)
    except OSError as error:
        raise CheckpointError(
            f"nothing was restored: {folder} cannot be written: {error.strerror}"
        ) from error


def read(folder: Path) -> Intent | None:
    """Return the intent that a process left, or None."""
    try:
        data = (folder / NAME).read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CheckpointsDamaged(f"{folder / NAME} cannot be read: {error.strerror}") from error
    try:
        return msgspec.json.decode(data, type=Intent)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CheckpointsDamaged(f"{folder / NAME} cannot be read: {error}; remove it to continue") from None


def forget(folder: Path) -> None:
    """Remove an intent that was completed or rolled back."""
    (folder / NAME).unlink(missing_ok=True)
    files.sync_folder(folder)


class RestoreResult(Struct, frozen=True, kw_only=True):
    """The result of a restore: the checkpoint, and what happened to the files, if they were restored."""

    label: str
    files: RestoredFiles | None
    conversation: bool


class Recovered(Struct, frozen=True, kw_only=True):
    """The outcome of an interrupted restore: it was finished or rolled back."""

    label: str
    finished: bool
    files: RestoredFiles | None = None


class RestoreTransaction:
    """Restores the files and the conversation of one manager together."""

    def __init__(
        self,
        state: ConversationState,
        repository: ShadowRepository,
        lines: LineTracking,
        *,
        session: Session | None,
    ) -> None:
        self._state, self._repository, self._lines, self._session = state, repository, lines, session

    async def run(self, operation: Operation, *, files: str, hard: bool = False) -> RestoreResult:
        """Apply an operation; restore the snapshot ``files`` first, if one is named."""
        self._repository.owner.check()
        folder = self._repository.folder
        async with locked(folder):
            if await asyncio.to_thread(read, folder) is not None:
                raise CheckpointError(
                    f"an earlier restore in {folder} was interrupted; open the checkpoints again"
                )
            await self.settle()
            if not operation.is_possible(self._state):
                raise CheckpointError(
                    f"conversation {self._state.conversation_id} has changed since; nothing was restored"
                )
            intent = Intent(
                name=new_tag(), operation=operation, files=files, hard=hard, head=self._log_head()
            )
            await asyncio.to_thread(write, intent, folder)
            return await self._execute(intent, again=False)

    async def finish(self) -> Recovered | None:
        """Recover a restore that another process began and did not finish."""
        async with locked(self._repository.folder):
            intent = await asyncio.to_thread(read, self._repository.folder)
            if intent is None:
                return None
            label, done = intent.operation.label, intent.operation.is_done(self._state, intent.name)
            if done and (intent.placed or not intent.files):
                await self._forget()
                return Recovered(label=label, finished=True)
            if self._is_unchanged(intent):
                went = await self._execute(intent, again=True)
                return Recovered(label=label, finished=True, files=went.files)
            return Recovered(label=label, finished=False, files=await self._roll_back(intent))

    async def settle(self) -> None:
        """Commit the entries of the conversation that are not in the log yet."""
        if self._session is not None:
            await self._session.commit(self._state)

    async def _execute(self, intent: Intent, *, again: bool) -> RestoreResult:
        restored = None
        if intent.files and not intent.placed:
            # On a second attempt, keep the tag that names the files before the first attempt.
            undo = new_tag() if again and await self._has_restored(intent) else intent.name
            restored = await self._restore_files(intent, undo)
            intent = structs.replace(intent, placed=True)
            await asyncio.to_thread(write, intent, self._repository.folder)
        await self._apply(intent, restored)
        await self._forget()
        return RestoreResult(
            label=intent.operation.label, files=restored, conversation=intent.operation.conversation
        )

    async def _apply(self, intent: Intent, restored: RestoredFiles | None) -> None:
        """Apply the operation to the conversation; if the log refuses it, make the files match the log."""
        begun = written = False
        try:
            if isinstance(intent.operation, LeaveTangent):
                intent.operation.record_files(self._state, intent.name)
            await self.settle()  # everything else first, so that the operation is one write
            head, begun = self._log_head(), True
            await intent.operation.apply(self._state, self._session, intent.name)
            written = self._log_head() != head
            self._update_lines(intent.operation, restored)
            await self.settle()
        except SessionError as refusal:
            if written:  # another process continued after it: only the line tracker's update is refused
                return
            log = await self._log()
            if begun and log is not None:  # the log has everything that the state had
                self._state.adopt(log)
            refusal.add_note(await self._settle_files(log, intent))
            raise

    def _is_unchanged(self, intent: Intent) -> bool:
        """Return True if no one has continued the conversation since the intent was written."""
        operation = intent.operation
        if isinstance(operation, LeaveTangent) and operation.has_recorded_files(self._state, intent.name):
            return True
        return intent.head == self._log_head() and operation.is_possible(self._state)

    async def _settle_files(self, log: ConversationState | None, intent: Intent) -> str:
        """Keep the files if another process completed the operation, else put them back; say which."""
        if log is not None and intent.operation.is_done(log, intent.name):
            await self._forget()
            return "another process has completed it, and the files match"
        await self._roll_back(intent)
        return "the files were put back"

    async def _log(self) -> ConversationState | None:
        """Return the conversation as it is in the log, or None if it ended."""
        with suppress(SessionError):
            return await self._session.conversation(os=self._state.os) if self._session else None
        return None

    async def _restore_files(self, intent: Intent, undo: str) -> RestoredFiles:
        """Restore the files; a snapshot of the current ones gets the tag ``undo``."""
        try:
            if isinstance(intent.operation, Undo):
                return await asyncio.to_thread(self._repository.undo, intent.files, undo=undo)
            return await asyncio.to_thread(
                self._repository.restore, intent.files, hard=intent.hard, undo=undo
            )
        except CheckpointError:
            if not (self._repository.folder / JOURNAL).exists():  # else files were changed
                await self._forget()
            raise

    async def _roll_back(self, intent: Intent) -> RestoredFiles | None:
        """Put the files back as they were; later changes are kept in a snapshot."""
        restored = None
        if intent.files and await self._has_restored(intent):
            restored = await asyncio.to_thread(self._repository.undo, intent.name, undo=new_tag())
        await self._forget()
        return restored

    def _update_lines(self, operation: Operation, restored: RestoredFiles | None) -> None:
        """Update the line tracker: changes by a restore are not the user's."""
        paths: tuple[bytes, ...] = ()
        if restored is not None and not operation.conversation:
            paths = (*restored.changes.added, *restored.changes.modified, *restored.changes.deleted)
        work_tree = os.fsencode(self._repository.work_tree)
        self._lines.follow(os.fsdecode(os.path.join(work_tree, path)) for path in paths)

    async def _has_restored(self, intent: Intent) -> bool:
        """Return True if the files were changed already."""
        return await asyncio.to_thread(self._repository.has_restored, intent.name)

    async def _forget(self) -> None:
        await asyncio.to_thread(forget, self._repository.folder)

    def _log_head(self) -> tuple[int, int] | None:
        head = head_of(self._state)
        return (head.branch, head.seq) if head else None


def new_tag() -> str:
    """Return a new, unique tag."""
    return f"c-{ids.message_id()}"
