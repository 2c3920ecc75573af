"""Where results go: standard output, or a file that is written atomically.

A file is written under a temporary name and renamed when it is complete and synced; if the work
fails, an earlier file is unchanged. A new file is private to its owner; a replacement keeps the mode
of the old one. A device or a pipe cannot be replaced and is written to directly.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

from .. import files, folder_gate
from ..errors import InputError
from ..open_databases import covers
from ..terminal import screen

Write = Callable[[str], None]


@contextmanager
def opened(path: str | None, *, force: bool = False, end: str = "\n") -> Iterator[Write]:
    """Yield a function that writes one line or document of results; in a file, followed by `end`."""
    if path is None or path == "-":
        yield screen.show
        return
    place = os.path.realpath(path)
    try:
        with _file(place, force=force) as file:
            yield lambda text: print(text, end=end, file=file)
    except FileExistsError:
        raise InputError(f"{path}: already exists; pass --force to replace it") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from None


@contextmanager
def _file(place: str, *, force: bool) -> Iterator[TextIO]:
    mode = _mode(place)
    if mode is not None and covers(os.stat(place)):
        raise folder_gate.OpenHere(place)
    if mode is not None and stat.S_ISREG(mode) and not force:
        raise FileExistsError
    if mode is None or stat.S_ISREG(mode):
        with _replacement(place, mode, force=force) as file:
            yield file
    else:
        with open(place, "w", encoding="utf-8") as file:
            yield file


@contextmanager
def _replacement(place: str, mode: int | None, *, force: bool) -> Iterator[TextIO]:
    folder = os.path.dirname(place)
    draft = os.path.join(folder, f".turnstate-{secrets.token_hex(8)}")
    with open(draft, "x", encoding="utf-8", opener=_private) as file:
        try:
            yield file
            file.flush()
            os.fchmod(file.fileno(), files.FILE_MODE if mode is None else stat.S_IMODE(mode))
            os.fsync(file.fileno())
            _move(draft, place, force=force)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(draft)
    files.sync_folder(folder)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, files.FILE_MODE)


def _move(draft: str, place: str, *, force: bool) -> None:
    """Rename the draft; without force, only if no file has appeared there in the meantime."""
    if not force:
        try:
            os.link(draft, place)
        except FileExistsError:
            raise
        except OSError:  # a file system without hard links
            pass
        else:
            return
    os.replace(draft, place)


def _mode(place: str) -> int | None:
    try:
        return os.stat(place).st_mode
    except FileNotFoundError:
        return None
