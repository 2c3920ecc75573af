"""What a configuration file would do, one line per effect, so that a user can decide whether to approve it.

The lines name every program that would start, every address that data would be sent to, every tool that would
run without asking, and every file that would be opened. A file that exists already came with the workspace,
and so did what is in it. Values of environment variables and passwords in URLs are not shown.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

_SECRET = re.compile("pass|key|secret|token|auth", re.IGNORECASE).search
"""Finds names of settings in a URL whose values are not shown."""

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
_NUMBERS = ("budget", "policy", "recall", "limits", "models")


def effects(document: dict[str, Any], folder: Path) -> Iterator[str]:
    """Yield what a file would do once it is approved; the document must have been checked."""
    for name, server in document.get("mcp", {}).items():
        where = shown_url(server["url"]) if server.get("url") else _command(server)
        verb = "connects to" if server.get("url") else "starts"
        yield f"{verb} the MCP server {name}: {where}{_given(server)}{_inside(server, folder)}"
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
        if given := document.get(key):
            yield f"{verb} {_shown_address(given)}{_file_note(key, given, folder)}"
    if (store := document.get("store")) and not document.get("memory"):
        yield from _memory_beside(store, folder)
    if document.get("sticky"):
        yield f"sends with every request: {', '.join(document['sticky'])}"
    if document.get("tools"):
        yield f"offers the tools {', '.join(document['tools'])}"
    if prompt := document.get("prompt"):
        yield f"tells the model: {prompt}"
    for name in _NUMBERS:
        for field, value in document.get(name, {}).items():
            yield f"sets {name}.{field} to {value!r}"


def _given(server: dict[str, Any]) -> str:
    """Return what a server is given, without the values: variables, headers, and where they come from."""
    from ..tools.mcp import VARIABLE  # deferred: most files have no servers

    env, headers = server.get("env", {}), server.get("headers", {})
    read = sorted({name for text in (*env.values(), *headers.values()) for name in VARIABLE.findall(text)})
    told = [f"with {', '.join(sorted(env))} set"] if env else []
    told += [f"with the headers {', '.join(sorted(headers))}"] if headers else []
    told += ["with your OAuth login there"] if server.get("oauth") else []
    told += [f"in {server['cwd']}"] if server.get("cwd") else []
    told += [f"sending it your environment variables {', '.join(read)}"] if read else []
    return "".join(f", {one}" for one in told)


def shown_url(url: str) -> str:
    """Return a URL without user, password and query, for display and logs."""
    scheme, slashes, rest = url.partition("://")
    if not slashes:
        return url
    place = rest.partition("?")[0]
    host, slash, path = place.partition("/")
    if host and "@" in path and "@" not in host:
        return f"{scheme}{slashes}…"  # a password with a slash, or a path that pretends to be a host
    return f"{scheme}{slashes}{host.rpartition('@')[2]}{slash}{path}"


def _shown_address(given: str) -> str:
    """Return the address of a store, a model or a memory with its settings, and without passwords."""
    place, mark, query = given.partition("?")
    pairs = parse_qsl(query, keep_blank_values=True) if mark else []
    settings = [f"{name}=…" if _SECRET(name) else f"{name}={shown_url(value)}" for name, value in pairs]
    return shown_url(place) + (f"?{'&'.join(settings)}" if settings else "")


def _file_note(key: str, given: str, folder: Path) -> str:
    """Return the file that a store or a memory is kept in, and whether it exists; empty if it is no file."""
    if key == "store":
        path = file_of(given)
    elif key == "memory":
        kind, _, address = given.partition(":")
        place = address.partition("?")[0].removeprefix("sqlite:///")
        path = place if kind == "builtin" and "://" not in place else None
    else:
        path = None
    if not path:
        return ""
    resolved = os.path.realpath(folder / path)
    known = "exists already: what is in it will be used" if os.path.exists(resolved) else "does not exist yet"
    return f" (the file {resolved}, which {known})"


def _memory_beside(store: str, folder: Path) -> Iterator[str]:
    """Yield where the memory is kept if a file chooses only a store: in a file beside it."""
    path = file_of(store)
    if path:
        memory = Path(path).with_name(f"{Path(path).stem}-memory.db")
        yield f"keeps memory beside it{_file_note('memory', f'builtin:{memory}', folder)}"


def file_of(url: str) -> str | None:
    """Return the path that the URL of an SQLite file names, or None for any other URL."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return None  # the store rejects it with advice
    is_file = parts.scheme == "sqlite" and not parts.netloc
    return unquote(parts.path).removeprefix("/") or None if is_file else None


def _command(asked: dict[str, Any]) -> str:
    return shlex.join([asked["command"], *asked.get("args", ())])


def _inside(asked: dict[str, Any], folder: Path) -> str:
    """Return a note if a program is a file in the workspace: the approval does not cover its content."""
    named = [asked.get("command", ""), *asked.get("args", ())]
    inside = [one for one in named if one and not os.path.isabs(one) and (folder / one).is_file()]
    return f" (the content of {', '.join(inside)} is not part of your approval)" if inside else ""
