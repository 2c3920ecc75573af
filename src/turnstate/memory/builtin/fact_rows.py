"""Facts in the database: merges them with known facts, and marks the documents that they come from.

Only the facts that a claim can change are read: those of its slot, those it may deny, and itself. So a
delivery costs the same whatever is known already, and the number of facts is bounded. The document that a
fact comes from can be found by the words that ask for such a fact. It ranks above a document whose fact no
longer holds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import structs

from ...ids import utc
from ..facts import MAX_TEXT, Claim, Fact, Said, Source, fact_id, merged, settled, updated
from ..port import User, mark_of_fact
from ..rules import claims_in
from .concepts import concept_terms
from .database import Ask, Operation, asked
from .documents import CHUNK, EVICTED_SHARE, add_postings, known_owner, remove_documents, set_owner
from .signs import Sign

_FIELDS = ("id", "kind", "slot", "value", "text", "said", "ended", "since", "until", "successor")


def facts_of(owner: int) -> Operation[list[Fact]]:
    """Return all facts of an owner with their sources."""
    rows = yield from asked("facts", owner=owner)
    return _facts(rows, (yield from asked("sources", owner=owner)))


def newest_facts(owner: int, now: str, limit: int) -> Operation[list[Fact]]:
    """Return the newest facts of each kind that hold, without their sources."""
    return _facts((yield from asked("newest_facts", owner=owner, now=now, limit=limit)), ())


def facts_about(owner: int, claims: Sequence[Claim]) -> Operation[list[Fact]]:
    """Return the facts that claims can change, with their sources."""
    if any(not claim.kind for claim in claims):  # it corrects a value, whatever it is a value of
        return (yield from facts_of(owner))
    values = {(claim, value) for claim in claims for value in (claim.value, *claim.ends)}
    ids = {fact_id(claim.kind, slot, value) for claim, value in values for slot in (claim.slot, "")}
    rows = yield from asked(
        "facts_about",
        owner=owner,
        ids=sorted(ids),
        slots=sorted({claim.slot for claim in claims if claim.slot}),
        kinds=sorted({claim.kind for claim in claims if claim.denies}),
    )
    rows.sort(key=lambda row: (row[5], row[0]))
    sources = yield from asked("sources_of_facts", owner=owner, ids=[row[0] for row in rows])
    return _facts(rows, sources)


def _facts(rows: Iterable[Sequence[Any]], sources: Iterable[Sequence[str]]) -> list[Fact]:
    found = defaultdict[str, list[Source]](list)
    for fact, session, message in sources:
        found[fact].append(Source(session, message))
    return [
        Fact(**dict(zip(_FIELDS, row, strict=True)), sources=tuple(found.get(row[0], ()))) for row in rows
    ]


def merge_claims(user: User, owner: int, name: str, claims: Sequence[Claim]) -> Operation[None]:
    """Merge the claims of a session with the known facts, except what was forgotten after it was said."""
    wanted = yield from _not_forgotten(user, claims)
    if not wanted:
        return
    known = yield from facts_about(owner, wanted)
    yield from _put(owner, known, merged(known, wanted, name))


def _not_forgotten(user: User, claims: Sequence[Claim]) -> Operation[list[Claim]]:
    kept = list[Claim]()
    for claim in claims:
        mark = mark_of_fact(user, fact_id(claim.kind, claim.slot, claim.value))
        ((at,),) = yield from asked("mark", one=mark, other=mark)
        if at is None or claim.said >= timestamp(at):
            kept.append(claim)
    return kept


def timestamp(moment: int) -> str:
    """Return a time as messages have it."""
    return utc(moment).isoformat(timespec="milliseconds").replace("+00:00", "Z")


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
    rows = [{"owner": owner} | {name: getattr(fact, name) for name in _FIELDS} for fact in changed]
    yield Ask("put_fact", rows)
    old = {(fact.id, source) for fact in known for source in fact.sources}
    new = [(fact, source) for fact in changed for source in fact.sources if (fact.id, source) not in old]
    yield Ask(
        "add_source",
        [{"owner": owner, "fact": fact.id, "name": one.session, "message": one.message} for fact, one in new],
    )
    yield from _sign(owner, [source for fact in changed for source in fact.sources])
    yield from _add_concepts(owner, new)


def _sign(owner: int, sources: Iterable[Source]) -> Operation[None]:
    """Mark documents by whether a fact comes from them, and whether one that still holds does."""
    messages = defaultdict[str, list[str]](list)
    for source in dict.fromkeys(sources):
        messages[source.session].append(source.message)
    rows = list[dict[str, Any]]()
    for session, ones in messages.items():
        signs = dict.fromkeys(ones, Sign.NONE)
        found = yield from asked("facts_of_messages", owner=owner, name=session, messages=ones)
        for message, ended in found:
            if signs[message] is not Sign.FACT:
                signs[message] = Sign.FACT if ended is None else Sign.ENDED
        rows += [
            {
                "owner": owner,
                "name": session,
                "message": message,
                "kept": ~int(Sign.FACT | Sign.ENDED),
                "signs": int(sign),
            }
            for message, sign in signs.items()
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


def bound_facts(owner: int, limit: int, now: str) -> Operation[int]:
    """Delete the least important facts beyond a limit, ended ones first; return how many."""
    ((count,),) = yield from asked("count_facts", owner=owner)
    if count <= limit:
        return 0
    excess = count - limit + int(limit * EVICTED_SHARE)
    ids = [id for (id,) in (yield from asked("least_facts", owner=owner, now=now, limit=excess))]
    sources = yield from asked("sources_of_facts", owner=owner, ids=ids)
    yield from _delete(owner, ids)
    yield from _sign(owner, [Source(session, message) for _, session, message in sources])
    return len(ids)


def _delete(owner: int, ids: Iterable[str]) -> Operation[None]:
    rows = [{"owner": owner, "id": id} for id in ids]
    yield Ask("drop_sources_of_fact", rows)
    yield Ask("drop_fact", rows)


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


def _settle(owner: int, known: Sequence[Fact], left: Sequence[Fact]) -> Operation[None]:
    """Write the facts that are left after others were deleted, as they hold now."""
    before, found = {fact.id: fact for fact in known}, list(settled(known, left))
    yield from _put(owner, found, [fact for fact in found if fact != before[fact.id]])


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
    said = [turn.said for turn in turns] or [fact.said]
    return structs.replace(
        fact,
        value=newest.value if newest else fact.value,
        text=newest.text[:MAX_TEXT] if newest else fact.value,
        said=max(said),
        since=min(said),
        sources=sources,
    )


def change_fact(user: User, changed: Fact, at: str) -> Operation[Fact | None]:
    """Write a fact with another value, text or limit; return it, or None if the fact does not exist."""
    owner = yield from known_owner(user)
    known = (yield from facts_of(owner.id)) if owner else []
    if owner is None or all(fact.id != changed.id for fact in known):
        return None
    new = updated(known, changed, at)
    yield from _put(owner.id, known, new)
    yield from set_owner(owner)
    id = fact_id(changed.kind, changed.slot, changed.value)
    return next(fact for fact in [*new, *known] if fact.id == id)


def drop_facts(user: User, ids: Sequence[str], now: int) -> Operation[bool]:
    """Delete facts, and the notes that they come from; return False if there are none.

    Facts that they had ended hold again. A mark keeps what was said before from being learned again.
    """
    owner = yield from known_owner(user)
    known = (yield from facts_of(owner.id)) if owner else []
    dropped = [fact for fact in known if fact.id in ids]
    if owner is None or not dropped:
        return False
    yield Ask("add_mark", [{"hash": mark_of_fact(user, fact.id), "at": now} for fact in dropped])
    sources = [source for fact in dropped for source in fact.sources]
    for source in sources:
        rows = yield from asked("note", owner=owner.id, name=source.session, message=source.message)
        owner = yield from remove_documents(owner, [number for (number,) in rows])
    yield from _delete(owner.id, [fact.id for fact in dropped])
    yield from _settle(owner.id, known, [fact for fact in known if fact not in dropped])
    yield from _sign(owner.id, sources)
    yield from set_owner(owner)
    return True
