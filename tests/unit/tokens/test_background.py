from __future__ import annotations

import asyncio
import threading

import pytest

from turnstate.tokens import Count, ExactCounter, count_off_loop, vocabulary
from turnstate.tokens.exact import INLINE

pytestmark = pytest.mark.req("B2")


class Witness:
    """Counts characters and remembers in which thread."""

    name = "witness"

    def __init__(self) -> None:
        self.threads: list[bool] = []

    def count(self, text: str) -> Count:
        self.threads.append(threading.current_thread() is threading.main_thread())
        return Count(len(text))


def test_a_short_text_is_counted_on_the_spot() -> None:
    witness = Witness()
    assert asyncio.run(count_off_loop(witness, "x" * INLINE)) == Count(INLINE)
    assert witness.threads == [True]


def test_a_long_text_is_counted_in_a_thread() -> None:
    witness = Witness()
    assert asyncio.run(count_off_loop(witness, "x" * (INLINE + 1))) == Count(INLINE + 1)
    assert witness.threads == [False]


def test_the_first_loading_of_a_vocabulary_is_off_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    on_loop = []
    build = vocabulary._built
    monkeypatch.setattr(vocabulary, "_loaded", {})
    monkeypatch.setattr(
        vocabulary,
        "_built",
        lambda name: on_loop.append(threading.current_thread() is threading.main_thread()) or build(name),
    )
    assert asyncio.run(count_off_loop(ExactCounter("cl100k_base"), "hi")) == Count(1)
    assert on_loop == [False]


def test_the_loop_keeps_turning_while_ten_megabytes_are_counted() -> None:
    counter = ExactCounter("o200k_base")
    counter.count("load it first")
    text = "the quick brown fox jumps over it, " * 300_000

    async def ticks_meanwhile() -> tuple[Count, int]:
        counting = asyncio.ensure_future(count_off_loop(counter, text))
        ticks = 0
        while not counting.done():
            await asyncio.sleep(0.001)
            ticks += 1
        return counting.result(), ticks

    count, ticks = asyncio.run(ticks_meanwhile())
    assert count == Count(2_400_001)
    assert ticks >= 10, "counted on the loop there would be one"
