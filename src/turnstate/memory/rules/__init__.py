"""Extraction by rules: patterns find what users say about themselves, without a model.

    "We finally moved to Porto in March."   home: Porto
    "先月から大阪に住んでいます。"             home: 大阪
    "我最喜欢的颜色是蓝色。"                  preference, favorite 颜色: 蓝色

A message is first taken apart into clauses, and each is judged: whose is it, is it quoted, imagined, denied?
Rules see only what a user states, with one module for each language: English, Japanese, Chinese. They would
rather miss a fact than invent one. Only the user's messages are read, never those of an assistant or a tool,
and neither a secret nor an order to the assistant becomes a fact.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import structs

from ..facts import MAX_VALUE, Claim, Said
from .clauses import Clause, Correction, judged
from .orders import is_order
from .rule import FactRule, compiled
from .secrets import is_secret
from .times import limit

__all__ = ["RuleExtractor", "claims_in"]

MAX_READ = 8_000
"""The most characters read of a message; the rest of a longer one was pasted, and is not about the user."""

_LASTING = ("home", "work")
"""Kinds that a stay does not change."""

_GENERAL = ("preference", "decision")
"""Kinds whose value has to make sense elsewhere."""

_LIMITED = ("task", "wish")
"""Kinds that are over when the time has passed that they name."""


class RuleExtractor:
    """Finds claims without a model."""

    async def claims(self, messages: Sequence[Said]) -> list[Claim]:
        """Return what users say about themselves in their messages."""
        found = list[Claim]()
        for said in messages:
            if said.role == "user":
                found += claims_in(said, after=found[-1] if found else None)
        return found


def claims_in(said: Said, *, after: Claim | None = None) -> list[Claim]:
    """Return the claims in one message; a correction in it may be of the claim before."""
    found = list[Claim]()
    subject = "" if said.author == said.role else said.author
    text = said.text[:MAX_READ].removeprefix(f"{subject}:").strip() if subject else said.text[:MAX_READ]
    for part in judged(text):
        if is_secret(part.sentence) or is_order(part.sentence):
            continue
        if isinstance(part, Clause):
            found += _claims(part, said, subject)
        elif isinstance(part, Correction):
            if not any(
                subject + part.sentence == claim.text or part.sentence == claim.text for claim in found
            ):
                found += _corrected(part, said, found[-1] if found else after)
        else:
            found.clear()
    return [claim for claim in dict.fromkeys(found) if claim.value and len(claim.value) <= MAX_VALUE]


def _claims(clause: Clause, said: Said, subject: str) -> Iterator[Claim]:
    for rule in clause.language.rules:
        if rule.negated != clause.is_negated or not (clause.is_own or rule.of_anyone):
            continue
        for value, slot in rule.matches(clause.text):
            until = limit(clause.told, said.said) if rule.passes or rule.kind in _LIMITED else None
            if rule.timed and until is None:
                continue
            if rule.kind in _LASTING and compiled(clause.language.passing).search(clause.sentence):
                continue
            if (
                rule.kind == "wish" and "://" in value
            ):  # an address to visit or to send to is no way to answer
                continue
            if rule.kind in _GENERAL and compiled(clause.language.vague).search(value):
                continue
            yield Claim(
                kind=rule.kind,
                value=rule.prefix + value,
                text=f"{subject}: {clause.sentence}" if subject else clause.sentence,
                slot=f"{subject}: {slot}" if subject and slot else slot,
                message=said.message,
                said=said.said,
                denies=rule.denies,
                ends=() if rule.denies else _ends(rule, value, clause),
                until=until,
            )


def _ends(rule: FactRule, value: str, clause: Clause) -> tuple[str, ...]:
    """Return the values that a claim takes the place of: the opposite, and what the clause says is wrong."""
    opposites = list[str]()
    if rule.kind == "preference" and not rule.slot:
        prefixes = clause.language.dislikes
        opposites = [value] if rule.prefix in prefixes else [prefix + value for prefix in prefixes]
    return (*opposites, *([rule.prefix + clause.wrong] if clause.wrong else []))


def _corrected(part: Correction, said: Said, last: Claim | None) -> Iterator[Claim]:
    """Yield the claim of a correction: in place of the wrong value, or of the claim before it."""
    if not part.value or is_secret(part.value):
        return
    claim = Claim(kind="", value=part.value, text=part.sentence, message=said.message, said=said.said)
    if last is not None and not last.denies and part.wrong in ("", last.value):
        yield structs.replace(
            claim,
            kind=last.kind,
            slot=last.slot,
            ends=(last.value,),
            until=limit(part.value, said.said) if last.until else None,
        )
    elif part.wrong:
        yield structs.replace(claim, ends=(part.wrong,), until=limit(part.value, said.said))
