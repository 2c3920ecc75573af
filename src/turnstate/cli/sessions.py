"""``turnstate sessions``: which there are, and what is done to one of them.

Without a verb they are listed. A verb is a command in a module of its own.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click

from .store_option import EXIT_CODES

__all__ = ["command"]

VERBS = {
    "list": ("session_list", "List sessions, the newest first."),
    "rename": ("session_changes", "Give a session another title."),
    "tag": ("session_changes", "Add tags to a session, or take some away."),
    "end": ("session_changes", "End a conversation; it stays readable."),
    "reset": ("session_changes", "End a conversation and begin the next under its id."),
    "expire": ("session_changes", "End the sessions that were left idle for too long."),
    "destroy": ("session_removal", "Delete a session."),
    "erase": ("session_removal", "Delete a session, or all of a user's, with a receipt."),
}
"""Every verb, in the order of the help, with its module and its summary."""

DEFAULT = "list"


class _Verbs(click.Group):
    """A group that lists where no verb is given, and imports a verb when it runs."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names):
            args = [DEFAULT, *args]
        return super().parse_args(ctx, args)

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        module: Any = import_module(f".{VERBS[cmd_name][0]}", __package__)
        command: click.Command = module.VERBS[cmd_name]
        return command

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in VERBS.items()])


@click.group("sessions", cls=_Verbs, epilog=EXIT_CODES)
def command() -> None:
    """List sessions, describe them, end them, delete them.

    Without a command they are listed; the options of list can follow at once. Where an ID is
    asked for, the beginning of one will do as long as no other begins so. Only what deletes
    wants all of it.

    \b
    Example:
      turnstate sessions
      turnstate sessions --user anna --since 7d --json
      turnstate sessions list --help
      turnstate sessions rename 0197a1 "The nightly export"
      turnstate sessions tag 0197a1 urgent --remove later
      turnstate sessions erase --user anna
    """
