"""Every prefix of real and of generated conversations fits a small budget, or nothing could.

`make test` takes each real conversation at one budget, `make faults` takes all at every budget.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pytest

from tests.harness.thoroughness import LONG, runs
from tests.properties.window_checks import check_window
from turnstate import Message, ToolCallResult, formats
from turnstate.context.manager import StateManager
from turnstate.context.policy import Budget, OutputLimits, Policy
from turnstate.context.reduction import reduced
from turnstate.entry import PENDING
from turnstate.errors import ContextOverflow
from turnstate.testing import conversations
from turnstate.tokens import message_cost

Record = Callable[[str, object], None]

BUDGETS = (1_500, 2_000, 3_000, 4_000)
CHUNKS = 8 if LONG else 2  # so that several workers can share the work
GENERATED = runs(40, long=500)
MANAGER = StateManager()


def real(chunk: int) -> list[list[Message]]:
    folder = os.environ.get("TURNSTATE_DATA")
    if not folder:
        pytest.skip("TURNSTATE_DATA is not set: no real conversations here")
    lines = (Path(folder) / "tau-airline-dev.jsonl").read_text().splitlines()
    chat = formats.get("openai-chat")
    return [chat.parse(json.loads(line)["messages"]) for line in lines[chunk::CHUNKS]]


def generated(chunk: int) -> list[list[Message]]:
    return [conversations.valid(seed) for seed in range(chunk, GENERATED, CHUNKS)]


def least(messages: Sequence[Message], limit: int) -> int:
    """Count the least that must be sent without the engine: prompt, question, last group."""
    counter = MANAGER.counter
    limits = OutputLimits.of(Policy().reduction, limit)

    def cost(some: Iterable[Message]) -> int:
        return sum(message_cost(reduced(message, counter, limits), counter).tokens for message in some)

    body = [message for message in messages if message.role != "system"]
    prompt = messages[: next((i for i, m in enumerate(messages) if m.role != "system"), len(messages))]
    start = len(body) - 1
    while start > 0 and body[start].role == "tool":
        start -= 1
    question = next((i for i in reversed(range(start + 1)) if body[i].role == "user"), None)
    asked = [body[question]] if question is not None and question < start else []
    return 3 + cost(prompt) + cost(asked) + cost(body[start:]) + cost(still_open(body[start:]))


def still_open(group: Sequence[Message]) -> list[Message]:
    """Return the placeholder for calls without a result: no provider accepts a call without one."""
    answered = {result.tool_call_id for message in group for result in message.tool_results}
    calls = [call for message in group for call in message.tool_calls if call.id not in answered]
    results = [ToolCallResult(tool_call_id=call.id, result=PENDING, is_error=True) for call in calls]
    return [Message.tool(results)] if results else []


def budgets(number: int) -> Sequence[int]:
    """Return the budgets for a conversation: all of them, or one by turns in the quick version."""
    return BUDGETS if LONG else [BUDGETS[number % len(BUDGETS)]]


def windows_of(some: Iterable[list[Message]]) -> Counter[str]:
    """Make the window of every prefix, and count the kinds of windows."""
    seen: Counter[str] = Counter()
    for number, messages in enumerate(some):
        for limit in budgets(number):
            budget, decisions, previous = Budget(limit), [], None
            tally = MANAGER.tally([], budget)
            for end, message in enumerate(messages, start=1):
                tally.add(message)
                try:
                    window = MANAGER.window(tally, budget, decisions=decisions, previous=previous)
                except ContextOverflow:
                    assert least(messages[:end], limit) > limit
                    seen["overflow"] += 1
                    continue
                decisions, previous = [*decisions, *window.decisions], window
                check_window(window, MANAGER, budget)
                seen["cut" if window.view.cut else "hidden" if window.view.hidden else "whole"] += 1
    return seen


@pytest.mark.req("C1", "C5", "C6", "A8")
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_every_prefix_of_a_real_conversation_fits_and_validates(chunk: int, record_property: Record) -> None:
    seen = windows_of(real(chunk))
    record_property("counted", ("windows of every prefix, real conversations", dict(seen)))
    assert seen["whole"] > 0
    assert seen["cut"] > 0


@pytest.mark.req("C1", "C5", "C6", "A8")
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_every_prefix_of_a_generated_conversation_fits_and_validates(
    chunk: int, record_property: Record
) -> None:
    seen = windows_of(generated(chunk))
    record_property("counted", ("windows of every prefix, generated conversations", dict(seen)))
    assert seen["cut"] > 0
