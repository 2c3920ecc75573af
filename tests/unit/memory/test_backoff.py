from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstate.memory import worker

pytestmark = pytest.mark.req("F3")


class Fixed(Random):
    """Chance that always says the same."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self._share = share

    def uniform(self, a: float, b: float) -> float:
        return a + (b - a) * self._share


def test_waits_grow_fourfold_up_to_the_longest() -> None:
    longest = [worker.wait(tries, Fixed(1.0)) // 1000 for tries in range(1, 10)]
    assert longest == [5, 20, 80, 320, 1_280, 5_120, 20_480, 21_600, 21_600]


def test_an_engine_may_be_down_for_more_than_a_night_before_anything_is_parked() -> None:
    shortest = sum(worker.wait(tries, Fixed(0.0)) for tries in range(1, worker.MAX_TRIES))
    longest = sum(worker.wait(tries, Fixed(1.0)) for tries in range(1, worker.MAX_TRIES))
    assert (shortest // 60_000, longest // 60_000) == (227, 455)


@given(st.integers(0, 10_000), st.integers())
def test_a_wait_is_between_half_of_it_and_all_of_it(tries: int, seed: int) -> None:
    longest = worker.wait(tries, Fixed(1.0))
    assert longest // 2 <= worker.wait(tries, Random(seed)) <= longest


def test_two_that_failed_together_do_not_come_back_together() -> None:
    random = Random(7)
    assert len({worker.wait(3, random) for _ in range(100)}) > 90
