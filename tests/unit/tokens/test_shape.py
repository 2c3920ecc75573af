from __future__ import annotations

import pytest

from turnstate.tokens.estimate import LONGEST, _table, pieces_of

pytestmark = pytest.mark.req("B2")


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("Hello world", {"Aaaaa": 1, " aaaaa": 1}),
        ("a, b, c", {"a": 1, ".": 2, " a": 2}),
        ("self.name", {"aaaa": 1, ".aaaa": 1}),
        ("XMLParser", {"AAA": 1, "Aaaaaa": 1}),
        ("1234567", {"000": 2, "0": 1}),
        ("x = 42", {"a": 1, " -": 1, " ": 1, "00": 1}),
        ("if x:\n    y", {"aa": 1, " a": 2, ".\n": 1, "   ": 1}),
        ("-----\n", {"-----\n": 1}),
        ("東京タワー", {"T": 1, "H": 1, "kkk": 1}),
        ("café", {"aaal": 1}),
        ("привет мир", {"cccccc": 1, " ccc": 1}),
        ("한국어", {"KKK": 1}),
        ("ok。", {"aa": 1, ",": 1}),
        ("\x00", {"x": 1}),
    ],
)
def test_a_text_is_cut_as_a_tokenizer_cuts_it(text: str, shapes: dict[str, int]) -> None:
    assert dict(pieces_of(text)) == shapes


def test_no_character_falls_between_the_pieces() -> None:
    text = "".join(map(chr, range(0x3000))) + "😀𝔘" + "".join(map(chr, range(0x11FFF, 0x3000, -7)))
    covered = sum(len(piece) * times for piece, times in pieces_of(text).items())
    assert covered == len(text)


def test_a_run_of_letters_is_cut_where_no_word_is_as_long() -> None:
    assert dict(pieces_of("a" * 40)) == {"a" * LONGEST: 2, "a" * 8: 1}


def test_every_character_of_the_basic_plane_has_a_kind() -> None:
    assert len(_table()) == 0x10000
    assert _table().isascii()
