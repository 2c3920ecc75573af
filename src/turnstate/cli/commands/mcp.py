"""``turnstate mcp``: log in at MCP servers that use OAuth, and log out."""

from __future__ import annotations

import asyncio
import threading
import webbrowser
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...config.source import suggestion
from ...errors import UnknownName
from ...home import Home
from ...terminal import screen
from .. import documents
from ..options import json_option

if TYPE_CHECKING:
    from ...tools import McpServer

LONGEST_URL = 8_000
EXIT_CODES = """\b
Exit codes:
  0  success
  1  the login failed, or there is none
  2  bad usage, or a server that is unknown or not approved
"""

agent_option = click.option("--agent", metavar="NAME", help="Look at the servers of this agent, too.")


@click.group("mcp", epilog=EXIT_CODES)
def command() -> None:
    """Log in at MCP servers that use OAuth, and log out.

    \b
    Example:
      turnstate mcp login tickets
      turnstate mcp logout tickets
    """


@command.command("login", epilog=EXIT_CODES)
@click.argument("name", metavar="SERVER")
@agent_option
@json_option("Print one JSON object with the address to open, and one with the result.")
def login(name: str, agent: str | None, as_json: bool) -> int:
    """Log in at a server of turnstate.toml that has oauth = true.

    The address to open is printed, and opened in your browser if there is one. The tokens are
    kept in TURNSTATE_HOME. Agents use and refresh them, and never log in by themselves.

    \b
    With --json, two objects:
      open            the address
      server, result  the name, and "logged in" or "no login is needed"
    """
    from ...tools.mcp import log_in  # deferred: help does not need it

    server = _server(name, agent)
    if not screen.can_ask():
        raise click.UsageError("stdin is not a terminal; a login needs a person and a browser")
    is_kept = asyncio.run(log_in(server, partial(_show, as_json=as_json)))
    _report(name, "logged in" if is_kept else "no login is needed", as_json=as_json)
    return 0


@command.command("logout", epilog=EXIT_CODES)
@click.argument("name", metavar="SERVER")
@agent_option
@json_option("Print one JSON object.")
def logout(name: str, agent: str | None, as_json: bool) -> int:
    """Remove the tokens of a server, which is named by its name or its URL.

    They are removed from this machine. To end the login at the service as well, use the page
    where it lists the applications that have access.

    \b
    With --json, one object:
      server, result  the name, and "logged out" or "no login"
    """
    from ...tools.logins import Logins

    url = name if "://" in name else _server(name, agent).url
    is_removed = Logins().forget(url)
    _report(name, "logged out" if is_removed else "no login", as_json=as_json)
    return 0 if is_removed else 1


def _server(name: str, agent: str | None) -> McpServer:
    """Return a server as an agent in this folder would use it; raise `NotTrusted` if it is not approved."""
    from ...config.assembly import chosen_agent
    from ...config.settings import Settings

    folder, home = Path.cwd(), Home.from_environment()
    settings = Settings.load(folder, home=home)
    own = {one.name: one for one in chosen_agent(agent, settings, folder, home).mcp}
    servers = settings.servers | own
    if name not in servers:
        advice = suggestion(name, list(servers)) or f"; there are {', '.join(sorted(servers)) or 'none'}"
        raise UnknownName(f"no MCP server is called {name!r:.60}{advice}")
    return servers[name]


def _report(name: str, result: str, *, as_json: bool) -> None:
    if as_json:
        screen.show(documents.compact({"server": name, "result": result}))
    else:
        screen.say(f"{name}: {result}")


async def _show(address: str, *, as_json: bool) -> None:
    """Print the address to open; try to open it if the output is seen by someone."""
    if as_json:
        screen.show(documents.compact({"open": address}))
    else:
        shown = screen.escaped(address, LONGEST_URL)
        screen.display(f"Open this address in your browser to log in:\n\n{shown}\n")
    screen.flush()
    if screen.on_terminal():
        # some browsers run until their window is closed
        threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
