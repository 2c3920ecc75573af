"""Facts in the database: merges them with known facts, and marks the documents that they come from.

The document that a fact comes from can be found by the words that ask for such a fact. It ranks above a
document whose fact no longer holds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from msgspec import structs

from ..facts import MAX_TEXT, Claim, Fact, Said, Source, fact_id, merged, settled
from ..port import User
from ..rules import claims_in
from .concepts import concept_terms
from .database import Ask, Operation, asked
from .documents import CHUNK, add_postings, known_owner, remove_documents, set_owner
from .signs import Sign


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
    """Merge the claims of a session with the known facts."""
    if not claims:
        return
    known = yield from facts_of(owner)
    yield from _put(owner, known, merged(known, claims, name))


def put_facts(owner: int, facts: Sequence[Fact]) -> Operation[None]:
    """Write the facts of an export as they are; a fact that is already known only gets more sources."""
    if not facts:
        return
    names = sorted({source.session for fact in facts for source in fact.sources})
    yield Ask("add_session", [{"owner": owner, "name": name} for name in names])
    known = yield from facts_of(owner)
    there = {fact.id: fact for fact in known}
    changed = [
        structs.replace(there.get(fact.id, fact), sources=_joined(there.get(fact.id), fact)) for fact in facts
    ]
    yield from _put(owner, known, changed)


def _joined(known: Fact | None, fact: Fact) -> tuple[Source, ...]:
    return tuple(dict.fromkeys([*(known.sources if known else ()), *fact.sources]))


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
    facts = {fact.id: fact for fact in [*known, *changed]}
    yield from _sign(owner, facts.values(), [source for fact in changed for source in fact.sources])
    yield from _add_concepts(owner, new)


def _sign(owner: int, facts: Iterable[Fact], sources: Iterable[Source]) -> Operation[None]:
    """Mark documents by whether a fact comes from them, and whether one that still holds does."""
    signs = dict[Source, Sign]()
    for fact in facts:
        for source in fact.sources:
            if fact.ended is None:
                signs[source] = Sign.FACT
            else:
                signs.setdefault(source, Sign.ENDED)
    rows = [
        {
            "owner": owner,
            "name": source.session,
            "message": source.message,
            "kept": ~int(Sign.FACT | Sign.ENDED),
            "signs": int(signs.get(source, Sign.NONE)),
        }
        for source in sources
    ]
    yield Ask("sign_document", rows)


def _add_concepts(owner: int, new: Sequence[tuple[Fact, Source]]) -> Operation[None]:
    """Index documents by the words that ask for the facts in them."""
    added = defaultdict[tuple[int, str], list[int]](list)
    for fact, source in new:
        rows = yield from asked("number", owner=owner, name=source.session, message=source.message)
        for (number,) in rows:
            for term in concept_terms(fact.kind):
                added[number // CHUNK, term].append(number)
    yield from add_postings(owner, added)


def drop_sources(owner: int, session: str) -> Operation[None]:
    """Remove the messages of a session from the sources of facts, and the words that only it used.

    A fact without other sources is deleted; facts that it had ended hold again.
    """
    known, left = (yield from facts_of(owner)), list[Fact]()
    for fact in known:
        others = tuple(source for source in fact.sources if source.session != session)
        if others == fact.sources:
            left.append(fact)
        elif others:
            left.append((yield from _restated(owner, fact, others)))
        else:
            yield from asked("drop_fact", owner=owner, id=fact.id)
    yield from _settle(owner, known, left)


def _settle(owner: int, known: Sequence[Fact], left: Sequence[Fact]) -> Operation[list[Fact]]:
    """Write the facts that are left after others were deleted, as they hold now; return all that are left."""
    before, found = {fact.id: fact for fact in known}, settled(known, left)
    yield from _put(owner, found, [fact for fact in found if fact != before[fact.id]])
    return found


def _restated(owner: int, fact: Fact, sources: tuple[Source, ...]) -> Operation[Fact]:
    """Return a fact as its other sources state it: in the newest words that rules find, or by its value."""
    turns = list[Said]()
    for source in sources:
        rows = yield from asked("number", owner=owner, name=source.session, message=source.message)
        texts = yield from asked("texts", owner=owner, numbers=[number for (number,) in rows])
        turns += [
            Said(message, role, author, said, text) for _, _, message, said, role, author, text in texts
        ]
    claims = [
        claim
        for turn in turns
        for claim in claims_in(turn)
        if fact_id(claim.kind, claim.slot, claim.value) == fact.id
    ]
    newest = max(claims, key=lambda claim: claim.said, default=None)
    return structs.replace(
        fact,
        value=newest.value if newest else fact.value,
        text=newest.text[:MAX_TEXT] if newest else fact.value,
        said=max((turn.said for turn in turns), default=fact.said),
        sources=sources,
    )


def drop_fact(user: User, id: str) -> Operation[bool]:
    """Delete a fact, and the note that it comes from; return False if there is no such fact.

    Facts that it had ended hold again.
    """
    owner = yield from known_owner(user)
    known = (yield from facts_of(owner.id)) if owner else []
    dropped = next((fact for fact in known if fact.id == id), None)
    if owner is None or dropped is None:
        return False
    for source in dropped.sources:
        rows = yield from asked("note", owner=owner.id, name=source.session, message=source.message)
        owner = yield from remove_documents(owner, [number for (number,) in rows])
    yield from asked("drop_sources_of_fact", owner=owner.id, id=id)
    yield from asked("drop_fact", owner=owner.id, id=id)
    left = yield from _settle(owner.id, known, [fact for fact in known if fact.id != id])
    yield from _sign(owner.id, left, dropped.sources)
    yield from set_owner(owner)
    return True
