"""What a configuration file would do, one line per effect, so that a user can decide whether to approve it.

The lines name every program that would start, every address that data would be sent to, and every tool that
would run without asking. Values of environment variables and passwords in URLs are not shown.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["effects", "shown_url"]

_STEPS = {
    "before_request": "before each request",
    "after_reply": "after each reply",
    "before_tool": "before each call of",
    "after_tool": "after each call of",
}
_TEXTS = {
    "store": "stores sessions in",
    "model": "uses the model",
    "memory": "uses the memory engine",
    "agent": "uses the agent",
}
_NUMBERS = ("budget", "policy", "recall", "limits")


def effects(document: dict[str, Any], folder: Path) -> Iterator[str]:
    """Yield what a file would do once it is approved; the document must have been checked."""
    for name, server in document.get("mcp", {}).items():
        where = shown_url(server["url"]) if server.get("url") else _command(server)
        verb = "connects to" if server.get("url") else "starts"
        known = f", with {', '.join(sorted(server['env']))} set" if server.get("env") else ""
        yield f"{verb} the MCP server {name}: {where}{known}{_inside(server, folder)}"
    for step, commands in document.get("hooks", {}).items():
        for one in commands:
            of = f" {', '.join(one.get('tools', ['any tool']))}" if step.endswith("_tool") else ""
            yield f"runs {_STEPS[step]}{of}: {_command(one)}{_inside(one, folder)}"
    for rule in document.get("approve", ()):
        scope = f" on {rule['path']}" if rule.get("path") else ""
        verb = {"allow": "runs without asking", "ask": "asks before", "deny": "refuses"}[rule["decision"]]
        yield f"{verb}: {rule['tool']}{scope}"
    if variables := document.get("commands", {}).get("variables"):
        yield f"lets commands and hooks read the environment variables {', '.join(variables)}"
    for key, verb in _TEXTS.items():
        if document.get(key):
            yield f"{verb} {shown_url(document[key])}"
    if document.get("sticky"):
        yield f"sends with every request: {', '.join(document['sticky'])}"
    if document.get("tools"):
        yield f"offers the tools {', '.join(document['tools'])}"
    if prompt := document.get("prompt"):
        yield f"tells the model: {prompt}"
    for name in _NUMBERS:
        if document.get(name):
            yield f"sets {', '.join(f'{name}.{field}' for field in document[name])}"


def shown_url(url: str) -> str:
    """Return a URL without user, password and query, for display and logs."""
    scheme, slashes, rest = url.partition("://")
    return f"{scheme}{slashes}{rest.rpartition('@')[2].partition('?')[0]}" if slashes else url


def _command(asked: dict[str, Any]) -> str:
    return shlex.join([asked["command"], *asked.get("args", ())])


def _inside(asked: dict[str, Any], folder: Path) -> str:
    """Return a note if a program is a file in the workspace: the approval does not cover its content."""
    named = [asked.get("command", ""), *asked.get("args", ())]
    inside = [one for one in named if one and not os.path.isabs(one) and (folder / one).is_file()]
    return f" (the content of {', '.join(inside)} is not part of your approval)" if inside else ""
