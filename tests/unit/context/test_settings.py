"""Budgets and policies refuse what makes no sense, and say what a cut was made under."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.catalog import model
from holdfast.context import Budget, Policy, Reduction
from holdfast.errors import InputError


@pytest.mark.req("C1")
def test_the_limit_is_the_window_less_the_output_reserve() -> None:
    assert Budget(8_000, output=1_000).limit == 7_000
    assert Budget(8_000).limit == 8_000


@pytest.mark.req("C1", "M1")
def test_a_models_budget_reserves_its_output() -> None:
    info = model("gpt-4o")
    assert Budget.of(info) == Budget(info.context_window, info.output_limit)


@pytest.mark.parametrize("fields", [(0,), (-5,), (100, 100), (100, -1), ("many",), (10.5,)])
def test_a_budget_that_leaves_nothing_is_refused(fields: tuple[Any, ...]) -> None:
    with pytest.raises(InputError):
        Budget(*fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"low_water": 0},
        {"low_water": 1.5},
        {"mask_gain": -0.1},
        {"summary_share": 1},
        {"lock_turns": 0},
        {"lock_turns": 11},
        {"hard_lock": 0},
        {"summary_template": "no slot"},
        {"summary_template": "{summary} and {summary}"},
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        Policy(**fields)


@pytest.mark.parametrize(
    "fields", [{"head": 0}, {"tail": 0}, {"soft_tokens": 0}, {"hard_tokens": 5}, {"share": 0}]
)
def test_a_reduction_that_makes_no_sense_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        Reduction(**fields)


def test_policies_that_differ_in_anything_have_different_fingerprints() -> None:
    policies = [Policy(), Policy(low_water=0.5), Policy(strict=True), Policy(reduction=Reduction(head=40))]
    assert len({policy.fingerprint for policy in policies}) == 4
    assert Policy().fingerprint == Policy().fingerprint


@pytest.mark.req("D1")
def test_a_summary_is_capped_by_tokens_by_share_and_from_below() -> None:
    policy = Policy(summary_tokens=1_000, summary_share=0.1, summary_least=40)
    assert [policy.summary_cap(limit) for limit in (100, 2_000, 200_000)] == [40, 200, 1_000]


@pytest.mark.req("D1")
def test_a_template_of_ours_follows_the_language_and_a_users_stays() -> None:
    assert Policy(language="ja").summary_template == "[Memory Summary] 前文の要約：{summary}"
    assert Policy(language="zh").summary_template == "[Memory Summary] 前文摘要：{summary}"
    assert Policy(language="ja", summary_template="Before: {summary}").summary_template == "Before: {summary}"
