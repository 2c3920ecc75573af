"""Lines end where an editor ends them, and nothing is lost between them."""

from __future__ import annotations

import pytest

from turnstate.context import text as lines
from turnstate.errors import InputError

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
    with pytest.raises(InputError, match=f"{first}-{last} is no range"):
        lines.full_range("one\ntwo\n", first, last)
