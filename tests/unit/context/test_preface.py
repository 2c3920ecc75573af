"""What is sent besides the messages: what was recalled stands behind all that a prompt cache can reuse."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

import pytest

from tests.unit.context.scripts import shown, talk
from turnstate import Message, StateManager, ToolCallRequest, ToolCallResult, codec, formats
from turnstate.context import Budget, Preface, Window
from turnstate.context.preface import OPENER
from turnstate.entry import Decision

MANAGER = StateManager()
WIDE = Budget(100_000)


def placed(script: str, **preface: str) -> str:
    """Return the roles of a window with context and memory, whose texts stand in their places."""
    window = MANAGER.window(talk(script), WIDE, preface=Preface(**{"memory": "recalled"} | preface))
    names = {"recalled": "memory", "a file": "context", OPENER.text: "opener"}
    return " ".join(names.get(one.text, shown([one])) for one in window.messages)


@pytest.mark.req("C8", "F6")
def test_what_was_recalled_stands_before_the_newest_message_of_the_user() -> None:
    assert placed("S U A U A") == "S U A memory U A"
    assert placed("U A U A[x] T[x] A[y] T[y]") == "U A memory U A[x] T[x] A[y] T[y]"
    assert placed("U A U A", context="a file") == "context U A memory U A"
    assert placed("U U") == "U memory U"


@pytest.mark.req("C8")
def test_without_a_question_what_was_recalled_stands_first() -> None:
    assert placed("A A") == "memory A A"
    assert placed("A U") == "opener A memory U"
    assert placed("", context="a file") == "context memory"


@pytest.mark.req("C5", "C6")
def test_what_was_recalled_stands_before_the_question_that_a_cut_pinned() -> None:
    rounds = " ".join(f"A[c{number}] T[c{number}]" for number in range(60))
    messages, preface = (
        talk(f"U A U:why {rounds}", text="word " * 20),
        Preface(memory="recalled", context="a file"),
    )
    window = MANAGER.window(messages, Budget(1_500), preface=preface)
    assert window.view.pinned
    summary, context, memory, question = window.messages[:4]
    assert (summary.kind, context.text, memory.text, question.text) == (
        "summary",
        "a file",
        "recalled",
        "why",
    )
    assert window.tokens == MANAGER.count(window.messages).tokens
    assert window.report.usage["memory"] == MANAGER.count([memory]).tokens - 3


def agent(turns: int, *, rounds: int = 1) -> Iterator[Message]:
    for turn in range(turns):
        yield Message.user(f"What changed on disk {turn} since yesterday? " * 4)
        for number in range(rounds):
            call = ToolCallRequest(name="df", args={"disk": turn, "round": number})
            yield Message.assistant("Looking.", tool_calls=[call])
            yield Message.tool([ToolCallResult(tool_call_id=call.id, result=f"disk {number} grew\n" * 20)])
        yield Message.assistant("The logs were not rotated, so the folder grew. " * 12)


def requests(messages: Iterable[Message], size: int) -> Iterator[Window]:
    """Make the requests of an agent that recalls something else in each turn."""
    budget, decisions, previous = Budget(size), list[Decision](), None
    tally, recalled, turn = MANAGER.tally([], budget), "", 0
    for message in messages:
        tally.add(message)
        if message.role == "user":
            turn += 1
            recalled = f"In turn {turn} it is known that disk {turn * 7} is full. " * 8
        if message.role in ("user", "tool"):
            preface = Preface(system="Be careful.", memory=recalled)
            previous = MANAGER.window(tally, budget, preface=preface, decisions=decisions, previous=previous)
            decisions += previous.decisions
            yield previous


@pytest.mark.req("C8")
def test_a_recall_that_changes_with_each_turn_keeps_the_prompt_cache() -> None:
    for size, turns, least in ((16_000, 120, 0.85), (128_000, 400, 0.95)):
        windows = [one for one in requests(agent(turns), size) if one.tokens > size / 2]
        shares = [one.reused_prefix_tokens / one.tokens for one in windows[1:]]
        print(f"{size:,}: {sum(shares) / len(shares):.1%} of {len(shares)} requests")
        assert sum(shares) / len(shares) >= least


@pytest.mark.req("C8")
def test_within_a_turn_each_request_begins_with_all_of_the_one_before() -> None:
    first, second = [list(requests(agent(2, rounds=40), 128_000))[start : start + 41] for start in (0, 41)]
    for before, after in (*pairwise(first), *pairwise(second)):
        assert codec.dump(after.messages[: len(before.messages)]) == codec.dump(before.messages)
        assert after.reused_prefix_tokens == before.tokens - 3


@pytest.mark.req("A8", "C8")
def test_windows_that_grew_with_recalls_are_those_of_the_whole_list_and_valid_everywhere() -> None:
    messages, decisions = list(agent(40)), list[Decision]()
    ends = [end for end, one in enumerate(messages, start=1) if one.role in ("user", "tool")]
    for end, window in zip(ends, requests(messages, 3_000), strict=True):
        recalled = next(one.text for one in window.messages if one.text.startswith("In turn "))
        preface = Preface(system="Be careful.", memory=recalled)
        pure = MANAGER.window(messages[:end], Budget(3_000), preface=preface, decisions=decisions)
        assert codec.dump(pure.messages) == codec.dump(window.messages)
        assert (pure.tokens, pure.report.usage) == (window.tokens, window.report.usage)
        assert window.tokens == MANAGER.count(window.messages).tokens
        assert sum(window.report.usage.values()) == 3_000
        for format in map(formats.get, formats.names()):
            assert format.validate(format.render(window.messages), request=True) == []
        decisions += window.decisions
