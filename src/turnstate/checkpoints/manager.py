"""The checkpoint manager: restores files and conversation together to an earlier point.

A checkpoint is an entry in the log of a session that names a snapshot of the files. Its history is the
log up to that entry, so nothing is copied: a restore is a branch from there. The checkpoints on the path
determine the numbers of turns and tools (see `labels`).

    checkpoints = await CheckpointManager.open(session, "…/project")
    await checkpoints.tool_finished("fs_write", call=call.id)
    await checkpoints.turn_finished("add a retry")
    await checkpoints.restore("1.1")
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self, get_args

from ..conversation.edits import LineTracking
from ..entry import START, Checkpoint, Restore
from ..errors import (
    CheckpointError,
    CheckpointsDamaged,
    GitMissing,
    HomeUnusable,
    InputError,
    NewerFormat,
    UnknownCheckpoint,
    WorkTreeRefused,
)
from ..home import KEY_FILE, Home
from ..ids import CallId, wall_clock
from ..log import operations
from ..log.tangents import begin
from ..message import ToolCallRequest
from ..session import Session
from ..session.lines import TrackedLines
from ..shadow.folder import discard, folder_for, is_in_repository, read_about
from ..shadow.health import WAY_OUT, finding, verify_folder
from ..shadow.purge import Purged
from ..shadow.repository import ShadowRepository
from ..shadow.values import Diff, LeftOut, Snapshot, SnapshotLimits
from ..stores.values import Finding
from ..value import check_kind
from . import questions
from .labels import ASIDE, CheckpointTurn, Numbers, description, numbers, turns
from .questions import Numbered, Standing
from .transaction import (
    Bring,
    LeaveTangent,
    Recovered,
    RestoreOperation,
    RestoreResult,
    RestoreTransaction,
    Undo,
    new_tag,
    read,
)

_COMMIT = re.compile(r"[0-9a-f]{40}")


class CheckpointManager:
    """Checkpoints of one conversation and one work tree; create one with `open`."""

    def __init__(self, session: Session, repository: ShadowRepository) -> None:
        self.session, self.repository = session, repository
        self.left_out: tuple[LeftOut, ...] = ()
        self.recovered: Recovered | None = None
        self.tracked = TrackedLines(session, repository.work_tree, home=Path.home())
        self._transaction = RestoreTransaction(session, repository, self.tracked)
        self._ran = frozenset[CallId]()
        self._recorded = set[str]()  # commits that are known to be in the log

    @property
    def lines(self) -> LineTracking:
        """The line tracker of the work tree."""
        return self.tracked.tracking

    @classmethod
    async def open(
        cls,
        session: Session,
        work_tree: str | os.PathLike[str],
        *,
        home: Home | None = None,
        limits: SnapshotLimits | None = None,
        force: bool = False,
    ) -> Self:
        """Open the checkpoints of a session, take the first one, and recover an interrupted restore.

        ``recovered`` holds the outcome of that restore.
        """
        _check_session(session)
        home = home or Home.from_environment()
        folder = _folder(home, session)
        repository = await asyncio.to_thread(
            lambda: ShadowRepository.open(
                folder,
                work_tree,
                limits=limits or SnapshotLimits(),
                own=_own(home, session),
                force=force,
                tenant=session.info.tenant,
                session=session.id,
            )
        )
        manager = cls(session, repository)
        await manager.tracked.begin()
        manager.recovered = await manager._transaction.finish()
        manager._recorded = await session.ask(questions.newest_of_branches())
        if not await manager._has_start():
            await manager._keep(START, "the start")
        return manager

    @classmethod
    async def reopen(
        cls,
        session: Session,
        work_tree: str | os.PathLike[str] | None = None,
        *,
        home: Home | None = None,
        force: bool = False,
    ) -> Self:
        """Open existing checkpoints, by default with the work tree that they were taken from."""
        _check_session(session)
        home = home or Home.from_environment()
        folder = _folder(home, session)
        if not _is_kept(folder):
            raise UnknownCheckpoint(
                f"there are no checkpoints of {session.id} in {home.path}; "
                "`turnstate checkpoint keep` takes the first"
            )
        if work_tree is None:
            work_tree = os.fsdecode((await asyncio.to_thread(read_about, folder)).work_tree)
        return await cls.open(session, work_tree, home=home, force=force)

    @classmethod
    async def open_in_git(
        cls,
        session: Session,
        work_tree: str | os.PathLike[str],
        *,
        home: Home | None = None,
    ) -> Self | None:
        """Open checkpoints if the work tree is in a Git repository and git is installed, else return None."""
        if not is_in_repository(Path(work_tree)):
            return None
        try:
            return await cls.open(session, work_tree, home=home)
        except (GitMissing, WorkTreeRefused):
            return None

    async def tool_finished(
        self, tool: str, *, call: CallId | None = None, summary: str = ""
    ) -> Checkpoint | None:
        """Take a checkpoint if a tool changed files; call this once its result is in the conversation."""
        standing = await self._standing()
        self._record_run(standing, tool, call)
        if not await asyncio.to_thread(self.repository.has_changes, self._recorded):
            return None
        label = _numbers(standing).next_tool
        return await self._keep(label, summary or tool, tool=tool, call=call, open=standing.open)

    async def turn_finished(self, text: str) -> Checkpoint | None:
        """Take the checkpoint of a turn, described by the user's message; None if no tool changed files."""
        numbers = _numbers(await self._standing())
        return await self._keep(numbers.next_turn, text) if numbers.tools else None

    async def keep(self, text: str) -> Checkpoint:
        """Take a checkpoint at the user's request."""
        return await self._keep((await self.numbers()).next_turn, text)

    async def numbers(self) -> Numbers:
        """Return how many turns are complete, and how many tools changed files in the current one."""
        return _numbers(await self._standing())

    async def turns(self) -> list[CheckpointTurn]:
        """Return the checkpoints of the path, grouped by turn."""
        found, is_interrupted = await self._since_start()
        return turns([one for _, one in found], interrupted=is_interrupted)

    async def on_path(self) -> list[Checkpoint]:
        """Return the checkpoints of the path since the newest start, in order."""
        return [one for _, one in (await self._since_start())[0]]

    async def expand(self, label: str) -> CheckpointTurn:
        """Return a turn with the tools in it."""
        found = next((turn for turn in await self.turns() if turn.label == label), None)
        if found is None:
            raise UnknownCheckpoint(
                f"there is no turn {label:.80} on this path; `list` shows the existing checkpoints"
            )
        return found

    async def diff(self, label: str, other: str | None = None) -> Diff:
        """Compare a checkpoint with another, or with the current files."""
        before = await self._commit(label)
        after = await self._commit(other) if other is not None else None
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
        number, commit = (await self._find(label))[0] if conversation else 0, await self._commit(label)
        if files:
            await self._refuse_damaged({commit: label})
        operation = RestoreOperation(
            label=label, commit=commit, number=number, files=files, conversation=conversation
        )
        return await self._transaction.run(operation, files=commit if files else "", hard=hard)

    async def undo_restore(self) -> RestoreResult:
        """Undo the last restore: return the files and the conversation to what they were before it."""
        newest: tuple[int, Restore] | None = await self.session.ask(questions.newest_restore())
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
        await self.tracked.record()
        name: str = await self.session.operate(begin(files=self._checkpoint(taken, ASIDE, text)))
        self._recorded.add(taken.commit)
        await self.tracked.begin()
        return name

    async def leave_tangent(
        self, bring: Bring = "nothing", *, summary: str | None = None, files: bool = True
    ) -> RestoreResult:
        """Leave the tangent for the main conversation, and bring nothing, the tail, or a summary.

        With ``files``, the files that the tangent changed become what they were before it. `undo_restore`
        does not undo this: reopen the tangent to find its checkpoints, the newest taken by this call.
        If leaving is refused, conversation and files stay in the tangent.
        """
        if bring not in get_args(Bring):
            raise InputError(f"bring must be 'nothing', 'tail' or 'summary', not {bring!r:.40}")
        check_kind("summary", summary, str, optional=True)
        if summary is not None and bring != "summary":
            raise InputError("a summary is given, so pass bring='summary'")
        inside: tuple[str, str] | None = await self.session.ask(questions.in_tangent())
        if inside is None:
            raise CheckpointError("there is no tangent to leave")
        (tangent, before), label = inside, (await self.numbers()).next_turn
        commit = before if files else ""
        changed = bool(commit) and await asyncio.to_thread(self.repository.has_changes)
        operation = LeaveTangent(
            tangent=tangent,
            bring=bring,
            summary=summary,
            kept=label if changed else "",
            at=wall_clock(),
        )
        return await self._transaction.run(operation, files=commit, hard=True)

    async def damaged(self) -> dict[str, str]:
        """Return the damaged checkpoints of the path: what is wrong with each, by commit."""
        names = [one.commit for one in await self.on_path()]
        return await asyncio.to_thread(self.repository.damaged, names, every=True)

    async def clean(self) -> int:
        """Remove the snapshots of all checkpoints and return their size in bytes. Files and log stay."""
        return await asyncio.to_thread(self.repository.clean)

    @staticmethod
    async def count(session: Session, *, home: Home | None = None) -> tuple[int, str]:
        """Return the number of checkpoints on the path and their work tree, without opening them."""
        _check_session(session)
        home = home or Home.from_environment()
        folder = _folder(home, session)
        if not os.path.lexists(folder):
            raise UnknownCheckpoint(f"there are no checkpoints of {session.id} in {home.path}")
        try:
            name = os.fsdecode(read_about(folder).work_tree)
        except (CheckpointsDamaged, NewerFormat):
            name = session.id
        found, _ = await session.ask(questions.since_start())
        return len(found), name

    @staticmethod
    async def discard(session: Session, *, home: Home | None = None) -> int:
        """Remove the snapshots of all checkpoints without opening them, whatever their condition.

        Return their size in bytes.
        """
        _check_session(session)
        home = home or Home.from_environment()
        size = await asyncio.to_thread(discard, home, session.info.tenant, session.id)
        if size is None:
            raise UnknownCheckpoint(f"there are no checkpoints of {session.id} in {home.path}")
        return size

    async def purge(self) -> Purged:
        """Remove files that are now ignored from all snapshots."""
        return await asyncio.to_thread(self.repository.purge)

    async def _keep(
        self,
        label: str,
        text: str,
        *,
        tool: str | None = None,
        call: CallId | None = None,
        open: Sequence[ToolCallRequest] | None = None,
    ) -> Checkpoint:
        """Take a snapshot of the files, and record it in the log as a checkpoint."""
        taken = await self._take(text)
        open_calls = (await self._standing()).open if open is None else open
        ran = tuple(one.id for one in open_calls if one.id in self._ran)
        checkpoint = self._checkpoint(taken, label, text, tool=tool, call=call, ran=ran)
        await self.tracked.record()
        await self.session.operate(operations.write(checkpoint), anywhere=True)
        self._recorded.add(taken.commit)
        return checkpoint

    async def _take(self, text: str) -> Snapshot:
        """Take a snapshot of the files."""
        taken = await asyncio.to_thread(self.repository.snapshot, new_tag(), text)
        self.left_out = taken.left_out
        return taken

    def _checkpoint(
        self,
        taken: Snapshot,
        label: str,
        text: str,
        *,
        tool: str | None = None,
        call: CallId | None = None,
        ran: tuple[CallId, ...] = (),
    ) -> Checkpoint:
        return Checkpoint(
            label=label,
            commit=taken.commit,
            description=description(text),
            at=wall_clock(),
            tool=tool,
            call=call,
            ran=ran,
            added=len(taken.changes.added),
            modified=len(taken.changes.modified),
            deleted=len(taken.changes.deleted),
            work_tree=_readable(self.repository.work_tree) if label == START else "",
        )

    async def _has_start(self) -> bool:
        """Return True if snapshots of this path exist here: not cleaned, and not on another machine."""
        names = [one.commit for one in reversed(await self.on_path())]  # the newest may have been damaged
        return await asyncio.to_thread(self.repository.has_any, names)

    async def _refuse_damaged(self, labels: dict[str, str]) -> None:
        """Raise CheckpointsDamaged if one of these snapshots is damaged; the labels are for its message."""
        for name, problem in (await asyncio.to_thread(self.repository.damaged, [*labels])).items():
            raise CheckpointsDamaged(
                f"checkpoint {labels[name]} is damaged and nothing was changed: {problem}; {WAY_OUT}"
            )

    async def _standing(self) -> Standing:
        """Return where the checkpoints of the path stand, and note which snapshots the log has."""
        found: Standing = await self.session.ask(questions.standing())
        self._recorded.update(one.commit for one in found.newest)
        return found

    async def _since_start(self) -> tuple[Sequence[Numbered], bool]:
        found: tuple[Sequence[Numbered], bool] = await self.session.ask(questions.since_start())
        return found

    def _record_run(self, standing: Standing, tool: str, call: CallId | None) -> None:
        """Remember which open calls have run; without an id, all calls of that tool."""
        ran = {one.id for one in standing.open if one.id == call or (call is None and one.name == tool)}
        self._ran = frozenset(one.id for one in standing.open if one.id in ran | self._ran)

    async def _find(self, label: str) -> Numbered:
        """Return a checkpoint of the path and its number; for an unfinished turn, that of its last tool."""
        found, _ = await self._since_start()
        named = [one for one in found if one[1].label == label]
        if not named:
            named = [one for one in found if one[1].label.startswith(f"{label}.")]
        if not named:
            raise UnknownCheckpoint(
                f"there is no checkpoint {label:.80} on this path; `list` shows the existing checkpoints"
            )
        return named[-1]

    async def _commit(self, label: str) -> str:
        return label if _COMMIT.fullmatch(label) else (await self._find(label))[1].commit


def _check_session(session: object) -> None:
    if not isinstance(session, Session):
        raise InputError(
            "checkpoints are of a session, since they are in its log; open a session first, "
            "on the store memory: if nothing is to be kept"
        )


def _numbers(standing: Standing) -> Numbers:
    return numbers(standing.newest, interrupted=standing.is_interrupted)


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


def _folder(home: Home, session: Session) -> Path:
    return folder_for(home, session.info.tenant, session.id)


def _own(home: Home, session: Session) -> list[Path]:
    """Return the paths of this installation's files; other stores are recognized by their content."""
    homes = [home]
    with suppress(HomeUnusable):
        homes.append(Home.from_environment())
    own = [path for one in homes for path in (one.path, one.path / KEY_FILE)]
    return [*own, *session.files]


def verify(home: Home, *, repair: bool = False) -> Iterator[Finding]:
    """Check all checkpoints in a home; yield what is damaged and what to do about it."""
    for folder in sorted((home.path / "checkpoints").glob("*")):
        if not folder.name.startswith("."):
            yield from verify_folder(folder, repair=repair)
            try:
                read(folder)
            except CheckpointError as error:
                yield finding(("", "", folder.name), str(error))
