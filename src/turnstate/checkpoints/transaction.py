"""Restores files and conversation as one recoverable operation: files first, then one write to the log.

    write the intent → restore the files → mark them as placed → commit what the conversation has → apply
    the operation in one write → remove the intent

That one write decides. If it is refused, or the process dies between two steps, the log is read: if it
has the operation, the files stay; if it is unchanged, the next process completes the operation; if
another process continued the conversation, the files are put back as they were.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
from msgspec import Struct, structs

from .. import files, ids
from ..conversation import ConversationState
from ..conversation.edits import LineTracking
from ..errors import CheckpointError, CheckpointsBusy, CheckpointsDamaged, SessionError
from ..home import Home
from ..session import Session
from ..session.timelines import head_of
from ..shadow.health import finding, verify_folder
from ..shadow.repository import ShadowRepository
from ..shadow.restore import NAME as JOURNAL
from ..shadow.values import RestoredFiles
from ..stores.values import Finding
from .operations import LeaveTangent, Operation, Undo

__all__ = [
    "Intent",
    "Recovered",
    "RestoreResult",
    "RestoreTransaction",
    "forget",
    "has_file_changes",
    "locked",
    "new_tag",
    "read",
    "verify",
    "write",
]

NAME = "intent.json"
LOCK = "intent.lock"
_DRAFT = "intent.json.draft"  # not *.tmp, which the sweep of the shadow repository removes
_LOCK_SECONDS = 60.0  # a restore of a large tree takes less


class Intent(Struct, frozen=True, kw_only=True):
    """What is about to happen to the files and the conversation; removed when both agree.

    ``name`` is unique, and is the tag of the files before. ``files`` names the snapshot to restore, if any.
    ``head`` is where the log ended before. ``placed`` is set once the files are restored.
    """

    name: str
    operation: Operation
    files: str = ""
    hard: bool = False
    head: tuple[int, int] | None = None
    placed: bool = False


@asynccontextmanager
async def locked(folder: Path) -> AsyncIterator[None]:
    """Hold the lock under which files and conversation are restored; it ends with its holder."""
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
        os.close(lock)


def write(intent: Intent, folder: Path) -> None:
    """Write an intent durably, over an earlier state of it."""
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


def has_file_changes(folder: Path) -> bool:
    """Return True if a restore of files is incomplete."""
    return (folder / JOURNAL).exists()


class RestoreResult(Struct, frozen=True, kw_only=True):
    """The result of a restore: the checkpoint, and what happened to the files, if they were restored."""

    label: str
    files: RestoredFiles | None
    conversation: bool


class Recovered(Struct, frozen=True, kw_only=True):
    """What became of an interrupted restore: it was finished, or rolled back."""

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
            return await self._execute(intent)

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
                went = await self._execute(intent)
                return Recovered(label=label, finished=True, files=went.files)
            return Recovered(label=label, finished=False, files=await self._roll_back(intent))

    async def settle(self) -> None:
        """Commit what the conversation has not written yet."""
        if self._session is not None:
            await self._session.commit(self._state)

    async def _execute(self, intent: Intent) -> RestoreResult:
        restored = None
        if intent.files and not intent.placed:
            restored = await self._restore_files(intent)
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
        if isinstance(intent.operation, LeaveTangent) and intent.operation.has_recorded_files(
            self._state, intent.name
        ):
            return True
        return intent.head == self._log_head() and intent.operation.is_possible(self._state)

    async def _settle_files(self, log: ConversationState | None, intent: Intent) -> str:
        """Keep the files if another process completed the operation, else put them back; return which."""
        if log is not None and intent.operation.is_done(log, intent.name):
            await self._forget()
            return "another process has completed it, and the files match"
        await self._roll_back(intent)
        return "the files were put back"

    async def _log(self) -> ConversationState | None:
        """Return the conversation as it is in the log, or None if it ended."""
        if self._session is None:
            return None
        try:
            return await self._session.conversation(os=self._state.os)
        except SessionError:
            return None

    async def _restore_files(self, intent: Intent) -> RestoredFiles:
        """Restore the files; the tag of the files before it stays valid on a second attempt."""
        undo = new_tag() if await self._has_restored(intent) else intent.name
        try:
            if isinstance(intent.operation, Undo):
                return await asyncio.to_thread(self._repository.undo, intent.files, undo=undo)
            return await asyncio.to_thread(
                self._repository.restore, intent.files, hard=intent.hard, undo=undo
            )
        except CheckpointError:
            if not has_file_changes(self._repository.folder):
                await self._forget()
            raise

    async def _roll_back(self, intent: Intent) -> RestoredFiles | None:
        """Put the files back as they were; what changed since is in a snapshot."""
        restored = None
        if intent.files and await self._has_restored(intent):
            restored = await asyncio.to_thread(self._repository.undo, intent.name, undo=new_tag())
        await self._forget()
        return restored

    def _update_lines(self, operation: Operation, restored: RestoredFiles | None) -> None:
        """Update the line tracker: what a restore changed, the user did not."""
        put_back = list[str]()
        if restored is not None and not operation.conversation:
            changes = restored.changes
            paths = (*changes.added, *changes.modified, *changes.deleted)
            put_back = [
                os.fsdecode(os.path.join(os.fsencode(self._repository.work_tree), one)) for one in paths
            ]
        self._lines.follow(put_back)

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


def verify(home: Home, *, repair: bool = False) -> Iterator[Finding]:
    """Check all checkpoints in a home; yield what is damaged and what to do about it."""
    for folder in sorted((home.path / "checkpoints").glob("*")):
        if not folder.name.startswith("."):
            yield from verify_folder(folder, repair=repair)
            try:
                read(folder)
            except CheckpointError as error:
                yield finding(("", "", folder.name), str(error))
