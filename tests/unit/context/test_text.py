"""Lines end where an editor ends them, and nothing is lost between them."""

from __future__ import annotations

import pytest

from turnstate.context import text as lines
from turnstate.context.text import LONGEST_TOKEN, exceeds, widest
from turnstate.errors import InputError
from turnstate.tokens.counter import Count

pytestmark = pytest.mark.req("E3")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("one", ["one"]),
        ("one\n", ["one\n"]),
        ("one\n\n", ["one\n", "\n"]),
        ("one\r\ntwo", ["one\r\n", "two"]),
        ("10 %\r20 %\r30 %", ["10 %\r", "20 %\r", "30 %"]),
        ("one\n\rtwo", ["one\n", "\r", "two"]),
        ("one\u2028two\u2029three\u2029", ["one\u2028", "two\u2029", "three\u2029"]),
        ("page\fpage\vpage\x85page\x1cpage", ["page\fpage\vpage\x85page\x1cpage"]),
    ],
)
def test_a_text_has_the_lines_that_an_editor_shows(text: str, expected: list[str]) -> None:
    many = len(expected)
    assert lines.count(text) == many
    assert [lines.full_range(text, n, n) for n in range(1, many + 1)] == expected
    assert lines.ends(text, 99) == [len("".join(expected[:n])) for n in range(1, many + 1)]
    assert lines.starts(text, 99) == [len("".join(expected[:n])) for n in range(many)]


def test_the_last_lines_are_found_behind_a_giant_one() -> None:
    text = "x" * 100_000 + "\r\n" + "y\r\n" * 30_000
    for most in (1, 2, 6_000, 29_999):
        begin = lines.starts(text, most)
        assert len(begin) == most
        assert text[begin[0] :] == "y\r\n" * most


def test_looking_back_may_start_between_the_two_characters_of_one_line_end() -> None:
    for length in range(16_370, 16_390):
        text = "a\r\n" + "b" * length + "\r\n"
        assert lines.starts(text, 1) == [3]
        assert lines.starts(text, 2) == [0, 3]


def test_a_range_is_clipped_to_the_lines_that_there_are() -> None:
    text = "one\ntwo\nthree"
    assert lines.full_range(text, 2, 99) == "two\nthree"
    assert lines.full_range(text, 1, 3) == text
    assert lines.full_range(text, 4, 9) == ""
    assert lines.full_range("", 1, 1) == ""


@pytest.mark.parametrize(("first", "last"), [(0, 1), (-3, -1), (3, 2)])
def test_a_range_that_is_none_is_refused(first: int, last: int) -> None:
    with pytest.raises(InputError, match=f"{first}-{last} is not a range of lines"):
        lines.full_range("one\ntwo\n", first, last)


# A counter is asked as little as possible, and the answer is the one that it would give.


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
