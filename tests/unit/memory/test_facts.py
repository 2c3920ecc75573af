from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstate.memory.facts import Claim, Fact, Source, merged

pytestmark = pytest.mark.req("F4")

DAYS = [f"2025-01-{day:02}T00:00:00Z" for day in range(1, 29)]


def claim(value: str, day: int, *, slot: str = "home", denies: bool = False, message: str = "") -> Claim:
    return Claim(
        kind="home" if slot == "home" else "preference",
        value=value,
        text=f"said {value}",
        slot=slot,
        message=message or f"m{day}",
        said=DAYS[day],
        denies=denies,
    )


def known_after(*claims: Claim, session: str = "s1") -> dict[str, Fact]:
    facts = dict[str, Fact]()
    for one in claims:
        facts |= {fact.id: fact for fact in merged(facts.values(), [one], session)}
    return {fact.value: fact for fact in facts.values()}


def test_a_newer_value_of_a_slot_ends_the_older_and_keeps_it_with_its_time() -> None:
    facts = known_after(claim("Porto", 1), claim("Lisbon", 5))
    assert facts["Porto"].ended == DAYS[5]
    assert facts["Lisbon"].ended is None


def test_the_order_of_arrival_does_not_matter() -> None:
    claims = [claim("Porto", 1), claim("Lisbon", 5), claim("Faro", 9), claim("Porto", 12)]
    wanted = known_after(*claims)
    assert wanted["Porto"].ended is None
    for order in permutations(claims):
        facts = known_after(*order)
        assert {value: fact.ended is None for value, fact in facts.items()} == {
            value: fact.ended is None for value, fact in wanted.items()
        }


def test_what_is_said_later_in_the_same_moment_wins() -> None:
    facts = known_after(claim("Porto", 1), claim("Lisbon", 1))
    assert (facts["Porto"].ended, facts["Lisbon"].ended) == (DAYS[1], None)


def test_values_without_a_slot_stand_beside_each_other() -> None:
    facts = known_after(claim("tea", 1, slot=""), claim("rain", 2, slot=""))
    assert [fact.ended for fact in facts.values()] == [None, None]


def test_a_repetition_adds_its_message_as_a_source() -> None:
    facts = known_after(claim("tea", 1, slot=""), claim("  TEA ", 2, slot=""))
    (fact,) = facts.values()
    assert fact.sources == (Source("s1", "m1"), Source("s1", "m2"))
    assert fact.said == DAYS[2]


def test_a_denial_ends_what_was_said_before_it_and_adds_nothing() -> None:
    facts = known_after(claim("tea", 1, slot=""), claim("tea", 3, slot="", denies=True))
    assert [fact.ended for fact in facts.values()] == [DAYS[3]]
    again = known_after(
        claim("tea", 1, slot=""), claim("tea", 3, slot="", denies=True), claim("tea", 5, slot="")
    )
    assert [fact.ended for fact in again.values()] == [None]
    assert known_after(claim("tea", 3, slot="", denies=True)) == {}


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["Porto", "Lisbon", "Faro"]), st.integers(0, 27), st.sampled_from(["home", ""])
        ),
        max_size=12,
    )
)
def test_a_slot_has_one_value_at_a_time_and_every_fact_a_source(said: list[tuple[str, int, str]]) -> None:
    facts = list[Fact]()
    for number, (value, day, slot) in enumerate(said):
        one = claim(value, day, slot=slot, message=f"m{number}")
        changed = {fact.id: fact for fact in merged(facts, [one], "s1")}
        facts = [changed.pop(fact.id, fact) for fact in facts] + list(changed.values())
        assert sum(fact.slot == "home" and fact.ended is None for fact in facts) <= 1
        assert all(fact.sources for fact in facts)
    homes = [fact for fact in facts if fact.slot == "home"]
    if homes:
        newest = max(fact.said for fact in homes)
        assert [fact.said for fact in homes if fact.ended is None] == [newest]
