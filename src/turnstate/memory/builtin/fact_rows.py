"""Facts in the database: merged with what is known, and noted in the documents that they come from.

A document that a fact comes from can be found by the words that ask for such a fact, and ranks above one
whose fact no longer holds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from ..facts import Claim, Fact, Source, merged
from ..port import User
from .concepts import concept_terms
from .database import Ask, Operation, asked
from .documents import CHUNK, add_postings, known_owner, remove_documents, set_owner
from .signs import Sign

__all__ = ["drop_fact", "facts_of", "merge_claims", "put_facts"]


def facts_of(owner: int) -> Operation[list[Fact]]:
    """Return all facts of an owner with their sources."""
    sources = defaultdict[str, list[Source]](list)
    for fact, session, message in (yield from asked("sources", owner=owner)):
        sources[fact].append(Source(session, message))
    rows = yield from asked("facts", owner=owner)
    return [
        Fact(
            id=id,
            kind=kind,
            slot=slot,
            value=value,
            text=text,
            said=said,
            ended=ended,
            sources=tuple(sources[id]),
        )
        for id, kind, slot, value, text, said, ended in rows
    ]


def merge_claims(owner: int, name: str, claims: Sequence[Claim]) -> Operation[None]:
    """Merge the claims of a session with what is known."""
    if not claims:
        return
    known = yield from facts_of(owner)
    yield from _put(owner, known, merged(known, claims, name))


def put_facts(owner: int, facts: Sequence[Fact]) -> Operation[None]:
    """Write facts of an export as they are, unless they are known."""
    if not facts:
        return
    known = yield from facts_of(owner)
    there = {fact.id for fact in known}
    yield from _put(owner, known, [fact for fact in facts if fact.id not in there and fact.sources])


def _put(owner: int, known: Sequence[Fact], changed: Sequence[Fact]) -> Operation[None]:
    fields = ("id", "kind", "slot", "value", "text", "said", "ended")
    yield Ask(
        "put_fact", [{"owner": owner} | {name: getattr(fact, name) for name in fields} for fact in changed]
    )
    old = {(fact.id, source) for fact in known for source in fact.sources}
    new = [(fact, source) for fact in changed for source in fact.sources if (fact.id, source) not in old]
    yield Ask(
        "add_source",
        [{"owner": owner, "fact": fact.id, "name": one.session, "message": one.message} for fact, one in new],
    )
    yield from _sign(owner, {fact.id: fact for fact in [*known, *changed]}, changed)
    yield from _add_concepts(owner, new)


def _sign(owner: int, facts: dict[str, Fact], changed: Sequence[Fact]) -> Operation[None]:
    """Note in the documents of changed facts whether a fact that holds comes from them."""
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


def _add_concepts(owner: int, new: Sequence[tuple[Fact, Source]]) -> Operation[None]:
    """Let documents be found by the words that ask for the facts in them."""
    added = defaultdict[tuple[int, str], list[int]](list)
    for fact, source in new:
        rows = yield from asked("number", owner=owner, name=source.session, message=source.message)
        for (number,) in rows:
            for term in concept_terms(fact.kind):
                added[number // CHUNK, term].append(number)
    yield from add_postings(owner, added)


def drop_fact(user: User, id: str) -> Operation[bool]:
    """Delete a fact, and the note that it comes from; return False if there is no such fact."""
    owner = yield from known_owner(user)
    found = [fact for fact in (yield from facts_of(owner.id)) if fact.id == id] if owner else []
    if owner is None or not found:
        return False
    for source in found[0].sources:
        rows = yield from asked("note", owner=owner.id, name=source.session, message=source.message)
        owner = yield from remove_documents(owner, [number for (number,) in rows])
    yield from asked("drop_sources_of_fact", owner=owner.id, id=id)
    yield from asked("drop_fact", owner=owner.id, id=id)
    yield from set_owner(owner)
    return True
