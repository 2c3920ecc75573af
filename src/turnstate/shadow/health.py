"""The health of a shadow repository: which snapshots are damaged, by which file, and what to do.

A snapshot is sound if none of its objects is missing; objects that exist are sound, which `packs` ensures.
`verify_folder` checks one repository. Without ``repair`` it works on a copy that links to the packs of the
repository, so it changes nothing.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from ..errors import CheckpointError, CheckpointsDamaged, NewerFormat
from ..stores.values import Finding
from . import folder as folders
from . import packs
from .contents import REFS, TAGS, WAS, Commit, Modes, Reader, RepositoryState, references, update_references
from .git import FOLDER, Git, locked
from .history import ordered
from .values import shown

WAY_OUT = (
    "run `turnstate verify` to see what is damaged; other checkpoints can still be used; "
    "`turnstate checkpoint clean SESSION` removes all of them"
)


class Survey:
    """Finds missing objects of snapshots, based on the objects now in the repository."""

    def __init__(self, git: Git) -> None:
        self._reader, self._names = Reader(git), packs.object_names(git)
        self._trees = dict[str, tuple[tuple[bytes, str, bool], ...]]()

    def problem(self, commit: str) -> str:
        """Return what is wrong with a snapshot, or an empty string."""
        try:
            missing = self._missing(commit)
        except CheckpointsDamaged as error:
            return str(error)
        if not missing:
            return ""
        path, id, _ = missing[0]
        more = f", and {len(missing) - 1:,} more" if len(missing) > 1 else ""
        return f"{shown(path)} is damaged (object {id}){more}"

    def has_trees(self, commit: str) -> bool:
        """Return True if all folders of a snapshot can be read, even if files in them cannot."""
        try:
            return not any(is_folder for _, _, is_folder in self._missing(commit))
        except CheckpointsDamaged:
            return False

    def newest_first(self, commits: Iterable[str]) -> list[Commit]:
        """Return commits, the newest first; in the same second, descendants come first."""
        wanted = set(commits)
        newest = [one for id, one in ordered(self._reader, sorted(wanted)).items() if id in wanted][::-1]
        return sorted(newest, key=lambda one: -one.seconds)

    def message(self, commit: str) -> str:
        """Return the message of a snapshot, or an empty string if it cannot be read."""
        with suppress(CheckpointsDamaged):
            return self._reader.commit(commit).message if commit in self._names else ""
        return ""

    def _missing(self, commit: str) -> list[tuple[bytes, str, bool]]:
        if commit not in self._names:
            raise CheckpointsDamaged(f"its snapshot is missing (object {commit})")
        tree = self._reader.commit(commit).tree
        if tree not in self._names:
            raise CheckpointsDamaged(f"its list of files is missing (object {tree})")
        files, modes = self._reader.parts(tree)
        if modes not in self._names:
            raise CheckpointsDamaged(f"the modes of its files are missing (object {modes})")
        Modes.decoded(self._reader.objects.read(modes))
        for leaf in self._reader.tree(tree):
            if leaf.id not in self._names and leaf.id not in (files, modes):
                raise CheckpointsDamaged(f"its list of databases is missing (object {leaf.id})")
        return [(path.removeprefix(b"/"), id, folder) for path, id, folder in self._below(files)]

    def _below(self, tree: str) -> tuple[tuple[bytes, str, bool], ...]:
        """Return the missing objects below a folder, with paths relative to it."""
        if tree not in self._names:
            return ((b"/", tree, True),)
        if tree not in self._trees:
            found = list[tuple[bytes, str, bool]]()
            for leaf in self._reader.tree(tree):
                if leaf.mode == FOLDER:
                    found += [
                        (b"/" + leaf.name + path, id, is_folder)
                        for path, id, is_folder in self._below(leaf.id)
                    ]
                elif leaf.id not in self._names:
                    found.append((b"/" + leaf.name, leaf.id, False))
            self._trees[tree] = tuple(found)
        return self._trees[tree]


def repair_heads(git: Git) -> None:
    """Move damaged refs to the newest snapshots that new ones can be compared with.

    The `history` head must point to a checkpoint: a file that only the snapshot for an undo holds does not
    count as kept.
    """
    refs, changed = {"history": "", **references(git, REFS)}, dict[str, str]()
    survey, known = Survey(git), {*references(git, TAGS).values(), *references(git, WAS).values()} - {""}
    newest = survey.newest_first(one for one in sorted(known) if survey.has_trees(one))
    for name, commit in refs.items():
        if not commit or not survey.has_trees(commit):
            usable = (one.id for one in newest if name != "history" or one.is_checkpoint)
            changed[REFS + name] = next(usable, "")
    update_references(git, {name: id for name, id in changed.items() if id or (git.folder / name).exists()})


def verify_folder(folder: Path, *, repair: bool = False) -> Iterator[Finding]:
    """Check the checkpoints in one folder; yield what is damaged."""
    whose = ("", "", folder.name)
    try:
        about = folders.read_about(folder)
        whose = (about.tenant, about.session, folder.name)
    except (CheckpointError, NewerFormat) as error:
        yield finding(whose, str(error))
        return
    try:
        with ExitStack() as stack:
            stack.enter_context(locked(folder))
            kept = folder if repair else stack.enter_context(_copied(folder))
            for text in folders.repair_layout(kept):
                yield finding(whose, text, "rewritten" if repair else "")
            git = stack.enter_context(Git(kept / "repository"))
            checked = packs.check(git, kept, deep=True)
            for text in checked.found:
                yield finding(whose, text, "the sound objects were saved" if repair else "")
            damaged = list(_snapshots(git, whose))
            yield from damaged
            if repair:
                repair_heads(git)
                RepositoryState.current(git, suspect=bool(damaged) or checked.suspect).save(kept)
    except (CheckpointError, OSError) as error:
        yield finding(whose, str(error))


def _snapshots(git: Git, whose: tuple[str, str, str]) -> Iterator[Finding]:
    survey = Survey(git)
    for tag, commit in references(git, TAGS).items():
        if not commit:
            yield finding(whose, f"the reference {TAGS}{tag} cannot be read")
        elif problem := survey.problem(commit):
            message = survey.message(commit)
            name = f'checkpoint "{message}" ({commit[:12]})' if message else f"checkpoint {commit[:12]}"
            yield finding(whose, f"{name} cannot be restored: {problem}")


def finding(whose: tuple[str, str, str], fault: str, done: str = "") -> Finding:
    """Return a finding about the checkpoints of (tenant, session, folder)."""
    tenant, session, folder = whose
    text = fault if done else f"{fault}; {WAY_OUT.replace('SESSION', session or 'SESSION')}"
    return Finding(tenant=tenant, session=session, id=f"checkpoints/{folder}", fault=text, done=done)


@contextmanager
def _copied(folder: Path) -> Iterator[Path]:
    """Copy the repository of a folder, with links to its packs, and remove the copy afterwards."""
    with TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.", suffix=".tmp") as name:
        copy = Path(name)
        with suppress(FileNotFoundError, NotADirectoryError):
            shutil.copytree(folder / "repository", copy / "repository", symlinks=True, copy_function=_linked)
        yield copy


def _linked(source: str, target: str) -> None:
    if source.endswith((".pack", ".idx")):
        os.symlink(os.path.abspath(source), target)
    else:
        shutil.copy2(source, target, follow_symlinks=False)
