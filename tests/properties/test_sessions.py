"""With any number of handles on a session nothing is lost, and all make the same window."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.harness.thoroughness import examples, runs
from tests.properties.session_runs import (
    ID,
    SessionRun,
    answered_late,
    appended,
    check_archived_once,
    check_handles_agree,
    check_log,
    cuts,
    disturbed,
    long_log,
    window,
)
from tests.properties.window_checks import as_bytes, check_window
from turnstate import Message
from turnstate.context.cut import Strategy
from turnstate.context.policy import Budget, Policy
from turnstate.context.window import Window
from turnstate.errors import SessionError
from turnstate.log import path
from turnstate.message import ToolCallRequest
from turnstate.session import windows as session_windows

REPLY_START = 3

seeds = st.integers(0, 2**32 - 1)
sizes = st.sampled_from([400, 700, 1_000, 1_500, 3_000, 8_000])
policies = st.builds(
    Policy, low_water=st.sampled_from([0.4, 0.6, 0.9]), mask_gain=st.sampled_from([0.05, 0.1])
)


def run(scenario: Callable[[SessionRun], Awaitable[Any]], policy: Policy, *, on_disk: bool = False) -> Any:
    """Run a scenario on a new store."""

    async def play(url: str) -> Any:
        session_run = SessionRun(policy, url=url)
        try:
            return await scenario(session_run)
        finally:
            await session_run.close()

    if not on_disk:
        return asyncio.run(play(""))
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(play(f"sqlite:///{Path(folder) / 'agent.db'}"))


# One handle that lives, and others that come later


async def grow_and_reopen(session_run: SessionRun, seed: int, size: int, *, parts: int, often: float) -> int:
    """Append in random pieces with windows in between, and compare with newly opened handles."""
    rng, budget, made = Random(seed), Budget(size), 0
    session = await (await session_run.sessions()).create(id=ID, system=rng.choice([None, "You help."]))
    log, calls = long_log(rng, parts), list[ToolCallRequest]()
    while log:
        size = rng.choice([1, 1, 2, 3, 5])
        piece = [kept for message in log[:size] if (kept := disturbed(rng, message))]
        del log[:size]
        for messages in [piece] if piece and rng.random() < 0.5 else [[one] for one in piece]:
            calls += [call for one in await appended(session, messages) for call in one.tool_calls]
        if rng.random() < 0.1:
            await (await session_run.sessions()).restore(ID)  # the core answers what is open
        if rng.random() < 0.1:
            await answered_late(session, rng, calls)
        if rng.random() < 0.03:
            await session.set_system(f"You are number {rng.random()}.")
        if rng.random() < 0.3:
            made += cuts(await window(session, budget))
        if rng.random() < often:
            made += cuts(await check_handles_agree(session_run, budget, session, await session_run.opened()))
    await check_log(session)
    await check_handles_agree(session_run, budget, session, await session_run.opened())
    return made


@pytest.mark.req("A5", "B1", "C3", "C7", "C8", "C9", "G1", "G3")
@examples(6, long=800)
@given(seed=seeds, size=sizes, policy=policies)
def test_a_new_handle_makes_the_window_of_the_old_one_and_of_the_whole_list(
    seed: int, size: int, policy: Policy
) -> None:
    run(lambda session_run: grow_and_reopen(session_run, seed, size, parts=5, often=0.3), policy)


@pytest.mark.req("A5", "C8", "C9", "G1", "G3")
@examples(3, long=120)
@given(seed=seeds, size=sizes, policy=policies)
def test_a_new_process_on_the_same_file_makes_the_same_windows(seed: int, size: int, policy: Policy) -> None:
    run(
        lambda session_run: grow_and_reopen(session_run, seed, size, parts=3, often=0.1), policy, on_disk=True
    )


def test_the_runs_have_many_cuts() -> None:
    made = [
        run(
            lambda session_run, seed=seed: grow_and_reopen(session_run, seed, 700, parts=10, often=0),
            Policy(),
        )
        for seed in range(4)
    ]
    assert min(made) >= 5


async def grow_under_moving_budgets(session_run: SessionRun, seed: int, size: int) -> None:
    """Make windows under budgets that jitter, alternate and jump, compact and undo; all handles agree."""
    rng = Random(seed)
    session = await (await session_run.sessions()).create(id=ID, system="You help.")
    for message in long_log(rng, 6):
        if kept := disturbed(rng, message):
            await appended(session, [kept])
        if rng.random() < 0.4:
            moved = rng.choice([1, rng.uniform(0.95, 1.05), rng.uniform(0.95, 1.05), 0.5, 1.4, 2, 3, 40])
            budget = Budget(int(moved * size))
            if rng.random() < 0.5:
                await window(session, budget)
            else:
                await check_handles_agree(session_run, budget, session, await session_run.opened())
        with suppress(SessionError):  # there may be nothing to compact, or to undo
            if rng.random() < 0.03:
                await session.compact(Budget(size), strategy=Strategy(keep=rng.randrange(4)))
            elif rng.random() < 0.03:
                await session.undo()
    await check_archived_once(session)


@pytest.mark.req("C1", "C7", "C8", "C9", "F3", "D5")
@examples(5, long=800)
@given(seed=seeds, size=sizes, policy=policies)
def test_under_budgets_that_move_all_handles_agree_and_nothing_is_archived_twice(
    seed: int, size: int, policy: Policy
) -> None:
    run(lambda session_run: grow_under_moving_budgets(session_run, seed, size), policy)


async def grow_with_repeats(session_run: SessionRun, seed: int, size: int) -> None:
    """Let calls repeat the ids of earlier calls: windows may rename them, and all are valid."""
    rng, budget = Random(seed), Budget(size)
    session = await (await session_run.sessions()).create(id=ID)
    said = list[Message]()
    for message in long_log(rng, 4, repeats=True):
        said += await appended(session, [message])
        if rng.random() < 0.3:
            for handle in (session, await session_run.opened()):
                if made := await window(handle, budget):
                    check_window(made, session_run.manager, budget)
    assert [message.id for message in await session.messages()] == [message.id for message in said]


@pytest.mark.req("A4", "A5")
@examples(4, long=300)
@given(seed=seeds, size=sizes)
def test_calls_that_share_an_id_break_no_window(seed: int, size: int) -> None:
    run(lambda session_run: grow_with_repeats(session_run, seed, size), Policy())


# Two handles that write by turns, and at the same time


async def two_handles(session_run: SessionRun, seed: int, size: int, *, at_once: bool) -> None:
    rng, budget = Random(seed), Budget(size)
    handles = [await (await session_run.sessions()).create(id=ID), await session_run.opened()]
    queues = [long_log(rng, 3), long_log(rng, 3)]
    taken: list[list[Message]] = [[], []]

    async def step(which: int) -> None:
        if rng.random() < 0.3:
            await window(handles[which], budget)
        elif queues[which]:
            taken[which] += await appended(handles[which], [queues[which].pop(0)])

    while any(queues):
        if at_once:
            await asyncio.gather(*[step(which) for which in (0, 1, 0, 1)])
        else:
            await step(rng.randrange(2))
    stored = [message.id for message in await handles[0].messages()]
    assert sorted(stored) == sorted(message.id for mine in taken for message in mine)
    for mine in [] if at_once else taken:
        own = {message.id for message in mine}
        assert [id for id in stored if id in own] == [message.id for message in mine]
    await check_handles_agree(session_run, budget, *handles, await session_run.opened())
    await check_log(handles[0])


@pytest.mark.req("A7", "G5", "C8")
@examples(6, long=800)
@given(seed=seeds, size=sizes, policy=policies)
def test_two_handles_by_turns_lose_nothing_and_cut_once(seed: int, size: int, policy: Policy) -> None:
    run(lambda session_run: two_handles(session_run, seed, size, at_once=False), policy)


@pytest.mark.req("A7", "G5", "C8")
@examples(3, long=120)
@given(seed=seeds, size=sizes)
def test_two_processes_at_once_lose_nothing_and_cut_once(seed: int, size: int) -> None:
    run(lambda session_run: two_handles(session_run, seed, size, at_once=True), Policy(), on_disk=True)


# The prompt cache


def shared_tokens(session_run: SessionRun, one: Window, other: Window) -> int:
    """Count the tokens of the common prefix of two requests."""
    shared = 0
    for mine, its in zip(one.messages, other.messages, strict=False):
        if as_bytes([mine]) != as_bytes([its]):
            break
        shared += 1
    return session_run.manager.count(one.messages[:shared]).tokens - REPLY_START if shared else 0


async def reused_over_a_run(session_run: SessionRun, seed: int, size: int) -> None:
    """Compare the reported reuse of windows with what they share, with a new handle in the middle.

    A newly opened handle has sent nothing and reports nothing, although the bytes are the same.
    """
    rng, budget = Random(seed), Budget(size)
    session = await (await session_run.sessions()).create(id=ID, system="You help.")
    log, previous, reported, real = long_log(rng, 5), None, 0, 0
    reopen_at = len(log) // 2
    for number, message in enumerate(log):
        await appended(session, [message])
        if number == reopen_at:
            session, last = await session_run.opened(), previous
            previous = await window(session, budget)
            if previous and last:
                assert previous.reused_prefix_tokens == 0
                if cuts(previous) == 0 and last.view.cut == previous.view.cut:
                    assert (
                        shared_tokens(session_run, previous, last)
                        >= shared_tokens(session_run, last, previous)
                        > 0
                    )
            continue
        made = await window(session, budget)
        if made is None:
            continue
        if previous:
            reported += made.reused_prefix_tokens
            whole = made.messages == previous.messages
            real += made.tokens if whole else shared_tokens(session_run, made, previous)
        previous = made
    assert reported == real


@pytest.mark.req("C8")
@examples(6, long=500)
@given(seed=seeds, size=sizes)
def test_what_is_reported_as_reused_is_what_two_requests_share(seed: int, size: int) -> None:
    run(lambda session_run: reused_over_a_run(session_run, seed, size), Policy())


# Planted bugs: the checks above are worth something only if they catch these.


def caught(check: Callable[[int], None], *, seeds: int = 25) -> bool:
    """Return True if a check fails for one of the first seeds."""
    for seed in range(seeds):
        try:
            check(seed)
        except Exception:
            return True
    return False


def agree(seed: int) -> None:
    run(lambda session_run: grow_and_reopen(session_run, seed, 700, parts=4, often=0.3), Policy())


def by_turns(seed: int) -> None:
    run(lambda session_run: two_handles(session_run, seed, 700, at_once=False), Policy())


def at_once(seed: int) -> None:
    run(lambda session_run: two_handles(session_run, seed, 400, at_once=True), Policy(), on_disk=True)


def test_without_a_planted_bug_nothing_is_caught() -> None:
    assert not caught(lambda seed: (agree, by_turns, at_once)[seed % 3](seed), seeds=runs(6, long=60))


def test_a_loader_that_forgets_the_pinned_question_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    found = path._start

    async def forgetful(*asked: Any) -> Any:
        return [], (await found(*asked))[1]

    monkeypatch.setattr(path, "_start", forgetful)
    assert caught(agree)


def test_a_loader_that_begins_one_entry_late_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    clip = path.between

    def late(spans: Any, first: int, last: int) -> Any:
        return clip(spans, first + 1 if first > 1 else first, last)

    monkeypatch.setattr(path, "between", late)
    assert caught(agree)


def test_a_cut_that_is_written_without_checking_the_head_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    async def blind(self: Any, _loaded: Any, decisions: Any) -> None:
        records = await self._writer.records(decisions)
        self._writer.wrote(await self._writer.commit(records=records), decisions, records)

    monkeypatch.setattr(session_windows.WindowMaker, "record", blind)
    assert caught(at_once)


def test_stored_counts_that_are_trusted_blindly_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def all_counts(messages: Any, sizes: Any, _: Any) -> list[Any]:
        return [(message, tokens) for message, (tokens, _) in zip(messages, sizes, strict=True)]

    monkeypatch.setattr(session_windows, "known_counts", all_counts)
    assert caught(agree)
