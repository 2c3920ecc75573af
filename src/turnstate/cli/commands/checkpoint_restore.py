"""``turnstate checkpoint restore|undo|keep|clean``: the commands that change files or checkpoints."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import click

from ...checkpoints import CheckpointManager, KeptPath, LeftOut, Purged, RestoredFiles, RestoreResult, shown
from ...entry import Checkpoint
from ...plain_text import counted
from ...terminal import screen
from ...terminal.screen import confirmed, waiting
from ...terminal.session_text import row_text
from .. import documents
from ..options import json_option, yes_option
from ..store import EXIT_CODES
from .checkpoint import Target, changes, target_options

MAX_LISTED = 20
"""Files that are listed one by one; --json lists all of them."""


@click.command("restore", epilog=EXIT_CODES)
@target_options
@click.argument("checkpoint")
@click.option("--files", "what", flag_value="files", help="Restore only the files.")
@click.option("--conversation", "what", flag_value="conversation", help="Restore only the conversation.")
@click.option("--both", "what", flag_value="both", default="both", help="Restore both.  [default]")
@click.option("--hard", is_flag=True, help="Also remove newer files that a checkpoint contains.")
@json_option("Print what was done as JSON.")
def restore(target: Target, checkpoint: str, what: str, hard: bool, as_json: bool) -> int:
    """Restore a checkpoint: its files, and the conversation as it was then.

    The current files are saved first, so that undo can bring everything back. Newer files stay.
    Files that are ignored, or that no checkpoint contains, are never touched. Later messages stay
    in the log. A process that uses this session at the same time reloads it. The SESSION must be a
    whole id, unless the command can ask on a terminal.

    With --files, CHECKPOINT may also be the commit that an earlier restore reported.

    \b
    Example:
      turnstate checkpoint restore 0197a1 1.2
      turnstate checkpoint restore 0197a1 0 --files --hard
    """

    given, row = target.session, target.settle(asks=screen.can_ask())
    question = f"Restore checkpoint {checkpoint} of {row_text(row)}?"
    if row.id != given and not confirmed(question, yes=False, warning="", refused="nothing was restored"):
        return 1

    async def go(checkpoints: CheckpointManager) -> RestoreResult:
        return await checkpoints.restore(
            checkpoint, files=what != "conversation", conversation=what != "files", hard=hard
        )

    return _restored(target, go, "restored to", as_json=as_json)


@click.command("undo", epilog=EXIT_CODES)
@target_options
@json_option("Print what was done as JSON.")
def undo(target: Target, as_json: bool) -> int:
    """Undo the last restore: files and conversation become what they were before it.

    Run it again to undo the restore before that.

    \b
    Example:
      turnstate checkpoint undo 0197a1
    """

    async def go(checkpoints: CheckpointManager) -> RestoreResult:
        return await checkpoints.undo_restore()

    return _restored(target, go, "back to before the restore of", as_json=as_json)


@click.command("keep", epilog=EXIT_CODES)
@target_options
@click.argument("description", default="saved by hand")
@json_option("Print the checkpoint as JSON.")
def keep(target: Target, description: str, as_json: bool) -> int:
    """Save the current files as the next checkpoint.

    The first time, the folder is --work-tree or the current one; after that it is remembered.

    \b
    Example:
      turnstate checkpoint keep 0197a1 "before the rewrite" --work-tree ~/project
    """
    kept, left_out = asyncio.run(_kept(target, description))
    for path, reason in left_out:
        screen.say(f"left out: {path}: {reason}")
    if as_json:
        missing = [{"path": path, "reason": reason} for path, reason in left_out]
        fields = {"checkpoint": kept.label, "commit": kept.commit, "left_out": missing}
        screen.show(documents.compact(fields))
    else:
        screen.say(
            f"checkpoint {kept.label} saved; files changed since the previous one: "
            f"{changes(kept.added, kept.modified, kept.deleted)}"
        )
    return 0


@click.command("clean", epilog=EXIT_CODES)
@target_options
@click.option("--ignored", is_flag=True, help="Only remove files that are now ignored, from all snapshots.")
@yes_option
@json_option("Print what was done as JSON.")
def clean(target: Target, ignored: bool, yes: bool, as_json: bool) -> int:
    """Delete all snapshots of a session's files. The files and the conversation stay.

    This cannot be undone: no checkpoint so far can be restored afterwards. It also works if the
    checkpoints are damaged.

    With --ignored the checkpoints stay, but files that your ignore rules now name are removed from
    all of them, without leaving a byte.

    \b
    Example:
      turnstate checkpoint clean 0197a1
      turnstate checkpoint clean 0197a1 --ignored
    """
    target.settle(asks=screen.can_ask() and not yes)
    if ignored:
        return _purge(target, yes=yes, as_json=as_json)
    count, name = asyncio.run(_size(target))
    if not confirmed(f"Delete {counted(count, 'checkpoint')} of {name}?", yes=yes):
        return 1
    freed = asyncio.run(_cleaned(target))
    if as_json:
        screen.show(documents.compact({"checkpoints": count, "freed": freed}))
    else:
        screen.say(f"checkpoints deleted: {freed:,} bytes")
    return 0


def _purge(target: Target, *, yes: bool, as_json: bool) -> int:
    paths, folder = asyncio.run(_ignored(target))
    for path in paths[:MAX_LISTED]:
        screen.say(f"now ignored: {shown(path)}")
    if len(paths) > MAX_LISTED:
        screen.say(f"and {len(paths) - MAX_LISTED:,} more")
    count = counted(len(paths), "file")
    if paths and not confirmed(f"Remove {count} from all snapshots of {folder}?", yes=yes):
        return 1
    done = asyncio.run(_purged(target))
    if as_json:
        fields = {"files": list(map(shown, paths)), "snapshots": done.snapshots, "freed": done.freed}
        screen.show(documents.compact(fields))
        return 0
    screen.say(f"{count} removed from {counted(done.snapshots, 'snapshot')}: {done.freed:,} bytes")
    return 0


def _restored(
    target: Target, go: Callable[[CheckpointManager], Awaitable[RestoreResult]], how: str, *, as_json: bool
) -> int:
    session, result = asyncio.run(_run(target, go))
    if as_json:
        files = _fields(result.files) if result.files else None
        fields = {"session": session, "checkpoint": result.label, "files": files}
        screen.show(documents.compact({**fields, "conversation": result.conversation}))
    else:
        _report(session, result, how)
    return 1 if result.files and result.files.kept else 0


def _report(session: str, result: RestoreResult, how: str) -> None:
    parts = list[str]()
    if result.files:
        done = result.files.changes
        parts.append(f"files {changes(len(done.added), len(done.modified), len(done.deleted))}")
    if result.conversation:
        parts.append("the conversation")
    screen.say(f"session {session} {how} {result.label}: {' and '.join(parts)}")
    if result.files:
        screen.say(f"the previous files are saved as {result.files.undo}")
        _list_paths("not restored", result.files.kept)
        _list_paths("left out", result.files.left_out)


def _list_paths(what: str, paths: Sequence[KeptPath | LeftOut]) -> None:
    for one in paths[:MAX_LISTED]:
        screen.say(f"{what}: {shown(one.path)}: {one.reason}")
    if len(paths) > MAX_LISTED:
        screen.say(f"and {len(paths) - MAX_LISTED:,} more")


def _fields(restored: RestoredFiles) -> dict[str, Any]:
    done = restored.changes
    return {
        "added": [shown(path) for path in done.added],
        "modified": [shown(path) for path in done.modified],
        "deleted": [shown(path) for path in done.deleted],
        "left": [{"path": shown(one.path), "reason": one.reason} for one in restored.kept],
        "left_out": [{"path": shown(one.path), "reason": one.reason} for one in restored.left_out],
        "before": restored.undo,
    }


async def _run(
    target: Target, go: Callable[[CheckpointManager], Awaitable[RestoreResult]]
) -> tuple[str, RestoreResult]:
    async with target.checkpoints() as checkpoints:
        with waiting("restoring the files"):
            return checkpoints.session.id, await go(checkpoints)


async def _kept(target: Target, description: str) -> tuple[Checkpoint, list[tuple[str, str]]]:
    async with target.checkpoints(make=True) as checkpoints:
        with waiting("saving the files"):
            kept = await checkpoints.keep(description)
        return kept, [(shown(one.path), one.reason) for one in checkpoints.left_out]


async def _size(target: Target) -> tuple[int, str]:
    async with target.opened() as session:
        return await CheckpointManager.count(session)


async def _ignored(target: Target) -> tuple[tuple[bytes, ...], str]:
    async with target.checkpoints() as checkpoints:
        repository = checkpoints.repository
        with waiting("searching for ignored files"):
            return await asyncio.to_thread(repository.ignored_now), str(repository.work_tree)


async def _purged(target: Target) -> Purged:
    async with target.checkpoints() as checkpoints:
        with waiting("rewriting the snapshots"):
            return await checkpoints.purge()


async def _cleaned(target: Target) -> int:
    async with target.opened() as session:
        return await CheckpointManager.discard(session)
