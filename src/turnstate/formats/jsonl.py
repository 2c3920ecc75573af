"""A conversation as JSON Lines: a header with the version, then a message a line.

Lines can be appended, cut with `head` and searched with `grep`; what Turnstate wrote reads back
as equal messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from .. import codec, reader, sent
from ..errors import InputError, InvalidPayload
from ..message import Message

__all__ = ["jsonl", "read_jsonl"]

_HEADER = "turnstate"


def jsonl(messages: Iterable[Message]) -> Iterator[str]:
    """Write a conversation, a line at a time, each with its line break."""
    yield sent.json_text({_HEADER: "messages", "version": codec.VERSION}) + "\n"
    for message in messages:
        yield codec.encode(message).decode() + "\n"


def read_jsonl(lines: Iterable[str]) -> Iterator[Message]:
    """Read what `jsonl` wrote; blank lines are passed over."""
    version: int | None = None
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            value = reader.read(line)
            if version is None:
                version = _version(value)
            else:
                yield codec.from_builtins(value, version=version)
        except InputError as error:
            raise type(error)(f"line {number}: {error.text}", path=error.path) from None


def _version(header: Any) -> int:
    match header:
        case {"turnstate": "messages", "version": int(version)}:
            return version
        case _:
            raise InvalidPayload('the first line is {"turnstate":"messages","version":…}')
