"""Statements of users in three languages, each with the facts that a careful person would note down.

A statement is what a user says, in one or more messages with a day between them, and what should be known
afterwards. ``kind: value`` is a fact; ``a | b`` are two ways to write its value, and a question mark before
it makes it optional. Most statements have a trap: they speak of somebody else, quote, imagine, joke, negate,
correct, or give orders. Half of them are set aside: rules are written with the other half in view.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Statement(NamedTuple):
    """What a user says, and what should be known afterwards."""

    language: str
    held_out: bool
    trap: str
    messages: tuple[str, ...]
    facts: tuple[str, ...]


CHANGES = ("correction", "negation")
"""Traps where something that was said before no longer holds, or never did."""

LANGUAGES = ("en", "ja", "zh")
FILE = Path(__file__).with_suffix(".txt")
IN_VIEW = 25
"""The statements of each language that rules may be written with; the others are set aside."""


def statements() -> Iterator[Statement]:
    """Yield the statements; a line of the file is ``trap / message // message / fact; fact``."""
    for section in FILE.read_text("utf-8").split("# ")[1:]:
        language, _, text = section.partition("\n")
        for number, line in enumerate(text.strip().splitlines()):
            trap, said, facts = (part.strip() for part in f"{line} ".split(" / "))
            messages = tuple(one.replace("\\n", "\n") for one in said.split(" // "))
            known = tuple(fact.strip() for fact in facts.split(";") if fact.strip())
            yield Statement(language, number >= IN_VIEW, trap, messages, known)
