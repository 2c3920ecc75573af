"""The shadow repository: snapshots of a work tree in a git repository of our own, outside of it.

It knows files and nothing of conversations. Of the user's repository only the ignore rules and the
names of tracked files are read, none of its hooks and filters run, and nothing is written in the work
tree but by a restore. Every method takes the lock, so that several processes can share the checkpoints.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import CheckpointError, RestoreFailed, WorkTreeRefused
from . import journal as journals
from . import keeping
from .belongings import Belongings, Owned
from .committing import check_tag, latest, resolved, tagged
from .differing import diff
from .git import Git
from .journal import Journal
from .restoring import perform
from .snapshotting import Place, live, look, take
from .targeting import planned
from .values import Diff, Kept, LeftOut, Limits, Restored, Snapshot
from .work_tree import checked_work_tree

__all__ = ["ShadowRepository"]


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
            return take(self._place, git, tag=tag, message=message)[0]

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
            return not look(self._place, git, latest(git), pack=None)[1]

    def left_out(self) -> tuple[LeftOut, ...]:
        """Say what a snapshot taken now would not hold."""
        with self._at_work() as git:
            return look(self._place, git, latest(git), pack=None)[0].left_out

    def diff(self, before: str, after: str | None = None) -> Diff:
        """Compare a snapshot with another, or with the files as they are now; by tag or by commit."""
        with self._at_work() as git:
            first = resolved(git, before)
            if after is not None:
                return diff(git, first, resolved(git, after))
            with live(self._place, git) as (apart, tree):
                return diff(apart, first, tree)

    def restore(self, name: str, *, hard: bool = False, undo: str = "undo") -> Restored:
        """Bring the files of a snapshot back; newer ones stay, or with ``hard`` go, if a snapshot had them.

        The moment before is kept first, under the tag ``undo``; only what it holds is replaced or removed.
        """
        check_tag(undo)
        with self._at_work() as git:
            target, base = resolved(git, name), latest(git)
            before, captured = take(self._place, git, tag=undo, message=f"before {name} was restored")
            plan, kept = planned(
                git, self.work_tree, captured, self._owned(), target=target, base=base, hard=hard
            )
            journal = Journal(
                id=journals.new_id(),
                name=name,
                target=target,
                undo=before.commit,
                hard=hard,
                plan=plan,
                kept=kept,
            )
            if not plan:
                return _restored(journal, before, kept)
            journals.write(journal, self.folder)
            try:
                return self._finish(git, journal, again=False)
            except RestoreFailed:
                journals.remove(self.folder)
                raise

    def clean(self) -> int:
        """Remove all checkpoints; say how many bytes they took. The files in the work tree stay."""
        with self._at_work():
            return keeping.remove(self.folder)

    def _finish(self, git: Git, journal: Journal, *, again: bool) -> Restored:
        """Do what the journal says; it goes when the files and a snapshot of them are on the disk."""
        most, owned = self._place.limits.file_bytes, self._owned()
        kept = perform(self.work_tree, git, journal, again=again, most=most, owned=owned)
        after, _ = take(self._place, git, tag="", message=f"after {journal.name} was restored")
        journals.remove(self.folder)
        return _restored(journal, after, (*journal.kept, *kept))

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
