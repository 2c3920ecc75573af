from __future__ import annotations

import pytest

from turnstate import tokens
from turnstate.errors import UnknownName
from turnstate.tokens import Estimator, ExactCounter

pytestmark = pytest.mark.req("B2")


@pytest.mark.parametrize("name", tokens.counter_names())
def test_every_listed_counter_is_found_by_its_own_name(name: str) -> None:
    found = tokens.counter(name)
    assert found.name == name
    assert found.count("hello").tokens >= 1


def test_open_vocabularies_are_exact_and_the_rest_is_estimated() -> None:
    assert isinstance(tokens.counter("o200k_base"), ExactCounter)
    assert isinstance(tokens.counter("estimate"), Estimator)
    assert isinstance(tokens.counter("estimate:gemini"), Estimator)


@pytest.mark.parametrize(
    "name", ["", "gpt2", "estimate:", "estimate:eliza", "o200k", "O200K_BASE", "exact:claude"]
)
def test_an_unknown_counter_is_refused_with_those_there_are(name: str) -> None:
    with pytest.raises(UnknownName, match=r"available: cl100k_base, o200k_base, .*, estimate:claude"):
        tokens.counter(name)


@pytest.mark.parametrize(
    ("model", "counter"),
    [
        ("gpt-4o", "o200k_base"),
        ("gpt-4-0613", "cl100k_base"),
        ("claude-sonnet-4-5", "estimate:claude"),
        ("gemini-2.5-pro", "estimate:gemini"),
        ("nobody-knows-me", "estimate"),
    ],
)
def test_a_model_has_a_counter(model: str, counter: str) -> None:
    assert tokens.counter_for(model).name == counter
