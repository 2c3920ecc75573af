"""The shadow repository: snapshots of a work tree in a git repository of our own, outside of it.

It knows files, not conversations. It reads only the ignore rules and the tracked names of the user's
repository, runs none of its hooks or filters, and writes to the work tree only in a restore. Every
method takes the lock, so several processes can share the checkpoints.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Protocol

from ..errors import CheckpointError, CheckpointsDamaged, GitFailed, RestoreFailed, WorkTreeRefused
from ..process import Owner
from ..stores.values import Finding
from . import folder as folders
from . import packs
from . import restore as journals
from .contents import (
    RECORDS,
    RULES,
    TAGS,
    WAS,
    RepositoryState,
    check_tag,
    commit_named,
    is_known,
    newest_checkpoint,
    newest_snapshot,
    references,
    resolve,
    tree_of,
)
from .folder import checked_work_tree
from .git import Git, locked
from .health import WAY_OUT, Survey, repair_heads, verify_folder
from .history import diff, tagged
from .ignore import holds_rules
from .new_snapshot import STAMPS, Captured, ShadowSettings, current_tree, examine, take
from .plan import RestorePlan, RestoreRecord, restore_plan, undo_plan, without_unchanged
from .protected import Owned, OwnPlaces
from .purge import Purged, ignored_now, purge
from .restore import Journal, perform
from .values import Diff, KeptPath, LeftOut, RestoredFiles, Snapshot, SnapshotLimits


class _Planner(Protocol):
    def __call__(
        self, git: Git, work_tree: Path, captured: Captured, owned: Owned, *, target: str
    ) -> tuple[RestorePlan, tuple[KeptPath, ...]]: ...


class ShadowRepository:
    """Snapshots of one work tree; create one with `open`."""

    def __init__(self, settings: ShadowSettings) -> None:
        self.recovered: RestoredFiles | None = None
        self._settings = settings
        self._suspect = False
        self.owner = Owner(self, f"the checkpoints of {settings.work_tree}")

    @classmethod
    def open(
        cls,
        folder: str | os.PathLike[str],
        work_tree: str | os.PathLike[str],
        *,
        limits: SnapshotLimits = SnapshotLimits(),  # noqa: B008
        own: Iterable[str | os.PathLike[str]] = (),
        force: bool = False,
        tenant: str = "",
        session: str = "",
        clock: Callable[[], float] = time.time,
    ) -> ShadowRepository:
        """Open or create the checkpoints in a folder, and finish a restore that was interrupted.

        Files of the work tree at the paths of ``own`` are never captured or changed, nor are files whose
        content shows that they belong to Turnstate. ``recovered`` holds the result of a restore that was
        finished. With ``force``, a home folder and a work tree that was moved are accepted. ``tenant`` and
        ``session`` are recorded so that people can see whose checkpoints these are.
        """
        kept = Path(os.path.abspath(folder))
        real = checked_work_tree(Path(work_tree), kept, force=force)
        folders.make_accessible(kept)
        about = folders.About(work_tree=os.fsencode(real), tenant=tenant, session=session)
        if not (kept / "about.json").exists() and not (kept / "repository").exists():
            folders.make(kept, about)
        try:
            written = folders.read_about(kept)
        except CheckpointsDamaged:
            if not force:
                raise
            folders.write_about(kept, about)
            written = about
        if written.work_tree != about.work_tree and not force:
            raise WorkTreeRefused(
                f"the checkpoints in {kept} are of {os.fsdecode(written.work_tree)}, not of {real}; "
                "force it if the folder was moved"
            )
        settings = ShadowSettings(kept, real, limits, OwnPlaces(real, [kept, *own]), force=force, clock=clock)
        repository = cls(settings)
        with repository._locked(opening=True):
            return repository

    @property
    def folder(self) -> Path:
        """The folder of the checkpoints."""
        return self._settings.folder

    @property
    def work_tree(self) -> Path:
        """The folder that the checkpoints are taken of."""
        return self._settings.work_tree

    def snapshot(self, tag: str = "", message: str = "") -> Snapshot:
        """Take a snapshot of the files; if the tag exists, it moves to the new snapshot."""
        if tag:
            check_tag(tag)
        with self._locked() as git:
            return take(self._settings, git, tag=tag, message=message, checkpoint=True)[0]

    def snapshots(self) -> list[Snapshot]:
        """Return the readable snapshots that have a tag, the oldest first."""
        with self._locked() as git:
            return [
                Snapshot(commit=one.commit, tag=one.tag, message=one.message, seconds=one.seconds)
                for one in tagged(git)
            ]

    def has_changes(self, recorded: Collection[str] | None = None) -> bool:
        """Return True if the files differ from those of the last snapshot.

        With ``recorded``, also return True if the last snapshot is a checkpoint that is not among these
        commits: the process that took it ended before it could record it.
        """
        with self._locked() as git:
            last = newest_snapshot(git)
            if recorded is not None and last and last == newest_checkpoint(git):
                names = {last, *(old for old, new in references(git, WAS).items() if new == last)}
                if names.isdisjoint(recorded):
                    return True
            return not examine(self._settings, git, last, pack=None)[1]

    def left_out(self) -> tuple[LeftOut, ...]:
        """Return what a snapshot taken now would leave out."""
        with self._locked() as git:
            return examine(self._settings, git, newest_snapshot(git), pack=None)[0].left_out

    def diff(self, before: str, after: str | None = None) -> Diff:
        """Compare a snapshot, by tag or commit, with another or with the current files."""
        with self._locked() as git:
            first = tree_of(git, resolve(git, before))
            if after is not None:
                return diff(git, first, tree_of(git, resolve(git, after)))
            with current_tree(self._settings, git) as (apart, tree):
                return diff(apart, first, tree)

    def restore(self, name: str, *, hard: bool = False, undo: str = "undo") -> RestoredFiles:
        """Restore the files of a snapshot. Newer files stay; ``hard`` removes those that a checkpoint holds.

        The current files are kept first, under the tag ``undo``; only what that snapshot holds is replaced
        or removed.
        """
        with self._locked() as git:
            plan = partial(restore_plan, base=newest_checkpoint(git), hard=hard)
            return self._restore(git, name, plan, hard=hard, undo=undo)

    def undo(self, name: str = "undo", *, undo: str = "undo") -> RestoredFiles:
        """Undo the restore that kept the previous files under this tag.

        Files that it replaced or removed come back. Files that it created are removed if they are unchanged;
        newer files stay. The files before the undo are kept under the tag ``undo``, so it can be undone, too.
        """
        with self._locked() as git:
            record, lost = self._record(git, name)
            plan = partial(undo_plan, record=record, most=self._settings.limits.file_bytes)
            return self._restore(git, name, plan, undo=undo, undoes=name, lost=lost)

    def has_restored(self, tag: str) -> bool:
        """Return True if the restore with this undo tag changed files."""
        with self._locked() as git:
            return tag in references(git, RECORDS)

    def ignored_now(self) -> tuple[bytes, ...]:
        """Return the files in snapshots that the rules in the work tree ignore now."""
        with self._locked() as git:
            return ignored_now(self._settings, git)

    def purge(self) -> Purged:
        """Remove the files that are ignored now from all snapshots; the snapshots keep their names."""
        with self._locked() as git:
            return purge(self._settings, git)

    def has_any(self, names: Sequence[str]) -> bool:
        """Return True if any of these snapshots exists, or may have existed before damage."""
        with self._locked() as git:
            return bool(names) and (any(is_known(git, name) for name in names) or self._suspect)

    def damaged(self, names: Collection[str], *, every: bool = False) -> dict[str, str]:
        """Return which of these snapshots, by tag or commit, are damaged, and how.

        Snapshots are checked only if damage was found in the repository; `verify` always checks. Pass
        ``every`` if these are all the snapshots in use: if all are sound, and all tagged ones too, the
        repository counts as sound again.
        """
        with self._locked() as git:
            found = self._damaged(git, names)
            if every and self._suspect and not found:
                self._suspect = bool(self._damaged(git, references(git, TAGS)))
            return found

    def verify(self) -> list[Finding]:
        """Check every byte of the repository; change nothing."""
        return list(verify_folder(self.folder))

    def clean(self) -> int:
        """Remove all checkpoints and return their size in bytes. The files in the work tree stay."""
        self.owner.check()
        with locked(self.folder):
            return folders.remove(self.folder)

    def _damaged(self, git: Git, names: Collection[str]) -> dict[str, str]:
        if not self._suspect:
            return {}
        survey = Survey(git)
        found = {name: survey.problem(commit_named(git, name)) for name in names}
        return {name: problem for name, problem in found.items() if problem}

    def _restore(
        self,
        git: Git,
        name: str,
        plan: _Planner,
        *,
        undo: str,
        undoes: str = "",
        hard: bool = False,
        lost: tuple[KeptPath, ...] = (),
    ) -> RestoredFiles:
        """Take a snapshot of the current files, plan the restore, and carry it out with a journal."""
        check_tag(undo)
        target = resolve(git, name)
        if problem := self._damaged(git, [target]).get(target):
            raise CheckpointsDamaged(f"{name} was not restored and no file was changed: {problem}")
        done = f"the restore {name} was undone" if undoes else f"{name} was restored"
        before, captured = take(self._settings, git, tag=undo, message=f"before {done}", beside=target)
        owned, most = self._owned(), self._settings.limits.file_bytes
        steps, kept = plan(git, self.work_tree, captured, owned, target=target)
        kept = (*kept, *lost)
        steps = without_unchanged(self.work_tree, steps, owned, most=most)
        journal = Journal(
            id=secrets.token_hex(8),
            name=name,
            target=target,
            undo=before.commit,
            hard=hard,
            plan=steps,
            kept=kept,
            tag=undo,
            undoes=undoes,
            rules=any(holds_rules(self.work_tree, path, captured.users_rules) for path in steps.paths),
        )
        if not steps:
            return _restored(journal, before, kept)
        journals.write(journal, self.folder)
        try:
            return self._finish(git, journal, again=False)
        except RestoreFailed:
            journals.remove(self.folder)
            raise

    def _finish(self, git: Git, journal: Journal, *, again: bool) -> RestoredFiles:
        """Carry out a journal; it is removed once the files and a snapshot of them are durable."""
        most, owned = self._settings.limits.file_bytes, self._owned()
        kept = perform(self.work_tree, git, journal, again=again, most=most, owned=owned)
        kept = (*journal.kept, *kept)
        names = dict[str, str]()
        if journal.undoes and journal.undoes in references(git, RULES):
            names[RULES + journal.undoes] = ""
        elif journal.rules and journal.tag and not journal.undoes:
            names[RULES + journal.tag] = journal.undo
        done = f"the restore {journal.name} was undone" if journal.undoes else f"{journal.name} was restored"
        try:
            after, _ = take(
                self._settings,
                git,
                tag="",
                message=f"after {done}",
                beside=journal.undo,
                names=names,
                record=(RECORDS + journal.tag, RestoreRecord.of(journal.plan, kept).encoded())
                if journal.tag
                else None,
            )
        except CheckpointsDamaged:
            if not again:
                raise
            after = Snapshot(commit=journal.undo)  # the files are in place; the next snapshot has them
        journals.remove(self.folder)
        return _restored(journal, after, kept)

    def _record(self, git: Git, tag: str) -> tuple[RestoreRecord, tuple[KeptPath, ...]]:
        """Return the record of a restore, empty if it changed no file."""
        records = references(git, RECORDS)
        if tag not in records:
            return RestoreRecord(), ()
        try:
            return RestoreRecord.decoded(git.objects.read(records[tag])), ()
        except CheckpointsDamaged:
            return RestoreRecord(), (
                KeptPath(b".", "the record of the restore is damaged; the files that it created stay"),
            )

    def _owned(self) -> Owned:
        return self._settings.own.now()

    @contextmanager
    def _locked(self, *, opening: bool = False) -> Iterator[Git]:
        """Lock the repository, clean up after a crashed process and finish its restore."""
        self.owner.check()
        with (
            locked(self.folder) as lock,
            Git(self.folder / "repository", held=(lock,)) as git,
        ):
            try:
                self._contain_damage(git, opening=opening)
                if (journal := journals.read(self.folder)) is not None:
                    self.recovered = self._finish(git, journal, again=True)
                yield git
                self._save_state(git)
            except OSError as error:
                raise CheckpointError(
                    f"the checkpoints of {self.work_tree} cannot be used: {error}; {WAY_OUT}"
                ) from error
            except RestoreFailed as error:
                if isinstance(error.__cause__, CheckpointsDamaged):
                    self._check_all_packs(git)
                raise
            except (GitFailed, CheckpointsDamaged) as error:
                found, text = self._check_all_packs(git), f"{error}; {WAY_OUT}"
                if isinstance(error, GitFailed) and not found:
                    raise GitFailed(text, stderr=error.stderr) from error
                raise CheckpointsDamaged(text) from error

    def _contain_damage(self, git: Git, *, opening: bool) -> None:
        """Clean up and repair if files changed since the last check; note whether objects may be missing."""
        known = RepositoryState.load(self.folder)
        self._suspect = known is not None and known.suspect
        if not opening and known == RepositoryState.current(git, suspect=self._suspect):
            return
        folders.sweep(self.folder)
        folders.repair_layout(self.folder)
        now = RepositoryState.current(git, suspect=self._suspect)
        if known is not None and (known.packs, known.references) == (now.packs, now.references):
            return
        checked = packs.check(git, self.folder)
        self._suspect = checked.suspect
        if checked.found:
            (self.folder / STAMPS).unlink(missing_ok=True)  # it names objects that may be missing
        if checked.changed:
            repair_heads(git)

    def _save_state(self, git: Git) -> None:
        """Save the state of the files for the next check; join the packs first if there are too many."""
        state = RepositoryState.current(git, suspect=self._suspect)
        if len(state.packs) > packs.MAX_PACKS:
            with suppress(GitFailed, OSError):  # snapshots are durable; joining packs can wait
                packs.join(git)
            state = RepositoryState.current(git, suspect=self._suspect)
        state.save(self.folder)

    def _check_all_packs(self, git: Git) -> bool:
        """Check everything after a failure to contain damage; return False if all packs are sound."""
        with suppress(CheckpointError, OSError):
            folders.repair_layout(self.folder)
            if not packs.check(git, self.folder, deep=True).found:
                return False
            (self.folder / STAMPS).unlink(missing_ok=True)
        return True


def _restored(journal: Journal, after: Snapshot, kept: tuple[KeptPath, ...]) -> RestoredFiles:
    reported = {one.path for one in kept}
    return RestoredFiles(
        name=journal.name,
        target=journal.target,
        undo=journal.undo,
        commit=after.commit,
        hard=journal.hard,
        changes=journal.plan.changes(kept),
        kept=kept,
        left_out=tuple(one for one in after.left_out if one.path not in reported),
    )
