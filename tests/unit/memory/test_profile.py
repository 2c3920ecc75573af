from __future__ import annotations

from turnstate.memory.facts import Fact, FactKind
from turnstate.memory.profile import LONGEST_LINE, MAX_PROFILE, MOST_OF_A_KIND, profile


def fact(
    kind: FactKind,
    value: str,
    *,
    slot: str = "",
    ended: str | None = None,
    day: int = 1,
    until: str | None = None,
) -> Fact:
    said = f"2025-06-{day:02}T12:00:00Z"
    return Fact(
        id=value, kind=kind, slot=slot, value=value, text=f"{value}!", said=said, ended=ended, until=until
    )


def test_who_the_user_is_comes_first_and_what_no_longer_holds_is_left_out() -> None:
    facts = [
        fact("decision", "use PostgreSQL"),
        fact("preference", "dark green", slot="favorite color"),
        fact("home", "Lisbon", slot="home", ended="2025-06-05T12:00:00Z"),
        fact("home", "Porto", slot="home", day=5),
        fact("name", "Anna", slot="name"),
        fact("relation", "Rex", slot="name of dog"),
        fact("note", "has two cats"),
        fact("fact", "Manila", slot="birthplace"),
        fact("name", "Annie", slot="nickname"),
        fact("wish", "always answer in German"),
        fact("health", "allergic to peanuts"),
        fact("shoe_size", "44"),
        fact("task", "renew the passport", until="2025-06-20T23:59:59.999Z"),
    ]
    assert profile(facts).splitlines() == [
        "Health: allergic to peanuts",
        "Name: Anna; nickname: Annie",
        "Asks for: “always answer in German”",
        "To remember: has two cats",
        "Open: renew the passport (2025-06-01) (until 2025-06-20)",
        "Home: Porto (2025-06-05: Porto!)",
        "People and pets: dog: Rex",
        "Preferences: favorite color: dark green",
        "Decided: use PostgreSQL (2025-06-01)",
        "Also known: birthplace: Manila",
        "Shoe_size: 44",
    ]


def test_the_newest_facts_of_a_kind_come_first_and_a_profile_is_bounded() -> None:
    many = [fact("note", f"note {day}", day=day) for day in range(1, 29)]
    many += [fact(f"kind{n}", "y" * 400, day=day) for day in range(1, 29) for n in range(40)]
    text = profile(many)
    assert text.startswith("To remember: note 28; note 27; ")
    assert text.count("note ") == MOST_OF_A_KIND
    assert len(text) <= MAX_PROFILE


def test_no_line_takes_the_room_of_the_next() -> None:
    likes = [fact("preference", f"{day} " + "x" * 200, day=day) for day in range(1, 29)]
    line, _ = profile([*likes, fact("decision", "use PostgreSQL")]).splitlines()
    assert line.startswith("Preferences: 28 xxx")
    assert len(line) <= LONGEST_LINE + len("Preferences: ")


def test_of_nobody_nothing_is_known() -> None:
    assert profile([]) == ""
