"""``turnstate checkpoint restore|undo|keep|clean``: what is done to files, conversation and checkpoints."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import click

from ...checkpoints import CheckpointManager, KeptPath, LeftOut, Purged, RestoredFiles, RestoreResult, shown
from ...cli_kit import screen
from ...cli_kit.progress import waiting
from ...cli_kit.screen import agreed, yes_option
from ...entry import Checkpoint
from .. import documents
from ..store import EXIT_CODES, as_json
from .checkpoint import Whose, changes, whose_options

__all__ = ["COMMANDS"]

MOST_TOLD = 20
"""Files that are told one by one; --json has all of them."""


@click.command("restore", epilog=EXIT_CODES)
@whose_options
@click.argument("checkpoint")
@click.option("--files", "what", flag_value="files", help="Only the files.")
@click.option("--conversation", "what", flag_value="conversation", help="Only the conversation.")
@click.option("--both", "what", flag_value="both", default="both", help="Both.  [default]")
@click.option("--hard", is_flag=True, help="Remove newer files, too, if a checkpoint holds them.")
@as_json("Print what was done as JSON.")
def restore(whose: Whose, checkpoint: str, what: str, hard: bool, as_json: bool) -> int:
    """Go back to a checkpoint: the files of that moment, and the conversation as it was then.

    Newer files stay where they are. The files before are kept first, so that undo brings everything
    back. Files that are ignored, or that no checkpoint ever held, are never touched. What was said
    since stays in the log. A process that talks in this session loads it again.

    With --files, CHECKPOINT may also be the commit that an earlier restore named.

    \b
    Example:
      turnstate checkpoint restore 0197a1 1.2
      turnstate checkpoint restore 0197a1 0 --files --hard
    """

    async def go(checkpoints: CheckpointManager) -> RestoreResult:
        return await checkpoints.restore(
            checkpoint, files=what != "conversation", conversation=what != "files", hard=hard
        )

    return _moved(whose, go, "is back at", as_json=as_json)


@click.command("undo", epilog=EXIT_CODES)
@whose_options
@as_json("Print what was done as JSON.")
def undo(whose: Whose, as_json: bool) -> int:
    """Take the last restore back: files and conversation as they were before it.

    Several restores are undone one after the other.

    \b
    Example:
      turnstate checkpoint undo 0197a1
    """

    async def go(checkpoints: CheckpointManager) -> RestoreResult:
        return await checkpoints.undo_restore()

    return _moved(whose, go, "is as it was before the restore of", as_json=as_json)


@click.command("keep", epilog=EXIT_CODES)
@whose_options
@click.argument("description", default="kept by hand")
@as_json("Print the checkpoint as JSON.")
def keep(whose: Whose, description: str, as_json: bool) -> int:
    """Keep the files as they are now, under the next number.

    The first time, the folder is --work-tree or the current one; later it is known.

    \b
    Example:
      turnstate checkpoint keep 0197a1 "before the rewrite" --work-tree ~/project
    """
    kept, left_out = asyncio.run(_kept(whose, description))
    for path, reason in left_out:
        screen.say(f"left out: {path}: {reason}")
    if as_json:
        missing = [{"path": path, "reason": reason} for path, reason in left_out]
        told = {"checkpoint": kept.label, "commit": kept.commit, "left_out": missing}
        screen.show(documents.compact(told))
    else:
        screen.say(
            f"checkpoint {kept.label} is kept; files since the one before: "
            f"{changes(kept.added, kept.modified, kept.deleted)}"
        )
    return 0


@click.command("clean", epilog=EXIT_CODES)
@whose_options
@click.option("--ignored", is_flag=True, help="Only remove files that are ignored now, from all snapshots.")
@yes_option
def clean(whose: Whose, ignored: bool, yes: bool) -> int:
    """Remove all snapshots of a session's files. The files themselves and the conversation stay.

    There is no way back: nothing that was kept so far can be restored after it. It works also if the
    checkpoints are damaged.

    With --ignored the checkpoints stay, without the files that your ignore rules name now: no byte of
    such a file is left in any snapshot.

    \b
    Example:
      turnstate checkpoint clean 0197a1
      turnstate checkpoint clean 0197a1 --ignored
    """
    if ignored:
        return _purge(whose, yes=yes)
    count, name = asyncio.run(_size(whose))
    if not agreed(f"Remove {screen.counted(count, 'checkpoint')} of {name}?", yes=yes):
        return 1
    screen.say(f"the checkpoints are removed: {asyncio.run(_cleaned(whose)):,} bytes")
    return 0


def _purge(whose: Whose, *, yes: bool) -> int:
    paths, folder = asyncio.run(_ignored(whose))
    for path in paths[:MOST_TOLD]:
        screen.say(f"ignored now: {shown(path)}")
    if len(paths) > MOST_TOLD:
        screen.say(f"and {len(paths) - MOST_TOLD:,} more")
    count = screen.counted(len(paths), "file")
    if paths and not agreed(f"Remove {count} from all snapshots of {folder}?", yes=yes):
        return 1
    done = asyncio.run(_purged(whose))
    screen.say(f"{count} removed from {screen.counted(done.snapshots, 'snapshot')}: {done.freed:,} bytes")
    return 0


def _moved(
    whose: Whose, go: Callable[[CheckpointManager], Awaitable[RestoreResult]], how: str, *, as_json: bool
) -> int:
    session, went = asyncio.run(_gone(whose, go))
    if as_json:
        files = _fields(went.files) if went.files else None
        told = {"session": session, "checkpoint": went.label, "files": files}
        screen.show(documents.compact({**told, "conversation": went.conversation}))
    else:
        _tell(session, went, how)
    return 1 if went.files and went.files.kept else 0


def _tell(session: str, went: RestoreResult, how: str) -> None:
    parts = list[str]()
    if went.files:
        done = went.files.changes
        parts.append(f"files {changes(len(done.added), len(done.modified), len(done.deleted))}")
    if went.conversation:
        parts.append("the conversation")
    screen.say(f"session {session} {how} {went.label}: {' and '.join(parts)}")
    if went.files:
        screen.say(f"the files before are kept as {went.files.undo}")
        _tell_paths("left as it was", went.files.kept)
        _tell_paths("left out", went.files.left_out)


def _tell_paths(what: str, paths: Sequence[KeptPath | LeftOut]) -> None:
    for one in paths[:MOST_TOLD]:
        screen.say(f"{what}: {shown(one.path)}: {one.reason}")
    if len(paths) > MOST_TOLD:
        screen.say(f"and {len(paths) - MOST_TOLD:,} more")


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


async def _gone(
    whose: Whose, go: Callable[[CheckpointManager], Awaitable[RestoreResult]]
) -> tuple[str, RestoreResult]:
    async with whose.checkpoints() as checkpoints:
        with waiting("bringing files back"):
            return checkpoints.state.conversation_id, await go(checkpoints)


async def _kept(whose: Whose, description: str) -> tuple[Checkpoint, list[tuple[str, str]]]:
    async with whose.checkpoints(make=True) as checkpoints:
        with waiting("keeping the files"):
            kept = await checkpoints.keep(description)
        return kept, [(shown(one.path), one.reason) for one in checkpoints.left_out]


async def _size(whose: Whose) -> tuple[int, str]:
    async with whose.conversation() as (session, state):
        return CheckpointManager.count(state, session=session)


async def _ignored(whose: Whose) -> tuple[tuple[bytes, ...], str]:
    async with whose.checkpoints() as checkpoints:
        repository = checkpoints.repository
        with waiting("looking for ignored files"):
            return await asyncio.to_thread(repository.ignored_now), str(repository.work_tree)


async def _purged(whose: Whose) -> Purged:
    async with whose.checkpoints() as checkpoints:
        with waiting("writing the snapshots anew"):
            return await checkpoints.purge()


async def _cleaned(whose: Whose) -> int:
    async with whose.conversation() as (session, state):
        return await CheckpointManager.discard(state, session=session)


COMMANDS = {"restore": restore, "undo": undo, "keep": keep, "clean": clean}
