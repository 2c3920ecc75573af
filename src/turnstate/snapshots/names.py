"""Names on the disk: a folder for every session id, and file names that sort as they were written.

A session id may be any text, so only one that is harmless as it stands names its folder itself; any
other is named by its hash, behind a sign that no harmless id has. Two ids never share a folder, also
where capitals or accents do not count.

A file is named ``<number>-<random>-<mark>.json``. The number is the time in milliseconds or, where
the clock ran backwards, one more than the highest there is, so the last written is always the
highest. The mark signs the rest of the name: only names of this installation are counted, pruned or
set aside, and no file that came with a workspace can push ours out.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Iterable

from ..home import Key

__all__ = ["SUFFIX", "file_name", "folder_name", "is_own", "newest_first", "next_number"]

SUFFIX = ".json"

_HARMLESS = re.compile(r"[a-z0-9][a-z0-9_-]{0,79}")
_HASHED = "="
_NAME = re.compile(r"(?P<number>[0-9]{16})-(?P<random>[0-9a-f]{16})-(?P<mark>[0-9a-f]{16})\.json")
_PURPOSE = "snapshot name"
_MARK_DIGITS = 16


def folder_name(session_id: str) -> str:
    """Name the folder of a session."""
    if _HARMLESS.fullmatch(session_id):
        return session_id
    return _HASHED + hashlib.sha256(session_id.encode()).hexdigest()


def file_name(number: int, *, session: str, key: Key) -> str:
    """Name a new snapshot of a session; nobody else gives the same name."""
    stem = f"{number:016d}-{secrets.token_hex(8)}"
    return f"{stem}-{_mark(stem, session, key)}{SUFFIX}"


def is_own(name: str, *, session: str, key: Key | None) -> bool:
    """Tell whether this installation gave the name."""
    if key is None or not _NAME.fullmatch(name):
        return False
    stem, _, mark = name.removesuffix(SUFFIX).rpartition("-")
    return mark == _mark(stem, session, key)


def newest_first(names: Iterable[str]) -> list[str]:
    """Sort by number; names of another form come last."""
    return sorted(names, key=lambda name: (_number(name), name), reverse=True)


def next_number(own: Iterable[str], *, now: int) -> int:
    """Give the time in milliseconds, or more where a name of this installation has as much already."""
    return max([now, *(_number(name) + 1 for name in own)])


def _number(name: str) -> int:
    match = _NAME.fullmatch(name)
    return int(match["number"]) if match else -1


def _mark(stem: str, session: str, key: Key) -> str:
    return key.sign(_PURPOSE, session.encode(), stem.encode())[:_MARK_DIGITS]
