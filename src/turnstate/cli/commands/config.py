"""``turnstate config``: show settings and where they come from, list agents, and approve a workspace."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec

from ...config.effects import effects, shown_url
from ...config.settings import Given, Origin, Settings
from ...config.source import MAX_BYTES, ConfigFile, read
from ...config.table import FILE, KEY_VARIABLES, needs_approval, settings_document
from ...config.trust import Trust
from ...home import Home
from ...terminal import screen
from .. import documents
from ..options import json_option, yes_option

EXIT_CODES = """\b
Exit codes:
  0  success
  1  something still needs approval
  2  bad usage, or a file that cannot be used
"""


@click.group("config", epilog=EXIT_CODES)
def command() -> None:
    """Show settings and agents, and approve those of a workspace.

    \b
    Example:
      turnstate config show
      turnstate config agents
      turnstate config trust
    """


@command.command("show", epilog=EXIT_CODES)
@click.option("--store", metavar="URL", help="Show settings as if this flag were passed.")
@click.option("--model", metavar="NAME", help="Show settings as if this flag were passed.")
@click.option("--engine", "memory", metavar="NAME", help="Show settings as if this flag were passed.")
@click.option("--agent", metavar="NAME", help="Show settings as if this flag were passed.")
@json_option("Print one JSON object per setting.")
def show(as_json: bool, **flags: str | None) -> int:
    """Show each setting, its value, and where the value comes from.

    Passwords and keys are not shown, only that they are set.

    \b
    With --json, one object per setting:
      key, value   as in turnstate.toml; a key or password is null
      set          true unless the value is the default
      source       flag, environment, workspace, user or default
      place        the flag, the variable or the file
      trusted      false if it needs your approval first: turnstate config trust
    """
    settings = Settings.load(flags=flags)
    rows = [*settings.given(), *_keys()]
    if as_json:
        for one in rows:
            screen.show(documents.compact(_as_object(one)))
        return 0
    cells = [(one.key, _shown(one), _origin(one)) for one in rows]
    screen.display(screen.table(("setting", "value", "from"), cells))
    return 0


@command.command("agents", epilog=EXIT_CODES)
@json_option("Print one JSON object per agent.")
def list_agents(as_json: bool) -> int:
    """List the agents of this workspace and of the user."""
    from ...config.profile import agents

    found = agents(Path.cwd(), Home.from_environment())
    if as_json:
        for one in found:
            screen.show(documents.compact(msgspec.to_builtins(one)))
    elif found:
        cells = [(one.name, one.state, one.description, one.file) for one in found]
        screen.display(screen.table(("agent", "state", "description", "file"), cells))
    else:
        screen.say("there are no agents; see docs/configuration.md for how to write one")
    return 0


@command.command("trust", epilog=EXIT_CODES)
@click.option("--revoke", is_flag=True, help="Revoke the approval of this workspace's files.")
@yes_option
@json_option("Print one JSON object per file, and approve only with --yes.")
def trust(revoke: bool, yes: bool, as_json: bool) -> int:
    """Approve what the files of this workspace ask for, after showing it.

    The approval holds for exactly the content that is shown, in this folder. It is kept in
    TURNSTATE_HOME, and a file that changes has to be approved again.

    \b
    With --json, one object per file that waits for approval:
      file       its path
      effects    what it would do, one text each
      approved   true with --yes
    """
    folder = Path.cwd()
    if revoke:
        kept = Trust(Home.from_environment())
        taken = [file.name for file in _workspace_files(folder) if kept.revoke(file.path)]
        screen.say(f"no longer approved: {', '.join(taken)}" if taken else "nothing was approved")
        return 0
    return approve(folder, yes=yes, as_json=as_json)


def approve(folder: Path, *, yes: bool = False, as_json: bool = False) -> int:
    """Show what the files of a workspace ask for and approve it if the user agrees; otherwise return 1."""
    kept = Trust(Home.from_environment())
    files = _workspace_files(folder)
    waiting = [file for file in files if not kept.approves(file.path, file.content)]
    asked = [(file, lines) for file in waiting if (lines := _asked(file, folder))]
    if not asked:
        screen.say("nothing in this workspace waits for your approval")
        return 0
    for file, lines in asked:
        if as_json:
            row = {"file": str(file.path), "effects": lines, "approved": yes}
            screen.show(documents.compact(row))
            continue
        screen.display(screen.styled(screen.escaped(str(file.path)), bold=True))
        for line in lines:  # in full: a cut could hide the part that matters
            screen.display(f"  {screen.escaped(line, MAX_BYTES)}")
    if as_json and not yes:
        return 1
    if not (yes or screen.can_ask()):
        raise click.UsageError("stdin is not a terminal; pass --yes to approve this without being asked")
    warning = "It holds until the files change"
    approved = screen.confirmed("approve this?", yes=yes, warning=warning, refused="nothing was approved")
    for file, _ in asked if approved else ():
        kept.approve(file.path, file.content)  # the bytes that were shown, even if the file has changed since
    return 0 if approved else 1


def _workspace_files(folder: Path) -> Iterator[ConfigFile]:
    from ...config.profile import agent_file, agent_files

    home = Home.from_environment()
    if (file := read(folder, FILE, place="workspace")) is not None:
        yield file
    for place, name in agent_files(folder, home):
        if place == "workspace" and (file := agent_file(place, name, folder, home)) is not None:
            yield file


def _asked(file: ConfigFile, folder: Path) -> list[str]:
    """Return what a file needs approval for; raise `InputError` if the file is invalid."""
    from ...config.profile import profile_of

    if file.name != FILE:
        profile_of(file)
        return [*effects(file.document(), folder)] or ["describes an agent with all tools"]
    document = settings_document(file)
    return [*effects(document, folder)] if needs_approval(file, document) else []


def _keys() -> Iterator[Given]:
    """Yield the provider keys that are set in the environment, without their values."""
    for provider, variable in KEY_VARIABLES.items():
        if os.environ.get(variable):
            yield Given(key=f"keys.{provider}", value=None, origin=Origin("environment", variable))


def _shown(given: Given) -> str:
    if given.key.startswith("keys."):
        return "set"
    return _text(given.value) or "–"


def _text(value: Any) -> str:
    """Return a value as text; for a table only the names, since its values may contain passwords."""
    match value:
        case str():
            return shown_url(value)
        case {"command": command}:
            return f"{command} …" if len(value) > 1 else str(command)
        case {"url": url}:
            return shown_url(url)
        case {"tool": tool, "decision": decision}:
            return f"{decision} {tool} {value.get('path', '')}".rstrip()
        case list():
            return ", ".join(map(_text, value))
        case dict():
            return ", ".join(value)
        case _:
            return "" if value is None else str(value)


def _origin(given: Given) -> str:
    return f"{given.origin} (not approved)" if given.withheld else str(given.origin)


def _as_object(given: Given) -> dict[str, Any]:
    secret = given.key.startswith("keys.")
    plain = isinstance(given.value, bool | int | float)
    return {
        "key": given.key,
        "value": None if secret else given.value if plain else _text(given.value) or None,
        "set": given.origin.kind != "default",
        "source": given.origin.kind,
        "place": given.origin.place or None,
        "trusted": not given.withheld,
    }
