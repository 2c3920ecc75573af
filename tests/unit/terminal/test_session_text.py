"""The cost of requests as text."""

from __future__ import annotations

import pytest

from turnstate import catalog
from turnstate.entry import Usage
from turnstate.terminal.session_text import cost_text

PRICED = Usage(input=1_000_000, output=100_000, model="claude-sonnet-5-5")  # 2 for input, 1 for output
REPORTED = Usage(input=1_000, model="anything", details={"usage": {"cost": 0.25}})
UNKNOWN = Usage(input=1_000, output=10, model="eliza")


def test_a_cost_says_by_which_prices_it_was_computed() -> None:
    day = catalog.model("claude-sonnet-5-5").as_of
    assert cost_text([PRICED]) == f"cost $3.0000 by the prices of {day}"
    assert cost_text([PRICED, REPORTED]) == f"cost $3.2500 by the prices of {day}"
    assert cost_text([REPORTED]) == "cost $0.2500 as reported"


def test_a_cost_by_registered_prices_is_not_called_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "_registered", {})
    prices = catalog.Prices(input=1, output=2)
    catalog.register("harbor-1", context_window=8_192, prices=prices)
    usage = Usage(input=1_000_000, model="harbor-1")
    assert cost_text([usage]) == "cost $1.0000 by your own prices"
    assert cost_text([usage, REPORTED]) == "cost $1.2500 by your own prices"
    catalog.model.cache_clear()


def test_what_is_not_known_is_said_or_left_out() -> None:
    assert cost_text([REPORTED, UNKNOWN]) == "cost $0.2500 as reported and 1 request without a known price"
    assert cost_text([UNKNOWN]) == cost_text([]) == ""
