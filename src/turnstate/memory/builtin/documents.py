"""Documents in the database: the turns of a user, where their terms occur, and their vectors.

Every function is an operation, part of one transaction that holds the user's lock. A document is identified
by its number, which is never reused; the postings of a term are the numbers of the documents that have it.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ..port import User, mark_of
from .concepts import all_concept_terms
from .database import Ask, Operation, asked
from .dates import days_of
from .drafts import MessageDraft
from .terms import terms

CHUNK = 8_192
"""The range of document numbers that one row of postings covers."""

EVICTED_SHARE = 0.02
"""The share of a full memory that is dropped together, so that not every delivery has to make room."""


class DocumentOwner(NamedTuple):
    """The row of a user."""

    id: int
    next: int
    size: int
    words: int
    version: int
    dropped: int


def lock(mark: bytes) -> Operation[None]:
    """Lock a user or a session until the end of the transaction; wait for other operations on it."""
    yield from asked("lock", key=int.from_bytes(mark[:8], signed=True))


def known_owner(user: User) -> Operation[DocumentOwner | None]:
    """Lock a user and return the row, or None if nothing is known about the user."""
    yield from lock(mark_of(user))
    rows = yield from asked("owner", tenant=user.tenant, name=user.id)
    return DocumentOwner(*rows[0]) if rows else None


def new_owner(user: User) -> Operation[DocumentOwner]:
    """Return the row of a user, and add it if it is missing; the caller holds the lock."""
    yield from asked("add_owner", tenant=user.tenant, name=user.id)
    (row,) = yield from asked("owner", tenant=user.tenant, name=user.id)
    return DocumentOwner(*row)


def set_owner(owner: DocumentOwner) -> Operation[None]:
    """Write the counts of a user, with a new version."""
    counts = owner._asdict()
    yield from asked(
        "set_owner", owner=owner.id, **{k: counts[k] for k in ("next", "size", "words", "dropped")}
    )


def add_documents(
    owner: DocumentOwner, session: int, new: Sequence[tuple[MessageDraft, bytes | None]], embedder: str
) -> Operation[DocumentOwner]:
    """Write drafts as documents, with their postings and vectors."""
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
        for term in (*draft.terms, *draft.days):
            added[number // CHUNK, term].append(number)
    yield from add_postings(owner.id, added)
    vectors = {number: vector for number, (_, vector) in numbered if vector is not None}
    yield Ask("put_vector", _vector_rows(owner, embedder, vectors))
    return owner._replace(
        next=owner.next + len(new),
        size=owner.size + len(new),
        words=owner.words + sum(len(draft.terms) for draft, _ in new),
    )


def put_vectors(user: User, embedder: str, vectors: Mapping[int, bytes]) -> Operation[None]:
    """Write the vectors of documents that still exist."""
    owner = yield from known_owner(user)
    if owner is None:
        return
    there = yield from asked("turns", owner=owner.id, numbers=list(vectors))
    yield Ask("put_vector", _vector_rows(owner, embedder, {row[0]: vectors[row[0]] for row in there}))
    yield from set_owner(owner)


def _vector_rows(
    owner: DocumentOwner, embedder: str, vectors: Mapping[int, bytes]
) -> list[dict[str, object]]:
    return [
        {"owner": owner.id, "number": number, "embedder": embedder, "data": data}
        for number, data in vectors.items()
    ]


def add_postings(owner: int, added: Mapping[tuple[int, str], Sequence[int]]) -> Operation[None]:
    """Add the numbers of documents to the postings of terms, by chunk and term."""
    known = yield from _postings(owner, added)
    rows = list[dict[str, object]]()
    for (chunk, term), more in added.items():
        numbers, added_ones = array("I", known.get((chunk, term), b"")), sorted(more)
        is_ordered = not numbers or numbers[-1] <= added_ones[0]
        numbers.extend(added_ones)
        if not is_ordered:  # a fact was found in an older document
            numbers = array("I", sorted(numbers))
        rows.append({"owner": owner, "term": term, "chunk": chunk, "numbers": numbers.tobytes()})
    yield Ask("put_posting", rows)


def _postings(owner: int, wanted: Iterable[tuple[int, str]]) -> Operation[dict[tuple[int, str], bytes]]:
    names = sorted({term for _, term in wanted})
    if not names:
        return {}
    rows = yield from asked("postings", owner=owner, terms=names)
    return {(chunk, term): bytes(numbers) for term, chunk, numbers in rows}


def remove_documents(owner: DocumentOwner, numbers: Sequence[int]) -> Operation[DocumentOwner]:
    """Delete documents with their postings and vectors."""
    if not numbers:
        return owner
    removed, given = set(numbers), list(numbers)
    texts = yield from asked("texts", owner=owner.id, numbers=given)
    turns = yield from asked("turns", owner=owner.id, numbers=given)
    touched = {(row[0] // CHUNK, term) for row in texts for term in _all_terms(row)}
    kept, empty = list[dict[str, object]](), list[dict[str, object]]()
    for (chunk, term), packed in (yield from _postings(owner.id, touched)).items():
        left = array("I", [number for number in array("I", packed) if number not in removed])
        place = {"owner": owner.id, "term": term, "chunk": chunk}
        if left:
            kept.append(place | {"numbers": left.tobytes()})
        else:
            empty.append(place)
    yield Ask("put_posting", kept)
    yield Ask("drop_posting", empty)
    yield from asked("drop_vectors_of", owner=owner.id, numbers=given)
    yield from asked("drop_numbers", owner=owner.id, numbers=given)
    words = sum(row[5] for row in turns)
    return owner._replace(size=owner.size - len(turns), words=max(0, owner.words - words))


def _all_terms(row: tuple[Any, ...]) -> set[str]:
    """Return every term that a document may be found by."""
    _, _, _, said, _, _, text = row
    return {*terms(text), *days_of(text, said), *all_concept_terms()}


def make_room(owner: DocumentOwner, limit: int) -> Operation[tuple[DocumentOwner, int]]:
    """Delete the oldest documents without facts or, if nearly all have facts, the oldest of all."""
    wanted = owner.size - limit + int(limit * EVICTED_SHARE)
    rows = yield from asked("oldest_documents", owner=owner.id, limit=wanted)
    if len(rows) < owner.size - limit:
        rows = yield from asked("oldest_of_all", owner=owner.id, limit=wanted)
    owner = yield from remove_documents(owner, [number for (number,) in rows])
    return owner._replace(dropped=owner.dropped + len(rows)), len(rows)
