"""``turnstate doctor``: whether this installation can do its work, line by line."""

from __future__ import annotations

import asyncio

import click

from . import document, screen
from .access import as_json
from .checks import Check, checks
from .screen import styled
from .store_option import store_option

__all__ = ["command"]

EXIT_CODES = """\b
Exit codes:
  0  good
  1  something failed
  2  bad usage, or input that cannot be read
"""


@click.command("doctor", epilog=EXIT_CODES)
@store_option
@as_json("Print one JSON object a check.")
def command(store: str, as_json: bool) -> int:
    """Check this installation: Python, SQLite, the store, the counters, git, the home folder.

    Nothing that is kept is changed, and nothing is fetched from the network. Warnings are good
    enough for exit code 0.

    \b
    Example:
      turnstate doctor
      turnstate doctor --store sqlite:///agent.db --json

    \b
    With --json, one object a check:
      name
      result  ok, warning or failed
      text    what was found, and what to do about it
    """
    return asyncio.run(_examine(store, as_json=as_json))


async def _examine(store: str, *, as_json: bool) -> int:
    failed = False
    async for check in checks(store):
        failed |= check.result == "failed"
        _show(check, as_json=as_json)
    return 1 if failed else 0


def _show(check: Check, *, as_json: bool) -> None:
    if as_json:
        screen.show(document.compact({"name": check.name, "result": check.result, "text": check.text}))
    else:
        result = styled(f"{check.result:<7}", bold=check.result != "ok")
        screen.show(f"{result}  {check.name:<19}  {screen.escaped(check.text)}")
    screen.flush()
