from __future__ import annotations

import re
import unicodedata
from itertools import pairwise

import pytest

from turnstate.tokens import pieces as module
from turnstate.tokens.pieces import TextPiece, pieces

pytestmark = pytest.mark.req("B2")


def cut(text: str, limit: int) -> list[str]:
    return [piece.text for piece in pieces(text, limit=limit)]


def characters(ranges: str) -> list[str]:
    """Spell out the inside of a character class."""
    return [chr(point) for point in range(0x10000) if re.match(f"[{ranges}]", chr(point))]


def test_a_short_text_is_one_exact_piece() -> None:
    assert list(pieces("hello world", limit=11)) == [TextPiece("hello world", exact=True)]
    assert list(pieces("", limit=1)) == [TextPiece("", exact=True)]


def test_a_cut_stands_before_the_space() -> None:
    assert cut("one two three", 9) == ["one two", " three"]


def test_the_last_seam_within_reach_is_taken() -> None:
    assert cut("a b c d e f", 6) == ["a b c", " d e f"]


@pytest.mark.parametrize(
    ("text", "pieces_are"),
    [
        ("これは長い、文です", ["これは長い", "、文です"]),
        ("abcde12345", ["abcde", "12345"]),
        ("12345abcde", ["12345", "abcde"]),
        ('{"key":"value"}', ['{"key', '":', '"value"}'][:1]),
        ("====\n====\n", ["====\n", "====\n"]),
    ],
)
def test_seams_are_found_in_other_texts_too(text: str, pieces_are: list[str]) -> None:
    assert cut(text, 6)[: len(pieces_are)] == pieces_are


@pytest.mark.parametrize(
    "text", ["don't don't", "x/y//////z", "a\u0301\u0301\u0301\u0301\u0301", "\n/\n/\n/\n/"]
)
def test_what_a_tokenizer_may_join_is_no_seam(text: str) -> None:
    cuts = list(pieces(text, limit=4))
    for piece, after in pairwise(cuts):
        joined = after.text[0] in "'\u0301" or (piece.text[-1] in "\n/" and after.text[0] == "/")
        assert not (piece.exact and joined)


def test_a_text_without_a_seam_is_cut_hard_and_says_so() -> None:
    assert list(pieces("=" * 10, limit=4)) == [
        TextPiece("====", exact=False),
        TextPiece("====", exact=False),
        TextPiece("==", exact=True),
    ]


def test_pieces_put_together_are_the_text() -> None:
    text = "word, " * 50_000 + " " * 150_000 + "東京" * 80_000
    parts = list(pieces(text, limit=100_000))
    assert "".join(part.text for part in parts) == text
    assert max(len(part.text) for part in parts) == 100_000


def test_letters_are_letters_in_every_version_of_unicode_in_use() -> None:
    letters = characters(module._LETTER)
    assert len(letters) > 30_000
    assert {unicodedata.category(letter)[0] for letter in letters} == {"L"}
    assert all(unicodedata.ucd_3_2_0.category(letter)[0] in "LC" for letter in letters)


def test_marks_are_neither_letters_nor_digits_nor_accents() -> None:
    marks = characters(module._MARK)
    assert {unicodedata.category(mark)[0] for mark in marks} <= {"P", "S"}
    assert "'" not in marks
    assert {unicodedata.category(space) for space in characters(module._SPACE)} <= {"Zs", "Cc"}
