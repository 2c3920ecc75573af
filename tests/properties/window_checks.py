"""The checks that hold for the window of any conversation."""

from __future__ import annotations

from collections.abc import Sequence

from turnstate import codec, formats
from turnstate.context.manager import StateManager
from turnstate.context.policy import Budget
from turnstate.context.window import Window
from turnstate.entry import Decision
from turnstate.message import Message

FORMATS = [formats.get(name) for name in formats.names()]


def as_bytes(messages: Sequence[Message]) -> bytes:
    return codec.dump(messages)


def check_window(window: Window, manager: StateManager, budget: Budget) -> None:
    """Assert that a window fits, is counted correctly, and is accepted by every provider."""
    assert window.tokens <= budget.limit
    assert manager.count(window.messages).tokens == window.tokens
    check_usage(window)
    if all(message.role == "system" for message in window.messages):
        return  # there is no message yet, so nothing to send
    last = window.messages[-1].role
    for format in FORMATS:
        violations = format.validate(format.render(window.messages), request=last in ("user", "tool"))
        assert violations == [], f"{format.name}: {violations[0]}"


def check_usage(window: Window) -> None:
    """Assert that no category is negative, that they add up to the window, and that the rest is free."""
    usage = dict(window.report.usage)
    free = usage.pop("free")
    assert min(usage.values()) >= 0, usage
    assert sum(usage.values()) == window.tokens
    assert free == max(0, window.limit - window.tokens)


def check_against_input(window: Window, messages: Sequence[Message]) -> None:
    """Assert that the prompt stays, and that one summary replaces what was cut."""
    ids = {message.id for message in window.messages}
    prompt = messages[: next((i for i, m in enumerate(messages) if m.role != "system"), len(messages))]
    assert {message.id for message in prompt} <= ids
    summaries = [message for message in window.messages if message.kind == "summary"]
    if window.view.cut is None:
        assert summaries == []
        return
    assert len(summaries) == (1 if window.view.summary else 0)
    first = window.messages.index(summaries[0]) if summaries else 0
    assert all(message.role == "system" for message in window.messages[:first])


def check_hard_lock(window: Window, newest: int = 10) -> None:
    """Assert that the newest messages stay, unless the report says otherwise."""
    if any(event.startswith("gave up") for event in window.report.events):
        return
    tally = window.tally
    locked = (tally.items + tally.tail)[-newest:]
    assert {message.id for message in locked} <= {message.id for message in window.messages}


def check_replay(
    window: Window,
    manager: StateManager,
    messages: Sequence[Message],
    budget: Budget,
    decisions: Sequence[Decision],
) -> None:
    """Assert that the same input gives the same bytes, with and without recorded decisions."""
    again = manager.window(messages, budget, decisions=decisions)
    assert as_bytes(again.messages) == as_bytes(window.messages)
    assert again.decisions == window.decisions
    replayed = manager.window(messages, budget, decisions=[*decisions, *window.decisions])
    assert as_bytes(replayed.messages) == as_bytes(window.messages)
    assert replayed.decisions == ()
