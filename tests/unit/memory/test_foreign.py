from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from turnstate.memory import worker
from turnstate.memory.worker import failure

SOON = 0.02
LONG = 60.0


class Panic(BaseException):
    """What a native library may raise."""


def raising(error: BaseException) -> Callable[[], Awaitable[None]]:
    async def fail() -> None:
        raise error

    return fail


def outcome(call: Callable[[], Awaitable[object]], timeout: float = LONG) -> str | None:
    return asyncio.run(failure(call, timeout=timeout))


def test_a_call_that_returns_has_not_failed() -> None:
    async def fine() -> int:
        return 5

    assert outcome(fine) is None


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ValueError("no room"), "ValueError: no room"),
        (KeyError(), "KeyError"),
        (asyncio.CancelledError(), "CancelledError"),
        (asyncio.CancelledError("gave up"), "CancelledError: gave up"),
        (TimeoutError(), "TimeoutError"),
        (SystemExit(3), "SystemExit: 3"),
        (GeneratorExit(), "GeneratorExit"),
        (Panic("index out of bounds"), "Panic: index out of bounds"),
    ],
)
def test_whatever_a_call_raises_is_told(error: BaseException, told: str) -> None:
    assert outcome(raising(error)) == told


def test_what_is_raised_before_anything_is_awaited_is_told() -> None:
    def call() -> Awaitable[None]:
        raise TypeError("it takes two arguments")

    assert outcome(call) == "TypeError: it takes two arguments"


def test_an_interrupt_from_the_keyboard_is_not_held_back() -> None:
    with pytest.raises(KeyboardInterrupt):
        outcome(raising(KeyboardInterrupt()))


def test_a_call_that_hangs_is_ended_and_told() -> None:
    ended = []

    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    assert outcome(hang, SOON) == "no answer within 0.02 s"
    assert ended == [True]


def test_a_call_that_refuses_to_end_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "GRACE", SOON)

    async def stubborn(enough: asyncio.Event) -> None:
        while not enough.is_set():
            try:
                await enough.wait()
            except asyncio.CancelledError:
                continue

    async def test() -> None:
        enough = asyncio.Event()
        assert await failure(lambda: stubborn(enough), timeout=SOON) == "no answer within 0.02 s"
        enough.set()
        while worker._abandoned:
            await asyncio.sleep(0)

    asyncio.run(test())


def test_a_call_that_ends_well_when_it_is_hurried_has_not_failed() -> None:
    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return  # the work is done, the rest was politeness

    assert outcome(slow, SOON) is None


def test_whoever_waits_can_be_cancelled_and_ends_the_call() -> None:
    ended = []

    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    async def test() -> None:
        waiting = asyncio.ensure_future(failure(hang, timeout=LONG))
        await asyncio.sleep(0.01)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert ended == [True]

    asyncio.run(test())


def test_an_error_that_cannot_be_told_is_named() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert outcome(raising(Mute())) == "Mute: an error without a readable text"


def test_what_an_error_says_is_cut_and_can_be_kept_by_any_store() -> None:
    told = outcome(raising(ValueError("a\0b\ud800" + "c" * 10_000)))
    assert told is not None
    assert told.startswith("ValueError: ab?cc")
    assert len(told) <= worker.MAX_ERROR
