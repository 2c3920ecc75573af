"""Running totals grow at both ends and count nothing twice."""

from __future__ import annotations

from random import Random

from turnstate.context.tally import Ledger


def test_any_range_is_the_sum_of_its_costs_whatever_is_asked_first() -> None:
    rng = Random(7)
    for _ in range(50):
        costs = [rng.randrange(100) for _ in range(40)]
        ledger = Ledger(rng.randrange(41), costs.__getitem__)
        for _ in range(30):
            start = rng.randrange(41)
            end = rng.randrange(start, 41)
            assert ledger.between(start, end) == sum(costs[start:end])
            assert ledger.exceeds(start, end, 500) == (sum(costs[start:end]) > 500)


def test_each_cost_is_asked_for_once_and_only_where_needed() -> None:
    asked: list[int] = []

    def cost(index: int) -> int:
        asked.append(index)
        return 10

    ledger = Ledger(100, cost)
    assert ledger.exceeds(0, 100, 45)
    assert sorted(asked) == [95, 96, 97, 98, 99]
    assert ledger.between(97, 100) == 30
    assert ledger.between(97, 102) == 50
    assert sorted(asked) == [95, 96, 97, 98, 99, 100, 101]
