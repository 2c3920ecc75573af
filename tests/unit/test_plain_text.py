"""Nothing that a reader cannot see is shown as it is, and what scripts need stays."""

from __future__ import annotations

import sys
import unicodedata

import pytest

from turnstate.plain_text import exact, harmless
from turnstate.terminal.screen import escaped

HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
SEEN = set("\n\t\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd")


SPACES = [one for one in map(chr, range(0x10000)) if unicodedata.category(one) == "Zs"]


def test_every_character_of_the_hidden_categories_is_escaped_between_letters() -> None:
    """Of the planes that are private or hardly assigned, a sample: they are most of all code points."""
    codes = [*range(0x20000), *range(0x20000, sys.maxunicode, 97), *range(0xE0000, 0xE1000), sys.maxunicode]
    hidden = [one for one in map(chr, codes) if unicodedata.category(one) in HIDDEN and one not in SEEN]
    assert len(hidden) > 50_000
    assert {unicodedata.category(one) for one in hidden} == HIDDEN
    shown = harmless("a".join(hidden))
    assert shown.isascii()
    assert shown.isprintable()


@pytest.mark.parametrize("space", ["\u2800", *(one for one in SPACES if one != " ")], ids=ascii)
def test_spaces_at_which_no_shell_splits_are_seen_in_what_a_user_approves(space: str) -> None:
    text = f"rm -rf a{space}b"
    assert exact(text) == f"rm -rf a{ascii(space)[1:-1]}b"
    assert harmless(text) == text


@pytest.mark.parametrize(
    "hidden",
    [
        "\u200b",  # zero-width space
        "\u200c\u200d",  # joiners that join nothing
        "\u2060\ufeff",  # word joiner, byte order mark
        "\u00ad",  # soft hyphen
        "\u202e\u2066\u2069\u200f\u061c",  # bidirectional controls
        "\U000e0072\U000e006d\U000e007f",  # "rm" in tag characters
        "\ufe0f\ufe00\U000e0100",  # variation selectors
        "\u3164\u115f\uffa0",  # fillers of Hangul, which are letters
        "\u034f\u180e\u17b4",
        "\ue000\U000f0000",  # private use
        "\ufdd0\uffff\U0010ffff",  # not characters
        "\u2028\u2029\x85\x1b\x9b",
    ],
)
def test_hidden_characters_are_visible_wherever_text_is_shown(hidden: str) -> None:
    command = f"rm -rf b{hidden}uild"
    for shown in (harmless(command), escaped(command)):
        assert not set(hidden) & set(shown)
        assert all(f"{ord(one):x}" in shown for one in hidden)
        assert shown.startswith("rm -rf b\\")


@pytest.mark.parametrize(
    "text",
    [
        "می\u200cخواهم",  # Persian: a non-joiner inside of a word
        "क्\u200dष श्री\u200c",  # Hindi
        "\u0600\u0661",  # an Arabic sign of numbers
        "👨\u200d👩\u200d👧 👩🏽\u200d💻 ❤\ufe0f\u200d🔥 🏳\ufe0f\u200d🌈",
        "1\ufe0f\u20e3 ☎\ufe0f ‼\ufe0f",
        "葛\U000e0100城 ᠠ\u180b",
        "日本語\u3000カナ é ü",
        "a\r\nb\tc",
    ],
)
def test_what_scripts_and_emoji_need_stays(text: str) -> None:
    assert harmless(text) == text


def test_one_selector_and_one_joiner_are_enough() -> None:
    assert harmless("☎\ufe0f\ufe0f") == "☎\ufe0f\\ufe0f"
    assert harmless("👨\u200d\u200d👩") == "👨\\u200d\\u200d👩"
    assert harmless("👨\u200drm") == "👨\\u200drm"
    assert harmless("1\ufe0f") == "1\\ufe0f"


def test_a_text_that_comes_in_pieces_keeps_what_belongs_together() -> None:
    text, shown, before = "👩🏽\u200d💻 می\u200cخواهم a\u200bb", "", ""
    for piece in text:
        shown, before = shown + harmless(piece, before=before), piece
    assert shown == text.replace("\u200b", "\\u200b")
