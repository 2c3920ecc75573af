"""Carrying an intent out: the files first, then the conversation, and what is done if one of them fails.

    intent down → files brought back → placed → all that was said is written → one write → intent gone

The one write decides. Refused, or killed between two of these, the log is asked: where the conversation
has the act, the files stay with it; where it stands as it stood, the next process does the rest; where
somebody went on with it meanwhile, the files are put back as they were.
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
    "alone",
    "forget",
    "has_file_changes",
    "new_tag",
    "read",
    "verify",
    "write",
]

# The intent of a restore: written before anything is changed, removed when files and conversation agree.


NAME = "intent.json"
LOCK = "intent.lock"
_DRAFT = "intent.json.draft"  # not *.tmp, which the sweep of the shadow repository removes
_LOCK_SECONDS = 60.0  # seconds to wait for another process; a restore of a large tree takes less


class Intent(Struct, frozen=True, kw_only=True):
    """What is about to happen: to the files, and to the conversation.

    ``name`` is new for each, and is the tag of the files before. ``files`` names those to bring back, if
    any. ``head`` is where the log ended before. ``placed`` is set once the files are there.
    """

    name: str
    act: Operation
    files: str = ""
    hard: bool = False
    head: tuple[int, int] | None = None
    placed: bool = False


@asynccontextmanager
async def alone(folder: Path) -> AsyncIterator[None]:
    """Hold the lock under which files and conversation are restored; it ends with its holder."""
    try:
        deadline = time.monotonic() + _LOCK_SECONDS
        while (lock := files.try_lock(folder / LOCK)) is None:
            if time.monotonic() > deadline:
                raise CheckpointsBusy(f"another process is restoring a checkpoint of {folder}; wait for it")
            await asyncio.sleep(0.02)
    except OSError as error:
        raise CheckpointsDamaged(
            f"there are no checkpoints in {folder} any more that could be locked: {error.strerror}; "
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
        raise CheckpointError(f"nothing was restored, since {folder} refuses: {error.strerror}") from error


def read(folder: Path) -> Intent | None:
    """Return the intent that a process left, if one did."""
    try:
        data = (folder / NAME).read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CheckpointsDamaged(f"{folder / NAME} cannot be read: {error.strerror}") from error
    try:
        return msgspec.json.decode(data, type=Intent)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CheckpointsDamaged(f"{folder / NAME} cannot be read: {error}; remove it to go on") from None


def forget(folder: Path) -> None:
    """Remove an intent that was carried out or given up."""
    (folder / NAME).unlink(missing_ok=True)
    files.sync_folder(folder)


def has_file_changes(folder: Path) -> bool:
    """Return True if files have been changed, and more are about to be."""
    return (folder / JOURNAL).exists()


class RestoreResult(Struct, frozen=True, kw_only=True):
    """What a restore came to: the checkpoint, and what happened to the files, if they were meant."""

    label: str
    files: RestoredFiles | None
    conversation: bool


class Recovered(Struct, frozen=True, kw_only=True):
    """What became of a restore that was cut off: it was finished, or taken back."""

    label: str
    finished: bool
    files: RestoredFiles | None = None


class RestoreTransaction:
    """Moves the files and the conversation of one manager together."""

    def __init__(
        self,
        state: ConversationState,
        repository: ShadowRepository,
        lines: LineTracking,
        *,
        session: Session | None,
    ) -> None:
        self._state, self._repository, self._lines, self._session = state, repository, lines, session

    async def carry(self, act: Operation, *, files: str, hard: bool = False) -> RestoreResult:
        """Do an act, with files that are brought back first, if any are named."""
        folder = self._repository.folder
        async with alone(folder):
            if await asyncio.to_thread(read, folder) is not None:
                raise CheckpointError(
                    f"an earlier restore in {folder} was cut off; open the checkpoints again to settle it"
                )
            await self.settle()
            if not act.is_possible(self._state):
                raise CheckpointError(
                    f"conversation {self._state.conversation_id} went elsewhere meanwhile; nothing was done"
                )
            intent = Intent(name=new_tag(), act=act, files=files, hard=hard, head=self._log_head())
            await asyncio.to_thread(write, intent, folder)
            return await self._execute(intent)

    async def finish(self) -> Recovered | None:
        """Settle what a process that died had begun."""
        async with alone(self._repository.folder):
            intent = await asyncio.to_thread(read, self._repository.folder)
            if intent is None:
                return None
            label, done = intent.act.label, intent.act.is_done(self._state, intent.name)
            if done and (intent.placed or not intent.files):
                await self._forget()
                return Recovered(label=label, finished=True)
            if self._is_unchanged(intent):
                went = await self._execute(intent)
                return Recovered(label=label, finished=True, files=went.files)
            return Recovered(label=label, finished=False, files=await self._roll_back(intent))

    async def settle(self) -> None:
        """Write what the conversation has to say."""
        if self._session is not None:
            await self._session.commit(self._state)

    async def _execute(self, intent: Intent) -> RestoreResult:
        restored = None
        if intent.files and not intent.placed:
            restored = await self._restore_files(intent)
            intent = structs.replace(intent, placed=True)
            await asyncio.to_thread(write, intent, self._repository.folder)
        await self._go(intent, restored)
        await self._forget()
        return RestoreResult(label=intent.act.label, files=restored, conversation=intent.act.conversation)

    async def _go(self, intent: Intent, restored: RestoredFiles | None) -> None:
        """Let the conversation go where the files are; where it is refused, they go where the log is."""
        begun = written = False
        try:
            if isinstance(intent.act, LeaveTangent):
                intent.act.record_files(self._state, intent.name)
            await self.settle()  # what was said meanwhile, too: so the act itself is one write
            head, begun = self._log_head(), True
            await intent.act.do(self._state, self._session, intent.name)
            written = self._log_head() != head
            self._follow(intent.act, restored)
            await self.settle()
        except SessionError as refusal:
            if written:  # somebody went on behind it already: only what the line tracker notes is refused
                return
            log = await self._log()
            if begun and log is not None:  # which has all that the state had to say
                self._state.adopt(log)
            refusal.add_note(await self._settle_files(log, intent))
            raise

    def _is_unchanged(self, intent: Intent) -> bool:
        """Return True if nobody but the one who wrote the intent went on with the conversation since."""
        if isinstance(intent.act, LeaveTangent) and intent.act.has_recorded_files(self._state, intent.name):
            return True
        return intent.head == self._log_head() and intent.act.is_possible(self._state)

    async def _settle_files(self, log: ConversationState | None, intent: Intent) -> str:
        """Leave the files where the log has gone by somebody else's doing, or put them back; return which."""
        if log is not None and intent.act.is_done(log, intent.name):
            await self._forget()
            return "somebody else has done it already, and the files are those that belong to it"
        await self._roll_back(intent)
        return "the files are as they were"

    async def _log(self) -> ConversationState | None:
        """See the conversation as it is in the log; None where it has ended there."""
        if self._session is None:
            return None
        try:
            return await self._session.conversation(os=self._state.os)
        except SessionError:
            return None

    async def _restore_files(self, intent: Intent) -> RestoredFiles:
        """Bring the files back; the tag of those before stands for them, also if this is the second try."""
        undo = new_tag() if await self._has_restored(intent) else intent.name
        try:
            if isinstance(intent.act, Undo):
                return await asyncio.to_thread(self._repository.undo, intent.files, undo=undo)
            return await asyncio.to_thread(
                self._repository.restore, intent.files, hard=intent.hard, undo=undo
            )
        except CheckpointError:
            if not has_file_changes(self._repository.folder):
                await self._forget()
            raise

    async def _roll_back(self, intent: Intent) -> RestoredFiles | None:
        """Put the files back as they were before; what was changed since is in a snapshot."""
        restored = None
        if intent.files and await self._has_restored(intent):
            restored = await asyncio.to_thread(self._repository.undo, intent.name, undo=new_tag())
        await self._forget()
        return restored

    def _follow(self, act: Operation, restored: RestoredFiles | None) -> None:
        """Keep the line tracker true: what a restore changed, the user did not."""
        put_back = list[str]()
        if restored is not None and not act.conversation:
            changes = restored.changes
            paths = (*changes.added, *changes.modified, *changes.deleted)
            put_back = [
                os.fsdecode(os.path.join(os.fsencode(self._repository.work_tree), one)) for one in paths
            ]
        self._lines.follow(put_back)

    async def _has_restored(self, intent: Intent) -> bool:
        """Return True if files were changed already; before that, those of now are still those before."""
        return await asyncio.to_thread(self._repository.has_restored, intent.name)

    async def _forget(self) -> None:
        await asyncio.to_thread(forget, self._repository.folder)

    def _log_head(self) -> tuple[int, int] | None:
        head = head_of(self._state)
        return (head.branch, head.seq) if head else None


def new_tag() -> str:
    """Make a tag that nothing has."""
    return f"c-{ids.message_id()}"


def verify(home: Home, *, repair: bool = False) -> Iterator[Finding]:
    """Check all checkpoints in a home; return what is damaged and what to do about it."""
    for folder in sorted((home.path / "checkpoints").glob("*")):
        if not folder.name.startswith("."):
            yield from verify_folder(folder, repair=repair)
            try:
                read(folder)
            except CheckpointError as error:
                yield finding(("", "", folder.name), str(error))
