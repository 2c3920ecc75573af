from __future__ import annotations

import pytest

from turnstate.errors import UnknownName
from turnstate.tokens import Estimator
from turnstate.tokens.estimate import FACTORS, estimator

pytestmark = pytest.mark.req("B2")


def test_claude_counts_a_quarter_more_until_calibrated() -> None:
    assert estimator("claude") == Estimator("estimate:claude", 1.25)


def test_no_factor_is_out_of_this_world() -> None:
    assert all(1.0 <= factor <= 1.5 for factor in FACTORS.values())


def test_an_unknown_family_is_refused_with_those_there_are() -> None:
    with pytest.raises(UnknownName, match="'eliza'; there are claude, "):
        estimator("eliza")
