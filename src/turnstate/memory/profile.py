"""The profile: what a new session should know about its user, in a few lines, the most important first.

It begins with what harms if it is forgotten: health, and who the user is. Standing wishes follow, quoted as
what the user said, then notes, open tasks, and what else is known; likes come late. Within a line the newest
facts come first. A caller with less room takes the first lines, so no line may fill the room alone.
"""

from __future__ import annotations

from collections.abc import Iterable

from .facts import KINDS, Fact, FactKind

MAX_PROFILE = 6_000
"""The most characters of a profile; a caller may shorten it further."""

MOST_OF_A_KIND = 12
LONGEST = 240
"""The most facts in a line, and the most characters of a fact."""

LONGEST_LINE = 400
"""The most characters of a line, except for its first fact."""

_TITLES: dict[FactKind, str] = {
    "health": "Health",
    "name": "Name",
    "wish": "Asks for",
    "note": "To remember",
    "task": "Open",
    "home": "Home",
    "work": "Work",
    "relation": "People and pets",
    "date": "Dates",
    "preference": "Preferences",
    "decision": "Decided",
    "fact": "Also known",
}


def profile(facts: Iterable[Fact]) -> str:
    """Return the facts that still hold as text, one line for each kind; empty if there are none."""
    holding = sorted((fact for fact in facts if fact.ended is None), key=lambda fact: fact.said, reverse=True)
    own = sorted({fact.kind for fact in holding} - set(KINDS))
    lines, room = list[str](), MAX_PROFILE
    for kind in [*KINDS, *own]:
        texts = [_text(fact)[:LONGEST] for fact in holding if fact.kind == kind][:MOST_OF_A_KIND]
        line = f"{_TITLES.get(kind, kind.capitalize())}: {'; '.join(_fitting(texts))}"
        if texts and len(line) <= room:
            lines.append(line)
            room -= len(line) + 1
    return "\n".join(lines)


def _fitting(texts: list[str]) -> list[str]:
    """Return as many texts as a line has room for, at least one."""
    count = len(texts)
    while count > 1 and sum(map(len, texts[:count])) > LONGEST_LINE:
        count -= 1
    return texts[:count]


def _text(fact: Fact) -> str:
    """Return a fact in a few words; kinds that change over time include the date, some also the sentence."""
    about = fact.slot.removeprefix("name of ").removeprefix("date of ")
    until = f" (until {fact.until[:10]})" if fact.until else ""
    match fact.kind:
        case "name":
            return (
                fact.value
                if about.endswith("name") and not about.endswith("nickname")
                else f"{about}: {fact.value}"
            )
        case "home" | "work":
            return f"{fact.value} ({fact.said[:10]}: {fact.text})"
        case "task" | "decision":
            return f"{fact.value} ({fact.said[:10]}){until}"
        case "wish":
            return f"“{fact.value}”{until}"
        case "fact":
            return f"{about}: {fact.value}" if about else fact.text
        case _:
            return f"{about}: {fact.value}{until}" if about else fact.value + until
