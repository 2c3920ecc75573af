"""The lines of an archive: what each says, and its bytes.

Bodies of entries stand in their lines as they stand in the log, byte for byte. An entry whose bytes
are damaged has a line without a body, and perhaps without an id: its place is kept, so that what stands
behind it keeps its own.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw, Struct

from .. import strict_json
from ..errors import InvalidPayload, MalformedJSON, NewerFormat

__all__ = [
    "LONGEST",
    "NOTHING",
    "VERSION",
    "ArchiveEnd",
    "ArchivedBranch",
    "ArchivedEntry",
    "ArchivedSession",
    "Header",
    "Line",
    "read_header",
    "read_line",
    "written",
]

VERSION = 1

LONGEST = 1 << 30
"""Bytes of a line: what SQLite keeps in one entry fits."""

Number = Annotated[int, Meta(ge=0, lt=1 << 53)]
Ordinal = Annotated[int, Meta(ge=1, lt=1 << 53)]

NOTHING = Raw(b"")
"""The body of an entry that is damaged; a line with it has none."""


class Header(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The first line: whose file it is, and of which version."""

    turnstate: str = "archive"
    version: int = VERSION


class _Line(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A line that says in ``type`` what it is."""


class ArchivedSession(_Line, frozen=True, kw_only=True, tag="session", tag_field="type"):
    """Everything of a session but its log and its lease; ``branches`` lines with branches follow."""

    id: str
    user: str | None = None
    title: str = ""
    tags: tuple[str, ...] = ()
    counter: str
    meta: dict[str, Any] = {}
    created: Number
    active: Number
    idle: Number = 0
    epoch: Ordinal = 1
    version: Number
    branch: Ordinal = 1
    ended: Number | None = None
    reason: str = ""
    branches: Ordinal = 1


class ArchivedBranch(_Line, frozen=True, kw_only=True, tag="branch", tag_field="type"):
    """A branch, and how many entries it has of its own."""

    id: Ordinal
    parent: Ordinal | None = None
    fork_seq: Number = 0
    created: Number
    name: str = ""
    operation: str
    former: Ordinal | None = None
    entries: Number

    @property
    def tip(self) -> int:
        """The sequence number of its last entry."""
        return self.fork_seq + self.entries


class ArchivedEntry(_Line, frozen=True, kw_only=True, tag="entry", tag_field="type"):
    """An entry of the branch and at the place that it names."""

    branch: Ordinal
    seq: Ordinal
    id: str
    kind: str
    tokens: Number = 0
    body: Raw = NOTHING
    damaged: bool = False


class ArchiveEnd(_Line, frozen=True, kw_only=True, tag="end", tag_field="type"):
    """The last line: an archive without it was cut off."""

    sessions: Number


Line = ArchivedSession | ArchivedBranch | ArchivedEntry | ArchiveEnd

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Line).decode
_LONGEST_TEXT = 200  # of what a hostile line makes a decoder say


def written(line: Header | Line) -> str:
    """Write one line, without its end."""
    return _encode(line).decode()


def read_header(data: bytes) -> Header:
    """Read the first line of an archive, or say that it is none."""
    try:
        value = strict_json.read(data)
    except MalformedJSON:
        value = None
    if not isinstance(value, dict) or value.get("turnstate") != "archive":
        raise InvalidPayload("no archive of Turnstate; --from NAME reads conversations of a provider")
    version = value.get("version")
    if type(version) is not int or version < 1:
        raise InvalidPayload("the version of an archive is a whole number", path="$.version")
    if version > VERSION:
        raise NewerFormat(f"an archive of version {version}; update Turnstate to read more than {VERSION}")
    return Header(version=version)


def read_line(data: bytes) -> Line:
    """Read a line strictly."""
    strict_json.read(data, max_bytes=LONGEST)
    try:
        line: Line = _decode(data)
    except msgspec.DecodeError as error:
        raise InvalidPayload(f"no line of an archive: {str(error)[:_LONGEST_TEXT]}") from None
    return line
