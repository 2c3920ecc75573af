"""The shadow repository: snapshots of a work tree in a git repository of our own, outside of it.

It knows files and nothing of conversations. Of the user's repository only the ignore rules and the
names of tracked files are read, none of its hooks and filters run, and nothing is written in the work
tree but by a restore. Every method takes the lock, so that several processes can share the checkpoints.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..errors import CheckpointError, RestoreFailed, UnknownCheckpoint, WorkTreeRefused
from . import journal as journals
from . import keeping
from .belongings import Belongings, Owned
from .capturing import Captured
from .committing import (
    RECORDS,
    RULES,
    check_tag,
    latest,
    newest_checkpoint,
    references,
    resolved,
    tagged,
)
from .differing import diff
from .git import Git
from .ignoring import replaces_rules
from .journal import Journal, Record
from .listing import tree_of
from .planning import Plan
from .purge import Purged, ignored_now, purge
from .restoring import perform
from .snapshotting import Place, live, look, other_rules, take
from .targeting import planned, planned_undo, without_what_is_there
from .values import Diff, Kept, LeftOut, Limits, Restored, Snapshot
from .work_tree import checked_work_tree

__all__ = ["ShadowRepository"]

_Planning = Callable[[Git, Captured, Owned, str], tuple[Plan, tuple[Kept, ...]]]


class ShadowRepository:
    """Snapshots of one work tree; `open` gives it."""

    def __init__(self, place: Place) -> None:
        self.recovered: Restored | None = None
        self._place = place

    @classmethod
    def open(
        cls,
        folder: str | os.PathLike[str],
        work_tree: str | os.PathLike[str],
        *,
        limits: Limits = Limits(),  # noqa: B008
        own: Iterable[str | os.PathLike[str]] = (),
        force: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> ShadowRepository:
        """Open the checkpoints in a folder, made if there are none, and finish a restore that was cut off.

        What stands in the work tree at a path of ``own`` is never kept nor touched, and neither is what
        shows by its content that it belongs to Holdfast. A restore that was
        finished is in ``recovered``. With ``force`` a home folder is taken, too, and a tree that moved.
        """
        kept = Path(os.path.abspath(folder))
        real = checked_work_tree(Path(work_tree), kept, force=force)
        if not (kept / "about.json").exists():
            keeping.make(kept, real)
        about = keeping.read_about(kept)
        if about.work_tree != os.fsencode(real) and not force:
            raise WorkTreeRefused(
                f"the checkpoints in {kept} are of {os.fsdecode(about.work_tree)}, not of {real}; "
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
        """List the snapshots that have a tag, the oldest first."""
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
            record = self._record(git, name)

            def plan(git: Git, now: Captured, owned: Owned, target: str) -> tuple[Plan, tuple[Kept, ...]]:
                most = self._place.limits.file_bytes
                return planned_undo(git, self.work_tree, now, owned, target=target, record=record, most=most)

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

    def holds(self, name: str) -> bool:
        """Tell whether there is a snapshot of that tag or commit."""
        with self._at_work() as git, suppress(UnknownCheckpoint):
            return bool(resolved(git, name))
        return False

    def clean(self) -> int:
        """Remove all checkpoints; say how many bytes they took. The files in the work tree stay."""
        with self._at_work():
            return keeping.remove(self.folder)

    def _carry(
        self, git: Git, name: str, plan: _Planning, *, undo: str, undoes: str = "", hard: bool = False
    ) -> Restored:
        """Keep the moment before, plan from there, and do it, with a journal."""
        check_tag(undo)
        target = resolved(git, name)
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
        after, _ = take(
            self._place,
            git,
            tag="",
            message=f"after {done}",
            beside=journal.undo,
            names=names,
            record=(RECORDS + journal.tag, Record.of(journal, kept).encoded()) if journal.tag else None,
        )
        journals.remove(self.folder)
        return _restored(journal, after, kept)

    def _record(self, git: Git, tag: str) -> Record:
        """Read what a restore did; nothing if it changed no file."""
        blob = references(git, RECORDS).get(tag, "")
        if not blob:
            return Record()
        with git.objects() as objects:
            return Record.decoded(objects.read(blob))

    def _look(self, git: Git) -> tuple[Captured, bool]:
        base = latest(git)
        return look(self._place, git, base, pack=None, beside=other_rules(self._place, git, base).values())

    def _owned(self) -> Owned:
        return self._place.belongings.now()

    @contextmanager
    def _at_work(self) -> Iterator[Git]:
        """Be alone with the repository, what a killed process left swept, and its restore finished."""
        with keeping.locked(self.folder) as lock:
            try:
                keeping.sweep(self.folder)
                git = Git(self.folder / "repository", held=(lock,))
                if (journal := journals.read(self.folder)) is not None:
                    self.recovered = self._finish(git, journal, again=True)
                yield git
            except OSError as error:
                raise CheckpointError(
                    f"the checkpoints of {self.work_tree} cannot be used: {error}"
                ) from error


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
