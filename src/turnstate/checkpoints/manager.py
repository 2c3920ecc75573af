"""The checkpoint manager: restores files and conversation together to an earlier point.

A checkpoint is an entry in the conversation's log that names a snapshot of the files. Its history is the
log up to that entry, so nothing is copied: a restore is a branch from there. The checkpoints on the path
determine the numbers of turns and tools (see `labels`).

    checkpoints = await CheckpointManager.open(state, "…/project", session=session)
    await checkpoints.tool_finished("fs_write", call=call.id)
    await checkpoints.turn_finished("add a retry")
    await checkpoints.restore("1.1")
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Self

from ..conversation import ConversationState
from ..conversation.edits import LineTracking
from ..entry import START, Checkpoint
from ..errors import (
    CheckpointError,
    CheckpointsDamaged,
    GitMissing,
    HomeUnusable,
    NewerFormat,
    SessionError,
    UnknownCheckpoint,
    WorkTreeRefused,
)
from ..home import KEY_FILE, Home
from ..ids import CallId
from ..message import Message
from ..session import Session
from ..shadow.folder import discard, folder_for, is_in_repository, read_about
from ..shadow.health import WAY_OUT, finding, verify_folder
from ..shadow.purge import Purged
from ..shadow.repository import ShadowRepository
from ..shadow.values import Diff, LeftOut, Snapshot, SnapshotLimits
from ..stores.values import Finding
from .labels import ASIDE, CheckpointTurn, Numbers, description, numbers, turns
from .transaction import (
    Bring,
    LeaveTangent,
    Recovered,
    RestoreOperation,
    RestoreResult,
    RestoreTransaction,
    Undo,
    new_tag,
    newest_restore,
    read,
)

_COMMIT = re.compile(r"[0-9a-f]{40}")


class CheckpointManager:
    """Checkpoints of one conversation and one work tree; create one with `open`."""

    def __init__(
        self, state: ConversationState, repository: ShadowRepository, *, session: Session | None = None
    ) -> None:
        self.state, self.repository = state, repository
        self.left_out: tuple[LeftOut, ...] = ()
        self.recovered: Recovered | None = None
        self.lines = LineTracking(state, repository.work_tree, home=Path.home())
        self._transaction = RestoreTransaction(state, repository, self.lines, session=session)
        self._ran = frozenset[CallId]()

    @classmethod
    async def open(
        cls,
        state: ConversationState,
        work_tree: str | os.PathLike[str],
        *,
        session: Session | None = None,
        home: Home | None = None,
        limits: SnapshotLimits | None = None,
        force: bool = False,
    ) -> Self:
        """Open the checkpoints of a conversation, take the first one, and recover an interrupted restore.

        ``recovered`` holds the outcome of that restore.
        """
        home = home or Home.from_environment()
        folder = _folder(home, state, session)
        repository = await asyncio.to_thread(
            lambda: ShadowRepository.open(
                folder,
                work_tree,
                limits=limits or SnapshotLimits(),
                own=_own(home, session),
                force=force,
                tenant=session.info.tenant if session else "",
                session=state.conversation_id,
            )
        )
        manager = cls(state, repository, session=session)
        manager.recovered = await manager._transaction.finish()
        if not await manager._has_start():
            await manager._keep(START, "the start")
        state.checkpoints = manager
        return manager

    @classmethod
    async def reopen(
        cls,
        state: ConversationState,
        work_tree: str | os.PathLike[str] | None = None,
        *,
        session: Session | None = None,
        home: Home | None = None,
        force: bool = False,
    ) -> Self:
        """Open existing checkpoints, by default with the work tree that they were taken from."""
        home = home or Home.from_environment()
        folder = _folder(home, state, session)
        if not _is_kept(folder):
            raise UnknownCheckpoint(
                f"there are no checkpoints of {state.conversation_id} in {home.path}; "
                "`turnstate checkpoint keep` takes the first"
            )
        if work_tree is None:
            work_tree = os.fsdecode((await asyncio.to_thread(read_about, folder)).work_tree)
        return await cls.open(state, work_tree, session=session, home=home, force=force)

    @classmethod
    async def open_in_git(
        cls,
        state: ConversationState,
        work_tree: str | os.PathLike[str],
        *,
        session: Session | None = None,
        home: Home | None = None,
    ) -> Self | None:
        """Open checkpoints if the work tree is in a Git repository and git is installed, else return None."""
        if not is_in_repository(Path(work_tree)):
            return None
        try:
            return await cls.open(state, work_tree, session=session, home=home)
        except (GitMissing, WorkTreeRefused):
            return None

    async def tool_finished(
        self, tool: str, *, call: CallId | None = None, summary: str = ""
    ) -> Checkpoint | None:
        """Take a checkpoint if a tool changed files; call this once its result is in the conversation."""
        self._record_run(tool, call)
        recorded = {one.commit for timeline in self.state.timelines for _, one in timeline.checkpoints}
        if not await asyncio.to_thread(self.repository.has_changes, recorded):
            return None
        return await self._keep(self.numbers.next_tool, summary or tool, tool=tool, call=call)

    async def turn_finished(self, text: str) -> Checkpoint | None:
        """Take the checkpoint of a turn, described by the user's message; None if no tool changed files."""
        if not self.numbers.tools:
            return None
        return await self._keep(self.numbers.next_turn, text)

    async def keep(self, text: str) -> Checkpoint:
        """Take a checkpoint at the user's request."""
        return await self._keep(self.numbers.next_turn, text)

    @property
    def numbers(self) -> Numbers:
        """How many turns are complete, and how many tools changed files in the current one."""
        return numbers(self._on_path(), interrupted=self._is_interrupted())

    def turns(self) -> list[CheckpointTurn]:
        """Return the checkpoints of the path, grouped by turn."""
        return turns(self._on_path(), interrupted=self._is_interrupted())

    def expand(self, label: str) -> CheckpointTurn:
        """Return a turn with the tools in it."""
        found = next((turn for turn in self.turns() if turn.label == label), None)
        if found is None:
            raise UnknownCheckpoint(
                f"there is no turn {label:.80} on this path; `list` shows the existing checkpoints"
            )
        return found

    async def diff(self, label: str, other: str | None = None) -> Diff:
        """Compare a checkpoint with another, or with the current files."""
        before = self._commit(label)
        after = self._commit(other) if other is not None else None
        await self._refuse_damaged({before: label} | ({after: other} if after and other else {}))
        return await asyncio.to_thread(self.repository.diff, before, after)

    async def restore(
        self, label: str, *, files: bool = True, conversation: bool = True, hard: bool = False
    ) -> RestoreResult:
        """Restore a checkpoint: its files, its conversation, or both; `undo_restore` undoes it.

        Newer files stay; ``hard`` removes those that a checkpoint holds. Without the conversation, the label
        may also be the commit that an earlier restore returned.
        """
        if not (files or conversation):
            raise CheckpointError("nothing to restore; choose files, the conversation, or both")
        number = self._number(label) if conversation else 0
        commit = self._commit(label)
        if files:
            await self._refuse_damaged({commit: label})
        operation = RestoreOperation(
            label=label, commit=commit, number=number, files=files, conversation=conversation
        )
        return await self._transaction.run(operation, files=commit if files else "", hard=hard)

    async def undo_restore(self) -> RestoreResult:
        """Undo the last restore: return the files and the conversation to what they were before it."""
        newest = newest_restore(self.state)
        if newest is None:
            raise UnknownCheckpoint("there is no restore on this path to undo")
        number, last = newest
        if last.files:
            await self._refuse_damaged({last.undo: f"{last.label}, which was restored,"})
        operation = Undo(
            label=last.label,
            number=number,
            undoes=last.undo,
            files=last.files,
            conversation=last.conversation,
        )
        return await self._transaction.run(operation, files=last.undo if last.files else "")

    async def enter_tangent(self) -> str:
        """Begin a tangent with a checkpoint of the current files; return the tangent's name."""
        text = "before the tangent"
        taken = await self._take(text)
        await self._transaction.settle()
        head, timelines = self.state.head, list(self.state.timelines)
        name = self.state.begin_tangent()
        try:
            await self._record(taken, ASIDE, text)
        except SessionError:  # refused: the tangent is only in memory
            self.state.stand_at(head, timelines)
            raise
        return name

    async def leave_tangent(
        self, bring: Bring = "nothing", *, summary: str | None = None, files: bool = True
    ) -> RestoreResult:
        """Leave the tangent for the main conversation, and bring nothing, the tail, or a summary.

        With ``files``, the files that the tangent changed become what they were before it. `undo_restore`
        does not undo this: reopen the tangent to find its checkpoints, the newest taken by this call.
        If leaving is refused, conversation and files stay in the tangent.
        """
        if not self.state.is_in_tangent_mode():
            raise CheckpointError("there is no tangent to leave")
        tangent, label = self.state.head, self.numbers.next_turn
        own = reversed(tangent.entries[tangent.forked_at :])
        before = next((one for one in own if isinstance(one, Checkpoint) and one.label == ASIDE), None)
        commit = before.commit if before is not None and files else ""
        changed = bool(commit) and await asyncio.to_thread(self.repository.has_changes)
        operation = LeaveTangent(
            tangent=tangent.name,
            bring=bring,
            summary=summary,
            kept=label if changed else "",
            at=self.state.os.now(),
        )
        return await self._transaction.run(operation, files=commit, hard=True)

    async def damaged(self) -> dict[str, str]:
        """Return the damaged checkpoints of the path: what is wrong with each, by commit."""
        names = [one.commit for one in self._on_path()]
        return await asyncio.to_thread(self.repository.damaged, names, every=True)

    async def clean(self) -> int:
        """Remove the snapshots of all checkpoints and return their size in bytes. Files and log stay."""
        return await asyncio.to_thread(self.repository.clean)

    @staticmethod
    def count(
        state: ConversationState, *, session: Session | None = None, home: Home | None = None
    ) -> tuple[int, str]:
        """Return the number of checkpoints on a path and their work tree, without opening them."""
        home = home or Home.from_environment()
        folder = _folder(home, state, session)
        if not os.path.lexists(folder):
            raise UnknownCheckpoint(f"there are no checkpoints of {state.conversation_id} in {home.path}")
        try:
            name = os.fsdecode(read_about(folder).work_tree)
        except (CheckpointsDamaged, NewerFormat):
            name = state.conversation_id
        return len(state.head.checkpoints_since_start), name

    @staticmethod
    async def discard(
        state: ConversationState, *, session: Session | None = None, home: Home | None = None
    ) -> int:
        """Remove the snapshots of all checkpoints without opening them, whatever their condition.

        Return their size in bytes.
        """
        home = home or Home.from_environment()
        tenant = session.info.tenant if session else ""
        size = await asyncio.to_thread(discard, home, tenant, state.conversation_id)
        if size is None:
            raise UnknownCheckpoint(f"there are no checkpoints of {state.conversation_id} in {home.path}")
        return size

    async def purge(self) -> Purged:
        """Remove files that are now ignored from all snapshots."""
        return await asyncio.to_thread(self.repository.purge)

    async def _keep(
        self, label: str, text: str, *, tool: str | None = None, call: CallId | None = None
    ) -> Checkpoint:
        return await self._record(await self._take(text), label, text, tool=tool, call=call)

    async def _take(self, text: str) -> Snapshot:
        """Take a snapshot of the files."""
        taken = await asyncio.to_thread(self.repository.snapshot, new_tag(), text)
        self.left_out = taken.left_out
        return taken

    async def _record(
        self, taken: Snapshot, label: str, text: str, *, tool: str | None = None, call: CallId | None = None
    ) -> Checkpoint:
        """Add a checkpoint with this snapshot to the conversation."""
        checkpoint = Checkpoint(
            label=label,
            commit=taken.commit,
            description=description(text),
            at=self.state.os.now(),
            tool=tool,
            call=call,
            ran=tuple(one.id for one in self.state.head.open_calls if one.id in self._ran),
            added=len(taken.changes.added),
            modified=len(taken.changes.modified),
            deleted=len(taken.changes.deleted),
            work_tree=_readable(self.repository.work_tree) if label == START else "",
        )
        self.state.add(checkpoint)
        await self._transaction.settle()
        return checkpoint

    async def _has_start(self) -> bool:
        """Return True if snapshots of this path exist here: not cleaned, and not on another machine."""
        names = [one.commit for one in reversed(self._on_path())]  # the newest may have been damaged
        return await asyncio.to_thread(self.repository.has_any, names)

    async def _refuse_damaged(self, labels: dict[str, str]) -> None:
        """Raise CheckpointsDamaged if one of these snapshots is damaged; the labels are for its message."""
        for name, problem in (await asyncio.to_thread(self.repository.damaged, [*labels])).items():
            raise CheckpointsDamaged(
                f"checkpoint {labels[name]} is damaged and nothing was changed: {problem}; {WAY_OUT}"
            )

    def _record_run(self, tool: str, call: CallId | None) -> None:
        """Remember which open calls have run; without an id, all calls of that tool."""
        open_calls = self.state.head.open_calls
        ran = {one.id for one in open_calls if one.id == call or (call is None and one.name == tool)}
        self._ran = frozenset(one.id for one in open_calls if one.id in ran | self._ran)

    def _find(self, label: str) -> tuple[int, Checkpoint]:
        """Return a checkpoint of the path and its position; for an unfinished turn, that of its last tool."""
        found = self.state.head.checkpoints_since_start
        named = [one for one in found if one[1].label == label]
        if not named:
            named = [one for one in found if one[1].label.startswith(f"{label}.")]
        if not named:
            raise UnknownCheckpoint(
                f"there is no checkpoint {label:.80} on this path; `list` shows the existing checkpoints"
            )
        return named[-1]

    def _number(self, label: str) -> int:
        """Return the number of the checkpoint's entry in the log."""
        place, _ = self._find(label)
        if not place:
            raise UnknownCheckpoint(
                f"checkpoint {label} is before the loaded part of the conversation; "
                "its files can be restored without the conversation"
            )
        return self.state.head.first - 1 + place

    def _commit(self, label: str) -> str:
        return label if _COMMIT.fullmatch(label) else self._find(label)[1].commit

    def _on_path(self) -> list[Checkpoint]:
        return [one for _, one in self.state.head.checkpoints_since_start]

    def _is_interrupted(self) -> bool:
        """Return True if the user has spoken since the newest checkpoint: another turn has begun."""
        found = self.state.head.checkpoints_since_start
        place = found[-1][0] if found else len(self.state.head.entries)
        spoken = self.state.head.entries[place:]
        return any(isinstance(entry, Message) and entry.role == "user" for entry in spoken)


def _is_kept(folder: Path) -> bool:
    """Return True if a folder holds anything, damaged or not."""
    try:
        return any(folder.iterdir())
    except FileNotFoundError:
        return False
    except OSError:
        return True


def _readable(path: Path) -> str:
    """Return a path as text; bytes that are not UTF-8 are escaped."""
    return os.fsencode(path).decode(errors="backslashreplace")


def _folder(home: Home, state: ConversationState, session: Session | None) -> Path:
    return folder_for(home, session.info.tenant if session else "", state.conversation_id)


def _own(home: Home, session: Session | None) -> list[Path]:
    """Return the paths of this installation's files; other stores are recognized by their content."""
    homes = [home]
    with suppress(HomeUnusable):
        homes.append(Home.from_environment())
    own = [path for one in homes for path in (one.path, one.path / KEY_FILE)]
    return [*own, *(session._files if session else ())]


def verify(home: Home, *, repair: bool = False) -> Iterator[Finding]:
    """Check all checkpoints in a home; yield what is damaged and what to do about it."""
    for folder in sorted((home.path / "checkpoints").glob("*")):
        if not folder.name.startswith("."):
            yield from verify_folder(folder, repair=repair)
            try:
                read(folder)
            except CheckpointError as error:
                yield finding(("", "", folder.name), str(error))
