"""Lines of an input of any size: numbered, bounded, never held all at once.

A line longer than a document may be is handed out cut, so that it can be refused by its number,
and its rest is skipped before the next line. What the operating system refuses to read is an
`InputError` that names the input.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO

from ..errors import InputError
from ..reader import MAX_BYTES

__all__ = ["Line", "lines", "readable"]


@dataclass(frozen=True)
class Line:
    """One line with its end; `cut` when only its beginning was read."""

    number: int
    data: bytes

    @property
    def cut(self) -> bool:
        """Whether the line is longer than a document may be."""
        return len(self.data) > MAX_BYTES

    @property
    def blank(self) -> bool:
        """Whether the line says nothing."""
        return not self.data.strip()


def lines(stream: BinaryIO, name: str) -> Iterator[Line]:
    """Read a stream line by line, without the byte order mark that some editors put first."""
    for number, raw in enumerate(_bounded(stream, name), 1):
        yield Line(number, raw.removeprefix(codecs.BOM_UTF8) if number == 1 else raw)


@contextmanager
def readable(name: str) -> Iterator[None]:
    """Turn a failure to open or read into one that the user understands."""
    try:
        yield
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"{name}: cannot be read: {reason}") from None


def _bounded(stream: BinaryIO, name: str) -> Iterator[bytes]:
    while data := _readline(stream, name):
        yield data
        while len(data) > MAX_BYTES and not data.endswith(b"\n"):
            data = _readline(stream, name)


def _readline(stream: BinaryIO, name: str) -> bytes:
    with readable(name):
        return stream.readline(MAX_BYTES + 1)
