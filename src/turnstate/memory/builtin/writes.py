"""Writing into memory: what one delivery adds, what is forgotten, and what leaves when it is full.

Every function is an operation of the database, one transaction. A delivery takes the locks of its user
and its session before it looks for marks, and a forgetting writes its mark under the same locks. So
either the delivery is first, and is forgotten with the rest, or the mark is first, and the delivery is
refused; whatever the order, nothing comes back.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from ...stores.values import Address
from ..facts import Claim, Fact, Source, merged
from ..port import User, mark_of
from .concepts import all_concept_terms, concept_terms
from .database import Ask, Operation, asked
from .drafts import Draft
from .signs import Sign
from .terms import terms

__all__ = [
    "Batch",
    "Owner",
    "Refused",
    "add_mark",
    "drop_session",
    "drop_user",
    "facts_of",
    "put_vectors",
    "remove_documents",
    "store",
]

CHUNK = 8_192
"""Numbers of documents in one row of postings."""

EVICTED_SHARE = 0.02
"""Of a full memory that leaves at once, so that not every delivery has to make room."""


class Owner(NamedTuple):
    """The row of a user."""

    id: int
    next: int
    size: int
    words: int
    version: int
    dropped: int


class Batch(NamedTuple):
    """A part of a delivery that is written in one transaction."""

    user: User
    session: str
    since: int
    drafts: Sequence[Draft]
    claims: Sequence[Claim] = ()
    vectors: Sequence[bytes | None] = ()
    embedder: str = ""
    names: Mapping[tuple[str, str], int] = MappingProxyType({})
    key: str = ""
    """Of the delivery; empty until its last part."""


class Refused(NamedTuple):
    """A delivery that came after its user or session was forgotten."""

    at: int


def store(batch: Batch, *, limit: int) -> Operation[int | Refused]:
    """Write a part of a delivery; return how many documents had to leave for it."""
    at = Address(batch.user.tenant, batch.session)
    hashes = [mark_of(batch.user), mark_of(at)]
    for one in hashes:
        yield from asked("lock", key=_lock(one))
    ((marked,),) = yield from asked("mark", one=hashes[0], other=hashes[1])
    if marked is not None and marked >= batch.since:
        return Refused(marked)
    owner = yield from _owner(batch.user)
    session = yield from _session(owner, batch.session)
    new = yield from _unknown(batch, owner, session)
    owner = yield from _add_documents(owner, session, new, batch.embedder)
    names = [
        {"owner": owner.id, "name": name, "role": role, "times": times}
        for (name, role), times in batch.names.items()
    ]
    yield Ask("add_author", names)
    yield from _merge(owner.id, session, batch.session, batch.claims)
    if batch.key:
        yield from asked("add_delivery", owner=owner.id, key=batch.key, session=session)
    dropped = 0
    if owner.size > limit:
        owner, dropped = yield from _make_room(owner, limit)
    yield from _set(owner)
    return dropped


def put_vectors(user: User, embedder: str, vectors: Mapping[int, bytes]) -> Operation[None]:
    """Write vectors of documents that are still there."""
    yield from asked("lock", key=_lock(mark_of(user)))
    rows = yield from asked("owner", tenant=user.tenant, name=user.id)
    if not rows:
        return
    owner = Owner(*rows[0])
    there = yield from asked("turns", owner=owner.id, numbers=list(vectors))
    yield Ask(
        "put_vector",
        [
            {"owner": owner.id, "number": row[0], "embedder": embedder, "data": vectors[row[0]]}
            for row in there
        ],
    )
    yield from _set(owner)


def _owner(user: User) -> Operation[Owner]:
    yield from asked("add_owner", tenant=user.tenant, name=user.id)
    ((row),) = yield from asked("owner", tenant=user.tenant, name=user.id)
    return Owner(*row)


def _session(owner: Owner, name: str) -> Operation[int]:
    yield from asked("add_session", owner=owner.id, name=name)
    ((id,),) = yield from asked("session", owner=owner.id, name=name)
    return int(id)


def _set(owner: Owner) -> Operation[None]:
    yield from asked(
        "set_owner",
        owner=owner.id,
        next=owner.next,
        size=owner.size,
        words=owner.words,
        dropped=owner.dropped,
    )


def _unknown(batch: Batch, owner: Owner, session: int) -> Operation[list[tuple[Draft, bytes | None]]]:
    """Return the drafts whose messages the memory does not have, each once, with their vectors."""
    vectors = batch.vectors or [None] * len(batch.drafts)
    new = {draft.message: (draft, vector) for draft, vector in zip(batch.drafts, vectors, strict=True)}
    rows = yield from asked("known_messages", owner=owner.id, session=session, messages=list(new))
    for (message,) in rows:
        del new[message]
    return list(new.values())


def _add_documents(
    owner: Owner, session: int, new: Sequence[tuple[Draft, bytes | None]], embedder: str
) -> Operation[Owner]:
    numbered = list(enumerate(new, owner.next))
    rows = [
        {
            "owner": owner.id,
            "number": number,
            "session": session,
            "message": draft.message,
            "role": draft.role,
            "author": draft.author,
            "said": draft.said,
            "length": len(draft.terms),
            "signs": int(draft.signs),
            "text": draft.text,
        }
        for number, (draft, _) in numbered
    ]
    yield Ask("add_document", rows)
    added = defaultdict[tuple[int, str], list[int]](list)
    for number, (draft, _) in numbered:
        for term in draft.terms:
            added[number // CHUNK, term].append(number)
    yield from _add_postings(owner.id, added)
    yield Ask(
        "put_vector",
        [
            {"owner": owner.id, "number": number, "embedder": embedder, "data": vector}
            for number, (_, vector) in numbered
            if vector is not None
        ],
    )
    return owner._replace(
        next=owner.next + len(new),
        size=owner.size + len(new),
        words=owner.words + sum(len(draft.terms) for draft, _ in new),
    )


def _add_postings(owner: int, added: dict[tuple[int, str], list[int]]) -> Operation[None]:
    known = yield from _postings(owner, added)
    rows = [
        {
            "owner": owner,
            "term": term,
            "chunk": chunk,
            "numbers": known.get((chunk, term), b"") + array("I", numbers).tobytes(),
        }
        for (chunk, term), numbers in added.items()
    ]
    yield Ask("put_posting", rows)


def _postings(owner: int, wanted: Iterable[tuple[int, str]]) -> Operation[dict[tuple[int, str], bytes]]:
    names = sorted({term for _, term in wanted})
    if not names:
        return {}
    rows = yield from asked("postings", owner=owner, terms=names)
    return {(chunk, term): bytes(numbers) for term, chunk, numbers in rows}


def facts_of(owner: int) -> Operation[list[Fact]]:
    """Return all facts of an owner with their sources."""
    sources = defaultdict[str, list[Source]](list)
    for fact, session, message in (yield from asked("sources", owner=owner)):
        sources[fact].append(Source(session, message))
    rows = yield from asked("facts", owner=owner)
    return [
        Fact(
            id=id, kind=kind, slot=slot, value=value, text=text, said=said, ended=ended,
            sources=tuple(sources[id]),
        )
        for id, kind, slot, value, text, said, ended in rows
    ]  # fmt: skip


def _merge(owner: int, session: int, name: str, claims: Sequence[Claim]) -> Operation[None]:
    if not claims:
        return
    known = yield from facts_of(owner)
    changed = merged(known, claims, name)
    rows = [
        {
            "owner": owner, "id": fact.id, "kind": fact.kind, "slot": fact.slot, "value": fact.value,
            "text": fact.text, "said": fact.said, "ended": fact.ended,
        }
        for fact in changed
    ]  # fmt: skip
    yield Ask("put_fact", rows)
    sources = [
        {"owner": owner, "fact": fact.id, "session": session, "message": source.message}
        for fact in changed
        for source in fact.sources
        if source.session == name
    ]
    yield Ask("add_source", sources)
    yield from _sign_sources(owner, known, changed)


def _sign_sources(owner: int, known: Sequence[Fact], changed: Sequence[Fact]) -> Operation[None]:
    """Note in the documents of changed facts whether they hold, and add the terms that ask for them."""
    facts = {fact.id: fact for fact in [*known, *changed]}
    holding = {source for fact in facts.values() if fact.ended is None for source in fact.sources}
    rows = [
        {
            "owner": owner,
            "name": source.session,
            "message": source.message,
            "kept": ~int(Sign.FACT | Sign.ENDED),
            "signs": int(Sign.FACT if source in holding else Sign.ENDED),
        }
        for fact in changed
        for source in fact.sources
    ]
    yield Ask("sign_document", rows)
    old = {(fact.id, source) for fact in known for source in fact.sources}
    added = defaultdict[tuple[int, str], list[int]](list)
    for fact in changed:
        for source in fact.sources:
            if (fact.id, source) in old:
                continue
            for (number,) in (
                yield from asked("number", owner=owner, name=source.session, message=source.message)
            ):
                for term in concept_terms(fact.kind):
                    added[number // CHUNK, term].append(number)
    yield from _add_postings(owner, added)


# Forgetting


def add_mark(whose: User | Address, now: int) -> Operation[None]:
    """Refuse deliveries of what began before now from here on."""
    mark = mark_of(whose)
    yield from asked("lock", key=_lock(mark))
    yield from asked("add_mark", hash=mark, at=now)


def drop_user(user: User) -> Operation[int]:
    """Delete everything of a user; return the number of messages."""
    yield from asked("lock", key=_lock(mark_of(user)))
    rows = yield from asked("owner", tenant=user.tenant, name=user.id)
    if not rows:
        return 0
    owner = Owner(*rows[0])
    ((messages,),) = yield from asked("count_documents", owner=owner.id)
    for what in (
        "documents",
        "postings",
        "vectors",
        "authors",
        "sources",
        "facts",
        "deliveries",
        "sessions",
        "owner",
    ):
        yield from asked(f"drop_{what}", owner=owner.id)
    return int(messages)


def drop_session(user: User, session: str) -> Operation[int]:
    """Delete everything of a session from the memory of a user; return the number of messages.

    A fact that has other sources stays, and loses this one.
    """
    yield from asked("lock", key=_lock(mark_of(user)))
    rows = yield from asked("owner", tenant=user.tenant, name=user.id)
    if not rows:
        return 0
    owner = Owner(*rows[0])
    found = yield from asked("session", owner=owner.id, name=session)
    if not found:
        return 0
    ((id,),) = found
    numbers = [number for (number,) in (yield from asked("numbers_of_session", owner=owner.id, session=id))]
    texts = yield from asked("texts", owner=owner.id, numbers=numbers)
    owner = yield from remove_documents(owner, numbers)
    yield from asked("drop_sources_of_session", owner=owner.id, session=id)
    for (fact,) in (yield from asked("facts_without_source", owner=owner.id)):
        yield from asked("drop_fact", owner=owner.id, id=fact)
    yield from asked("drop_deliveries_of_session", owner=owner.id, session=id)
    yield from asked("drop_session", session=id)
    yield from _set(owner)
    return sum(row[4] != "summary" for row in texts)


def remove_documents(owner: Owner, numbers: Sequence[int]) -> Operation[Owner]:
    """Delete documents with their postings and vectors."""
    removed = set(numbers)
    rows = yield from asked("texts", owner=owner.id, numbers=list(numbers))
    turns = yield from asked("turns", owner=owner.id, numbers=list(numbers))
    lengths = sum(row[5] for row in turns)
    touched = {(row[0] // CHUNK, term) for row in rows for term in {*terms(row[6]), *all_concept_terms()}}
    known = yield from _postings(owner.id, touched)
    kept, empty = list[dict[str, object]](), list[dict[str, object]]()
    for (chunk, term), packed in known.items():
        left = array("I", [number for number in array("I", packed) if number not in removed])
        place = {"owner": owner.id, "term": term, "chunk": chunk}
        if left:
            kept.append(place | {"numbers": left.tobytes()})
        else:
            empty.append(place)
    yield Ask("put_posting", kept)
    yield Ask("drop_posting", empty)
    yield from asked("drop_vectors_of", owner=owner.id, numbers=list(numbers))
    yield from asked("drop_numbers", owner=owner.id, numbers=list(numbers))
    return owner._replace(size=owner.size - len(turns), words=max(0, owner.words - lengths))


def _make_room(owner: Owner, limit: int) -> Operation[tuple[Owner, int]]:
    """Delete the oldest documents without facts; if all have facts, the oldest."""
    wanted = owner.size - limit + int(limit * EVICTED_SHARE)
    rows = yield from asked("oldest_documents", owner=owner.id, limit=wanted)
    if len(rows) < owner.size - limit:
        rows = yield from asked("oldest_of_all", owner=owner.id, limit=wanted)
    owner = yield from remove_documents(owner, [number for (number,) in rows])
    return owner._replace(dropped=owner.dropped + len(rows)), len(rows)


def _lock(mark: bytes) -> int:
    return int.from_bytes(mark[:8], signed=True)
