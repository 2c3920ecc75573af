"""Taking a snapshot: look at the work tree, keep what is new, and let the history end with it."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from msgspec import structs

from ..errors import CheckpointsDamaged, GitFailed
from .capture import Captured, StatCache, capture, read_regular
from .contents import Reader, difference, listing, tree_of
from .folder import HISTORY
from .git import Git, Objects
from .ignore import RULES as IGNORE
from .ignore import Rules
from .objects import BLOB, COMMIT, Pack, commit, object_id
from .protected import Belongings, Unreadable
from .refs import RECORDS, RULES, SEEN, TAGS, join_packs, latest, newest_checkpoint, point, references, store
from .scan import walk
from .values import Changes, Diff, Limits, Snapshot

__all__ = ["STAMPS", "Place", "live", "look", "other_rules", "take"]

STAMPS = "stamps"
"""The file in which the last snapshot is remembered."""


class Place(NamedTuple):
    """What snapshots are taken of, where they are kept, and how."""

    folder: Path
    work_tree: Path
    limits: Limits
    belongings: Belongings
    force: bool
    clock: Callable[[], float]


def take(
    place: Place,
    git: Git,
    *,
    tag: str,
    message: str,
    checkpoint: bool = False,
    beside: str = "",
    names: Mapping[str, str] | None = None,
    record: tuple[str, bytes] | None = None,
) -> tuple[Snapshot, Captured]:
    """Keep the files as they are now; when this returns, they survive a power cut.

    A snapshot that is no checkpoint is taken before or after a restore, and leaves out what the rules of
    the one ``beside`` it ignore, too. Other references change with it, and a record gets one.
    """
    base, history, seconds = latest(git), newest_checkpoint(git), int(place.clock())
    others = other_rules(place, git, base, trusted=names is not None)
    changed = {RULES + name: "" for name in references(git, RULES) if name not in others}
    with Pack(place.folder) as pack:
        captured, same = look(place, git, base, pack=pack, others=others.values(), beside=beside)
        above = dict.fromkeys(one for one in ((history, base) if checkpoint else (base,)) if one)
        made = pack.add(
            COMMIT,
            commit(captured.tree, parents=above, seconds=seconds, message=message, checkpoint=checkpoint),
        )
        if record is not None:
            changed[record[0]] = pack.add(BLOB, record[1])
        store(git, pack)
    changed |= {SEEN: made} | ({HISTORY: made} if checkpoint else {}) | dict(names or {})
    if tag:
        stale = [under + tag for under in (RECORDS, RULES) if tag in references(git, under)]
        changed |= dict.fromkeys(stale, "") | {TAGS + tag: made}
    point(git, changed)
    captured.memory(made).save(place.folder / STAMPS)
    with suppress(GitFailed, OSError):  # the snapshot is there; tidying can wait
        join_packs(git)
    changes = Changes() if same else _changes(git, base, captured)
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


def _changes(git: Git, base: str, captured: Captured) -> Changes:
    """Say what changed since the last snapshot; what is left out or ours was not deleted."""
    changes = Diff(files=difference(git, base and tree_of(git, base), captured.tree)).changes
    there = captured.own.union(captured.stores, (one.path for one in captured.left_out))
    return structs.replace(changes, deleted=tuple(path for path in changes.deleted if path not in there))


def look(
    place: Place,
    git: Git,
    base: str,
    *,
    pack: Pack | None,
    others: Collection[str],
    beside: str = "",
) -> tuple[Captured, bool]:
    """Read what changed in the work tree, and tell whether it is the same as in the last snapshot.

    Objects that the repository lacks go into the pack. The rules of other snapshots count, too, as far as
    they can be read, and those of the one ``beside`` this one in any case.
    """
    memory = StatCache.load(place.folder / STAMPS)
    owned = place.belongings.now()
    with Rules.opened(git, place.work_tree, force=place.force) as rules:
        if beside:
            rules.also(_rules_of(git, beside, rules))
        for other in sorted({*others} - {beside}):
            with suppress(CheckpointsDamaged):
                rules.also(_rules_of(git, other, rules))
        scan = walk(place.work_tree, rules, limits=place.limits, owned=owned)
    with _knowledge(git, base, memory) as known:
        captured = capture(place.work_tree, scan, memory, known=known, pack=pack, limits=place.limits)
    return captured, bool(base) and captured.tree == (
        memory.tree if memory.commit == base else tree_of(git, base)
    )


def other_rules(place: Place, git: Git, base: str, *, trusted: bool = False) -> dict[str, str]:
    """Return the snapshots whose rules count until the user changes rules, by their tags.

    A restore that replaces rules leaves those before it in force: what they ignore was never meant to be
    kept. With ``trusted`` the rules that are there now are those of the restore.
    """
    found = {name: commit for name, commit in references(git, RULES).items() if commit}
    if not found or trusted:
        return found
    try:
        then = listing(git, base)
    except CheckpointsDamaged:
        return found
    top = os.fsencode(place.work_tree)
    for folder in (b"", *then.folders):
        path = os.path.join(folder, IGNORE)
        try:
            now = object_id(BLOB, read_regular(os.path.join(top, path), most=place.limits.file_bytes)[0])
        except (OSError, Unreadable):
            now = ""
        entry = then.files.get(path)
        if now != (entry.blob if entry is not None and not entry.link else ""):
            return {}
    return found


def _rules_of(git: Git, commit: str, rules: Rules) -> dict[bytes, bytes]:
    """Read the files of a snapshot that hold ignore rules."""
    with Reader.opened(git) as reader:
        files = reader.listing(reader.commit(commit).tree).files
        return {
            path: reader.objects.read(entry.blob)
            for path, entry in files.items()
            if not entry.link and rules.is_rules(path)
        }


@contextmanager
def _knowledge(git: Git, base: str, memory: StatCache) -> Iterator[Callable[[str], bool]]:
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
        base = latest(git)
        captured, _ = look(place, git, base, pack=pack, others=other_rules(place, git, base).values())
        store(apart, pack)
        yield apart, captured.tree
