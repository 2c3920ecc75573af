"""Where results go: standard output, or a file that appears whole or not at all.

A new file is written beside its place and moved there when it is complete and on the disk; when
the work fails, what stood there before still stands. It is private to its owner; one that it
replaces keeps its mode. A device or a pipe cannot be replaced and is written to as it is.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

from .. import files
from ..cli_kit import screen
from ..errors import InputError

__all__ = ["opened"]

Write = Callable[[str], None]


@contextmanager
def opened(path: str | None, *, force: bool = False, end: str = "\n") -> Iterator[Write]:
    """Give a function that writes one line, or one document, of results; in a file, with this end."""
    if path is None or path == "-":
        yield screen.show
        return
    place = os.path.realpath(path)
    try:
        with _file(place, force=force) as file:
            yield lambda text: print(text, end=end, file=file)
    except FileExistsError:
        raise InputError(f"{path}: exists already; --force replaces it") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from None


@contextmanager
def _file(place: str, *, force: bool) -> Iterator[TextIO]:
    mode = _mode(place)
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
    """Put the draft in its place; without force, only if the place is still free."""
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
