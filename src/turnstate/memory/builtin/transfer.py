"""Exports and imports a user's memory as lines of JSON: everything but vectors, which are computed again.

The first line says whose memory it is; then come the turns, in order, and the facts with their sources.
Reading is strict: an invalid line raises an error that names it, and nothing is imported.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from itertools import groupby

import msgspec
from msgspec import Struct

from ...errors import InvalidPayload, NewerFormat
from ..facts import Fact
from ..port import User
from .database import Database
from .drafts import MessageDraft, redrafted
from .fact_rows import facts_of

VERSION = 1
PAGE = 500


class HeadLine(Struct, frozen=True, kw_only=True, tag="memory", tag_field="kind"):
    """The first line: whose memory it is."""

    version: int = VERSION
    tenant: str
    user: str


class TurnLine(Struct, frozen=True, kw_only=True, tag="turn", tag_field="kind"):
    """A turn, a note or a summary."""

    session: str
    message: str
    role: str
    author: str
    said: str
    text: str

    @property
    def draft(self) -> MessageDraft:
        """The turn as it is stored."""
        return redrafted(self.message, self.role, self.author, self.said, self.text)


class FactLine(Struct, frozen=True, kw_only=True, tag="fact", tag_field="kind"):
    """A fact with its sources."""

    fact: Fact


Line = HeadLine | TurnLine | FactLine

_decoder: msgspec.json.Decoder[Line] = msgspec.json.Decoder(Line)


async def exported(database: Database, user: User, owner: int) -> AsyncIterator[bytes]:
    """Yield the lines of a user's memory."""
    yield msgspec.json.encode(HeadLine(tenant=user.tenant, user=user.id)) + b"\n"
    first = 0
    while rows := await database.rows("documents_after", owner=owner, first=first, limit=PAGE):
        for _, session, message, role, author, said, text in rows:
            line = TurnLine(session=session, message=message, role=role, author=author, said=said, text=text)
            yield msgspec.json.encode(line) + b"\n"
        first = rows[-1][0] + 1
    for fact in await database.read(lambda: facts_of(owner)):
        yield msgspec.json.encode(FactLine(fact=fact)) + b"\n"


def parsed(lines: Iterable[bytes]) -> tuple[list[tuple[str, list[MessageDraft]]], list[Fact]]:
    """Return the turns of an export, grouped by session, and its facts."""
    known = list(_lines(lines))
    turns = (line for line in known if isinstance(line, TurnLine))
    sessions = [
        (session, [turn.draft for turn in group])
        for session, group in groupby(turns, key=lambda turn: turn.session)
    ]
    return sessions, [line.fact for line in known if isinstance(line, FactLine)]


def _lines(lines: Iterable[bytes]) -> Iterator[Line]:
    for number, raw in enumerate(lines, 1):
        if not raw.strip():
            continue
        try:
            line = _decoder.decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InvalidPayload(f"line {number} is not a line of an exported memory: {error}") from None
        if number == 1 and not isinstance(line, HeadLine):
            raise InvalidPayload("this is not an exported memory: its first line is not a memory header")
        if isinstance(line, FactLine) and not line.fact.sources:
            raise InvalidPayload(
                f"line {number} has a fact without a source; a fact names the messages that say so"
            )
        if isinstance(line, HeadLine) and line.version > VERSION:
            raise NewerFormat(
                f"the memory was exported by a newer Turnstate (version {line.version}); update"
            )
        yield line
