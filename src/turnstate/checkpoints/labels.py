"""The labels of checkpoints: ``0`` for the start, ``1.1`` and ``1.2`` for tools, ``1`` for their turn.

Only changes to files are numbered, so a turn that changes no files has no number. A turn that the user
interrupts keeps its number, and the next turn gets the next one. Labels are computed from the path of the
conversation and stored nowhere else, so numbering continues correctly after a restore. A second start on the
path, after the snapshots were cleaned, begins at `1` again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import datetime

from msgspec import Struct, structs

from ..entry import Checkpoint

ASIDE = "tangent"
"""The label of the checkpoint at the start of a tangent; it has no number."""

IN_PROGRESS, INTERRUPTED = "in progress", "interrupted"
MAX_DESCRIPTION_BYTES = 60
"""Maximum length of a description in bytes, without the trailing dots."""

_NUMBER = re.compile(r"(\d{1,9})(?:\.(\d{1,9}))?")


class Numbers(Struct, frozen=True):
    """How many turns are complete, and how many tools changed files in the current one."""

    turn: int
    tools: int

    @property
    def next_tool(self) -> str:
        """The label of the next tool's checkpoint."""
        return f"{self.turn + 1}.{self.tools + 1}"

    @property
    def next_turn(self) -> str:
        """The label of the current turn's checkpoint."""
        return str(self.turn + 1)


class CheckpointTurn(Struct, frozen=True, kw_only=True):
    """A turn and the tools in it; an unfinished turn has the files of its last tool.

    The counts add up what the tools changed and what the user changed before the turn ended.
    """

    label: str
    description: str
    commit: str
    time: datetime
    tools: tuple[Checkpoint, ...] = ()
    done: bool = True
    added: int = 0
    modified: int = 0
    deleted: int = 0


def numbers(checkpoints: Iterable[Checkpoint], *, interrupted: bool = False) -> Numbers:
    """Return the numbers reached by the checkpoints of a path; the first checkpoints may be missing.

    `interrupted` means that the user has spoken since the last checkpoint, so an unfinished turn is over.
    """
    turn, tools = 0, 0
    for one in checkpoints:
        if number := _NUMBER.fullmatch(one.label):
            turn, tools = int(number[1]), int(number[2] or 0)
            turn -= 1 if number[2] else 0
    return Numbers(turn + 1, 0) if interrupted and tools else Numbers(turn, tools)


def is_numbered(checkpoint: Checkpoint) -> bool:
    """Return True if the label of a checkpoint has a number of a turn."""
    return _NUMBER.fullmatch(checkpoint.label) is not None


def turns(checkpoints: Sequence[Checkpoint], *, interrupted: bool = False) -> list[CheckpointTurn]:
    """Group the checkpoints of a path by turn, from the start to the current turn."""
    found, tools = list[CheckpointTurn](), list[Checkpoint]()
    for one in checkpoints:
        if one.label == ASIDE:
            found.append(_turn(one))
            continue
        if tools and _number(tools[-1]) != _number(one):
            found.append(_unfinished(tools, INTERRUPTED))
            tools = []
        if one.tool is not None:
            tools.append(one)
        else:
            found.append(_turn(one, tools))
            tools = []
    if tools:
        found.append(_unfinished(tools, INTERRUPTED if interrupted else IN_PROGRESS))
    return found


def _number(checkpoint: Checkpoint) -> str:
    """Return the number of the turn that a checkpoint is in."""
    return checkpoint.label.partition(".")[0]


def _unfinished(tools: Sequence[Checkpoint], text: str) -> CheckpointTurn:
    """Return a turn that has no checkpoint of its own."""
    last = _turn(tools[-1], tools[:-1])
    return structs.replace(last, label=_number(tools[-1]), description=text, tools=tuple(tools), done=False)


def _turn(closing: Checkpoint, tools: Sequence[Checkpoint] = ()) -> CheckpointTurn:
    return CheckpointTurn(
        label=closing.label,
        description=closing.description,
        commit=closing.commit,
        time=closing.time,
        tools=tuple(tools),
        added=closing.added + sum(one.added for one in tools),
        modified=closing.modified + sum(one.modified for one in tools),
        deleted=closing.deleted + sum(one.deleted for one in tools),
    )


def description(text: str) -> str:
    """Shorten a description for a list: at most 60 bytes, cut at a space and followed by dots."""
    line = " ".join(text.split())
    if len(line.encode()) <= MAX_DESCRIPTION_BYTES:
        return line
    short = line.encode()[:MAX_DESCRIPTION_BYTES].decode(errors="ignore")
    return (short.rpartition(" ")[0] or short) + "..."
