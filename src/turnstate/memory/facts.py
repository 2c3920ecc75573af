"""Facts about a user, each with the messages that state it.

An extractor finds *claims* in messages ("lives in Osaka", said in this message). Merging them with the
known facts is pure: a claim that is already known adds its message as a source; a claim for a slot that
holds one value, such as the user's home, ends the older fact; a later "I no longer like" ends the
preference. An ended fact is kept with the time of its end. Claims may arrive in any order: what counts is
when they were said.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple, Protocol, get_args
from unicodedata import normalize

from msgspec import Struct, structs

FactKind = Literal[
    "name", "home", "work", "relation", "date", "preference", "decision", "note", "task", "fact"
]
KINDS: tuple[FactKind, ...] = get_args(FactKind)

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
    the claim says that something is no longer true.
    """

    kind: FactKind
    value: str
    text: str
    slot: str = ""
    message: str
    said: str
    denies: bool = False


class Source(NamedTuple):
    """The message that a fact comes from."""

    session: str
    message: str


class Fact(Struct, frozen=True, kw_only=True):
    """Something known about a user; ``ended`` is when something newer replaced or denied it."""

    id: str
    kind: FactKind
    slot: str
    value: str
    text: str
    said: str
    ended: str | None = None
    sources: tuple[Source, ...] = ()


class Extractor(Protocol):
    """Finds claims in messages."""

    async def claims(self, messages: Sequence[Said]) -> list[Claim]:
        """Return what the messages say about their user."""
        ...


def fact_id(kind: str, slot: str, value: str) -> str:
    """Return the id of a fact; the same content has the same id, so a repetition is not a new fact."""
    content = "\0".join([kind, slot, _folded(value)])
    return hashlib.blake2b(content.encode(), digest_size=8).hexdigest()


def merged(known: Iterable[Fact], claims: Iterable[Claim], session: str) -> list[Fact]:
    """Return the facts that are new or changed after merging the claims of a session."""
    facts = {fact.id: fact for fact in known}
    before = dict(facts)
    for claim in sorted(claims, key=lambda one: one.said):
        source = Source(session, claim.message)
        if claim.denies:
            _deny(facts, claim)
        elif claim.value and len(claim.value) <= MAX_VALUE:
            _affirm(facts, claim, source)
    return [fact for id, fact in facts.items() if before.get(id) != fact]


def _deny(facts: dict[str, Fact], claim: Claim) -> None:
    denied = _folded(claim.value)
    for id, fact in facts.items():
        same = fact.kind == claim.kind and (
            _folded(fact.value) == denied or denied in _folded(fact.value).split()
        )
        if same and fact.ended is None and fact.said <= claim.said:
            facts[id] = structs.replace(fact, ended=claim.said)


def _affirm(facts: dict[str, Fact], claim: Claim, source: Source) -> None:
    id = fact_id(claim.kind, claim.slot, claim.value)
    old = facts.get(id)
    if old is None:
        old = Fact(
            id=id, kind=claim.kind, slot=claim.slot, value=claim.value,
            text=claim.text[:MAX_TEXT], said=claim.said,
        )  # fmt: skip
    sources = old.sources if source in old.sources else (*old.sources, source)
    fact = structs.replace(old, said=max(old.said, claim.said), sources=sources)
    facts[id] = structs.replace(fact, ended=None if fact.said > old.said else old.ended)
    if claim.slot:
        _supersede(facts, facts[id])


def _supersede(facts: dict[str, Fact], fact: Fact) -> None:
    """End the facts of a slot that were said before this one, or this one if a later one is known."""
    rivals = [
        one for one in facts.values() if (one.kind, one.slot) == (fact.kind, fact.slot) and one.id != fact.id
    ]
    later = [one.said for one in rivals if one.said > fact.said]
    facts[fact.id] = structs.replace(fact, ended=min(later) if later else None)
    for one in rivals:
        if one.said <= fact.said and (one.ended is None or one.ended > fact.said):
            facts[one.id] = structs.replace(one, ended=fact.said)


def settled(before: Iterable[Fact], left: Sequence[Fact]) -> list[Fact]:
    """Return the facts left after others were removed; facts that only those had ended hold again."""
    said = {(fact.id, fact.said) for fact in left}
    ends = {
        (fact.kind, fact.slot, fact.said) for fact in before if fact.slot and (fact.id, fact.said) not in said
    }
    found = list[Fact]()
    for fact in left:
        if (fact.kind, fact.slot, fact.ended) in ends:
            later = [
                one.said
                for one in left
                if (one.kind, one.slot) == (fact.kind, fact.slot) and one.said > fact.said
            ]
            fact = structs.replace(fact, ended=min(later, default=None))  # noqa: PLW2901
        found.append(fact)
    return found


def _folded(value: str) -> str:
    return " ".join(normalize("NFKC", value).casefold().split())
