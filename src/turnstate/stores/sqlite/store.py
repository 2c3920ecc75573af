"""The SQLite store: one file, any number of processes, nothing acknowledged that can be lost."""

from __future__ import annotations

import asyncio
from pathlib import Path
from urllib.parse import unquote, urlsplit

import apsw

from ...durable import FILE_MODE
from ...errors import InputError, StoreError
from .connection import LEAST_SQLITE, migrate
from .directory import SqliteDirectory
from .faults import telling
from .health import SqliteHealth
from .leases import SqliteLeases
from .log import SqliteLog
from .outbox import SqliteOutbox
from .read_only import NoWriter, is_read_only, readers_of
from .writer import Writer

__all__ = ["SqliteStore", "connect"]

_MODES = {"0600": 0o600, "0640": 0o640, "0660": 0o660}
"""Modes that a new file may have."""


class SqliteStore(SqliteLog, SqliteDirectory, SqliteOutbox, SqliteLeases, SqliteHealth):
    """Sessions in one file, which is made with a mode that keeps others out."""

    def __init__(self, path: str, *, mode: int = FILE_MODE) -> None:
        _check_version()
        self.path, self.files = path, (Path(path).absolute(),)
        self.read_only = is_read_only(path)
        with telling(path):
            if not self.read_only:
                migrate(path, mode)
            self._readers = readers_of(path)
            self._writer = NoWriter(path) if self.read_only else Writer(path)

    async def close(self) -> None:
        """Finish what was begun and let go of the file."""
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._readers.close()
        self._writer.close()


# The URL is not repeated: one that was meant for a server may hold a password.
_NO_FILE = (
    "the URL of an SQLite store names no file: write sqlite:///relative.db or sqlite:////absolute.db, "
    "with %3F for ?, %23 for # and %5B for [ in a name"
)


async def connect(url: str) -> SqliteStore:
    """Open ``sqlite:///relative.db`` or ``sqlite:////absolute.db``; the file is made where it is missing.

    ``?mode=0660`` makes it for a group; a file that exists keeps its mode.
    """
    return await asyncio.to_thread(SqliteStore, _path(url), mode=_mode(url))


def _mode(url: str) -> int:
    """Return the mode that a new file gets."""
    query = urlsplit(url).query
    if not query:
        return FILE_MODE
    name, _, value = query.partition("=")
    if name != "mode" or value not in _MODES:
        raise InputError(
            f"?{query:.40} in the URL of an SQLite store is not understood; write "
            f"?mode={' or ?mode='.join(_MODES)}, "
            "the mode of a new file, which never lets everybody read it"
        )
    return _MODES[value]


def _path(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:
        raise InputError(_NO_FILE) from None
    path = unquote(parts.path).removeprefix("/")
    if parts.netloc or parts.fragment or not path or set(unquote(url)) & set("\0\t\r\n"):
        raise InputError(_NO_FILE)
    folder = Path(path).parent
    if not folder.is_dir():
        raise InputError(f"the folder {str(folder)!r} of the store does not exist; make it first")
    if Path(path).is_dir():
        raise InputError(f"{path!r} is a folder; give the path of a file")
    return path


def _check_version() -> None:
    linked = tuple(int(number) for number in apsw.sqlite_lib_version().split("."))
    if linked < LEAST_SQLITE:
        raise StoreError(
            f"SQLite {apsw.sqlite_lib_version()} can damage databases in WAL mode; "
            f"install an apsw that brings {'.'.join(map(str, LEAST_SQLITE))} or newer"
        )
