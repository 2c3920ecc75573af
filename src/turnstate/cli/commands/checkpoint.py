"""``turnstate checkpoint``: save, list, compare and restore the files and conversation of a session."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from ...checkpoints import CheckpointManager, Diff, shown
from ...checkpoints.labels import CheckpointTurn
from ...entry import Checkpoint
from ...ids import milliseconds
from ...plain_text import counted, harmless
from ...session import Session
from ...shadow.health import WAY_OUT
from ...stores.values import SessionRow
from ...terminal import lookup, screen
from ...terminal.screen import styled, table, waiting
from ...terminal.times import ago, iso
from .. import documents
from ..completion import session_argument
from ..lazy_group import LazyCommand, LazyGroup
from ..options import json_option
from ..store import EXIT_CODES, managed, tenant_option, user_option

COLUMNS = ("checkpoint", "when", "files", "description")
DIFF_COLORS = {"+": "green", "-": "red", "@@": "cyan"}


@click.group(
    "checkpoint",
    cls=LazyGroup,
    lazy={
        "restore": LazyCommand("checkpoint_restore", "Restore a checkpoint.", "restore"),
        "undo": LazyCommand("checkpoint_restore", "Undo the last restore.", "undo"),
        "keep": LazyCommand("checkpoint_restore", "Save the current files.", "keep"),
        "clean": LazyCommand("checkpoint_restore", "Delete all snapshots of a session's files.", "clean"),
    },
    epilog=EXIT_CODES,
)
def command() -> None:
    """Save, compare and restore the files and the conversation of a session.

    A checkpoint is a snapshot of the work tree, stored outside your project, together with the
    position in the conversation. Checkpoint 0 is the start, 1.1 and 1.2 are tools that changed
    files in turn 1, and 1 is the end of that turn. Your own Git repository is never touched.

    \b
    Example:
      turnstate checkpoint keep 0197a1 "before the rewrite"
      turnstate checkpoint list 0197a1
      turnstate checkpoint diff 0197a1 1
      turnstate checkpoint restore 0197a1 1.2 --files
      turnstate checkpoint undo 0197a1
    """


Decorated = TypeVar("Decorated", bound=Callable[..., Any])


class Target:
    """The session and work tree that a checkpoint command works on."""

    def __init__(
        self, session: str, store: str, tenant: str, user: str | None, work_tree: Path | None, force: bool
    ) -> None:
        self.session, self.store, self.tenant, self.user = session, store, tenant, user
        self.work_tree, self.force = work_tree, force

    def settle(self, *, asks: bool) -> SessionRow:
        """Return the session and use its whole id from now on; accept a short form only if `asks`."""

        async def found() -> SessionRow:
            async with managed(self.store, self.tenant) as sessions:
                return await lookup.precise(sessions, self.session, user=self.user, asks=asks)

        row = asyncio.run(found())
        self.session = row.id
        return row

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Session]:
        """Open the session without its checkpoints."""
        async with managed(self.store, self.tenant) as sessions:
            row = await lookup.session(sessions, self.session, user=self.user)
            session = await sessions.open(row.id, user=self.user)
            yield session

    @asynccontextmanager
    async def checkpoints(self, *, make: bool = False) -> AsyncIterator[CheckpointManager]:
        """Open the checkpoints of the session; if it has none, create them with `make`, else raise."""
        async with self.opened() as session:
            with waiting("scanning the files"):
                if make:
                    folder = self.work_tree or Path.cwd()
                    opened = await CheckpointManager.open(session, folder, force=self.force)
                else:
                    opened = await CheckpointManager.reopen(session, self.work_tree, force=self.force)
            _report_recovery(opened)
            yield opened


def target_options(command: Decorated) -> Decorated:
    """Add the session argument and the store and work-tree options, passed on as one ``target``."""

    @functools.wraps(command)
    def gathered(**given: Any) -> Any:
        names = ("session", "store", "tenant", "user", "work_tree", "force")
        target = Target(*(given.pop(name) for name in names))
        return command(target=target, **given)

    folder = click.option(
        "--work-tree",
        metavar="DIR",
        type=click.Path(file_okay=False, path_type=Path),
        help="The folder with the files.  [default: the one used before]",
    )
    force = click.option("--force", is_flag=True, help="Accept a home folder or a folder that was moved.")
    session = session_argument("session")
    return session(tenant_option(user_option(folder(force(gathered)))))  # type: ignore[return-value]


def _report_recovery(checkpoints: CheckpointManager) -> None:
    if recovered := checkpoints.recovered:
        how = "completed" if recovered.finished else "rolled back: the conversation continued without it"
        screen.say(f"an interrupted restore of {recovered.label} was {how}")


@command.command("list", short_help="List the checkpoints by turn.", epilog=EXIT_CODES)
@target_options
@json_option("Print one JSON object per turn.")
def list_(target: Target, as_json: bool) -> int:
    """List the checkpoints of a session by turn, oldest first.

    A turn that changed no files has no checkpoint. The last turn may be in progress. Files are counted
    as added (+), modified (~) and deleted (-). A checkpoint that cannot be restored is marked as damaged.

    \b
    Example:
      turnstate checkpoint list 0197a1
    """
    turns, damaged = asyncio.run(_turns(target))
    if as_json:
        for turn in turns:
            screen.show(documents.compact(_fields(turn, damaged)))
    else:
        screen.display(table(COLUMNS, [_row(turn, damaged) for turn in turns]))
    _report_damage(damaged)
    return 0


@command.command("expand", short_help="Show one turn and its tools.", epilog=EXIT_CODES)
@target_options
@click.argument("turn")
@json_option("Print one JSON object that includes the tools.")
def expand(target: Target, turn: str, as_json: bool) -> int:
    """Show one turn and the tools that changed files in it.

    \b
    Example:
      turnstate checkpoint expand 0197a1 2
    """
    found, damaged = asyncio.run(_expanded(target, turn))
    if as_json:
        inside = [_fields(one, damaged) for one in found.tools]
        screen.show(documents.compact({**_fields(found, damaged), "tools": inside}))
    else:
        tools = [_row(one, damaged) for one in found.tools]
        screen.display(table(COLUMNS, [_row(found, damaged), *tools]))
    _report_damage(damaged)
    return 0


@command.command("diff", short_help="Show what changed since a checkpoint.", epilog=EXIT_CODES)
@target_options
@click.argument("checkpoint")
@click.argument("other", required=False)
@click.option("--stat", is_flag=True, help="Only list the files and count their lines.")
@json_option("Print one JSON object.")
def diff(target: Target, checkpoint: str, other: str | None, stat: bool, as_json: bool) -> int:
    """Show what changed between a checkpoint and now, or between two checkpoints.

    \b
    Example:
      turnstate checkpoint diff 0197a1 1
      turnstate checkpoint diff 0197a1 1 2.1 --stat
    """
    found = asyncio.run(_compared(target, checkpoint, other))
    if as_json:
        screen.show(documents.compact({"files": _files(found), "text": found.text}))
    elif not found.files:
        screen.say("no differences")
    elif stat:
        screen.display(harmless("\n".join(_counted(one) for one in _files(found))))
    elif screen.on_terminal():
        with screen.paged():
            screen.display("\n".join(_colored(found.text.removesuffix("\n").split("\n"))))
    else:
        screen.show(found.text.removesuffix("\n"))
    return 0


def _colored(lines: Sequence[str]) -> Iterator[str]:
    """Yield the lines of a diff in the usual colors, safe to print."""
    for line in lines:
        color = next((name for start, name in DIFF_COLORS.items() if line.startswith(start)), None)
        yield styled(harmless(line), fg=color)


async def _turns(target: Target) -> tuple[list[CheckpointTurn], dict[str, str]]:
    async with target.checkpoints() as checkpoints:
        return await checkpoints.turns(), await checkpoints.damaged()


async def _expanded(target: Target, label: str) -> tuple[CheckpointTurn, dict[str, str]]:
    async with target.checkpoints() as checkpoints:
        return await checkpoints.expand(label), await checkpoints.damaged()


def _report_damage(damaged: dict[str, str]) -> None:
    if damaged:
        screen.say(f"{counted(len(damaged), 'checkpoint')} damaged: {WAY_OUT}")


async def _compared(target: Target, label: str, other: str | None) -> Diff:
    async with target.checkpoints() as checkpoints:
        with waiting("comparing the files"):
            return await checkpoints.diff(label, other)


def _row(one: CheckpointTurn | Checkpoint, damaged: dict[str, str]) -> Sequence[str]:
    damage = f" (damaged: {damaged[one.commit]})" if one.commit in damaged else ""
    return (
        one.label,
        ago(milliseconds(one.time)),
        changes(one.added, one.modified, one.deleted),
        one.description + damage,
    )


def changes(added: int, modified: int, deleted: int) -> str:
    """Return the numbers of added, modified and deleted files as text."""
    signs = ((added, "+"), (modified, "~"), (deleted, "-"))
    return " ".join(f"{sign}{count:,}" for count, sign in signs if count) or "none"


def _fields(one: CheckpointTurn | Checkpoint, damaged: dict[str, str]) -> dict[str, Any]:
    common = {
        "checkpoint": one.label,
        "description": one.description,
        "at": iso(milliseconds(one.time)),
        "commit": one.commit,
        "added": one.added,
        "modified": one.modified,
        "deleted": one.deleted,
        "damaged": damaged.get(one.commit, ""),
    }
    if isinstance(one, CheckpointTurn):
        return common | {"done": one.done, "tools": len(one.tools)}
    return common | {"tool": one.tool, "call": one.call}


def _files(found: Diff) -> list[dict[str, Any]]:
    return [
        {
            "path": shown(file.path),
            "status": file.status,
            "added": file.lines_added,
            "removed": file.lines_removed,
            "binary": file.binary,
        }
        for file in found.files
    ]


def _counted(file: dict[str, Any]) -> str:
    lines = "binary" if file["binary"] else f"+{file['added']:,} -{file['removed']:,}"
    return f"{file['status']:8}  {lines:>12}  {file['path']}"
