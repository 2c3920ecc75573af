"""Facts about a user, each with the messages that state it.

An extractor finds *claims* in messages ("lives in Osaka", said in this message). Merging them with the
known facts is pure: a claim that is already known adds its message as a source; a claim for a slot that
holds one value, such as the user's home, ends the older fact; a later "I no longer like" ends the
preference, and a correction ends the value that was wrong. An ended fact is kept with the time of its end
and the fact that took its place, so a fact has a history. A fact with a time limit ("by Friday") stops to
hold then. Claims may arrive in any order: what counts is when they were said.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol, TypeAlias, runtime_checkable
from unicodedata import normalize

from msgspec import Struct, structs

FactKind: TypeAlias = str
"""One of `KINDS`, or a kind of the program's own."""

KINDS: tuple[FactKind, ...] = (
    "health", "name", "wish", "note", "task", "home", "work", "relation", "date", "preference", "decision",
    "fact",
)  # fmt: skip
"""The kinds of facts, the most important first."""

MAX_VALUE, MAX_TEXT = 200, 500
"""The most characters of the value and the text of a fact; something with a longer value is not a fact."""


class Said(NamedTuple):
    """A message as an extractor reads it."""

    message: str
    role: str
    author: str
    said: str
    text: str


class Claim(Struct, frozen=True, kw_only=True):
    """Something that a message says about a user.

    A ``slot`` holds one value at a time; without a slot, several values can hold together. With ``denies``,
    the claim says that something is no longer true. ``ends`` are values that the claim takes the place of;
    a claim without a kind only corrects one of them, whatever kind of fact it is.
    """

    kind: FactKind
    value: str
    text: str
    slot: str = ""
    message: str
    said: str
    denies: bool = False
    ends: tuple[str, ...] = ()
    until: str | None = None


class Source(NamedTuple):
    """The message that a fact comes from."""

    session: str
    message: str


class Fact(Struct, frozen=True, kw_only=True):
    """Something known about a user.

    It was said first at ``since`` and last at ``said``. ``ended`` is when something newer replaced or denied
    it, ``successor`` the id of the fact that took its place, and ``until`` a time limit that it came with.
    """

    id: str
    kind: FactKind
    slot: str
    value: str
    text: str
    said: str
    ended: str | None = None
    sources: tuple[Source, ...] = ()
    since: str = ""
    until: str | None = None
    successor: str | None = None

    def holds(self, at: str) -> bool:
        """Return True if the fact held at a time: a date or a timestamp as messages have it."""
        began = (self.since or self.said)[: len(at)] <= at
        return began and all(end is None or end[: len(at)] > at for end in (self.ended, self.until))


class Extractor(Protocol):
    """Finds claims in messages; what it claims is stored, and nothing else."""

    async def claims(self, messages: Sequence[Said]) -> list[Claim]:
        """Return what the messages say about their user."""
        ...


@runtime_checkable
class Decides(Protocol):
    """An extractor that is shown what the rules propose and what is already known, and decides."""

    async def decided(
        self, messages: Sequence[Said], proposed: Sequence[Claim], known: Sequence[Fact]
    ) -> list[Claim]:
        """Return what the messages say about their user."""
        ...


def fact_id(kind: str, slot: str, value: str) -> str:
    """Return the id of a fact; the same content has the same id, so a repetition is not a new fact."""
    content = "\0".join([kind, slot, folded(value)])
    return hashlib.blake2b(content.encode(), digest_size=8).hexdigest()


def merged(known: Iterable[Fact], claims: Iterable[Claim], session: str) -> list[Fact]:
    """Return the facts that are new or changed after merging the claims of a session."""
    facts = {fact.id: fact for fact in known}
    before = dict(facts)
    for claim in sorted(claims, key=lambda one: one.said):
        if not claim.value or len(claim.value) > MAX_VALUE:
            continue
        if claim.denies:
            _deny(facts, claim)
        elif claim.kind:
            _affirm(facts, claim, Source(session, claim.message))
        else:
            _correct(facts, claim, Source(session, claim.message))
    return [fact for id, fact in facts.items() if before.get(id) != fact]


def _deny(facts: dict[str, Fact], claim: Claim) -> None:
    denied = folded(claim.value)
    for id, fact in facts.items():
        if fact.kind != claim.kind or fact.ended is not None or fact.said > claim.said:
            continue
        named = folded(fact.value)
        if denied in (named, fact.slot.rpartition(" ")[2]) or denied in named.split():
            facts[id] = structs.replace(fact, ended=claim.said)


def _correct(facts: dict[str, Fact], claim: Claim, source: Source) -> None:
    """Replace the value of the fact that a claim corrects; nothing happens if there is no such fact."""
    wrong = {folded(value) for value in claim.ends}
    found = [fact for fact in facts.values() if folded(fact.value) in wrong and fact.ended is None]
    for fact in found:
        _affirm(facts, structs.replace(claim, kind=fact.kind, slot=fact.slot), source)


def _affirm(facts: dict[str, Fact], claim: Claim, source: Source) -> None:
    id = fact_id(claim.kind, claim.slot, claim.value)
    old = facts.get(id)
    if old is None:
        old = Fact(
            id=id, kind=claim.kind, slot=claim.slot, value=claim.value, text=claim.text[:MAX_TEXT],
            said=claim.said, since=claim.said, until=claim.until,
        )  # fmt: skip
    sources = old.sources if source in old.sources else (*old.sources, source)
    fact = structs.replace(old, since=min(old.since or old.said, claim.said), sources=sources)
    if claim.said > old.said:
        fact = structs.replace(fact, said=claim.said, ended=None, until=claim.until, successor=None)
    facts[id] = fact
    wrong = {folded(value) for value in claim.ends}
    for one in list(facts.values()) if wrong else ():
        if one.kind == fact.kind and folded(one.value) in wrong and one.id != id and one.said <= claim.said:
            facts[one.id] = _ended(one, claim.said, id)
    if claim.slot:
        _supersede(facts, facts[id])


def _supersede(facts: dict[str, Fact], fact: Fact) -> None:
    """End the facts of a slot that were said before this one, or this one if a later one is known."""
    rivals = [
        one for one in facts.values() if (one.kind, one.slot) == (fact.kind, fact.slot) and one.id != fact.id
    ]
    later = min((one for one in rivals if one.said > fact.said), key=lambda one: one.said, default=None)
    facts[fact.id] = structs.replace(
        fact, ended=later.said if later else None, successor=later.id if later else None
    )
    for one in rivals:
        if one.said <= fact.said:
            facts[one.id] = _ended(one, fact.said, fact.id)


def _ended(fact: Fact, at: str, successor: str) -> Fact:
    """Return a fact that ended because of another; one that had ended earlier stays as it is."""
    if fact.ended is not None and fact.ended <= at:
        return fact
    return structs.replace(fact, ended=at, successor=successor)


def updated(known: Iterable[Fact], changed: Fact, at: str) -> list[Fact]:
    """Return the facts that change if the fact with the id of ``changed`` gets its value, text and limit.

    A new value is a new fact with the same sources; the old one ends, and names it as its successor.
    """
    facts = {fact.id: fact for fact in known}
    old, id = facts[changed.id], fact_id(changed.kind, changed.slot, changed.value)
    if id == old.id:
        return [changed] if changed != old else []
    there = facts.get(id)
    sources = tuple(dict.fromkeys([*(there.sources if there else ()), *old.sources]))
    before = dict(facts)
    facts[id] = structs.replace(
        changed,
        id=id,
        said=at,
        since=there.since if there else at,
        ended=None,
        successor=None,
        sources=sources,
    )
    facts[old.id] = structs.replace(old, ended=at, successor=id)
    if changed.slot:
        _supersede(facts, facts[id])
    return [fact for id, fact in facts.items() if before.get(id) != fact]


def history(known: Sequence[Fact], id: str) -> list[Fact]:
    """Return the facts that a fact took the place of, the fact, and those that took its place, in order."""
    fact = next((one for one in known if one.id == id), None)
    if fact is None:
        return []
    found = {fact.id: fact}
    while new := [one for one in known if one.id not in found and _is_related(one, found)]:
        found |= {one.id: one for one in new}
    return sorted(found.values(), key=lambda one: (one.since or one.said, one.said))


def _is_related(fact: Fact, found: dict[str, Fact]) -> bool:
    if fact.successor in found or any(one.successor == fact.id for one in found.values()):
        return True
    return bool(fact.slot) and any((one.kind, one.slot) == (fact.kind, fact.slot) for one in found.values())


def settled(before: Iterable[Fact], left: Sequence[Fact]) -> Iterator[Fact]:
    """Yield the facts left after others were removed; facts that only those had ended hold again."""
    said = {(fact.id, fact.said) for fact in left}
    gone = [fact for fact in before if (fact.id, fact.said) not in said]
    ends = {(fact.kind, fact.slot, fact.said) for fact in gone if fact.slot}
    successors = {(fact.id, fact.said) for fact in gone}
    for fact in left:
        if (fact.kind, fact.slot, fact.ended) not in ends and (fact.successor, fact.ended) not in successors:
            yield fact
            continue
        later = [
            one
            for one in left
            if fact.slot and (one.kind, one.slot) == (fact.kind, fact.slot) and one.said > fact.said
        ]
        after = min(later, key=lambda one: one.said, default=None)
        yield structs.replace(
            fact, ended=after.said if after else None, successor=after.id if after else None
        )


def folded(value: str) -> str:
    """Return a value without differences of case, width and spaces."""
    return " ".join(normalize("NFKC", value).casefold().split())
