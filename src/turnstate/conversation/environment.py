"""What a conversation uses but never stores: agents, tools, checkpoints of files, the operating system.

They are rebuilt when a process starts, and attached again after a conversation is restored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct, field

from ..ids import wall_clock
from ..sticky import Workspace
from ..toolspec import ToolSpec


class Agents(Protocol):
    """The active agent: its name, its system prompt, and its sticky files."""

    @property
    def active(self) -> str:
        """The name of the active agent."""
        ...

    @property
    def prompt(self) -> str | None:
        """The active agent's system prompt."""
        ...

    @property
    def context_paths(self) -> Sequence[str]:
        """The files, folders and patterns of the active agent."""
        ...


class ToolSource(Protocol):
    """The tools that can be run now."""

    def schemas(self) -> Mapping[str, Sequence[ToolSpec]]:
        """Return the definitions by their origin: ``native___``, ``custom___``, or the name of a server."""
        ...


class Checkpoints(Protocol):
    """The open checkpoints of a conversation's files, such as `turnstate.checkpoints.CheckpointManager`."""

    def turns(self) -> Sequence[object]:
        """Return the checkpoints of the path, grouped by turn."""
        ...

    async def restore(self, label: str) -> object:
        """Restore files and conversation."""
        ...


class Os(Protocol):
    """The operating system: a clock, and a folder."""

    def now(self) -> int:
        """Return the time in milliseconds since 1970."""
        ...

    def workspace(self) -> Workspace:
        """Return the workspace in which files are looked up."""
        ...


class System(Struct, frozen=True):
    """The system that this process runs on, with a folder: the current one by default."""

    folder: Path = field(default_factory=Path.cwd)

    def now(self) -> int:
        """Return the time in milliseconds since 1970."""
        return wall_clock()

    def workspace(self) -> Workspace:
        """Return a workspace that looks up files in the folder, and ``~`` in the user's home."""
        return Workspace(root=self.folder.absolute(), home=Path.home())
