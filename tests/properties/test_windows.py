"""For any log, budget and chain of cuts the window fits, is valid, and loses nothing."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from random import Random
from typing import Any
from unittest.mock import ANY

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.harness.thoroughness import examples, runs
from tests.properties.window_checks import (
    as_bytes,
    check_against_input,
    check_hard_lock,
    check_replay,
    check_usage,
    check_window,
)
from turnstate import Message, ToolCallRequest, ToolCallResult
from turnstate.context import collector, turns
from turnstate.context.cut import compaction
from turnstate.context.manager import StateManager
from turnstate.context.policy import Budget, Policy
from turnstate.context.preface import Preface
from turnstate.context.summary_text import rendered
from turnstate.context.tally import Tally
from turnstate.context.view import View, folded
from turnstate.entry import Cut, Decision, Summary
from turnstate.errors import ContextOverflow, TurnstateError
from turnstate.testing import conversations
from turnstate.tokens import Counter

MANAGER = StateManager()

seeds = st.integers(0, 2**32 - 1)
budgets = st.integers(60, 6_000)
kinds = st.sampled_from([conversations.valid, conversations.broken])


def check_overflow(overflow: ContextOverflow, limit: int) -> None:
    assert overflow.preface + overflow.question + overflow.last > overflow.limit == limit


def one_window(kind: Callable[[int], list[Message]], seed: int, size: int) -> None:
    messages, budget = kind(seed), Budget(size)
    before = as_bytes(messages)
    try:
        window = MANAGER.window(messages, budget)
    except ContextOverflow as overflow:
        check_overflow(overflow, size)
        return
    check_window(window, MANAGER, budget)
    check_against_input(window, messages)
    check_hard_lock(window)
    check_replay(window, MANAGER, messages, budget, ())
    assert as_bytes(messages) == before


@pytest.mark.req("C1", "C3", "C5", "C6", "C7", "C9", "D1")
@examples(100, long=15_000)
@given(kind=kinds, seed=seeds, size=budgets)
def test_any_window_fits_validates_and_can_be_replayed(
    kind: Callable[[int], list[Message]], seed: int, size: int
) -> None:
    one_window(kind, seed, size)


def long_log(rng: Random, parts: int) -> list[Message]:
    """Return a log of several conversations, valid and broken, whose ids may collide."""
    log: list[Message] = []
    for _ in range(parts):
        kind = rng.choice([conversations.valid, conversations.valid, conversations.broken])
        log += [message for message in kind(rng.randrange(2**32)) if message.role != "system" or not log]
    return log


def one_chain(seed: int, size: int, policy: Policy) -> int:
    """Grow a log message by message, record most decisions, lose some, swap summaries; count the cuts."""
    rng, manager, budget = Random(seed), StateManager(policy=policy), Budget(size)
    log = long_log(rng, parts=12)
    tally, decisions, previous, cuts = manager.tally([], budget), list[Decision](), None, 0
    for end, message in enumerate(log, start=1):
        tally.add(message)
        if rng.random() < 0.5:
            continue
        try:
            window = manager.window(tally, budget, decisions=decisions, previous=previous)
        except ContextOverflow as overflow:
            check_overflow(overflow, size)
            continue
        pure = manager.window(log[:end], budget, decisions=decisions)
        assert as_bytes(pure.messages) == as_bytes(window.messages)
        assert (pure.decisions, pure.tokens) == (window.decisions, window.tokens)
        assert pure.report.usage == window.report.usage
        check_usage(window)
        if window.decisions or rng.random() < 0.1:
            check_window(window, manager, budget)
            check_against_input(window, log[:end])
        previous = window
        if rng.random() < 0.1:
            continue  # the process died before it wrote the decisions down
        cuts += sum(isinstance(decision, Cut) for decision in window.decisions)
        decisions += window.decisions
        if window.view.cut and rng.random() < 0.05:
            decisions.append(Summary(cut=window.view.cut.id, text="The user and the agent worked on a job."))
    return cuts


@pytest.mark.req("C7", "C8", "D3", "B1")
@examples(6, long=600)
@given(
    seed=seeds, size=st.sampled_from([400, 700, 1_000, 1_500, 3_000]), low=st.sampled_from([0.4, 0.6, 0.9])
)
def test_chains_of_cuts_stay_sound_and_pure_and_incremental_windows_are_equal(
    seed: int, size: int, low: float
) -> None:
    one_chain(seed, size, Policy(low_water=low))


def agent_log(rng: Random) -> list[Message]:
    """Return the log of an agent with long tool output in some turns."""
    log = list[Message]()
    for turn in range(rng.randint(8, 30)):
        log.append(Message.user(f"Question {turn}? " * rng.choice([1, 30])))
        for _ in range(rng.randrange(3)):
            calls = [ToolCallRequest(name="run", args={}) for _ in range(rng.randint(1, 3))]
            results = [
                ToolCallResult(tool_call_id=call.id, result="word " * rng.choice([1, 60, 400, 3_000]))
                for call in calls
            ]
            log += [Message.assistant(tool_calls=calls), Message.tool(results)]
        log.append(Message.assistant("An answer. " * rng.choice([1, 20])))
    return log


def one_agent(seed: int, size: int, policy: Policy) -> int:
    """Make windows while a log grows, compact now and then; count the windows with hidden output."""
    rng, manager, budget = Random(seed), StateManager(policy=policy), Budget(size)
    preface = Preface(system="Be careful. " * rng.choice([1, 10]), context=rng.choice([None, "notes"]))
    tally, decisions, hidden = manager.tally([], budget, stored=rng.random() < 0.5), list[Decision](), 0
    for message in agent_log(rng):
        tally.add(message)
        shown = manager.shown(tally, budget, preface=preface, decisions=decisions)
        check_usage(shown)
        try:
            window = manager.window(tally, budget, preface=preface, decisions=decisions)
        except ContextOverflow:
            continue
        check_usage(window)
        decisions += window.decisions
        hidden += bool(window.view.hidden)
        if rng.random() < 0.05 and (found := compaction(window, policy)):
            decisions.append(found.cut)
            decisions.append(Summary(cut=found.cut.id, text="A model wrote this."))
    return hidden


HIDING = Policy(mask_at=0.5, mask_gain=0.03, lock_turns=2)


@pytest.mark.req("C2", "B3")
@examples(6, long=600)
@given(seed=seeds, size=st.sampled_from([1_500, 4_000, 9_000]), policy=st.sampled_from([Policy(), HIDING]))
def test_the_categories_of_any_window_are_not_negative_and_add_up_to_its_tokens(
    seed: int, size: int, policy: Policy
) -> None:
    one_agent(seed, size, policy)


def test_the_agents_really_hide_output() -> None:
    assert all(one_agent(seed, 4_000, HIDING) > 0 for seed in range(4))


def test_the_chains_really_cut_five_times_and_more() -> None:
    assert [one_chain(seed, 700, Policy()) >= 5 for seed in range(4)] == [True] * 4


# Planted bugs: the checks above are worth something only if they catch these.


def caught(*, seeds: int = 60) -> bool:
    """Return True if the checks fail for one of the first conversations."""
    for seed in range(seeds):
        for size in (200, 500, 1_200):
            try:
                one_window(conversations.valid, seed, size)
            except (AssertionError, TurnstateError):
                return True
    return False


def test_without_a_planted_bug_nothing_is_caught() -> None:
    assert not caught(seeds=runs(8, long=150))


def test_a_cut_at_a_raw_index_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = collector.plan

    def raw(tally: Tally, *args: Any) -> collector.Plan:
        found = plan(tally, *args)
        return msgspec.structs.replace(found, kept=min(found.kept + 1, tally.end - 1), pinned=())

    monkeypatch.setattr("turnstate.context.live_window.plan", raw)
    assert caught()


def test_a_summary_that_is_not_counted_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def uncounted(text: str, template: str, _: Counter) -> tuple[Message, int]:
        return rendered(text, template), 0

    monkeypatch.setattr("turnstate.context.window.shown_summary", uncounted)
    assert caught()


def test_a_repair_with_random_ids_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "derived", lambda *_: secrets.token_hex(8))
    for seed in range(60):
        try:
            one_window(conversations.broken, seed, 1_200)
        except (AssertionError, TurnstateError):
            return
    pytest.fail("random ids went unnoticed")


def test_a_window_that_keeps_a_stale_view_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def stale(*args: Any) -> View:
        return msgspec.structs.replace(folded(*args), made_of=ANY)  # which equals whatever is asked for next

    monkeypatch.setattr("turnstate.context.live_window.folded", stale)
    assert any(breaks(seed) for seed in range(6))


def breaks(seed: int) -> bool:
    """Return True if a chain fails its checks."""
    try:
        one_chain(seed, 700, Policy())
    except (AssertionError, TurnstateError):
        return True
    return False
