"""Over the limit as many files stay as can, in the user's order, and every other is named."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.sticky.sticky_scenes import COUNTER, Scene, entries_of, names, reasons
from turnstate.sticky import gather
from turnstate.sticky.gather import fitting
from turnstate.sticky.sticky_paths import entry
from turnstate.tokens import Count, counter

SIZES = st.lists(st.integers(min_value=1, max_value=12), max_size=8)


@pytest.mark.req("K3")
def test_the_largest_go_first_and_the_rest_keeps_the_users_order(scene: Scene) -> None:
    for name, words in {"b": 5, "large": 500, "a": 10, "larger": 600, "c": 1}.items():
        scene.write(name, "word " * words)
    whole = scene.gather("b", "large", "a", "larger", "c")
    assert names(whole) == ["b", "large", "a", "larger", "c"]
    without_one = scene.gather(limit=whole.tokens - 1)
    assert names(without_one) == ["b", "large", "a", "c"]
    assert reasons(without_one) == {"larger": "limit"}
    without_two = scene.gather(limit=without_one.tokens - 1)
    assert names(without_two) == ["b", "a", "c"]
    assert [one.path for one in without_two.dropped] == ["large", "larger"]


@pytest.mark.req("K3")
def test_of_two_alike_the_later_goes(scene: Scene) -> None:
    for name in "xyz":
        scene.write(name, "the same")
    whole = scene.gather("z", "x", "y")
    assert names(scene.gather(limit=whole.tokens - 1)) == ["z", "x"]


@pytest.mark.req("K3")
@pytest.mark.parametrize("limit", [0, 1, -1])
def test_a_limit_below_the_smallest_file_drops_all_and_says_so(scene: Scene, limit: int) -> None:
    scene.write("a.md", "text")
    scene.write("b.md")
    gathered = scene.gather("*.md", limit=limit)
    assert gathered.text is None
    assert gathered.files == ()
    assert gathered.length == 0
    assert reasons(gathered) == {"a.md": "limit", "b.md": "limit"}
    assert names(scene.gather()) == ["a.md", "b.md"]


@pytest.mark.req("K3")
def test_a_limit_that_is_just_met_drops_nothing(scene: Scene) -> None:
    scene.write("a.md", "text")
    tokens = scene.gather("a.md").tokens
    assert tokens == COUNTER.count(entry("a.md", "text")).tokens
    assert names(scene.gather(limit=tokens)) == ["a.md"]


@pytest.mark.req("K3")
@given(SIZES, st.integers(min_value=0, max_value=40))
def test_as_many_stay_as_can(sizes: list[int], limit: int) -> None:
    kept = fitting(sizes, limit)
    assert sum(sizes[index] for index in kept) <= limit
    more = combinations(range(len(sizes)), len(kept) + 1)
    assert all(sum(sizes[index] for index in some) > limit for some in more)


@pytest.mark.req("K3")
@given(SIZES, st.integers(min_value=0, max_value=40))
def test_what_stays_is_what_dropping_the_largest_one_by_one_leaves(sizes: list[int], limit: int) -> None:
    left = list(range(len(sizes)))
    while sum(sizes[index] for index in left) > limit:
        left.remove(max(left, key=lambda index: (sizes[index], index)))
    assert fitting(sizes, limit) == set(left)


@pytest.mark.req("K3")
def test_what_is_read_at_all_is_bounded_by_the_same_rule(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gather, "MAX_TOTAL_BYTES", 100)
    scene.write("a.md", "x" * 90)
    scene.write("b.md", "y" * 60)
    scene.write("c.md", "z" * 40)
    gathered = scene.gather("*.md")
    assert entries_of(gathered.text) == [("b.md", "y" * 60), ("c.md", "z" * 40)]
    assert "90 bytes" in gathered.dropped[0].why


@pytest.mark.req("K1")
def test_another_counter_counts_anew_and_sends_the_same_bytes(scene: Scene) -> None:
    scene.write("a.md", "灯台の番人" * 50)
    estimated = scene.gather("a.md")
    exact = scene.context.gather(counter("o200k_base"))
    assert exact.text is estimated.text
    assert exact.tokens != estimated.tokens
    assert exact.tokens == counter("o200k_base").count(str(exact.text)).tokens


class Counting:
    """Counts, and keeps what it was asked to count."""

    def __init__(self) -> None:
        self.name, self.texts = "counting", list[str]()

    def count(self, text: str) -> Count:
        self.texts.append(text)
        return COUNTER.count(text)


@pytest.mark.req("K2")
def test_only_what_changed_is_counted_again(scene: Scene) -> None:
    scene.write("a.md", "one")
    scene.write("b.md", "two")
    scene.context.add("*.md")
    counting = Counting()
    scene.context.gather(counting)
    scene.write("b.md", "six")
    scene.context.gather(counting)
    assert counting.texts == [entry("a.md", "one"), entry("b.md", "two"), entry("b.md", "six")]


def test_dropped_files_are_told_in_the_users_order(scene: Scene) -> None:
    scene.write("a.bin", b"\0")
    scene.write("b.md", "word " * 500)
    scene.write("d.md")
    gathered = scene.gather("gone.md", "b.md", "a.bin", "d.md", "nothing/*", limit=100)
    assert list(reasons(gathered).items()) == [
        ("gone.md", "missing"),
        ("b.md", "limit"),
        ("a.bin", "binary"),
        ("nothing/*", "missing"),
    ]
