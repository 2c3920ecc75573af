"""``turnstate checkpoint``: files and conversation of a session, kept together and brought back together.

A verb is a command in a module of its own.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import click

from ...checkpoints import CheckpointManager, Diff, shown
from ...checkpoints.labels import CheckpointTurn
from ...cli_kit import screen
from ...cli_kit.progress import waiting
from ...cli_kit.screen import harmless, table
from ...conversation import ConversationState
from ...entry import Checkpoint
from ...session import Session
from ...shadow.health import WAY_OUT
from .. import documents, lookup
from ..store import EXIT_CODES, as_json, managed, tenant_option, user_option
from ..times import ago, iso

__all__ = ["COMMANDS", "Whose", "changes", "command", "whose_options"]

VERBS = {
    "list": ("checkpoint", "List the checkpoints by turns."),
    "expand": ("checkpoint", "Show a turn with the tools in it."),
    "diff": ("checkpoint", "Say what changed since a checkpoint."),
    "restore": ("checkpoint_restore", "Go back to a checkpoint."),
    "undo": ("checkpoint_restore", "Take the last restore back."),
    "keep": ("checkpoint_restore", "Keep the files as they are now."),
    "clean": ("checkpoint_restore", "Remove all snapshots of a session's files."),
}
"""Every verb, in the order of the help, with its module and its summary."""


class _Verbs(click.Group):
    """A group that imports a verb when it runs."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        module: Any = import_module(f".{VERBS[cmd_name][0]}", __package__)
        command: click.Command = module.COMMANDS[cmd_name]
        return command

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in VERBS.items()])


@click.group("checkpoint", cls=_Verbs, epilog=EXIT_CODES)
def command() -> None:
    """Keep the files of a moment, compare them, go back to it.

    A checkpoint is a moment of a session: its files, in a repository of our own outside of the
    project, and its conversation, which is in the log. 0 is the start, 1.1 and 1.2 are tools that
    changed files, 1 is their turn. Your own Git repository is never touched.

    \b
    Example:
      turnstate checkpoint keep 0197a1 "before the rewrite"
      turnstate checkpoint list 0197a1
      turnstate checkpoint diff 0197a1 1
      turnstate checkpoint restore 0197a1 1.2 --files
      turnstate checkpoint undo 0197a1
    """


# Whose checkpoints a command works on: a session, and the folder that its files are in.


Decorated = TypeVar("Decorated", bound=Callable[..., Any])


class Whose:
    """The options that every verb has, and the checkpoints that they mean."""

    def __init__(
        self, session: str, store: str, tenant: str, user: str | None, work_tree: Path | None, force: bool
    ) -> None:
        self.session, self.store, self.tenant, self.user = session, store, tenant, user
        self.work_tree, self.force = work_tree, force

    @asynccontextmanager
    async def conversation(self) -> AsyncIterator[tuple[Session, ConversationState]]:
        """Open the session and its conversation, and nothing of its checkpoints."""
        async with managed(self.store, self.tenant) as sessions:
            row = await lookup.session(sessions, self.session, user=self.user)
            session = await sessions.open(row.id, user=self.user)
            yield session, await session.conversation()

    @asynccontextmanager
    async def checkpoints(self, *, make: bool = False) -> AsyncIterator[CheckpointManager]:
        """Open the checkpoints of the session; where there are none, only `make` begins with some."""
        async with self.conversation() as (session, state):
            with waiting("looking at the files"):
                if make:
                    folder = self.work_tree or Path.cwd()
                    opened = await CheckpointManager.open(state, folder, session=session, force=self.force)
                else:
                    opened = await CheckpointManager.reopen(
                        state, self.work_tree, session=session, force=self.force
                    )
            _tell_recovered(opened)
            yield opened


def whose_options(command: Decorated) -> Decorated:
    """Add the session and the options that say where everything is, as one ``whose``."""

    @functools.wraps(command)
    def gathered(**given: Any) -> Any:
        names = ("session", "store", "tenant", "user", "work_tree", "force")
        whose = Whose(*(given.pop(name) for name in names))
        return command(whose=whose, **given)

    folder = click.option(
        "--work-tree",
        metavar="DIR",
        type=click.Path(file_okay=False, path_type=Path),
        help="The folder with the files.  [default: the one that was kept]",
    )
    force = click.option("--force", is_flag=True, help="Take a home folder, too, or a folder that was moved.")
    session = click.argument("session")
    return session(tenant_option(user_option(folder(force(gathered)))))  # type: ignore[return-value]


def _tell_recovered(checkpoints: CheckpointManager) -> None:
    if recovered := checkpoints.recovered:
        how = "finished" if recovered.finished else "taken back, since the conversation went on without it"
        screen.say(f"a restore of {recovered.label} that had been cut off was {how}")


# ``turnstate checkpoint list|expand|diff``: what was kept, and what changed since.


COLUMNS = ("checkpoint", "when", "files", "description")


@click.command("list", epilog=EXIT_CODES)
@whose_options
@as_json("Print one JSON object a turn.")
def list_(whose: Whose, as_json: bool) -> int:
    """List the checkpoints of a session by turns, the start first.

    A turn that changed no files has none. The last one may be in progress. Files are those added (+),
    modified (~) and deleted (-). A checkpoint whose files cannot be restored is marked as damaged.

    \b
    Example:
      turnstate checkpoint list 0197a1
    """
    turns, damaged = asyncio.run(_turns(whose))
    if as_json:
        for turn in turns:
            screen.show(documents.compact(_fields(turn, damaged)))
    else:
        screen.display(table(COLUMNS, [_row(turn, damaged) for turn in turns]))
    _tell(damaged)
    return 0


@click.command("expand", epilog=EXIT_CODES)
@whose_options
@click.argument("turn")
@as_json("Print one JSON object, with the tools in it.")
def expand(whose: Whose, turn: str, as_json: bool) -> int:
    """Show a turn with the tools that changed files in it.

    \b
    Example:
      turnstate checkpoint expand 0197a1 2
    """
    found, damaged = asyncio.run(_expanded(whose, turn))
    if as_json:
        inside = [_fields(one, damaged) for one in found.tools]
        screen.show(documents.compact({**_fields(found, damaged), "tools": inside}))
    else:
        tools = [_row(one, damaged) for one in found.tools]
        screen.display(table(COLUMNS, [_row(found, damaged), *tools]))
    _tell(damaged)
    return 0


@click.command("diff", epilog=EXIT_CODES)
@whose_options
@click.argument("checkpoint")
@click.argument("other", required=False)
@click.option("--stat", is_flag=True, help="Only name the files and count their lines.")
@as_json("Print one JSON object.")
def diff(whose: Whose, checkpoint: str, other: str | None, stat: bool, as_json: bool) -> int:
    """Say what changed since a checkpoint: until now, or until another one.

    \b
    Example:
      turnstate checkpoint diff 0197a1 1
      turnstate checkpoint diff 0197a1 1 2.1 --stat
    """
    found = asyncio.run(_compared(whose, checkpoint, other))
    if as_json:
        screen.show(documents.compact({"files": _files(found), "text": found.text}))
    elif not found.files:
        screen.say("nothing differs")
    elif stat:
        screen.display(harmless("\n".join(_counted(one) for one in _files(found))))
    else:
        screen.show(found.text.removesuffix("\n"))
    return 0


async def _turns(whose: Whose) -> tuple[list[CheckpointTurn], dict[str, str]]:
    async with whose.checkpoints() as checkpoints:
        return checkpoints.turns(), await checkpoints.damaged()


async def _expanded(whose: Whose, label: str) -> tuple[CheckpointTurn, dict[str, str]]:
    async with whose.checkpoints() as checkpoints:
        return checkpoints.expand(label), await checkpoints.damaged()


def _tell(damaged: dict[str, str]) -> None:
    if damaged:
        screen.say(f"{screen.counted(len(damaged), 'checkpoint')} damaged: {WAY_OUT}")


async def _compared(whose: Whose, label: str, other: str | None) -> Diff:
    async with whose.checkpoints() as checkpoints:
        with waiting("comparing the files"):
            return await checkpoints.diff(label, other)


def _row(one: CheckpointTurn | Checkpoint, damaged: dict[str, str]) -> Sequence[str]:
    told = f"{one.description} (damaged: {damaged[one.commit]})" if one.commit in damaged else one.description
    return one.label, ago(one.at), changes(one.added, one.modified, one.deleted), told


def changes(added: int, modified: int, deleted: int) -> str:
    """Write how many files were added, modified and deleted."""
    signs = ((added, "+"), (modified, "~"), (deleted, "-"))
    return " ".join(f"{sign}{count:,}" for count, sign in signs if count) or "none"


def _fields(one: CheckpointTurn | Checkpoint, damaged: dict[str, str]) -> dict[str, Any]:
    known = {
        "checkpoint": one.label,
        "description": one.description,
        "at": iso(one.at),
        "commit": one.commit,
        "added": one.added,
        "modified": one.modified,
        "deleted": one.deleted,
        "damaged": damaged.get(one.commit, ""),
    }
    if isinstance(one, CheckpointTurn):
        return known | {"done": one.done, "tools": len(one.tools)}
    return known | {"tool": one.tool, "call": one.call}


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


COMMANDS = {"list": list_, "expand": expand, "diff": diff}
