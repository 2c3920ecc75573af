"""The chokepoint lets nothing through that a provider would reject, and nothing stale is kept behind it."""

from __future__ import annotations

import gc
import weakref
from itertools import cycle

import pytest

from tests.unit.context.scripts import Letters, talk
from turnstate import Message, StateManager
from turnstate.context import Budget, Policy, Preface, Window
from turnstate.context.cut import compaction, foreseen
from turnstate.context.live_window import MOST_SENT, MOST_TALLIES, LiveWindow
from turnstate.context.window import check, check_fit, shared_length
from turnstate.errors import InvalidConversation
from turnstate.tokens import Count


@pytest.mark.parametrize(
    "script", ["", "S", "U", "S U A", "S S U A[x] T[x] A", "U A[x,y] T[y] T[x]", "U A[x] T[x] A[y] T[y] U"]
)
def test_what_every_provider_takes_passes(script: str) -> None:
    check(talk(script))


@pytest.mark.req("C3", "C6")
@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("A", "first message"),
        ("S A U", "first message"),
        ("U A[x]", "without an answer at the end"),
        ("U A[x] U", "without an answer before"),
        ("U A[x,y] T[x] A", "without an answer before"),
        ("U T[x]", "no such call is open"),
        ("U A[x] T[x] T[x]", "no such call is open"),
        ("U A[x] T[y]", "no such call is open"),
        ("U A[x] T[x] U A[x] T[x]", "not unique"),
    ],
)
def test_what_a_provider_would_reject_is_stopped(script: str, says: str) -> None:
    with pytest.raises(InvalidConversation, match=says):
        check(talk(script))


def test_a_window_that_grew_is_walked_from_where_it_grew() -> None:
    messages = talk("U A[x] T[x] A U")
    check(messages, known=3)
    with pytest.raises(InvalidConversation, match="without an answer"):
        check(talk("U A[x] T[x] A U A[y]"), known=5)
    with pytest.raises(InvalidConversation, match="without an answer"):
        check(talk("U A[x,y] T[x] U"), known=3)


@pytest.mark.req("C1")
def test_a_window_that_is_too_long_is_stopped() -> None:
    check_fit(100, 100)
    with pytest.raises(InvalidConversation, match="the window has 101 tokens; its limit is 100"):
        check_fit(101, 100)


# What is kept from one window to the next.


class Counted(Letters):
    """Notes what it counts."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def count(self, text: str) -> Count:
        self.texts.append(text)
        return super().count(text)


def made(live: LiveWindow, messages: list[Message], size: int, preface: Preface = Preface()) -> Window:  # noqa: B008
    """Make a window as a conversation does, and send it."""
    live.under(Budget(size))
    live.grow(messages[live.length :])
    window = live.window(preface)
    live.sent(window)
    return window


@pytest.mark.req("B1", "C8")
def test_budgets_that_take_turns_count_each_message_once() -> None:
    counter = Counted()
    live, messages = LiveWindow(counter, Policy()), talk("U:one A:two U:three")
    sizes = [1 << number for number in range(10, 10 + MOST_TALLIES)]
    for size in sizes:
        made(live, messages, size)
    counter.texts.clear()
    for size, message in zip(cycle(sizes), talk("A:a U:b A:c U:d", text=""), strict=False):
        messages.append(message.replace(id=f"new-{message.id}"))
        made(live, messages, size)
    assert not {"one", "two", "three"} & set(counter.texts)


def test_a_request_is_compared_with_all_that_were_sent_even_after_its_messages_were_loaded_again() -> None:
    live, messages = LiveWindow(Letters(), Policy()), talk("S U A U A")
    first = made(live, messages, 8_000)
    made(live, messages, 2_000, Preface(bootstrap="Another request."))
    assert made(live, messages, 8_000).reused_prefix_tokens == first.tokens
    assert made(live.restarted(), messages, 8_000).reused_prefix_tokens == first.tokens


@pytest.mark.parametrize("budgets", ["loaded again", "many budgets"])
def test_what_is_no_longer_used_is_not_held(budgets: str) -> None:
    live, messages = LiveWindow(Letters(), Policy()), talk("S U A U A")
    tally = weakref.ref(made(live, messages, 8_000).tally)
    if budgets == "loaded again":
        live = live.restarted()
    for number in range(MOST_TALLIES + 1):
        made(live, messages, 1 << (14 + number))
    gc.collect()
    assert tally() is None
    assert len(live._sent) <= MOST_SENT


def test_what_two_requests_share_is_found_wherever_they_differ() -> None:
    before = tuple(talk("U " * 40))
    for end in range(41):
        after = (*before[:end], *(message.replace(id=f"new-{message.id}") for message in before[end:]))
        assert shared_length(after, before) == end
        assert shared_length(before[:end], before) == shared_length(before, before[:end]) == end


@pytest.mark.req("D3")
def test_no_cut_is_foreseen_if_nothing_could_leave() -> None:
    window = StateManager(Letters()).window(talk("U A[x] T[x]"), Budget(100))
    assert foreseen(window, Policy()) is None


@pytest.mark.req("G1")
def test_a_compaction_is_planned_from_values_alone() -> None:
    manager, messages, budget = StateManager(Letters()), talk("U A " * 20, text="w" * 50), Budget(2_000)
    decisions = manager.window(messages, budget).decisions
    planned = manager.compaction(messages, budget, decisions=decisions)
    assert planned == compaction(manager.shown(messages, budget, decisions=decisions), manager.policy)
    assert planned
    assert planned.cut.kept_from == messages[-4].id
    assert manager.compaction(messages[:4], budget) is None
