"""The profile: what a new session should know of its user, in a few lines, the most useful first.

Who the user is comes first, then what to remember, how they like things, what is open, what was decided, and
what else is known. Within a line the newest comes first. Whoever has less room takes the first lines.
"""

from __future__ import annotations

from collections.abc import Iterable

from .facts import Fact, FactKind

__all__ = ["MAX_PROFILE", "profile"]

MAX_PROFILE = 6_000
"""Characters of a profile; whoever asks for one may cut it shorter."""

MOST_OF_A_KIND = 12
LONGEST = 240
"""Facts in a line, and characters of a fact."""

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
"""The lines in their order."""


def profile(facts: Iterable[Fact]) -> str:
    """Return the facts that hold as text, one line for each kind; empty if there are none."""
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
    """Return a fact in a few words; what changes with time says when it was said, and in which words."""
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
