"""The engine: takes deliveries, answers questions, tells a new session whom it speaks with, and forgets.

A delivery is written in parts of some hundred messages, each durable by itself; the key of the delivery
comes with the last. A message is known by its session and id, so a delivery that is repeated, or that
a cut brought before, adds nothing. Sessions without a user are not kept: nobody could ask for them.
"""

from __future__ import annotations

import asyncio
import logging
from array import array
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from ...clock import Clock, wall_clock
from ...errors import InputError
from ...message import Message
from ...stores.values import Address
from ..embedder import Embedder
from ..facts import Claim, Extractor, Fact, Said
from ..port import Evicted, Recollection, SessionRecord, User
from ..profile import profile
from ..rules import RuleExtractor
from . import writes
from .database import Database, Operation
from .drafts import Draft, addressed, drafts
from .meaning import Meaning
from .question import Question
from .ranking import REACH, Scan, Turn, ranked
from .sqlite import SqliteDatabase
from .writes import Batch, Refused

__all__ = ["BuiltinEngine", "connect"]

_log = logging.getLogger(__name__)

MAX_DOCUMENTS = 50_000
"""Documents of a user; then the oldest without facts leave."""

BATCH, BATCH_CHARACTERS = 250, 500_000
"""Messages, and characters, of one part of a delivery."""

LONGEST_NAME = 500

MIN_ADDRESSED = 3
"""Times that a name must be used as an address before a question may use it for its owner."""


class BuiltinEngine:
    """Memory in a database, found by the words of a question, and with an embedder by its meaning."""

    def __init__(
        self,
        database: Database,
        *,
        extractor: Extractor | None = None,
        embedder: Embedder | None = None,
        max_documents: int = MAX_DOCUMENTS,
        clock: Clock = wall_clock,
    ) -> None:
        self._database, self._clock = database, clock
        self._rules, self._extractor = RuleExtractor(), extractor
        self._meaning = Meaning(database, embedder) if embedder is not None else None
        self._limit = max_documents

    @property
    def files(self) -> Sequence[Path]:
        """The files of the memory on this machine."""
        return self._database.files

    async def archive(self, evicted: Evicted, summary: str) -> None:
        """Store messages that left the window, and their summary."""
        await self._take(evicted, summary)

    async def ingest(self, record: SessionRecord) -> None:
        """Store a session that has ended."""
        await self._take(record, record.summary)

    async def close(self) -> None:
        """Close files and connections."""
        await self._database.close()
        if self._meaning is not None:
            await self._meaning.close()

    # Writing

    async def _take(self, handed: Evicted | SessionRecord, summary: str) -> None:
        user = handed.owner
        if user is None or await self._knows(user, handed.key):
            return
        said = list[Said]()
        last: Draft | None = None
        async for messages in _batches(handed.messages):
            found = await asyncio.to_thread(drafts, messages)
            claims = await self._rules.claims([_said(draft) for draft in found])
            if not await self._store(user, handed, found, claims):
                return
            said += [_said(draft) for draft in found if draft.role in ("user", "assistant")]
            last = found[-1] if found else last
        if self._extractor is not None and said:
            learned = await self._extractor.claims(said)
            await self._store(user, handed, (), learned)
        if self._meaning is not None:
            await self._meaning.fill(user)
        closing = [_summary(summary, last, handed.key)] if summary.strip() and last else []
        await self._store(user, handed, closing, (), key=handed.key)

    async def _knows(self, user: User, key: str) -> bool:
        rows = await self._database.rows("owner", tenant=user.tenant, name=user.id)
        return bool(rows) and bool(await self._database.rows("delivered", owner=rows[0][0], key=key))

    async def _store(
        self,
        user: User,
        handed: Evicted | SessionRecord,
        found: Sequence[Draft],
        claims: Sequence[Claim],
        *,
        key: str = "",
    ) -> bool:
        """Write a part of a delivery; return False if it is refused because its owner was forgotten."""
        names = addressed(found)
        for draft in found:
            if draft.author != draft.role:
                names[draft.author, draft.author] += 1
        batch = Batch(
            user=user,
            session=handed.session,
            since=handed.since,
            drafts=found,
            claims=claims,
            vectors=await self._meaning.vectors([draft.spoken for draft in found]) if self._meaning else (),
            embedder=self._meaning.name if self._meaning else "",
            names=names,
            key=key,
        )
        outcome = await self._database.write(lambda: writes.store(batch, limit=self._limit))
        if isinstance(outcome, Refused):
            _log.info("a delivery of session %s was refused: it was forgotten", handed.session)
            return False
        if outcome:
            _log.warning(
                "the memory of user %s is full: its %d oldest documents were dropped", handed.user, outcome
            )
        return True

    # Reading

    async def search(self, user: User, query: str, k: int) -> list[Recollection]:
        """Return at most ``k`` turns that answer a question, the best first."""
        owner = await self._owner(user)
        if owner is None or k <= 0 or not query.strip():
            return []
        names = await self._names(owner.id)
        question = await asyncio.to_thread(Question.of, query, names)
        lists = await self._lists(owner.id, question.terms)
        scan, numbers = await asyncio.to_thread(_scanned, question, lists, owner.size)
        similar: dict[int, float] | None = None
        if self._meaning is not None:
            numbers, similar = await self._meaning.found(owner, question.spoken, numbers)
        near = sorted({number + offset for number in numbers for offset in range(-REACH, REACH + 1)})
        rows = await self._database.rows("turns", owner=owner.id, numbers=[n for n in near if n >= 0])
        turns = {row[0]: Turn._make(row[1:]) for row in rows}
        mean = owner.words / max(1, owner.size) or 1.0
        best = await asyncio.to_thread(ranked, scan, question, lists, turns, numbers, mean, similar)
        return await self._recollections(owner.id, best[:k])

    async def _owner(self, user: User) -> writes.Owner | None:
        rows = await self._database.rows("owner", tenant=user.tenant, name=user.id)
        return writes.Owner(*rows[0]) if rows else None

    async def _names(self, owner: int) -> dict[str, str]:
        """Return the names that a question may use, and the author that each means."""
        found = defaultdict[str, Counter[str]](Counter)
        for name, author, times in await self._database.rows("authors", owner=owner):
            if name == author or times >= MIN_ADDRESSED:
                found[name][author] += times
        return {name: authors.most_common(1)[0][0] for name, authors in found.items()}

    async def _lists(self, owner: int, names: list[str]) -> dict[str, array[int]]:
        lists: dict[str, array[int]] = {}
        for term, _, numbers in await self._database.rows("postings", owner=owner, terms=names):
            lists.setdefault(term, array("I")).frombytes(bytes(numbers))
        return lists

    async def _recollections(self, owner: int, best: Sequence[tuple[int, float]]) -> list[Recollection]:
        numbers = [number for number, _ in best]
        rows = {row[0]: row[1:] for row in await self._database.rows("texts", owner=owner, numbers=numbers)}
        return [
            Recollection(text=text, session=session, message=message, timestamp=said, role=role, score=score)
            for number, score in best
            if number in rows
            for session, message, said, role, _, text in [rows[number]]
        ]

    async def profile(self, user: User) -> str:
        """Return what is known of a user, the most useful first."""
        return profile(await self.facts(user))

    async def facts(self, user: User) -> list[Fact]:
        """Return all facts of a user, ended ones included."""
        owner = await self._owner(user)
        if owner is None:
            return []
        return await self._database.write(lambda: writes.facts_of(owner.id))

    # Forgetting

    async def forget(self, whose: User | Address) -> int:
        """Remove everything of a user or a session for good; return the number of messages."""
        now = self._clock()
        await self._database.write(lambda: writes.add_mark(whose, now))
        if isinstance(whose, User):
            removed = await self._database.write(lambda: writes.drop_user(whose))
        else:
            removed = 0
            for _, tenant, name in await self._database.rows(
                "owners_of_session", tenant=whose.tenant, session=whose.session
            ):
                user = User(tenant, name)
                removed += await self._database.write(_dropping(user, whose.session))
        await self._database.scrub()
        if self._meaning is not None:
            self._meaning.clear()
        return removed


def _dropping(user: User, session: str) -> Any:
    def drop() -> Operation[int]:
        return writes.drop_session(user, session)

    return drop


def _scanned(question: Question, lists: dict[str, array[int]], size: int) -> tuple[Scan, list[int]]:
    scan = Scan(question, lists, size)
    return scan, scan.found()


def _said(draft: Draft) -> Said:
    return Said(draft.message, draft.role, draft.author, draft.said, draft.text)


def _summary(text: str, last: Draft, key: str) -> Draft:
    (made,) = drafts([Message.assistant(text, id=f"summary of {key}", timestamp=last.said)])
    return made._replace(role="summary", author="summary", message=made.message)


async def _batches(messages: Any) -> AsyncIterator[list[Message]]:
    batch, size = list[Message](), 0
    async for message in messages:
        batch.append(message)
        size += len(message.text)
        if len(batch) == BATCH or size >= BATCH_CHARACTERS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


async def connect(address: str, **settings: Any) -> BuiltinEngine:
    """Open the memory at a path, or at the URL of an SQLite file or a PostgreSQL database."""
    return BuiltinEngine(await database(address), **settings)


async def database(address: str) -> Database:
    """Open the database of an address; an empty one is in this process and ends with it."""
    if address.startswith(("postgresql:", "postgres:")):
        from .postgres import PostgresDatabase  # an optional dependency

        return await PostgresDatabase.open(address)
    path = address.removeprefix("sqlite:///") or None
    if path and path.partition(":")[0] in ("redis", "rediss", "memory"):
        raise InputError(f"memory cannot be kept at {path!r:.60}; give a path or a postgresql: URL")
    return await asyncio.to_thread(SqliteDatabase, path)
