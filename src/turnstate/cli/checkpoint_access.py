"""Whose checkpoints a command works on: a session, and the folder that its files are in."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from ..checkpoints.manager import CheckpointManager
from ..conversation import ConversationState
from ..session import Session
from . import lookup, screen
from .access import managed, tenant_option, user_option
from .waiting import waiting

__all__ = ["Whose", "whose_options"]

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
