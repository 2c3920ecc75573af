"""Batches of tool outputs of any size, order and budget share the space and fit."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.harness.thoroughness import examples
from tests.properties.window_checks import as_bytes, check_replay, check_window
from turnstate import Message, StateManager, ToolCallRequest, ToolCallResult, ToolSpec
from turnstate.context.policy import Budget, OutputLimits
from turnstate.context.preface import Preface
from turnstate.context.reduction import reduced
from turnstate.context.window import Window
from turnstate.entry import PENDING, Decision, Mask
from turnstate.errors import ContextOverflow
from turnstate.ids import CallId

MANAGER = StateManager()
TIME = "2026-01-01T00:00:00.000Z"
IMAGE = {"type": "image", "data": "aGFyYm91cg==", "media_type": "image/png"}

seeds = st.integers(0, 2**32 - 1)
sizes = st.sampled_from([150, 300, 700, 1_000, 2_048, 4_100, 8_000, 32_000])


def long_outputs(count: int = 5, result: Any = "word " * 60_000) -> list[Message]:
    return batch([result] * count)


def batch(results: list[Any], question: str = "Go.", mark: str = "") -> list[Message]:
    """Return a question, a call for each result, and each result in its own message."""
    calls = [
        ToolCallRequest(id=CallId(f"call_{mark}{n}"), name="run", args={"n": n}) for n in range(len(results))
    ]
    answers = [
        Message.tool(
            [ToolCallResult(tool_call_id=call.id, result=result, is_error=number % 3 == 1)],
            id=f"{mark}t{number}",
            timestamp=TIME,
        )
        for number, (call, result) in enumerate(zip(calls, results, strict=True))
    ]
    return [
        Message.user(question, id=f"{mark}u", timestamp=TIME),
        Message.assistant(tool_calls=calls, id=f"{mark}a", timestamp=TIME),
        *answers,
    ]


def some_result(rng: Random) -> Any:
    length = rng.choice([0, 1, 20, 200, 2_000, 12_000])
    match rng.randrange(7):
        case 0:
            return "word " * length
        case 1:
            return "".join(f"{n}: a line of a log\n" for n in range(length // 3))
        case 2:
            return [{"row": n, "name": "keeper"} for n in range(length // 10)]
        case 3:
            return [IMAGE, {"type": "text", "text": "seen " * length}]
        case 4:
            return "x" * length
        case 5:
            return "数据库连接失败。\n" * (length // 8)
        case _:
            return rng.choice([None, 0, False, "", []])


def texts(window: Window) -> list[int]:
    """Count what each output shows."""
    results = [one for message in window.messages for one in message.tool_results]
    return [MANAGER.counter.count(str(one.result)).tokens for one in results]


def least(messages: list[Message], preface: Preface) -> int:
    """Count prompt, question and last group without the engine, every output reduced to its frame."""
    bare = [reduced(message, MANAGER.counter, OutputLimits(50, 50, 1, 1)) for message in messages]
    answered = {one.tool_call_id for message in messages for one in message.tool_results}
    missing = [call for message in messages for call in message.tool_calls if call.id not in answered]
    pending = [ToolCallResult(tool_call_id=call.id, result=PENDING, is_error=True) for call in missing]
    bare += [Message.tool(pending)] if pending else []
    return MANAGER.count(
        [*(message for _, message in preface.system_messages()), *bare], preface.tools
    ).tokens


@pytest.mark.req("E2", "C5")
def test_five_giant_outputs_of_one_batch_share_the_budget_and_no_turn_ends() -> None:
    window = MANAGER.window(long_outputs(), Budget(32_000))
    assert window.tokens <= 32_000
    assert [one.ids for one in window.decisions if isinstance(one, Mask)] == [()]  # the scale alone
    assert min(texts(window)) > 2_000
    assert max(texts(window)) - min(texts(window)) < 100
    assert all("[Data Truncated]\nStart: " in one.tool_results[0].result for one in window.messages[2:])


@pytest.mark.req("E2")
def test_what_short_outputs_leave_goes_to_the_long_ones() -> None:
    even = MANAGER.window(long_outputs(), Budget(32_000))
    mixed = MANAGER.window(batch(["done", "word " * 60_000, "ok", "word " * 60_000, ""]), Budget(32_000))
    assert texts(mixed)[0] == texts(mixed)[2] == 1
    assert min(texts(mixed)[1], texts(mixed)[3]) > 1.5 * max(texts(even))


@pytest.mark.req("E2", "C7", "A5")
def test_eight_results_in_eight_messages_in_any_order_give_the_same_bytes() -> None:
    results: list[Any] = [
        "word " * 60_000,
        "ok",
        *["line\n" * 9_000] * 3,
        {"rows": list(range(9_000))},
        "",
        0,
    ]
    messages, budget = batch(results), Budget(16_000)
    expected = as_bytes(MANAGER.window(messages, budget).messages)
    for seed in range(6):
        answers = messages[2:]
        Random(seed).shuffle(answers)
        tally = MANAGER.tally(messages[:2], budget)
        for answer in answers:
            tally.add(answer)
            window = MANAGER.window(tally, budget)
        assert as_bytes(window.messages) == expected
        assert as_bytes(MANAGER.window([*messages[:2], *answers], budget).messages) == expected


@pytest.mark.req("E2")
def test_while_calls_are_open_a_finished_output_shows_no_more_than_an_equal_share() -> None:
    messages, budget = long_outputs(8), Budget(32_000)
    tally, seen = MANAGER.tally(messages[:2], budget), list[int]()
    for answer in messages[2:]:
        tally.add(answer)
        window = MANAGER.window(tally, budget)
        assert window.tokens <= budget.limit
        seen.append(max(texts(window)))
    assert seen == [seen[0]] * 7 + seen[-1:]
    assert max(seen) <= tally.limits.batch // 8


@pytest.mark.req("C8", "E2")
def test_a_complete_batch_keeps_its_bytes_when_the_conversation_goes_on() -> None:
    messages, budget = long_outputs(), Budget(32_000)
    before = MANAGER.window(messages, budget)
    messages += [Message.assistant("I see."), Message.user("And now?")]
    after = MANAGER.window(messages, budget, previous=before)
    assert after.messages[: len(before.messages)] == before.messages
    moved = MANAGER.window(messages, Budget(30_400))
    assert as_bytes(moved.messages) == as_bytes(after.messages)


@pytest.mark.req("C5", "E2")
def test_beside_a_large_prompt_the_outputs_shrink_and_the_decision_is_recorded() -> None:
    preface, budget = Preface(system="Be careful. " * 7_000), Budget(32_000)
    messages = long_outputs()
    window = MANAGER.window(messages, budget, preface=preface)
    assert window.tokens <= 32_000
    (mask,) = window.decisions
    assert isinstance(mask, Mask)
    assert mask.ids == tuple(message.id for message in messages[2:])
    assert mask.each > 500
    assert window.report.reduced == mask.ids
    messages += [Message.assistant("I see."), Message.user("And now?")]
    later = MANAGER.window(messages, budget, preface=preface, decisions=window.decisions, previous=window)
    assert later.decisions == ()
    assert later.messages[: len(window.messages)] == window.messages
    assert as_bytes(MANAGER.window(messages, budget, preface=preface, decisions=[mask]).messages) == as_bytes(
        later.messages
    )
    roomy = MANAGER.window(messages, Budget(200_000), preface=preface, decisions=[mask])
    assert min(texts(roomy)) > 2 * mask.each


@pytest.mark.req("C5")
def test_outputs_shrink_to_bare_frames_before_an_overflow_is_raised() -> None:
    messages = long_outputs()
    needed = least(messages, Preface())
    window = MANAGER.window(messages, Budget(needed))
    assert window.tokens == needed
    assert {one.tool_results[0].result for one in window.messages[2:]} == {
        "[Data Truncated]\n... (300000 characters omitted) ..."
    }
    with pytest.raises(ContextOverflow):
        MANAGER.window(messages, Budget(needed - 1))


def grown(rng: Random, budget: Budget, preface: Preface, orders: int) -> list[bytes]:
    """Append a batch in some orders, with a window after each message; return the last windows as bytes."""
    messages = batch([some_result(rng) for _ in range(rng.randint(1, 9))], "Go. " * rng.choice([1, 20]))
    if len(messages) > 3 and rng.random() < 0.3:
        both = (*messages[3].tool_results, *messages[2].tool_results)
        messages[2:4] = [Message.tool(both, id="t01", timestamp=TIME)]
    final = list[bytes]()
    for _ in range(orders):
        answers = messages[2:]
        rng.shuffle(answers)
        log, decisions, previous = messages[:2], list[Decision](), None
        tally = MANAGER.tally(log, budget)
        for answer in answers:
            tally.add(answer)
            log = [*log, answer]
            try:
                window = MANAGER.window(
                    tally, budget, preface=preface, decisions=decisions, previous=previous
                )
            except ContextOverflow:
                assert least(log, preface) > budget.limit
                continue
            pure = MANAGER.window(log, budget, preface=preface, decisions=decisions)
            assert as_bytes(pure.messages) == as_bytes(window.messages)
            assert (pure.decisions, pure.tokens) == (window.decisions, window.tokens)
            if not preface.tools:
                check_window(window, MANAGER, budget)
            if rng.random() < 0.8:
                decisions += window.decisions
            previous = window
        with_nothing_recorded = _bytes(log, budget, preface)
        if with_nothing_recorded:
            final.append(with_nothing_recorded)
    return final


def _bytes(log: list[Message], budget: Budget, preface: Preface) -> bytes | None:
    try:
        window = MANAGER.window(log, budget, preface=preface)
    except ContextOverflow:
        assert least(log, preface) > budget.limit
        return None
    replayed = MANAGER.window(log, budget, preface=preface, decisions=window.decisions)
    assert as_bytes(replayed.messages) == as_bytes(window.messages)
    assert replayed.decisions == ()
    return as_bytes(window.messages)


@pytest.mark.req("C5", "C7", "E2", "E3", "A8")
@examples(10, long=600)
@given(seed=seeds, size=sizes)
def test_any_batch_fits_validates_and_has_the_same_bytes_in_any_order(seed: int, size: int) -> None:
    rng = Random(seed)
    tools = (ToolSpec(name="run", description="Run it. " * 20),) if rng.random() < 0.3 else ()
    preface = Preface(system="Be careful. " * rng.choice([1, size // 8, size // 4]), tools=tools)
    assert len(set(grown(rng, Budget(size), preface, orders=2))) <= 1


@pytest.mark.req("C7", "C8")
@examples(10, long=600)
@given(seed=seeds, size=sizes)
def test_windows_of_several_batches_can_be_replayed_and_grow_as_the_pure_ones(seed: int, size: int) -> None:
    rng, budget = Random(seed), Budget(size)
    log, decisions, previous = list[Message](), list[Decision](), None
    tally = MANAGER.tally([], budget)
    for number in range(rng.randint(2, 4)):
        for message in batch([some_result(rng) for _ in range(rng.randint(1, 6))], mark=f"{number}-"):
            tally.add(message)
            log.append(message)
        try:
            window = MANAGER.window(tally, budget, decisions=decisions, previous=previous)
        except ContextOverflow:
            continue
        check_window(window, MANAGER, budget)
        check_replay(window, MANAGER, log, budget, decisions)
        decisions += window.decisions
        previous = window


@pytest.mark.req("A5", "E3")
@pytest.mark.parametrize("together", [True, False])
def test_late_outputs_are_reduced_like_any_other(together: bool) -> None:
    messages, budget = long_outputs(), Budget(16_000)
    asked, answers = messages[:2], messages[2:]
    if together:
        answers = [Message.tool([one for answer in answers for one in answer.tool_results], id="late")]
    log = [*asked, Message.user("Never mind."), Message.assistant("All right."), *answers]
    tally = MANAGER.tally(log, budget, stored=True)
    window = MANAGER.window(tally, budget)
    check_window(window, MANAGER, budget)
    notes = [message.text for message in window.messages if "that no open call awaits" in message.text]
    assert len(notes) == 5 if together else notes
    assert all("\n[Data Truncated]\nStart: " in text for text in notes)
    expected = f"[Full output: {answers[-1].id}{'/call_4' if together else ''}]"
    assert notes[-1].endswith(expected)
