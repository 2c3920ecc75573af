"""``turnstate checkpoint``: files and conversation of a session, kept together and brought back together.

A verb is a command in a module of its own.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click

from .store_option import EXIT_CODES

__all__ = ["command"]

VERBS = {
    "list": ("checkpoint_views", "List the checkpoints by turns."),
    "expand": ("checkpoint_views", "Show a turn with the tools in it."),
    "diff": ("checkpoint_views", "Say what changed since a checkpoint."),
    "restore": ("checkpoint_moves", "Go back to a checkpoint."),
    "undo": ("checkpoint_moves", "Take the last restore back."),
    "keep": ("checkpoint_moves", "Keep the files as they are now."),
    "clean": ("checkpoint_moves", "Remove all snapshots of a session's files."),
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
        command: click.Command = module.VERBS[cmd_name]
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
