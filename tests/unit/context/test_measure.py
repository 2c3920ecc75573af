"""A counter is asked as little as possible, and the answer is the one that it would give."""

from __future__ import annotations

import pytest

from turnstate.context.text import LONGEST_TOKEN, exceeds, widest
from turnstate.tokens.counter import Count


class Fours:
    """Four bytes a token; remembers how many characters it was asked for."""

    name = "fours"

    def __init__(self) -> None:
        self.asked = 0

    def count(self, text: str) -> Count:
        self.asked += len(text)
        return Count(-(-len(text.encode()) // 4), "estimated")


def test_a_text_of_no_more_bytes_than_the_limit_is_not_counted() -> None:
    counter = Fours()
    assert not exceeds(["a" * 100, "灯" * 100], 400, counter)
    assert counter.asked == 0


def test_a_text_that_no_vocabulary_makes_short_enough_is_not_counted() -> None:
    counter = Fours()
    assert exceeds(["a" * LONGEST_TOKEN * 100, "b"], 100, counter)
    assert counter.asked == 0


def test_the_beginning_of_a_text_tells_that_the_whole_is_too_long() -> None:
    counter = Fours()
    assert exceeds(["some words " * 1_000], 100, counter)
    assert counter.asked <= 800


def test_a_text_without_a_place_to_split_is_counted_whole() -> None:
    counter = Fours()
    assert not exceeds([" " * 1_000], 250, counter)
    assert exceeds([" " * 1_001], 250, counter)


def test_a_text_is_not_judged_by_a_word_that_was_torn() -> None:
    class Words(Fours):
        def count(self, text: str) -> Count:
            return Count(1) if text.endswith("!") else Count(len(text))

    assert not exceeds(["a" * 1_000 + "!"], 10, Words())


@pytest.mark.parametrize("limit", [24, 25, 26])
def test_several_texts_are_measured_together(limit: int) -> None:
    texts = ["word " * 12, "x" * 40]
    assert exceeds(texts, limit, Fours()) == (limit < 25)


@pytest.mark.parametrize("most", [1, 2, 10, 1_000, 1_000_000])
@pytest.mark.parametrize("price", [1, 4, 128])
@pytest.mark.parametrize("limit", [1, 40, 4_000])
def test_the_search_comes_close_to_the_best_in_few_questions(most: int, price: int, limit: int) -> None:
    asked: list[int] = []

    def cost(number: int) -> int:
        asked.append(number)
        return -(-number // price)

    found = widest(cost, limit, most)
    best = min(most, limit * price)
    assert best - best // 32 - 1 <= found <= best
    assert len(asked) <= 12


@pytest.mark.parametrize("step", [50, 300, 999])
def test_the_search_copes_with_costs_that_jump(step: int) -> None:
    found = widest(lambda number: 10 + 100 * (number // step), 500, 1_000)
    assert 0.9 * min(1_000, 5 * step - 1) <= found < 5 * step


def test_the_search_finds_nothing_where_nothing_fits() -> None:
    assert widest(lambda number: 100 + number, 50, 1_000_000) == 0
    assert widest(lambda number: number, 50, 0) == 0
