from __future__ import annotations

import msgspec
import pytest

from turnstate.tokens import Count, Quality
from turnstate.tokens.counter import total, weaker

pytestmark = pytest.mark.req("B2")


def test_counts_add_up() -> None:
    assert Count(3) + Count(4) == Count(7, "exact")


@pytest.mark.parametrize(
    ("one", "other", "sum_is"),
    [
        ("exact", "exact", "exact"),
        ("exact", "reported", "reported"),
        ("reported", "estimated", "estimated"),
        ("estimated", "exact", "estimated"),
    ],
)
def test_a_sum_is_as_good_as_its_weakest_part(one: Quality, other: Quality, sum_is: Quality) -> None:
    assert (Count(1, one) + Count(2, other)).quality == sum_is
    assert (Count(1, other) + Count(2, one)).quality == sum_is
    assert weaker(one, other) == weaker(other, one) == sum_is


def test_nothing_is_an_exact_zero() -> None:
    assert total([]) == Count() == Count(0, "exact")
    assert total([Count(2, "reported"), Count(5)]) == Count(7, "reported")


def test_a_count_never_changes() -> None:
    with pytest.raises(AttributeError):
        Count(1).tokens = 2  # type: ignore[misc]


def test_a_count_adds_to_nothing_else() -> None:
    with pytest.raises(TypeError):
        Count(1) + 1  # type: ignore[operator]


def test_a_count_is_plain_json() -> None:
    assert msgspec.json.encode(Count(5, "estimated")) == b'{"tokens":5,"quality":"estimated"}'
