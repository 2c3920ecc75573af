"""The profile: what a new session should know of its user, in a few lines, the most useful first."""

from __future__ import annotations

from collections.abc import Iterable

from .facts import Fact, FactKind

__all__ = ["MAX_PROFILE", "profile"]

MAX_PROFILE = 4_000
"""Characters of a profile; whoever asks for one may cut it shorter."""

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
"""The order of the lines."""

MOST_OF_A_KIND = 12


def profile(facts: Iterable[Fact]) -> str:
    """Return the facts that hold as text, at most one line for each kind; empty if there are none."""
    holding = sorted((fact for fact in facts if fact.ended is None), key=lambda fact: fact.said, reverse=True)
    lines, left = list[str](), MAX_PROFILE
    for kind, title in _TITLES.items():
        texts = [_text(fact) for fact in holding if fact.kind == kind][:MOST_OF_A_KIND]
        line = f"{title}: {'; '.join(texts)}"
        if texts and len(line) < left:
            lines.append(line)
            left -= len(line) + 1
    return "\n".join(lines)


def _text(fact: Fact) -> str:
    return fact.value if fact.kind in ("name", "home", "work") else f"{fact.text} ({fact.said[:10]})"
