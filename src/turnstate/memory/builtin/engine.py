"""The engine: stores deliveries, answers questions, describes the user to a new session, and forgets.

A delivery is written in parts of a few hundred messages, each durable by itself; the last part includes the
key of the delivery. A message is identified by its session and id, so a repeated delivery, or messages that
an earlier cut delivered, add nothing. Sessions without a user are not kept: no one could ask for them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from msgspec import structs

from ... import ids
from ...errors import InputError, NotFound
from ...ids import Clock, wall_clock
from ...message import Message
from ...stores.values import Address
from ..embedder import Embedder
from ..facts import MAX_TEXT, MAX_VALUE, Claim, Decides, Extractor, Fact, Said, history
from ..port import Evicted, Filter, Recollection, SessionRecord, User
from ..profile import MOST_OF_A_KIND, profile
from ..reranker import Reranker
from ..rules import RuleExtractor
from ..rules.orders import is_order
from ..rules.secrets import is_secret
from . import deliveries, search, transfer
from .database import Database, Operation
from .deliveries import DeliveryBatch, RefusedDelivery
from .documents import DocumentOwner
from .drafts import MessageDraft, addressed, drafts, redrafted
from .fact_rows import change_fact, drop_facts, facts_about, facts_of, newest_facts, timestamp
from .meaning import Meaning

_log = logging.getLogger(__name__)

MAX_DOCUMENTS = 50_000
"""The most documents of a user; beyond that, the oldest without facts are dropped."""

MAX_FACTS = 20_000
"""The most facts of a user; beyond that, ended ones are dropped, then old ones that matter little."""

BATCH, BATCH_CHARACTERS = 250, 500_000
"""The messages or characters after which a part of a delivery is written."""

NOTES = "notes"
"""The session of notes that are stored outside of any session."""

MAX_NOTE = 2_000


class BuiltinEngine:
    """Memory in a database, found by the words of a question and, with an embedder, by its meaning."""

    def __init__(
        self,
        database: Database,
        *,
        extractor: Extractor | None = None,
        embedder: Embedder | None = None,
        reranker: Reranker | None = None,
        rules: bool = True,
        max_documents: int = MAX_DOCUMENTS,
        max_facts: int = MAX_FACTS,
        clock: Clock = wall_clock,
    ) -> None:
        self._database, self._clock, self._limit = database, clock, max_documents
        self._rules, self._extractor = RuleExtractor() if rules else None, extractor
        self._most_facts, self._reranker = max_facts, reranker
        self._meaning = Meaning(database, embedder) if embedder is not None else None

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

    async def search(
        self, user: User, query: str, k: int, *, where: Filter | None = None
    ) -> list[Recollection]:
        """Return at most ``k`` turns that answer a question, the best first."""
        owner = await self._owner(user)
        if owner is None or k <= 0 or not query.strip():
            return []
        today = datetime.fromtimestamp(self._clock() / 1000, UTC).date()
        return await search.found(
            self._database,
            owner,
            query,
            k,
            where or Filter(),
            meaning=self._meaning,
            reranker=self._reranker,
            today=today,
        )

    async def profile(self, user: User, *, as_of: str | None = None) -> str:
        """Return what is known about a user, or was at a time, the most important first."""
        if as_of is not None:
            held = await self.facts(user, as_of=as_of)
            return profile(structs.replace(fact, ended=None) for fact in held)
        owner = await self._owner(user)
        if owner is None:
            return ""
        now = self._now()
        return profile(await self._database.read(lambda: newest_facts(owner.id, now, MOST_OF_A_KIND)))

    async def facts(self, user: User, *, as_of: str | None = None) -> list[Fact]:
        """Return all facts of a user, ended ones included, or those that held at a time."""
        owner = await self._owner(user)
        if owner is None:
            return []
        found = await self._database.read(lambda: facts_of(owner.id))
        return found if as_of is None else [fact for fact in found if fact.holds(as_of)]

    async def history(self, user: User, fact: str) -> list[Fact]:
        """Return what a fact took the place of, the fact, and what took its place, in order."""
        return history(await self.facts(user), fact)

    async def update(
        self, user: User, fact: str, *, value: str, text: str = "", until: str | None = None
    ) -> Fact:
        """Change the value of a fact, and return it; the old value is kept with the time of its end.

        ``text`` is the sentence that states it, by default the value, and ``until`` a time limit.
        """
        value, text = " ".join(value.split()), " ".join((text or value).split())[:MAX_TEXT]
        if not value or len(value) > MAX_VALUE:
            raise InputError(f"the value of a fact has 1 to {MAX_VALUE} characters, not {len(value):,}")
        _check_content(text, value)
        old = next((one for one in await self.facts(user) if one.id == fact), None)
        now = self._now()
        changed = old and structs.replace(old, value=value, text=text, until=until)
        new = changed and await self._database.write(lambda: change_fact(user, changed, now))
        if new is None:
            raise NotFound(f"there is no fact {fact!r:.40} about this user; list the facts for their ids")
        return new

    async def remember(self, user: User, text: str, *, session: str = NOTES) -> Fact:
        """Store a note about a user and return its fact; the source is a new message in the session."""
        text = " ".join(text.split())
        if not text or len(text) > MAX_NOTE:
            raise InputError(f"a note has 1 to {MAX_NOTE:,} characters, not {len(text):,}")
        _check_content(text)
        note = redrafted(str(ids.message_id()), "note", "user", ids.now(), text)
        claim = Claim(kind="note", value=text[:200], text=text, message=note.message, said=note.said)
        claims = await self._rules.claims([_said(note)._replace(role="user")]) if self._rules else []
        await self._store(user, session, self._clock() + 1, [note], [claim, *claims])
        return next(fact for fact in await self.facts(user) if (session, note.message) in fact.sources)

    async def drop(self, user: User, fact: str, *, history: bool = False) -> bool:
        """Remove one fact, and the note that it comes from; return False if there is no such fact.

        Facts that it had ended hold again; with ``history``, they are removed, too. What was said of it
        before is not learned again.
        """
        ids = [one.id for one in await self.history(user, fact)] if history else [fact]
        now = self._clock()
        removed = await self._database.write(lambda: drop_facts(user, ids, now))
        await self.scrub()
        return removed

    async def forget(self, whose: User | Address) -> int:
        """Permanently remove everything of a user or a session; return the number of messages."""
        now = self._clock()
        await self._database.write(lambda: deliveries.add_mark(whose, now))
        if isinstance(whose, User):
            removed = await self._database.write(lambda: deliveries.drop_user(whose))
        else:
            owners = await self._database.rows("owners_of_session", **whose._asdict())
            users = [User(tenant, name) for _, tenant, name in owners]
            removed = sum([await self._database.write(_dropping(user, whose.session)) for user in users])
        await self.scrub()
        return removed

    async def scrub(self) -> bool:
        """Overwrite the remains of what was removed, in memory and in files; return True if none are left."""
        if self._meaning is not None:
            self._meaning.clear()
        return await self._database.scrub()

    async def turns(self, user: User, *, limit: int) -> list[Recollection]:
        """Return the newest turns of a user."""
        owner = await self._owner(user)
        rows = (
            await self._database.rows("newest_documents", owner=owner.id, before=owner.next, limit=limit)
            if owner is not None
            else []
        )
        return [
            Recollection(text=text, session=session, message=message, timestamp=said, role=role)
            for _, session, message, role, _, said, text in rows
        ]

    async def users(self, tenant: str) -> list[tuple[User, int, int]]:
        """Return the users of a tenant, each with the number of turns kept and the number dropped."""
        rows = await self._database.rows("owners", tenant=tenant)
        return [(User(tenant, name), size, dropped) for tenant, name, size, dropped in rows]

    async def export(self, user: User) -> AsyncIterator[bytes]:
        """Yield everything that is known about a user as lines of JSON."""
        owner = await self._owner(user)
        if owner is not None:
            async for line in transfer.exported(self._database, user, owner.id):
                yield line

    async def restore(self, user: User, lines: Iterable[bytes]) -> int:
        """Add the lines of an export to the memory of a user; return the number of turns read."""
        turns, facts = await asyncio.to_thread(transfer.parsed, lines)
        since = self._clock() + 1
        for session, found in turns:
            for start in range(0, len(found), BATCH):
                await self._store(user, session, since, found[start : start + BATCH], ())
        if facts:
            await self._store(user, facts[0].sources[0].session, since, (), (), facts=facts)
        return sum(len(found) for _, found in turns)

    async def close(self) -> None:
        """Close files and connections."""
        await self._database.close()
        if self._meaning is not None:
            await self._meaning.close()
        if self._reranker is not None:
            await self._reranker.close()

    async def _owner(self, user: User) -> DocumentOwner | None:
        rows = await self._database.rows("owner", tenant=user.tenant, name=user.id)
        return DocumentOwner(*rows[0]) if rows else None

    async def _take(self, handed: Evicted | SessionRecord, summary: str) -> None:
        user, session, since = handed.owner, handed.session, handed.since
        if user is None or await self._knows(user, handed.key):
            return
        said, proposed = list[Said](), list[Claim]()
        last: MessageDraft | None = None
        found: list[MessageDraft] = []
        claims: Sequence[Claim] = ()
        async for messages in _batches(handed.messages):
            held = () if self._extractor else claims  # proposals wait for the extractor; turns do not
            if found and not await self._store(user, session, since, found, held):
                return
            found = await asyncio.to_thread(drafts, messages)
            turns = [_said(draft) for draft in found]
            claims = await self._rules.claims(turns) if self._rules else []
            said += [turn for turn in turns if turn.role in ("user", "assistant")]
            proposed += claims
            last = found[-1] if found else last
        if self._extractor is not None and said:
            if not await self._store(user, session, since, found, ()):
                return
            found, claims = [], await self._decided(self._extractor, user, said, proposed)
        if summary.strip() and last:
            found.append(_summary(summary, last, handed.key))
        # The last part and the key are one transaction: a delivery of a short session is one commit, not two.
        if (
            await self._store(user, session, since, found, claims, key=handed.key)
            and self._meaning is not None
        ):
            await self._meaning.fill(user)

    async def _decided(
        self, extractor: Extractor, user: User, said: Sequence[Said], proposed: Sequence[Claim]
    ) -> list[Claim]:
        """Return what the extractor claims; if it can decide, it sees the proposals and what is known."""
        if not isinstance(extractor, Decides):
            return await extractor.claims(said)
        owner, now = await self._owner(user), self._now()
        if owner is None:  # the user was forgotten in the meantime
            return []

        named = [claim for claim in proposed if claim.kind]

        def concerned() -> Operation[list[Fact]]:
            about = yield from facts_about(owner.id, named)
            return [*about, *(yield from newest_facts(owner.id, now, MOST_OF_A_KIND))]

        known = {fact.id: fact for fact in await self._database.read(concerned) if fact.holds(now)}
        return await extractor.decided(said, proposed, list(known.values()))

    def _now(self) -> str:
        return timestamp(self._clock())

    async def _knows(self, user: User, key: str) -> bool:
        owner = await self._owner(user)
        return owner is not None and bool(await self._database.rows("delivered", owner=owner.id, key=key))

    async def _store(
        self,
        user: User,
        session: str,
        since: int,
        found: Sequence[MessageDraft],
        claims: Sequence[Claim],
        *,
        facts: Sequence[Fact] = (),
        key: str = "",
    ) -> bool:
        """Write a part of a delivery; return False if its user or session was forgotten."""
        names = addressed(found)
        for draft in found:
            if draft.author not in (draft.role, "user"):
                names[draft.author, draft.author] += 1
        batch = DeliveryBatch(
            user=user,
            session=session,
            since=since,
            drafts=found,
            claims=claims,
            facts=facts,
            vectors=await self._meaning.vectors([draft.spoken for draft in found]) if self._meaning else (),
            embedder=self._meaning.name if self._meaning else "",
            names=names,
            key=key,
        )
        now = self._now()
        outcome = await self._database.write(
            lambda: deliveries.store(batch, limit=self._limit, most_facts=self._most_facts, now=now)
        )
        if isinstance(outcome, RefusedDelivery):
            _log.info("a delivery of session %s was refused: its user or session was forgotten", session)
            return False
        if outcome:
            _log.warning("the memory of user %s is full: its %d oldest turns were dropped", user.id, outcome)
        return True


def _check_content(*texts: str) -> None:
    """Raise `InputError` for what memory does not keep."""
    if any(map(is_secret, texts)):
        raise InputError(
            "this looks like a password, key, token or card number, which memory does not keep; "
            "store it where secrets belong"
        )
    if any(map(is_order, texts)):
        raise InputError("this reads like an order to the assistant; memory keeps what is known of a user")


def _dropping(user: User, session: str) -> Callable[[], Operation[int]]:
    return lambda: deliveries.drop_session(user, session)


def _said(draft: MessageDraft) -> Said:
    return Said(draft.message, draft.role, draft.author, draft.said, draft.text)


def _summary(text: str, last: MessageDraft, key: str) -> MessageDraft:
    return redrafted(f"summary of {key}", "summary", "summary", last.said, text)


async def _batches(messages: AsyncIterable[Message]) -> AsyncIterator[list[Message]]:
    batch, size = list[Message](), 0
    async for message in messages:
        batch.append(message)
        size += len(message.text)
        if len(batch) == BATCH or size >= BATCH_CHARACTERS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
