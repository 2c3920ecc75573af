"""The profile: what a new session should know about its user, in a few lines, the most useful first.

It begins with who the user is, followed by notes, preferences, open tasks, decisions, and what else is
known. Within a line the newest facts come first. A caller with less room takes the first lines.
"""

from __future__ import annotations

from collections.abc import Iterable

from .facts import Fact, FactKind

MAX_PROFILE = 6_000
"""The most characters of a profile; a caller may shorten it further."""

MOST_OF_A_KIND = 12
LONGEST = 240
"""The most facts in a line, and the most characters of a fact."""

_TITLES: dict[FactKind, str] = {
    "name": "Name",
    "home": "Home",
    "work": "Work",
    "note": "To remember",
    "preference": "Preferences",
    "task": "Open",
    "decision": "Decided",
    "relation": "People and pets",
    "date": "Dates",
    "fact": "Also known",
}
"""The titles of the lines, in order."""


def profile(facts: Iterable[Fact]) -> str:
    """Return the facts that still hold as text, one line for each kind; empty if there are none."""
    holding = sorted((fact for fact in facts if fact.ended is None), key=lambda fact: fact.said, reverse=True)
    lines, room = list[str](), MAX_PROFILE
    for kind, title in _TITLES.items():
        texts = [_text(fact)[:LONGEST] for fact in holding if fact.kind == kind][:MOST_OF_A_KIND]
        line = f"{title}: {'; '.join(texts)}"
        if texts and len(line) <= room:
            lines.append(line)
            room -= len(line) + 1
    return "\n".join(lines)


def _text(fact: Fact) -> str:
    """Return a fact in a few words; kinds that change over time include the date, some also the sentence."""
    about = fact.slot.removeprefix("name of ").removeprefix("date of ")
    match fact.kind:
        case "name":
            return fact.value
        case "home" | "work":
            return f"{fact.value} ({fact.said[:10]}: {fact.text})"
        case "task" | "decision":
            return f"{fact.value} ({fact.said[:10]})"
        case "note" | "preference" | "relation" | "date" if about:
            return f"{about}: {fact.value}"
        case "fact":
            return fact.text
        case _:
            return fact.value
