"""Deliveries and forgetting: whichever comes first, nothing that was forgotten comes back.

Every function is a database operation, which runs in one transaction. A delivery takes the locks of its
user and its session before it checks for marks, and forgetting writes a mark under the same locks. So
either the delivery comes first and is forgotten with the rest, or the mark comes first and the delivery is
refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from ...stores.values import Address
from ..facts import Claim, Fact
from ..port import User, mark_of
from .database import Ask, Operation, asked
from .documents import (
    DocumentOwner,
    add_documents,
    known_owner,
    lock,
    make_room,
    new_owner,
    remove_documents,
    set_owner,
)
from .drafts import MessageDraft
from .fact_rows import bound_facts, drop_sources, merge_claims, put_facts


class DeliveryBatch(NamedTuple):
    """A part of a delivery that is written in one transaction."""

    user: User
    session: str
    since: int
    drafts: Sequence[MessageDraft] = ()
    claims: Sequence[Claim] = ()
    facts: Sequence[Fact] = ()
    """Facts of an export, which are stored as they are."""
    vectors: Sequence[bytes | None] = ()
    embedder: str = ""
    names: Mapping[tuple[str, str], int] = MappingProxyType({})
    """How often each name was used for an author."""
    key: str = ""
    """The key of the delivery; empty until its last part."""


class RefusedDelivery(NamedTuple):
    """A delivery that came after its user or session was forgotten."""

    at: int


def store(batch: DeliveryBatch, *, limit: int, most_facts: int, now: str) -> Operation[int | RefusedDelivery]:
    """Write a part of a delivery, unless it is refused; return how many documents were dropped for it."""
    hashes = [mark_of(batch.user), mark_of(Address(batch.user.tenant, batch.session))]
    for one in hashes:
        yield from lock(one)
    ((marked,),) = yield from asked("mark", one=hashes[0], other=hashes[1])
    if marked is not None and marked >= batch.since:
        return RefusedDelivery(marked)
    owner = yield from new_owner(batch.user)
    session = yield from _session(owner, batch.session)
    owner = yield from add_documents(
        owner, session, (yield from _unknown(batch, owner, session)), batch.embedder
    )
    names = [
        {"owner": owner.id, "name": name, "role": role, "times": times}
        for (name, role), times in batch.names.items()
    ]
    yield Ask("add_author", names)
    yield from merge_claims(batch.user, owner.id, batch.session, batch.claims)
    yield from put_facts(owner.id, batch.facts)
    if batch.claims or batch.facts:
        yield from bound_facts(owner.id, most_facts, now)
    if batch.key:
        yield from asked("add_delivery", owner=owner.id, key=batch.key, session=session)
    dropped = 0
    if owner.size > limit:
        owner, dropped = yield from make_room(owner, limit)
    yield from set_owner(owner)
    return dropped


def _session(owner: DocumentOwner, name: str) -> Operation[int]:
    yield from asked("add_session", owner=owner.id, name=name)
    ((id,),) = yield from asked("session", owner=owner.id, name=name)
    return int(id)


def _unknown(
    batch: DeliveryBatch, owner: DocumentOwner, session: int
) -> Operation[list[tuple[MessageDraft, bytes | None]]]:
    """Return the drafts of messages that the memory does not have yet, each once, with their vectors."""
    vectors = batch.vectors or [None] * len(batch.drafts)
    new = {draft.message: (draft, vector) for draft, vector in zip(batch.drafts, vectors, strict=True)}
    rows = yield from asked("known_messages", owner=owner.id, session=session, messages=list(new))
    for (message,) in rows:
        del new[message]
    return list(new.values())


def add_mark(whose: User | Address, now: int) -> Operation[None]:
    """Refuse any later delivery of a session or an epoch that began before ``now``."""
    mark = mark_of(whose)
    yield from lock(mark)
    yield from asked("add_mark", hash=mark, at=now)


_TABLES = (
    "documents",
    "postings",
    "vectors",
    "authors",
    "sources",
    "facts",
    "deliveries",
    "sessions",
    "owner",
)


def drop_user(user: User) -> Operation[int]:
    """Delete everything of a user; return the number of messages."""
    owner = yield from known_owner(user)
    if owner is None:
        return 0
    ((messages,),) = yield from asked("count_documents", owner=owner.id)
    for table in _TABLES:
        yield from asked(f"drop_{table}", owner=owner.id)
    return int(messages)


def drop_session(user: User, session: str) -> Operation[int]:
    """Delete everything of a session from the memory of a user; return the number of messages.

    A fact that other sessions also state stays, in their words.
    """
    owner = yield from known_owner(user)
    rows = (yield from asked("session", owner=owner.id, name=session)) if owner else []
    if owner is None or not rows:
        return 0
    ((id,),) = rows
    turns = yield from asked("numbers_of_session", owner=owner.id, session=id)
    owner = yield from remove_documents(owner, [number for number, _ in turns])
    yield from drop_sources(owner.id, session)
    yield from asked("drop_sources_of_session", owner=owner.id, session=id)
    yield from asked("drop_deliveries_of_session", owner=owner.id, session=id)
    yield from asked("drop_session", session=id)
    yield from set_owner(owner)
    return sum(role not in ("summary", "note") for _, role in turns)
