"""Extraction by rules: patterns find what users say about themselves, without a model.

    "We finally moved to Porto in March."   home: Porto
    "先月から大阪に住んでいます。"             home: 大阪
    "我最喜欢的颜色是蓝色。"                  preference, favorite 颜色: 蓝色

Rules are patterns over sentences, with one module for each language: English, Japanese, Chinese. They would
rather miss a fact than invent one. Only the user's messages are read, never those of an assistant or a tool,
and nothing that looks like a secret becomes a fact.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..facts import MAX_VALUE, Claim, Said
from .chinese import CHINESE
from .english import ENGLISH
from .japanese import JAPANESE
from .rule import Rule, sentences
from .secrets import is_secret

__all__ = ["CHINESE", "ENGLISH", "JAPANESE", "Rule", "RuleExtractor", "claims_in"]

_KANA = range(0x3041, 0x30FF)
_HAN = range(0x3400, 0xA000)

MAX_READ = 8_000
"""The most characters read of a message; the rest of a longer one was pasted, and is not about the user."""


class RuleExtractor:
    """Finds claims without a model."""

    async def claims(self, messages: Sequence[Said]) -> list[Claim]:
        """Return what users say about themselves in their messages."""
        return [claim for said in messages if said.role == "user" for claim in claims_in(said)]


def claims_in(said: Said) -> list[Claim]:
    """Return the claims in one message."""
    found = list[Claim]()
    subject = "" if said.author == said.role else said.author
    for sentence in sentences(said.text[:MAX_READ]):
        if sentence.endswith(("?", "？")) or is_secret(sentence):
            continue
        for rule in _rules(sentence):
            found += [
                _claim(rule, value, slot, sentence, said, subject) for value, slot in rule.matches(sentence)
            ]
    return [claim for claim in found if claim.value and len(claim.value) <= MAX_VALUE]


def _rules(sentence: str) -> Sequence[Rule]:
    """Return the rules of the language of a sentence: kana is Japanese, Han without kana is Chinese."""
    codes = [ord(character) for character in sentence if character >= "\u3041"]
    if any(code in _KANA for code in codes):
        return JAPANESE
    return CHINESE if any(code in _HAN for code in codes) else ENGLISH


def _claim(rule: Rule, value: str, slot: str, sentence: str, said: Said, subject: str) -> Claim:
    return Claim(
        kind=rule.kind,
        value=value,
        text=f"{subject}: {sentence}" if subject else sentence,
        slot=f"{subject}: {slot}" if subject and slot else slot,
        message=said.message,
        said=said.said,
        denies=rule.denies,
    )
