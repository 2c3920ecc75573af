"""Text for people: characters that nobody sees made visible, counts with their nouns.

Text from outside may contain escape sequences, marks that reorder or hide what follows, and other
characters that take no room on a screen: U+200B between two letters, a whole message in tag characters. A
person who approves a command must see them. `harmless` writes them as escapes wherever the text is shown.

Which characters those are is decided by their Unicode category, so it needs no list of the dangerous ones.
Scripts and emoji need some of them, and keep them where they have a meaning: a joiner between two letters of
Arabic or of an Indic script, or between two emoji; one variation selector after the character that it varies.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from functools import lru_cache

WORDS = 60
"""The default length of `first_words` in characters."""

_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Categories: controls, format, surrogates, private use, unassigned, and the separators of lines."""

_LINE = frozenset("\n\t")
"""Controls that are part of a text."""

_JOINERS = "\u200c\u200d"

# Letters and marks that are blank, although their category says otherwise.
_BLANK = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
_SELECTORS = re.compile("[\u180b-\u180d\u180f\ufe00-\ufe0f\U000e0100-\U000e01ef]")

# All other characters of the category of spaces, and the Braille pattern without dots.
_OTHER_SPACES = re.compile("[\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000\u2800]")

# Signs of Arabic, Syriac and Kaithi whose category is Cf, and that are seen nevertheless.
_SEEN = frozenset("\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd")

# Scripts whose words need joiners: Arabic to Sinhala, Tibetan to Mongolian, and others.
_JOINING = re.compile(
    "[\u0600-\u0dff\u0f00-\u109f\u1780-\u18af\u1b00-\u1c7f\ua800-\uabff\U00010a00-\U00011fff]"
)

# Characters that have variants: of Myanmar, Mongolian and Phags-pa, Chinese characters, and some signs.
_VARIED = re.compile(
    "[\u1000-\u109f\u1820-\u18aa\u3400-\u9fff\ua840-\ua877\uf900-\ufaff\U00020000-\U0003ffff\u203c\u2049\u2139]"
)


def harmless(text: str, *, before: str = "") -> str:
    """Return text with the characters escaped that a reader would not see, or that a screen would act on.

    `before` is what stands before the text, if it is shown piece by piece.
    """
    if text.isascii() and text.replace("\n", " ").replace("\t", " ").isprintable():
        return text  # true for most texts, and ten times as fast as the rest
    return visible(text, _escape, before=before)


def exact(text: str) -> str:
    """Return text that a user approves: as `harmless`, and with spaces escaped that are not U+0020.

    They look like it, but a shell does not split words at them.
    """
    return harmless(_OTHER_SPACES.sub(lambda space: _escape(space[0]), text))


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode()


def visible(text: str, escape: Callable[[str], str], *, before: str = "") -> str:
    """Return text with each hidden character replaced by what `escape` returns for it."""
    suspects = set(filter(_may_hide, set(text)))
    if not suspects:
        return text
    shown = list(text)
    for place, character in enumerate(text):
        if character in suspects:
            last = text[place - 1] if place else before[-1:]
            if not _belongs(character, last, text[place + 1 : place + 2]):
                shown[place] = escape(character)
    return "".join(shown)


@lru_cache(maxsize=4_096)
def _may_hide(character: str) -> bool:
    if character in _LINE or character in _SEEN:
        return False
    return unicodedata.category(character) in _HIDDEN or _BLANK.match(character) is not None


def _belongs(character: str, before: str, after: str) -> bool:
    """Return True if a character that is hidden elsewhere has a meaning between its neighbors."""
    if character == "\r":
        return after == "\n"
    if not before:
        return False
    if character in _JOINERS:
        joins = _JOINING.match(before) and (not after or _JOINING.match(after))
        return bool(joins) or (_is_emoji(before) and (not after or _is_emoji(after)))
    if _SELECTORS.match(character):
        is_keycap = before in "#*0123456789" and after == "\u20e3"
        return is_keycap or bool(_VARIED.match(before)) or _is_symbol(before)
    return False


def _is_emoji(character: str) -> bool:
    """Return True for a symbol, a skin tone, or the selector that makes a symbol an emoji."""
    return character == "\ufe0f" or "\U0001f3fb" <= character <= "\U0001f3ff" or _is_symbol(character)


def _is_symbol(character: str) -> bool:
    return not character.isascii() and unicodedata.category(character) in ("So", "Sm")


def counted(number: int, noun: str) -> str:
    """Return a number with its noun in the singular or plural."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def first_words(text: str, most: int = WORDS) -> str:
    """Return the beginning of a text as one line of at most `most` characters."""
    line = " ".join(text[: 4 * most].split())
    return line if len(line) <= most and len(text) <= 4 * most else f"{line[: most - 1].rstrip()}…"
