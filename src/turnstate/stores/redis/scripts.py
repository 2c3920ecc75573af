"""The scripts of the store, by name: a file of Lua, with the files that it includes.

A script runs alone on its server, so it is a transaction. The first line of a file tells the server what
the script does: one that has no flags may write and is refused as a whole where memory is full or the
server is a replica, so none is broken off in the middle.
"""

from __future__ import annotations

import hashlib
import re
from functools import cache
from importlib.resources import files
from typing import NamedTuple

__all__ = ["Script", "script"]

_INCLUDE = re.compile(r"^-- include (\w+)\n", re.MULTILINE)


class Script(NamedTuple):
    """What is sent once, and by which name the server knows it from then on."""

    name: str
    source: bytes
    digest: bytes


@cache
def script(name: str) -> Script:
    """Give a script by its name."""
    source = _resolved(name, set()).encode()
    digest = hashlib.sha1(source, usedforsecurity=False).hexdigest()
    return Script(name, source, digest.encode())


def _resolved(name: str, included: set[str]) -> str:
    """Put in what a file includes, each file once."""

    def include(found: re.Match[str]) -> str:
        if found[1] in included:
            return ""
        included.add(found[1])
        return _resolved(found[1], included)

    source = files(__package__).joinpath("scripts", f"{name}.lua").read_text("utf-8")
    return _INCLUDE.sub(include, source)
