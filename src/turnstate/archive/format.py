"""The lines of an archive, as values and as bytes.

The line of an entry contains its body as it is in the log, byte for byte. An entry whose bytes are damaged
has a line without a body, and perhaps without an id: it keeps its place, so that the entries after it
keep theirs.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw, Struct

from .. import strict_json
from ..errors import InvalidPayload, MalformedJSON, NewerFormat

VERSION = 1

MAX_LINE_BYTES = 1 << 30
"""The maximum size of a line; any entry that SQLite can store fits."""

Number = Annotated[int, Meta(ge=0, lt=1 << 53)]
Ordinal = Annotated[int, Meta(ge=1, lt=1 << 53)]

NOTHING = Raw(b"")
"""The body of a damaged entry, which is omitted from its line."""


class Header(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The first line: the kind of file, and its version."""

    turnstate: str = "archive"
    version: int = VERSION


class _ArchiveLine(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A line with its ``type``."""


class ArchivedSession(_ArchiveLine, frozen=True, kw_only=True, tag="session", tag_field="type"):
    """Everything of a session except its log and its lease; ``branches`` branch lines follow."""

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
    is_state: bool = False  # the state of a user or of the tenant, not a conversation


class ArchivedBranch(_ArchiveLine, frozen=True, kw_only=True, tag="branch", tag_field="type"):
    """A branch, and the number of its own entries."""

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


class ArchivedEntry(_ArchiveLine, frozen=True, kw_only=True, tag="entry", tag_field="type"):
    """An entry, with its branch and sequence number."""

    branch: Ordinal
    seq: Ordinal
    id: str
    kind: str
    tokens: Number = 0
    body: Raw = NOTHING
    damaged: bool = False


class ArchiveEnd(_ArchiveLine, frozen=True, kw_only=True, tag="end", tag_field="type"):
    """The last line; an archive without it is incomplete."""

    sessions: Number


ArchiveLine = ArchivedSession | ArchivedBranch | ArchivedEntry | ArchiveEnd

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(ArchiveLine).decode
_MAX_REASON = 200  # characters of a decoder's message, which a hostile line could inflate


def encode_line(line: Header | ArchiveLine) -> str:
    """Return one line as text, without its newline."""
    return _encode(line).decode()


def read_header(data: bytes) -> Header:
    """Parse the first line of an archive. Raise InvalidPayload if it is not a header."""
    try:
        value = strict_json.read(data)
    except MalformedJSON:
        value = None
    if not isinstance(value, dict) or value.get("turnstate") != "archive":
        raise InvalidPayload(
            "this is not a Turnstate archive; pass --from NAME to read conversations of a provider"
        )
    version = value.get("version")
    if type(version) is not int or version < 1:
        raise InvalidPayload("the version of an archive must be a positive whole number", path="$.version")
    if version > VERSION:
        raise NewerFormat(
            f"the archive has version {version}, newer than {VERSION}; update Turnstate to read it"
        )
    return Header(version=version)


def read_line(data: bytes) -> ArchiveLine:
    """Parse a line strictly."""
    strict_json.read(data, max_bytes=MAX_LINE_BYTES)
    try:
        line: ArchiveLine = _decode(data)
    except msgspec.DecodeError as error:
        raise InvalidPayload(f"not a line of an archive: {str(error)[:_MAX_REASON]}") from None
    return line
