"""Text for people: control characters made visible, counts with their nouns.

Text from outside may contain escape sequences, marks that reorder or hide what follows, and other
characters that a reader never sees. `harmless` escapes them wherever the text is shown.
"""

from __future__ import annotations

import re

__all__ = ["CONTROLS", "counted", "first_words", "harmless"]

# C0 and C1 controls, DEL, and marks that reorder or hide text. Tabs and line breaks are part of a text, and
# joiners (U+200C, U+200D) are part of words and emoji, so they are not included.
CONTROLS = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    r"\U000e0000-\U000e007f]|\r(?!\n)"
)
"""The characters that a terminal or a browser acts on."""

WORDS = 60
"""The default length of `first_words` in characters."""


def harmless(text: str) -> str:
    """Return text with the characters that a terminal or a browser would act on escaped."""
    if text.isascii() and text.replace("\n", " ").replace("\t", " ").isprintable():
        return text  # true for most texts, and ten times as fast as the pattern
    return CONTROLS.sub(lambda control: control[0].encode("unicode_escape").decode(), text)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun in the singular or plural."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def first_words(text: str, most: int = WORDS) -> str:
    """Return the beginning of a text as one line of at most `most` characters."""
    line = " ".join(text[: 4 * most].split())
    return line if len(line) <= most and len(text) <= 4 * most else f"{line[: most - 1].rstrip()}…"
