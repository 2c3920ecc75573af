"""The shadow repository: snapshots of a work tree in a git repository of our own, outside of it.

It knows files and nothing of conversations. Of the user's repository only the ignore rules and the
names of tracked files are read, none of its hooks and filters run, and nothing is written in the work
tree but by a restore. Every method takes the lock, so that several processes can share the checkpoints.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from ..errors import CheckpointError, CheckpointsDamaged, GitFailed, RestoreFailed, WorkTreeRefused
from ..stores.values import Finding
from . import folder as keeping
from . import packs
from . import restore as journals
from .capture import Captured
from .contents import diff, tree_of
from .folder import checked_work_tree
from .git import Git
from .health import WAY_OUT, Survey, mend_heads, verify_folder
from .ignore import replaces_rules
from .plan import Plan
from .protected import Belongings, Owned
from .purge import Purged, ignored_now, purge
from .refs import (
    RECORDS,
    RULES,
    TAGS,
    check_tag,
    known,
    latest,
    meant,
    newest_checkpoint,
    references,
    resolved,
    tagged,
)
from .restore import Journal, Record, perform
from .snapshot import STAMPS, Place, live, look, other_rules, take
from .target import planned, planned_undo, without_what_is_there
from .values import Diff, Kept, LeftOut, Limits, Restored, Snapshot

__all__ = ["ShadowRepository"]

_Planning = Callable[[Git, Captured, Owned, str], tuple[Plan, tuple[Kept, ...]]]


class ShadowRepository:
    """Snapshots of one work tree; `open` gives it."""

    def __init__(self, place: Place) -> None:
        self.recovered: Restored | None = None
        self._place = place
        self._suspect = False

    @classmethod
    def open(
        cls,
        folder: str | os.PathLike[str],
        work_tree: str | os.PathLike[str],
        *,
        limits: Limits = Limits(),  # noqa: B008
        own: Iterable[str | os.PathLike[str]] = (),
        force: bool = False,
        tenant: str = "",
        session: str = "",
        clock: Callable[[], float] = time.time,
    ) -> ShadowRepository:
        """Open the checkpoints in a folder, made if there are none, and finish a restore that was cut off.

        What stands in the work tree at a path of ``own`` is never kept nor touched, and neither is what
        shows by its content that it belongs to Turnstate. A restore that was
        finished is in ``recovered``. With ``force`` a home folder is taken, too, and a tree that moved.
        Whose checkpoints they are, ``tenant`` and ``session``, is written down for people who look.
        """
        kept = Path(os.path.abspath(folder))
        real = checked_work_tree(Path(work_tree), kept, force=force)
        keeping.open_up(kept)
        about = keeping.About(work_tree=os.fsencode(real), tenant=tenant, session=session)
        if not (kept / "about.json").exists() and not (kept / "repository").exists():
            keeping.make(kept, about)
        try:
            written = keeping.read_about(kept)
        except CheckpointsDamaged:
            if not force:
                raise
            keeping.write_about(kept, about)
            written = about
        if written.work_tree != about.work_tree and not force:
            raise WorkTreeRefused(
                f"the checkpoints in {kept} are of {os.fsdecode(written.work_tree)}, not of {real}; "
                "force it if the folder was moved"
            )
        place = Place(kept, real, limits, Belongings(real, [kept, *own]), force=force, clock=clock)
        repository = cls(place)
        with repository._at_work():
            return repository

    @property
    def folder(self) -> Path:
        """Where the checkpoints are kept."""
        return self._place.folder

    @property
    def work_tree(self) -> Path:
        """The folder that they are of."""
        return self._place.work_tree

    def snapshot(self, tag: str = "", message: str = "") -> Snapshot:
        """Keep the files as they are now; the tag names this moment from now on, and no other."""
        if tag:
            check_tag(tag)
        with self._at_work() as git:
            return take(self._place, git, tag=tag, message=message, checkpoint=True)[0]

    def snapshots(self) -> list[Snapshot]:
        """List the snapshots that have a tag and can be read, the oldest first."""
        with self._at_work() as git:
            return [
                Snapshot(commit=one.commit, tag=one.tag, message=one.message, seconds=one.seconds)
                for one in tagged(git)
            ]

    def has_changes(self) -> bool:
        """Tell whether the files differ from those of the last snapshot."""
        with self._at_work() as git:
            return not self._look(git)[1]

    def left_out(self) -> tuple[LeftOut, ...]:
        """Say what a snapshot taken now would not hold."""
        with self._at_work() as git:
            return self._look(git)[0].left_out

    def diff(self, before: str, after: str | None = None) -> Diff:
        """Compare a snapshot with another, or with the files as they are now; by tag or by commit."""
        with self._at_work() as git:
            first = tree_of(git, resolved(git, before))
            if after is not None:
                return diff(git, first, tree_of(git, resolved(git, after)))
            with live(self._place, git) as (apart, tree):
                return diff(apart, first, tree)

    def restore(self, name: str, *, hard: bool = False, undo: str = "undo") -> Restored:
        """Bring the files of a snapshot back; newer ones stay, or with ``hard`` go, if a checkpoint has them.

        The moment before is kept first, under the tag ``undo``; only what it holds is replaced or removed.
        """

        def plan(git: Git, now: Captured, owned: Owned, target: str) -> tuple[Plan, tuple[Kept, ...]]:
            base = newest_checkpoint(git)
            return planned(git, self.work_tree, now, owned, target=target, base=base, hard=hard)

        with self._at_work() as git:
            return self._carry(git, name, plan, hard=hard, undo=undo)

    def undo(self, name: str = "undo", *, undo: str = "undo") -> Restored:
        """Take a restore back, which has kept the moment before it under a tag.

        What it replaced or removed comes back. What it put there goes, if it is still the same; newer
        files stay. The moment before the undo is kept under the tag ``undo``, so this can be undone, too.
        """
        with self._at_work() as git:
            record, lost = self._record(git, name)

            def plan(git: Git, now: Captured, owned: Owned, target: str) -> tuple[Plan, tuple[Kept, ...]]:
                most = self._place.limits.file_bytes
                steps, kept = planned_undo(
                    git, self.work_tree, now, owned, target=target, record=record, most=most
                )
                return steps, (*kept, *lost)

            return self._carry(git, name, plan, undo=undo, undoes=name)

    def has_restored(self, tag: str) -> bool:
        """Tell whether a restore, which kept the moment before it under a tag, changed files."""
        with self._at_work() as git:
            return tag in references(git, RECORDS)

    def ignored_now(self) -> tuple[bytes, ...]:
        """Return the files in snapshots that the rules in the work tree ignore now."""
        with self._at_work() as git:
            return ignored_now(self._place, git)

    def purge(self) -> Purged:
        """Remove from all snapshots what is ignored now; their names and all other files stay."""
        with self._at_work() as git:
            return purge(self._place, git)

    def began(self, names: Sequence[str]) -> bool:
        """Tell whether any of these snapshots was kept here, or may have been before it was damaged."""
        with self._at_work() as git:
            return bool(names) and (any(known(git, name) for name in names) or self._suspect)

    def damaged(self, names: Collection[str], *, every: bool = False) -> dict[str, str]:
        """Say which of these snapshots, by tag or commit, are damaged, and by what.

        It looks only if anything was found to be wrong with the repository; `verify` looks in any case.
        If they are ``every`` snapshot that matters, and sound, the repository counts as sound again.
        """
        with self._at_work() as git:
            found = self._damaged(git, names)
            if every and self._suspect and not found:
                self._suspect = bool(self._damaged(git, references(git, TAGS)))
            return found

    def verify(self) -> list[Finding]:
        """Check every byte of the repository; change nothing."""
        return list(verify_folder(self.folder))

    def clean(self) -> int:
        """Remove all checkpoints; say how many bytes they took. The files in the work tree stay."""
        with keeping.locked(self.folder):
            return keeping.remove(self.folder)

    def _damaged(self, git: Git, names: Collection[str]) -> dict[str, str]:
        if not self._suspect:
            return {}
        with Survey.opened(git) as survey:
            found = {name: survey.problem(meant(git, name)) for name in names}
        return {name: problem for name, problem in found.items() if problem}

    def _carry(
        self, git: Git, name: str, plan: _Planning, *, undo: str, undoes: str = "", hard: bool = False
    ) -> Restored:
        """Keep the moment before, plan from there, and do it, with a journal."""
        check_tag(undo)
        target = resolved(git, name)
        if problem := self._damaged(git, [target]).get(target):
            raise CheckpointsDamaged(f"{name} was not restored, and no file was changed: {problem}")
        done = f"the restore {name} was undone" if undoes else f"{name} was restored"
        before, captured = take(self._place, git, tag=undo, message=f"before {done}", beside=target)
        owned, most = self._owned(), self._place.limits.file_bytes
        steps, kept = plan(git, captured, owned, target)
        steps = without_what_is_there(self.work_tree, steps, owned, most=most)
        journal = Journal(
            id=journals.new_id(),
            name=name,
            target=target,
            undo=before.commit,
            hard=hard,
            plan=steps,
            kept=kept,
            tag=undo,
            undoes=undoes,
            rules=replaces_rules(git, self.work_tree, steps),
        )
        if not steps:
            return _restored(journal, before, kept)
        journals.write(journal, self.folder)
        try:
            return self._finish(git, journal, again=False)
        except RestoreFailed:
            journals.remove(self.folder)
            raise

    def _finish(self, git: Git, journal: Journal, *, again: bool) -> Restored:
        """Do what the journal says; it goes when the files and a snapshot of them are on the disk."""
        most, owned = self._place.limits.file_bytes, self._owned()
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
                self._place,
                git,
                tag="",
                message=f"after {done}",
                beside=journal.undo,
                names=names,
                record=(RECORDS + journal.tag, Record.of(journal, kept).encoded()) if journal.tag else None,
            )
        except CheckpointsDamaged:
            if not again:
                raise
            after = Snapshot(commit=journal.undo)  # the files are in place; the next snapshot has them
        journals.remove(self.folder)
        return _restored(journal, after, kept)

    def _record(self, git: Git, tag: str) -> tuple[Record, tuple[Kept, ...]]:
        """Read what a restore did; nothing if it changed no file."""
        records = references(git, RECORDS)
        if tag not in records:
            return Record(), ()
        try:
            with git.objects() as objects:
                return Record.decoded(objects.read(records[tag])), ()
        except CheckpointsDamaged:
            return Record(), (Kept(b".", "the record of the restore is damaged; what it put there stays"),)

    def _look(self, git: Git) -> tuple[Captured, bool]:
        base = latest(git)
        return look(self._place, git, base, pack=None, others=other_rules(self._place, git, base).values())

    def _owned(self) -> Owned:
        return self._place.belongings.now()

    @contextmanager
    def _at_work(self) -> Iterator[Git]:
        """Be alone with the repository, damage contained, and what a killed process left settled."""
        with keeping.locked(self.folder) as lock:
            git = Git(self.folder / "repository", held=(lock,))
            try:
                self._contain(git)
                if (journal := journals.read(self.folder)) is not None:
                    self.recovered = self._finish(git, journal, again=True)
                yield git
                packs.note(git, self.folder, suspect=self._suspect)
            except OSError as error:
                raise CheckpointError(
                    f"the checkpoints of {self.work_tree} cannot be used: {error}; {WAY_OUT}"
                ) from error
            except RestoreFailed as error:
                if isinstance(error.__cause__, CheckpointsDamaged):
                    self._look_deeper(git)
                raise
            except (GitFailed, CheckpointsDamaged) as error:
                found, text = self._look_deeper(git), f"{error}; {WAY_OUT}"
                if isinstance(error, GitFailed) and not found:
                    raise GitFailed(text, stderr=error.stderr) from error
                raise CheckpointsDamaged(text) from error

    def _contain(self, git: Git) -> None:
        """Write anew what can be, and let nothing that is damaged be taken for sound."""
        keeping.sweep(self.folder)
        keeping.lay_out(self.folder)
        checked = packs.check(git, self.folder)
        self._suspect = checked.suspect
        if checked.found:
            (self.folder / STAMPS).unlink(missing_ok=True)  # it names objects that may be missing
        if checked.changed:
            mend_heads(git)

    def _look_deeper(self, git: Git) -> bool:
        """Check every pack after a failure, so that damage is contained from now on; tell if there is any."""
        with suppress(CheckpointError, OSError):
            if not packs.check(git, self.folder, deep=True).found:
                return False
            (self.folder / STAMPS).unlink(missing_ok=True)
        return True


def _restored(journal: Journal, after: Snapshot, kept: tuple[Kept, ...]) -> Restored:
    told = {one.path for one in kept}
    return Restored(
        name=journal.name,
        target=journal.target,
        undo=journal.undo,
        commit=after.commit,
        hard=journal.hard,
        changes=journal.plan.changes(kept),
        kept=kept,
        left_out=tuple(one for one in after.left_out if one.path not in told),
    )
