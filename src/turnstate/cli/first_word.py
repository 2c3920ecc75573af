"""A command whose first word may be the name of another: ``import FILE``, and ``import qcli FILE``.

A file or session of that very name is meant where ``./`` or ``--`` stands before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click

__all__ = ["FirstWord"]


class FirstWord(click.Command):
    """A command that hands over to another, by its module, where its first word is that one's name."""

    def __init__(self, *arguments: Any, others: Mapping[str, str], **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._others = others

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Prepare the command that is meant."""
        if not args or args[0] not in self._others:
            return super().make_context(info_name, args, parent, **extra)
        module, _, name = self._others[args[0]].partition(":")
        other: click.Command = getattr(import_module(f".commands.{module}", __package__), name)
        return other.make_context(f"{info_name} {args[0]}", args[1:], parent, **extra)
