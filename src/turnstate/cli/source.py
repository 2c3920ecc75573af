"""Where conversations come from: a file or standard input, with one document or one per line.

The first line decides. If it is a complete JSON value and more lines follow, the input is JSONL and is read
line by line, however large it is; everything else is one document. Lines that are single messages, of a
provider or as `convert --to jsonl` writes them, form one conversation together. Documents are parsed lazily,
so one bad line affects only one conversation.
"""

from __future__ import annotations

import codecs
import json
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

from .. import folder_gate, strict_json
from ..config.source import suggestion
from ..errors import InputError, MalformedJSON, SessionError, TooLarge
from ..strict_json import MAX_BYTES
from ..terminal import screen

if TYPE_CHECKING:
    from ..message import Message

STDIN = "stdin"
LINE_SUFFIXES = (".jsonl", ".ndjson")
LISTS = {"messages", "input", "contents"}
"""The fields under which a document contains its messages."""

Layout = Literal["document", "messages", "stored"]


@dataclass(frozen=True)
class Line:
    """One line with its newline; `cut` if only its beginning was read."""

    number: int
    data: bytes

    @property
    def cut(self) -> bool:
        """True if the line is longer than a document may be."""
        return len(self.data) > MAX_BYTES

    @property
    def blank(self) -> bool:
        """True if the line is empty or whitespace."""
        return not self.data.strip()


def lines(stream: BinaryIO, name: str) -> Iterator[Line]:
    """Yield the lines of a stream, each bounded in size, without a leading byte order mark."""
    for number, raw in enumerate(_bounded(stream, name), 1):
        yield Line(number, raw.removeprefix(codecs.BOM_UTF8) if number == 1 else raw)


@contextmanager
def readable(name: str) -> Iterator[None]:
    """Convert a failure to open or read into an `InputError`."""
    try:
        yield
    except FileNotFoundError:
        raise InputError(f"{name}: there is no such file{_neighbor(name)}") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"{name}: cannot be read: {reason}") from None


@contextmanager
def named(place: str) -> Iterator[None]:
    """Add the name of a file, a line or a row to errors about what it contains."""
    try:
        yield
    except (InputError, SessionError) as error:
        error.add_note(place)
        raise


def _neighbor(name: str) -> str:
    """Return the advice to use a file in the same folder with a similar name."""
    folder, file = os.path.split(name)
    try:
        advice = suggestion(file, os.listdir(folder or "."))
    except OSError:
        return f"; the folder {folder} does not exist" if folder else ""
    return advice


def _bounded(stream: BinaryIO, name: str) -> Iterator[bytes]:
    while data := _readline(stream, name):
        yield data
        while len(data) > MAX_BYTES and not data.endswith(b"\n"):
            data = _readline(stream, name)


def _readline(stream: BinaryIO, name: str) -> bytes:
    with readable(name):
        return stream.readline(MAX_BYTES + 1)


@dataclass(frozen=True)
class SourceDocument:
    """The bytes of one conversation; `line` is None if it is the whole input.

    `layout` says what the bytes are: one JSON document, one provider's message per line, or a header followed
    by one message per line as Turnstate stores it.
    """

    name: str
    line: int | None
    data: bytes
    layout: Layout = "document"

    @property
    def where(self) -> str:
        """The place for error messages."""
        return self.name if self.line is None else f"{self.name} line {self.line}"

    def value(self) -> Any:
        """Parse the document strictly."""
        if len(self.data) > strict_json.MAX_BYTES:
            advice = "; write one conversation per line to read more" if self.line is None else ""
            raise TooLarge(f"one conversation of more than {strict_json.MAX_BYTES:,} bytes{advice}")
        return list(self._messages()) if self.layout == "messages" else strict_json.read(self.data)

    def stored(self) -> list[Message]:
        """Parse lines that Turnstate wrote."""
        from ..formats.exports import read_jsonl  # deferred: help does not need it

        return list(read_jsonl(_decoded(self.data).splitlines()))

    def _messages(self) -> Iterator[Any]:
        for number, line in enumerate(self.data.splitlines(), start=1):
            if line.strip():
                try:
                    yield strict_json.read(line)
                except InputError as error:
                    error.add_note(f"line {number}")
                    raise


@dataclass(frozen=True)
class InputSource:
    """An input that can be iterated once; `size` is its number of bytes, if known."""

    name: str
    many: bool
    size: int | None
    documents: Iterator[SourceDocument]


@contextmanager
def opened(path: str | None) -> Iterator[InputSource]:
    """Open a file, or standard input for `-` and None."""
    if path is None or path == "-":
        yield source(_standard_input(), STDIN)
        return
    with file_opened(path) as stream:
        yield source(stream, path)


@contextmanager
def file_opened(path: str) -> Iterator[BinaryIO]:
    """Open a file that the user names; raise `InputError` if it cannot be opened."""
    with ExitStack() as stack:
        with readable(path):
            stream = stack.enter_context(folder_gate.stream(path))
        yield stream


def source(stream: BinaryIO, name: str) -> InputSource:
    """Return the source for a stream; its first lines decide how to read it."""
    numbered = lines(stream, name)
    filled, head = _head(numbered)
    if not filled:
        raise InputError(f"{name}: empty; expected a conversation as JSON, or one per line")
    if len(filled) == 1:  # end of input; a terminal must not be read again, or Ctrl-D is needed twice
        return InputSource(name, False, size_of(stream), iter([SourceDocument(name, None, bytes(head))]))
    complete, layout = _judged(filled[0].data)
    many = layout == "document" and (complete or _is_jsonl(filled[0].data, filled[1].data, name))
    documents = _each(chain(filled, numbered), name) if many else _only(head, stream, name, layout)
    return InputSource(name, many, size_of(stream), documents)


def _head(numbered: Iterator[Line]) -> tuple[list[Line], bytearray]:
    """Read up to the second non-blank line; return the non-blank lines and everything that was read."""
    filled: list[Line] = []
    taken = bytearray()
    while len(filled) < 2 and len(taken) <= strict_json.MAX_BYTES and (line := next(numbered, None)):
        taken += line.data
        if not line.blank:
            filled.append(line)
    return filled, taken


def _each(numbered: Iterator[Line], name: str) -> Iterator[SourceDocument]:
    return (SourceDocument(name, line.number, line.data) for line in numbered if not line.blank)


def _only(head: bytearray, stream: BinaryIO, name: str, layout: Layout) -> Iterator[SourceDocument]:
    with readable(name):
        rest = stream.read(max(0, strict_json.MAX_BYTES + 1 - len(head)))
    yield SourceDocument(name, None, bytes(head + rest), layout)


def _judged(first: bytes) -> tuple[bool, Layout]:
    """Return whether the first line is a complete JSON value, and the layout of the input."""
    try:
        value = strict_json.read(first)
    except MalformedJSON:
        return False, "document"
    except InputError:
        return True, "document"  # a JSON value, though one that will be rejected
    if not isinstance(value, dict):
        return True, "document"
    if value.get("turnstate") == "messages":
        return True, "stored"
    is_message = "role" in value and not LISTS & value.keys()
    return True, "messages" if is_message else "document"


def _decoded(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise MalformedJSON(f"not UTF-8: {error}") from None


def _is_jsonl(first: bytes, second: bytes, name: str) -> bool:
    """Return True if an input whose first line is not valid JSON is JSONL: two of three hints must agree."""
    named = name.endswith(LINE_SUFFIXES) and first.strip(b" \t\r\n[{") != b""
    return sum((_is_beyond_repair(first), _is_complete(second), named)) >= 2


def _is_complete(line: bytes) -> bool:
    try:
        strict_json.read(line)
    except MalformedJSON:
        return False
    except InputError:
        return True  # a JSON value, though one that will be rejected
    return True


def _is_beyond_repair(line: bytes) -> bool:
    """True if no continuation could make this the beginning of a JSON document."""
    try:
        json.loads(line.decode().rstrip())
    except json.JSONDecodeError as error:
        return error.pos < len(error.doc)
    except (UnicodeDecodeError, RecursionError):
        return True
    return False


def size_of(stream: BinaryIO) -> int | None:
    """Return the size of an open file; None for a pipe or a terminal."""
    with suppress(OSError, AttributeError, ValueError):
        status = os.fstat(stream.fileno())
        return status.st_size if stat.S_ISREG(status.st_mode) else None
    return None


def _standard_input() -> BinaryIO:
    if sys.stdin is None:
        raise InputError(f"{STDIN} is closed; pass a file")
    if sys.stdin.isatty():
        screen.say("reading a conversation from the terminal: paste JSON, then press Ctrl-D")
    return sys.stdin.buffer
