"""``turnstate checkpoint list|expand|diff``: what was kept, and what changed since."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import click

from ..checkpoints import Diff, shown
from ..checkpoints.health import WAY_OUT
from ..checkpoints.numbering import Turn
from ..entry import Checkpoint
from . import document, screen
from .access import as_json
from .checkpoint_access import Whose, whose_options
from .moments import ago, iso
from .screen import harmless
from .store_option import EXIT_CODES
from .table import table
from .waiting import waiting

__all__ = ["VERBS", "changes"]

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
            screen.show(document.compact(_fields(turn, damaged)))
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
        screen.show(document.compact({**_fields(found, damaged), "tools": inside}))
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
        screen.show(document.compact({"files": _files(found), "text": found.text}))
    elif not found.files:
        screen.say("nothing differs")
    elif stat:
        screen.display(harmless("\n".join(_counted(one) for one in _files(found))))
    else:
        screen.show(found.text.removesuffix("\n"))
    return 0


async def _turns(whose: Whose) -> tuple[list[Turn], dict[str, str]]:
    async with whose.checkpoints() as checkpoints:
        return checkpoints.turns(), await checkpoints.damaged()


async def _expanded(whose: Whose, label: str) -> tuple[Turn, dict[str, str]]:
    async with whose.checkpoints() as checkpoints:
        return checkpoints.expand(label), await checkpoints.damaged()


def _tell(damaged: dict[str, str]) -> None:
    if damaged:
        screen.say(f"{screen.counted(len(damaged), 'checkpoint')} damaged: {WAY_OUT}")


async def _compared(whose: Whose, label: str, other: str | None) -> Diff:
    async with whose.checkpoints() as checkpoints:
        with waiting("comparing the files"):
            return await checkpoints.diff(label, other)


def _row(one: Turn | Checkpoint, damaged: dict[str, str]) -> Sequence[str]:
    told = f"{one.description} (damaged: {damaged[one.commit]})" if one.commit in damaged else one.description
    return one.label, ago(one.at), changes(one.added, one.modified, one.deleted), told


def changes(added: int, modified: int, deleted: int) -> str:
    """Write how many files were added, modified and deleted."""
    signs = ((added, "+"), (modified, "~"), (deleted, "-"))
    return " ".join(f"{sign}{count:,}" for count, sign in signs if count) or "none"


def _fields(one: Turn | Checkpoint, damaged: dict[str, str]) -> dict[str, Any]:
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
    if isinstance(one, Turn):
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


VERBS = {"list": list_, "expand": expand, "diff": diff}
