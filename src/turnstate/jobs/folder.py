"""Jobs that list and search the files of a workspace, with patterns that a model wrote.

The files are opened here, not in the process that called: closing a file there could drop the locks of a
store which that process has open. Files of Turnstate are not read.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fnmatch import translate

from ..folder_walk import FileInfo, folder_at, listed, walk
from ..own_files import HEAD, SHADOW_NAMES, SNAPSHOT_FOLDER, kind_of, main_file
from .worker import JobRefused

MAX_LISTED = 2_000
MAX_HITS = 200
MAX_LINE = 400
"""Characters of a line that a search shows."""

SEARCHED_BYTES = 4_000_000
"""A larger file is not searched: it is data, not text that someone wrote."""

_BINARY = 8_000  # bytes at the start of a file; one that is binary has a NUL in them
_READING = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def list_files(root: str, path: str, pattern: str, recursive: bool) -> Iterator[FileInfo | int]:
    """Yield what is in a folder, or all files below it; at the end, how many more there are."""
    matches, count = _matcher(pattern), 0
    with _opened(root, path) as folder:
        below = (one for _, every in walk(folder, path) for one in every if one.kind == "file")
        for one in below if recursive else listed(folder, path):
            if matches(one):
                count += 1
                if count <= MAX_LISTED:
                    yield one
    if count > MAX_LISTED:
        yield count - MAX_LISTED


def search_files(root: str, path: str, names: str, pattern: str) -> Iterator[tuple[str, int, str]]:
    """Yield the path, the number and the text of each line that matches, up to `MAX_HITS`."""
    matches, count = _matcher(names), 0
    try:
        expression = re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise JobRefused(f"{pattern!r:.200} is not a regular expression: {error}") from None
    with _opened(root, path) as top:
        for folder, every in walk(top, path):
            if _is_own_folder(folder, every):
                every.clear()  # so nothing below it is entered
            for one in every:
                if one.kind != "file" or one.size > SEARCHED_BYTES or not matches(one):
                    continue
                for number, line in enumerate(_text(folder, one).split("\n"), 1):
                    if expression.search(line):
                        yield one.path, number, line[:MAX_LINE]
                        count += 1
                        if count == MAX_HITS:
                            return


def _matcher(pattern: str) -> Callable[[FileInfo], bool]:
    """Return a function that tells whether the name or the path of a file matches, such as ``*.py``."""
    if not pattern:
        return lambda _: True
    try:
        matches = re.compile(translate(pattern)).match
    except (re.error, RecursionError, OverflowError) as error:
        raise JobRefused(f"{pattern!r:.200} is not a pattern for names: {error}") from None
    return lambda one: bool(matches(one.path.rpartition("/")[2]) or matches(one.path))


@contextmanager
def _opened(root: str, path: str) -> Iterator[int]:
    try:
        with folder_at(root, path) as folder:
            yield folder
    except FileNotFoundError:
        raise JobRefused(f"{path or '.'!r:.200} does not exist") from None
    except OSError as error:
        if error.errno in (errno.ENOTDIR, errno.ELOOP):
            text = "is a file or goes through a link; links are not followed"
        else:
            text = f"cannot be opened: {error.strerror}"
        raise JobRefused(f"{path or '.'!r:.200} {text}") from None


def _text(folder: int, one: FileInfo) -> str:
    """Return the text of a file; nothing if it is binary, ours, or no longer a file."""
    name = os.fsencode(one.path.rpartition("/")[2])
    main = main_file(name)
    if main is not None and kind_of(_read(folder, main, HEAD)) != "file":
        return ""  # the side file of a database
    data = _read(folder, name, SEARCHED_BYTES)
    if b"\0" in data[:_BINARY] or kind_of(data[:HEAD], name) == "store":
        return ""
    return data.decode("utf-8", errors="replace")


def _read(folder: int, name: bytes, most: int) -> bytes:
    try:
        descriptor = os.open(name, _READING, dir_fd=folder)
    except OSError:
        return b""
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return b""
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(most)
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def _is_own_folder(folder: int, every: list[FileInfo]) -> bool:
    """Return True for a folder of session snapshots and for a shadow repository."""
    if every and f"/{every[0].path}".rpartition("/")[0].endswith(f"/{SNAPSHOT_FOLDER}"):
        return True
    names = {os.fsencode(one.path.rpartition("/")[2]) for one in every}
    return names >= SHADOW_NAMES and b'"work_tree":' in _read(folder, b"about.json", HEAD)
