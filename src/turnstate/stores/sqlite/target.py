"""The URL of an SQLite store: the path of its file, the mode of a new file, and the thread that commits.

sqlite:///relative.db           sqlite:////absolute.db
sqlite:///agent.db?mode=0660    sqlite:///agent.db?commit=thread
"""

from __future__ import annotations

import os
from urllib.parse import unquote, urlsplit

from ...errors import InputError
from ...files import FILE_MODE

_MODES = {"0600": 0o600, "0640": 0o640, "0660": 0o660}
_OPTIONS = {"mode": tuple(_MODES), "commit": ("thread",)}

# The message does not repeat the URL: one that was meant for a server may contain a password.
_NO_FILE = (
    "the URL of an SQLite store names no file: write sqlite:///relative.db or sqlite:////absolute.db, "
    "with %3F for ?, %23 for # and %5B for [ in a name"
)

MEMORY = ":memory:"
"""SQLite's name for a database without a file; each connection of a store would have its own."""


def mode_of(url: str) -> int:
    """Return the mode for a new file."""
    return _MODES[_options(url)["mode"]] if "mode" in _options(url) else FILE_MODE


def commits_in_loop(url: str) -> bool:
    """Return True unless the URL asks for every commit to be made in the writer's thread."""
    return "commit" not in _options(url)


def _options(url: str) -> dict[str, str]:
    query = urlsplit(url).query
    options = dict(one.partition("=")[::2] for one in query.split("&")) if query else {}
    if any(value not in _OPTIONS.get(name, ()) for name, value in options.items()):
        raise InputError(
            f"?{query:.40} in the URL of an SQLite store is not understood; write "
            f"?mode={' or ?mode='.join(_MODES)}, "
            "the mode of a new file, which is never world-readable, or ?commit=thread"
        )
    return options


def path_of(url: str) -> str:
    """Return the path of the file; raise `InputError` if the URL does not name a usable one."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise InputError(_NO_FILE) from None
    path = unquote(parts.path).removeprefix("/")
    if parts.netloc or parts.fragment or not path or set(unquote(url)) & set("\0\t\r\n"):
        raise InputError(_NO_FILE)
    if path == MEMORY:
        raise InputError("an SQLite store is a file; for a store in memory, write memory:")
    if not os.path.isdir(folder := os.path.dirname(path) or os.curdir):
        raise InputError(f"the folder {folder!r} of the store does not exist; create it first")
    if os.path.isdir(path):
        raise InputError(f"{path!r} is a folder; give the path of a file")
    return path
