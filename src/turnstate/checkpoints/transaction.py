"""Restores files and conversation as one recoverable operation: files first, then one write to the log.

    write the intent → restore the files → mark them as placed → apply the operation in one write →
    remove the intent

That one write decides. If it is refused, or the process dies between two steps, the log is read: if it
has the operation, the files stay; if it is unchanged, the next process completes the operation; if
another process continued the conversation, the files are put back as they were.

An operation (restore a checkpoint, undo a restore, leave a tangent) is a value, so it can be recorded before
it is applied. It can tell from the log whether it was already applied and whether it still can be.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import ClassVar, Literal

import msgspec
from msgspec import Struct, structs

from .. import files, ids
from ..entry import Checkpoint, Restore
from ..errors import CheckpointError, CheckpointsBusy, CheckpointsDamaged, Conflict, SessionError
from ..log import operations
from ..log.operations import Effect, Here, Operation, Steps
from ..log.tangents import leave
from ..log.undo import restore, undo_restore
from ..session import Session
from ..session.lines import TrackedLines
from ..shadow.repository import ShadowRepository
from ..shadow.restore import NAME as JOURNAL
from ..shadow.values import RestoredFiles
from ..stores.values import Position
from .questions import newest_entry, on_path, restores
from .questions import tangents as tangents_around

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

    def is_done(self, here: Here, name: str) -> Steps[bool]:
        """Return True if the conversation has this restore."""
        return name in [one.undo for _, one in (yield from restores(here))]

    def is_possible(self, here: Here) -> Steps[bool]:
        """Return True if the checkpoint is still at its place."""
        found = (yield from on_path(here, self.number)) if self.conversation else None
        entry = found.entry if found else None
        return not self.conversation or (isinstance(entry, Checkpoint) and entry.commit == self.commit)

    def change(self, name: str) -> Operation:
        """Go back to the checkpoint, and answer the calls that were open then."""
        mark = Restore(
            label=self.label,
            commit=self.commit,
            undo=name,
            files=self.files,
            conversation=self.conversation,
        )
        if not self.conversation:
            return operations.write(mark)

        def steps(here: Here) -> Steps[Effect]:
            found = yield from on_path(here, self.number)
            if found is None or not isinstance(found.entry, Checkpoint):
                raise changed(here)
            return (yield from restore(self.number, found.entry, mark)(here))

        return steps


class Undo(Struct, frozen=True, kw_only=True, tag="undo", tag_field="operation"):
    """Undo a restore; ``number`` is the number of its entry in the log, ``undoes`` its name."""

    label: str
    number: int
    undoes: str
    files: bool
    conversation: bool

    def is_done(self, here: Here, name: str) -> Steps[bool]:
        """Return True if the restore is off the path or recorded as undone."""
        names = [one.undo for _, one in (yield from restores(here))]
        return self.undoes not in names if self.conversation else name in names

    def is_possible(self, here: Here) -> Steps[bool]:
        """Return True if the restore is on the path."""
        return self.undoes in [one.undo for _, one in (yield from restores(here))]

    def change(self, name: str) -> Operation:
        """Return to the branch before the restore; a restore of files only is recorded as undone."""
        if self.conversation:
            return undo_restore(self.number)
        return operations.write(
            Restore(label=self.label, commit="", undo=name, conversation=False, undone=self.number)
        )


class LeaveTangent(Struct, frozen=True, kw_only=True, tag="leave", tag_field="operation"):
    """Leave a tangent; ``kept`` labels the checkpoint of files that no other checkpoint holds, if any."""

    tangent: str
    bring: Bring = "nothing"
    summary: str | None = None
    kept: str = ""
    at: int = 0

    label: ClassVar[str] = "tangent"  # the checkpoint that the files go back to
    conversation: ClassVar[bool] = True  # the conversation always goes back

    def is_done(self, here: Here, _name: str) -> Steps[bool]:
        """Return True if the conversation is neither in the tangent nor in one nested in it."""
        return self.tangent not in (yield from tangents_around(here))

    def is_possible(self, here: Here) -> Steps[bool]:
        """Return True if the tangent is the current one."""
        return self.tangent in (yield from tangents_around(here))[:1]

    def record_files(self, name: str) -> Operation:
        """Add a checkpoint of the tangent's files to the tangent, in a write before the operation's own."""
        kept = Checkpoint(label=self.kept, commit=name, description="when the tangent was left", at=self.at)

        def steps(here: Here) -> Steps[Effect]:
            if not self.kept or (yield from _ends_with_files(here, name)):
                return Effect()
            return Effect(entries=(kept,))

        return steps

    def has_recorded_files(self, here: Here, name: str) -> Steps[bool]:
        """Return True if the checkpoint of the tangent's files is the last entry in it."""
        return (yield from self.is_possible(here)) and (yield from _ends_with_files(here, name))

    def change(self, _name: str) -> Operation:
        """Go back to where the tangent began."""
        match self.bring:
            case "nothing":
                return leave()
            case "tail":
                return leave("tail")
            case "summary":
                return leave("summary", self.summary)


Change = RestoreOperation | Undo | LeaveTangent


def changed(here: Here) -> CheckpointError:
    """Return the error for a conversation that another process changed meanwhile."""
    return CheckpointError(f"conversation {here.id} has changed since; nothing was restored")


def _ends_with_files(here: Here, name: str) -> Steps[bool]:
    last = yield from newest_entry(here)
    entry = last.entry if last else None
    return isinstance(entry, Checkpoint) and entry.commit == name


def _at(head: Position, operation: Operation) -> Operation:
    """Return an operation that raises `Conflict` unless the head is still there."""

    def steps(here: Here) -> Steps[Effect]:
        if here.head != head:
            raise Conflict(
                f"session {here.id}: another process went on while files were restored",
                version=0,
                head=here.head,
            )
        return (yield from operation(here))

    return steps


class Intent(Struct, frozen=True, kw_only=True):
    """A planned change to the files and the conversation; removed when both agree.

    ``name`` is unique and tags the snapshot of the files before the change. ``files`` names the snapshot to
    restore, if any. ``head`` is where the log ended before. ``placed`` is set once the files are restored.
    """

    name: str
    operation: Change
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

    def __init__(self, session: Session, repository: ShadowRepository, lines: TrackedLines) -> None:
        self._session, self._repository, self._lines = session, repository, lines

    async def run(self, operation: Change, *, files: str, hard: bool = False) -> RestoreResult:
        """Apply an operation; restore the snapshot ``files`` first, if one is named."""
        self._repository.owner.check()
        folder = self._repository.folder
        async with locked(folder):
            if await asyncio.to_thread(read, folder) is not None:
                raise CheckpointError(
                    f"an earlier restore in {folder} was interrupted; open the checkpoints again"
                )
            await self._lines.record()
            head, is_possible = await self._ask(operation.is_possible)
            if not is_possible:
                raise CheckpointError(
                    f"conversation {self._session.id} has changed since; nothing was restored"
                )
            intent = Intent(name=new_tag(), operation=operation, files=files, hard=hard, head=head)
            await asyncio.to_thread(write, intent, folder)
            return await self._execute(intent, again=False)

    async def finish(self) -> Recovered | None:
        """Recover a restore that another process began and did not finish."""
        async with locked(self._repository.folder):
            intent = await asyncio.to_thread(read, self._repository.folder)
            if intent is None:
                return None
            operation, label = intent.operation, intent.operation.label
            if await self._is_done(intent) and (intent.placed or not intent.files):
                await self._forget()
                return Recovered(label=label, finished=True)
            head, is_possible = await self._ask(operation.is_possible)
            is_unchanged = intent.head == head and is_possible
            if isinstance(operation, LeaveTangent) and not is_unchanged:  # it may end with its own checkpoint
                leaving = partial(operation.has_recorded_files, name=intent.name)
                head, is_unchanged = await self._ask(leaving)
            if is_unchanged:
                went = await self._execute(structs.replace(intent, head=head), again=True)
                return Recovered(label=label, finished=True, files=went.files)
            return Recovered(label=label, finished=False, files=await self._roll_back(intent))

    async def _ask(self, question: Callable[[Here], Steps[bool]]) -> tuple[Position, bool]:
        """Return the head, and the answer to a question about the conversation there."""

        def steps(here: Here) -> Steps[Effect]:
            return Effect(result=(here.head, (yield from question(here))))

        found: tuple[Position, bool] = await self._session.ask(steps)
        return found

    async def _is_done(self, intent: Intent) -> bool:
        return (await self._ask(lambda here: intent.operation.is_done(here, intent.name)))[1]

    async def _execute(self, intent: Intent, *, again: bool) -> RestoreResult:
        restored = None
        if intent.files and not intent.placed:
            # On a second attempt, keep the tag that names the files before the first attempt.
            undo = new_tag() if again and await self._has_restored(intent) else intent.name
            restored = await self._restore_files(intent, undo)
            intent = structs.replace(intent, placed=True)
            await asyncio.to_thread(write, intent, self._repository.folder)
        await self._apply(intent)
        await self._update_lines(intent.operation, restored)
        await self._forget()
        return RestoreResult(
            label=intent.operation.label, files=restored, conversation=intent.operation.conversation
        )

    async def _apply(self, intent: Intent) -> None:
        """Apply the operation to the conversation; if the log refuses it, make the files match the log.

        The operation is one write at the head that the intent names, so no other process comes in between.
        """
        operation, head = intent.operation, Position(*(intent.head or (1, 0)))
        try:
            if isinstance(operation, LeaveTangent):
                await self._session.operate(_at(head, operation.record_files(intent.name)))
                head = Position(self._session.info.branch, self._session.info.seq)
            await self._session.operate(_at(head, operation.change(intent.name)))
        except SessionError as refusal:
            refusal.add_note(await self._settle_files(intent))
            raise

    async def _settle_files(self, intent: Intent) -> str:
        """Keep the files if another process completed the operation, else put them back; say which."""
        with suppress(SessionError):  # such as an epoch that ended: the files are put back
            if await self._is_done(intent):
                await self._forget()
                return "another process has completed it, and the files match"
        await self._roll_back(intent)
        return "the files were put back"

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

    async def _update_lines(self, operation: Change, restored: RestoredFiles | None) -> None:
        """Update the line tracker: changes by a restore are not the user's."""
        paths: tuple[bytes, ...] = ()
        if restored is not None and not operation.conversation:
            paths = (*restored.changes.added, *restored.changes.modified, *restored.changes.deleted)
        work_tree = os.fsencode(self._repository.work_tree)
        with suppress(SessionError):  # such as a lease that somebody took since: only this is refused
            await self._lines.follow([os.fsdecode(os.path.join(work_tree, path)) for path in paths])

    async def _has_restored(self, intent: Intent) -> bool:
        """Return True if the files were changed already."""
        return await asyncio.to_thread(self._repository.has_restored, intent.name)

    async def _forget(self) -> None:
        await asyncio.to_thread(forget, self._repository.folder)


def new_tag() -> str:
    """Return a new, unique tag."""
    return f"c-{ids.message_id()}"
