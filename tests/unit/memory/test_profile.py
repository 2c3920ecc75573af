from __future__ import annotations

from turnstate.memory.facts import Fact, FactKind
from turnstate.memory.profile import MAX_PROFILE, MOST_OF_A_KIND, profile


def fact(kind: FactKind, value: str, *, slot: str = "", ended: str | None = None, day: int = 1) -> Fact:
    said = f"2025-06-{day:02}T12:00:00Z"
    return Fact(id=value, kind=kind, slot=slot, value=value, text=f"{value}!", said=said, ended=ended)


def test_who_the_user_is_comes_first_and_what_no_longer_holds_is_left_out() -> None:
    facts = [
        fact("decision", "use PostgreSQL"),
        fact("preference", "dark green", slot="favorite color"),
        fact("home", "Lisbon", slot="home", ended="2025-06-05T12:00:00Z"),
        fact("home", "Porto", slot="home", day=5),
        fact("name", "Anna", slot="name"),
        fact("relation", "Rex", slot="name of dog"),
        fact("note", "has two cats"),
    ]
    assert profile(facts).splitlines() == [
        "Name: Anna",
        "Home: Porto (2025-06-05: Porto!)",
        "To remember: has two cats",
        "Preferences: favorite color: dark green",
        "Decided: use PostgreSQL (2025-06-01)",
        "People and pets: dog: Rex",
    ]


def test_the_newest_facts_of_a_kind_come_first_and_a_profile_is_bounded() -> None:
    many = [fact("note", f"note {day} " + "x" * 400, day=day) for day in range(1, 29)]
    text = profile(many + [fact("task", "y" * 400, day=day) for day in range(1, 29)])
    assert text.startswith("To remember: note 28 ")
    assert text.count("note ") == MOST_OF_A_KIND
    assert len(text) <= MAX_PROFILE


def test_of_nobody_nothing_is_known() -> None:
    assert profile([]) == ""
