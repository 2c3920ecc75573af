"""What takes long runs in a thread, and what is short does not: the event loop is never kept waiting."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.session.session_fixtures import Harness, answer, answers, asks, call, run
from turnstate import Budget, Message
from turnstate.context import tally
from turnstate.context.live_window import LiveWindow
from turnstate.log import path, records
from turnstate.session import append, windows
from turnstate.threads import INLINE, READ, is_large

LONG = "a" * (INLINE + READ)  # for counting, and for decoding


class Threads:
    """Notes whether functions run in the loop's thread on long texts; they do what they always do."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._patch, self.seen = monkeypatch, dict[tuple[str, bool], set[bool]]()

    def note(self, place: Any, name: str) -> None:
        real: Callable[..., Any] = getattr(place, name)

        def noted(*args: Any, **named: Any) -> Any:
            on_loop = threading.current_thread() is threading.main_thread()
            self.seen.setdefault((name, is_large(*args)), set()).add(on_loop)
            return real(*args, **named)

        self._patch.setattr(place, name, noted)


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Threads:
    noting = Threads(monkeypatch)
    for place, name in (
        *((records, "encode"), (records, "reduced"), (tally, "reduced")),
        *((path, "decode_entry"), (append, "digest"), (append, "fresh")),
    ):
        noting.note(place, name)
    return noting


@pytest.mark.req("B1")
@run
async def test_long_texts_are_worked_on_in_a_thread_and_short_ones_are_not(
    harness: Harness, threads: Threads
) -> None:
    sessions = await harness.manager()
    session, one, two = await sessions.create(), call(), call()
    await session.append(Message.user("go"), asks(one, two))
    threads.seen.clear()  # the first count loads a vocabulary, in a thread
    await session.append(answers(answer(one, "short")), key="short")
    await session.window(Budget(8_000))
    assert threads.seen
    assert threads.seen == {(name, False): {True} for name, _ in threads.seen}
    threads.seen.clear()
    other = await sessions.open(session.id)  # which has to look for the call
    await other.append(answers(answer(two, LONG)), key="long")
    await session.window(Budget(8_000))
    again = await sessions.open(session.id)
    await again.messages()
    await again.messages(last=1)
    await again.window(Budget(8_000))
    await again.conversation()
    on_long_texts = {name: seen for (name, large), seen in threads.seen.items() if large}
    names = ("encode", "reduced", "decode_entry", "digest", "fresh")
    assert on_long_texts == {name: {False} for name in names}


@pytest.mark.req("C8", "G6")
@run
async def test_what_is_said_while_a_window_is_made_is_in_the_next_one(harness: Harness) -> None:
    sessions = await harness.manager()
    session, one = await sessions.create(), call()
    await session.append(Message.user("go"), asks(one), answers(answer(one, "word " * 100_000)))
    budget = Budget(2_000)
    made, *_ = await asyncio.gather(
        session.window(budget),
        session.append(Message.assistant("I see.")),
        session.window(budget),
        session.append(Message.user("And now?")),
    )
    assert made.tokens <= 2_000
    live = await session.window(budget)
    reopened = await (await sessions.open(session.id)).window(budget)
    assert [message.text for message in live.messages[-2:]] == ["I see.", "And now?"]
    assert live.messages == reopened.messages


@pytest.mark.req("C8")
@run
async def test_a_window_that_was_broken_off_leaves_no_half_made_tally(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on, make = threading.Event(), threading.Event(), LiveWindow.window

    def waiting(*args: Any, **named: Any) -> Any:
        begun.set()
        go_on.wait(60)
        return make(*args, **named)

    sessions = await harness.manager()
    session, one = await sessions.create(), call()
    await session.append(Message.user("go"), asks(one), answers(answer(one, "word " * 100_000)))
    monkeypatch.setattr(LiveWindow, "window", waiting)
    making = asyncio.create_task(session.window(Budget(2_000)))
    await asyncio.to_thread(begun.wait, 60)
    making.cancel()
    with pytest.raises(asyncio.CancelledError):
        await making
    go_on.set()
    window = await session.window(Budget(2_000))
    again = await (await sessions.open(session.id)).window(Budget(2_000))
    assert window.messages == again.messages


@pytest.mark.parametrize(
    ("value", "large"),
    [
        (Message.user("x" * INLINE), True),
        (Message.user("x" * (INLINE // 2)), False),
        ([[]] * (INLINE + 1), True),
        ({f"key {n}": n for n in range(10)}, False),
        ({"k" * INLINE: "v"}, True),
        (answers(answer(call(), [{"row": n} for n in range(INLINE)])), True),
        ((1, 2.0, None, True, b"x" * (INLINE + 1)), True),
    ],
)
def test_large_is_what_holds_more_text_than_is_worked_on_inline(value: Any, large: bool) -> None:
    assert is_large(value) == large


@run
async def test_a_window_whose_counts_are_known_is_made_in_the_loop_once_the_vocabulary_is_loaded(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_loop, made = list[bool](), LiveWindow.window

    def noted(*args: Any, **named: Any) -> Any:
        on_loop.append(threading.current_thread() is threading.main_thread())
        return made(*args, **named)

    monkeypatch.setattr(LiveWindow, "window", noted)
    sessions = await harness.manager()
    session = await sessions.create()
    await session.append(*(Message.user("word " * 100) for _ in range(3 * INLINE // 500)))
    for is_ready in (True, False):
        monkeypatch.setattr(windows, "is_ready", lambda _, is_ready=is_ready: is_ready)
        await (await sessions.open(session.id)).window(Budget(100_000))
    assert on_loop == [True, False]
