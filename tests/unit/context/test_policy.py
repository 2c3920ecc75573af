"""Budgets and policies refuse what makes no sense, and say what a cut was made under."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from turnstate.catalog import model
from turnstate.context import Budget, Policy, Preface, Reduction, StateManager
from turnstate.context.cut import Strategy
from turnstate.errors import ContextOverflow, InvalidSetting, UnknownName
from turnstate.message import Message


@pytest.mark.req("C1")
def test_the_limit_is_the_window_less_the_output_reserve() -> None:
    assert Budget(8_000, output=1_000).limit == 7_000
    assert Budget(8_000).limit == 8_000


@pytest.mark.req("C1", "M1")
def test_a_models_budget_reserves_its_output() -> None:
    info = model("gpt-4o")
    assert Budget.of(info) == Budget(info.context_window, output=info.output_limit)


NOT_WHOLE = [None, "5", "", True, 1.0, 2.5, math.nan, math.inf, -math.inf, [5], {}, 10**30, -1, b"5"]
NOT_A_SHARE = [None, "0.5", True, math.nan, math.inf, -math.inf, -0.1, 1.5, 10**400, [0.5], 0.5j]

BAD_BUDGETS: list[tuple[str, dict[str, Any]]] = [
    *(("window", {"window": value}) for value in [*NOT_WHOLE, 0, 2**62 + 1]),
    *(("output", {"window": 100, "output": value}) for value in [*NOT_WHOLE, 100, 101]),
]
BAD_POLICIES: list[tuple[str, dict[str, Any]]] = [
    *((name, {name: value}) for name in ("lock_turns", "hard_lock", "summary_tokens") for value in NOT_WHOLE),
    *((name, {name: 0}) for name in ("lock_turns", "hard_lock", "summary_tokens", "summary_least")),
    *((name, {name: value}) for name in ("lock_turns_at_most", "summary_least") for value in NOT_WHOLE),
    *(
        (name, {name: value})
        for name in ("low_water", "compact_at", "mask_at", "warn_at")
        for value in NOT_A_SHARE
    ),
    *((name, {name: 0}) for name in ("low_water", "compact_at", "mask_at", "warn_at", "summary_share")),
    *((name, {name: value}) for name in ("mask_gain", "summary_share") for value in NOT_A_SHARE),
    *(("strict", {"strict": value}) for value in (None, 1, 0, "yes", [])),
    *(("reduction", {"reduction": value}) for value in (None, 50, {"head": 50}, Reduction)),
    *(("language", {"language": value}) for value in (None, "", "EN", "de", "english", 1, ["en"])),
    *(
        ("summary_template", {"summary_template": value})
        for value in (
            None,
            7,
            b"{summary}",
            "",
            "no slot",
            "{summary} and {summary}",
            "{Summary}",
            "\ud800{summary}",
            "x" * 1_000 + "{summary}",
        )
    ),
    ("lock_turns_at_most", {"lock_turns": 11}),
    ("lock_turns_at_most", {"lock_turns_at_most": 4}),
    ("warn_at", {"warn_at": 0.9, "compact_at": 0.8}),
    ("summary_share", {"summary_share": 1}),
    ("summary_least", {"summary_tokens": 30, "summary_least": 40}),
]
BAD_REDUCTIONS: list[tuple[str, dict[str, Any]]] = [
    *(
        (name, {name: value})
        for name in ("head", "tail", "soft_tokens", "hard_tokens")
        for value in NOT_WHOLE
    ),
    *((name, {name: 0}) for name in ("head", "tail", "soft_tokens", "hard_tokens", "share")),
    *(("share", {"share": value}) for value in NOT_A_SHARE),
    ("hard_tokens", {"soft_tokens": 6, "hard_tokens": 5}),
]
BAD_STRATEGIES: list[tuple[str, dict[str, Any]]] = [
    *((name, {name: value}) for name in ("keep", "longest") for value in NOT_WHOLE),
    ("longest", {"longest": 0}),
    *(("truncate", {"truncate": value}) for value in (None, 1, "yes")),
]
BAD_PREFACES: list[tuple[str, dict[str, Any]]] = [
    *((name, {name: 7}) for name in ("system", "bootstrap", "context", "memory")),
    *(("tools", {"tools": value}) for value in (None, "ls", ["ls"], ("ls",), ({"name": "ls"},))),
]
BAD = [
    (kind, name, fields)
    for kind, rows in (
        (Budget, BAD_BUDGETS),
        (Policy, BAD_POLICIES),
        (Reduction, BAD_REDUCTIONS),
        (Strategy, BAD_STRATEGIES),
        (Preface, BAD_PREFACES),
    )
    for name, fields in rows
]


@pytest.mark.parametrize(("kind", "name", "fields"), BAD)
def test_a_setting_that_makes_no_sense_is_refused_and_named(
    kind: Callable[..., Any], name: str, fields: dict[str, Any]
) -> None:
    with pytest.raises(InvalidSetting) as refused:
        kind(**fields)
    assert refused.value.setting == f"{getattr(kind, '__name__', '')}.{name}"
    assert str(refused.value).startswith(f"{refused.value.setting} = ")
    assert "expected" in str(refused.value)
    assert isinstance(refused.value, ValueError)
    assert len(str(refused.value)) < 400


def test_an_error_repeats_the_value() -> None:
    with pytest.raises(InvalidSetting) as refused:
        Policy(low_water=1.5)
    assert str(refused.value) == (
        "Policy.low_water = 1.5 is not allowed: expected a number above 0 and at most 1"
    )


@pytest.mark.parametrize(
    "settings",
    [
        Budget(1),
        Budget(2**62),
        Budget(2, output=1),
        Policy(low_water=1, warn_at=1, compact_at=1, mask_at=1, mask_gain=0),
        Policy(lock_turns=1, lock_turns_at_most=1, hard_lock=1, summary_tokens=1, summary_least=1),
        Policy(reduction=Reduction(head=20, tail=80)),
        Strategy(keep=0, longest=1),
    ],
)
def test_settings_at_their_borders_make_windows(settings: Budget | Policy | Strategy) -> None:
    messages = [Message.user("Hello? " * 10), Message.assistant("Yes. " * 10)] * 30
    messages = [message.replace(id=f"m{number}") for number, message in enumerate(messages)]
    budget = settings if isinstance(settings, Budget) else Budget(400)
    manager = StateManager(policy=settings if isinstance(settings, Policy) else None)
    try:
        assert manager.window(messages, budget).tokens <= budget.limit
    except ContextOverflow:
        assert budget.limit < 100


@pytest.mark.parametrize("name", ["gpt-4o", "GPT-4o", "o200k", "", "estimate:nobody"])
def test_an_unknown_counter_is_refused_when_the_manager_is_made(name: str) -> None:
    with pytest.raises(UnknownName) as refused:
        StateManager(counter=name)
    assert "o200k_base" in str(refused.value)
    assert "estimate:claude" in str(refused.value)


def test_the_name_of_a_model_is_told_from_that_of_a_counter() -> None:
    with pytest.raises(UnknownName, match="'gpt-4o' is a model, not a counter; its counter is 'o200k_base'"):
        StateManager(counter="gpt-4o")


@pytest.mark.parametrize(
    "settings",
    [{"counter": None}, {"counter": 5}, {"counter": ["o200k_base"]}, {"policy": {}}, {"policy": 1}],
)
def test_a_manager_refuses_what_is_no_counter_and_no_policy(settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidSetting):
        StateManager(**settings)


@pytest.mark.parametrize("budget", [None, 4_000, "4000", {"window": 4_000}])
def test_a_budget_that_is_none_is_refused(budget: Any) -> None:
    with pytest.raises(InvalidSetting, match="budget"):
        StateManager().window([Message.user("hello")], budget)
    with pytest.raises(InvalidSetting):
        Budget.of("gpt-4o")  # type: ignore[arg-type]


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
