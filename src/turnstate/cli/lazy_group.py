"""A command group that imports some of its commands only when they run.

``turnstate --help`` lists every command without importing any, so it stays instant. Commands that are defined
next to their group are added to it as usual and listed first.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Any, NamedTuple

import click

PACKAGE = "turnstate.cli.commands"


class LazyCommand(NamedTuple):
    """Where a command is defined, and its line in the help of the group."""

    module: str
    summary: str
    attribute: str = "command"

    def load(self) -> click.Command:
        """Import the command."""
        command: click.Command = getattr(import_module(f"{PACKAGE}.{self.module}"), self.attribute)
        return command


class LazyGroup(click.Group):
    """A click group with commands that are imported when they are invoked, not when they are listed."""

    def __init__(self, *arguments: Any, lazy: Mapping[str, LazyCommand], **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._lazy = lazy

    def list_commands(self, _ctx: click.Context) -> list[str]:
        """Return the names of all commands, in the order of the help."""
        return [*self.commands, *self._lazy]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, importing it if necessary, or None if there is no such command."""
        if lazy := self._lazy.get(cmd_name):
            return lazy.load()
        return super().get_command(ctx, cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command for the arguments; the error for an unknown one suggests the likely one."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            close = get_close_matches(args[0], self.list_commands(ctx), n=1)
            if not close:
                raise
            raise click.UsageError(f"No such command {args[0]!r}. Did you mean {close[0]!r}?", ctx) from None

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing any."""
        own = [(name, command.get_short_help_str(limit=80)) for name, command in self.commands.items()]
        with formatter.section("Commands"):
            formatter.write_dl([*own, *((name, lazy.summary) for name, lazy in self._lazy.items())])
