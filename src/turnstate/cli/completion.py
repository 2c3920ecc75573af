"""Shell completion: commands, options and the names of sessions.

The scripts come from click. A shell that completes a line runs the program with `COMPLETION` set, and
`answer` prints the candidates. Ids are read from the store that the line names. If it cannot be read, there
are no candidates, since an error in the middle of a line helps no one.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem, shell_complete

from ..config.table import default_store
from ..terminal import screen
from . import COMPLETION
from .store import DEFAULT_TENANT, STORE_VARIABLE, managed, setting

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

PROGRAM = "turnstate"
MOST = 200


def session_argument(name: str = "id", *, required: bool = True) -> Callable[[Decorated], Decorated]:
    """Return the argument that names a session, with completion of its id."""
    return click.argument(name, required=required, shell_complete=session_names)


def answer(program: click.Command) -> int:
    """Print what a shell asks for when it completes a line, and return the exit code."""
    return shell_complete(program, {}, PROGRAM, COMPLETION, os.environ[COMPLETION])


def session_names(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the ids that begin with `incomplete`, newest first, with their titles as help."""
    found = list[CompletionItem]()
    with suppress(Exception):
        found = asyncio.run(_names(ctx, incomplete))
    return found


async def _names(ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    from ..stores.values import SessionFilter  # deferred: help does not need it
    from ..terminal import lookup

    url = ctx.params.get("store") or os.environ.get(STORE_VARIABLE) or setting("store") or default_store()
    names = list[CompletionItem]()
    async with managed(url, ctx.params.get("tenant") or DEFAULT_TENANT, to_read=True) as sessions:
        async for row in lookup.walk(sessions, SessionFilter(user=ctx.params.get("user"))):
            if row.id.startswith(incomplete):
                names.append(CompletionItem(row.id, help=screen.escaped(row.title, 60)))
            if len(names) == MOST:
                break
    return names
