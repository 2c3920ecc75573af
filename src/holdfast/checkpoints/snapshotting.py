"""Taking a snapshot: look at the work tree, keep what is new, and let the history end with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from msgspec import structs

from ..errors import GitFailed
from .belongings import Belongings
from .capturing import Captured, capture
from .committing import join_packs, latest, point, store
from .differing import difference
from .git import Git, Objects
from .ignoring import Rules
from .listing import tree_of
from .objects import COMMIT, Pack, commit
from .remembering import Memory
from .values import Changes, Diff, Limits, Snapshot
from .walking import walk

__all__ = ["Place", "live", "look", "take"]

_STAMPS = "stamps"


class Place(NamedTuple):
    """What snapshots are taken of, where they are kept, and how."""

    folder: Path
    work_tree: Path
    limits: Limits
    belongings: Belongings
    force: bool
    clock: Callable[[], float]


def take(place: Place, git: Git, *, tag: str, message: str) -> tuple[Snapshot, Captured]:
    """Keep the files as they are now; when this returns, they survive a power cut."""
    base, seconds = latest(git), int(place.clock())
    with Pack(place.folder) as pack:
        captured, same = look(place, git, base, pack=pack)
        made = pack.add(COMMIT, commit(captured.tree, parent=base, seconds=seconds, message=message))
        store(git, pack)
    point(git, made, tag=tag)
    captured.memory(made).save(place.folder / _STAMPS)
    with suppress(GitFailed, OSError):  # the snapshot is there; tidying can wait
        join_packs(git)
    changes = Changes() if same else _changes(git, base, made, captured)
    return (
        Snapshot(
            commit=made,
            tag=tag,
            message=message,
            seconds=seconds,
            changes=changes,
            left_out=captured.left_out,
        ),
        captured,
    )


def _changes(git: Git, base: str, made: str, captured: Captured) -> Changes:
    """Say what changed since the last snapshot; what is left out or ours was not deleted."""
    changes = Diff(files=difference(git, base, made)).changes
    there = captured.own.union(captured.stores, (one.path for one in captured.left_out))
    return structs.replace(changes, deleted=tuple(path for path in changes.deleted if path not in there))


def look(place: Place, git: Git, base: str, *, pack: Pack | None) -> tuple[Captured, bool]:
    """Read what changed in the work tree, and tell whether it is the same as in the last snapshot.

    Objects that the repository lacks go into the pack.
    """
    memory = Memory.load(place.folder / _STAMPS)
    owned = place.belongings.now()
    with Rules.opened(git, place.work_tree, force=place.force) as rules:
        scan = walk(place.work_tree, rules, limits=place.limits, owned=owned)
    with _knowledge(git, base, memory) as known:
        captured = capture(place.work_tree, scan, memory, known=known, pack=pack, limits=place.limits)
    return captured, bool(base) and captured.tree == (
        memory.tree if memory.commit == base else tree_of(git, base)
    )


@contextmanager
def _knowledge(git: Git, base: str, memory: Memory) -> Iterator[Callable[[str], bool]]:
    """Tell which objects the repository has: those remembered, and those it says it has."""
    if not base:
        yield lambda _: False
        return
    remembered, asked = memory.known(), list[Objects]()
    with ExitStack() as stack:

        def known(id: str) -> bool:
            if id in remembered:
                return True
            if not asked:
                asked.append(stack.enter_context(git.objects(only_ask=True)))
            return asked[0].has(id)

        yield known


@contextmanager
def live(place: Place, git: Git) -> Iterator[tuple[Git, str]]:
    """Make a tree of the files as they are now, apart from the repository; it is gone after the block."""
    with TemporaryDirectory(dir=git.folder, prefix="live-") as folder, Pack(place.folder) as pack:
        (Path(folder) / "pack").mkdir()
        apart = git.apart(Path(folder))
        captured, _ = look(place, git, latest(git), pack=pack)
        store(apart, pack)
        yield apart, captured.tree
