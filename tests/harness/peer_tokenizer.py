"""Token counts of other tokenizers for OpenAI's encodings, which share no code with ours.

`peer` is GitHub's, which takes any text; `tiktoken` is OpenAI's own, which takes seconds on long runs of one
character. All split text by the classes of its characters, each by the Unicode tables that it was built with,
and those of our tokenizer are newer than theirs. So texts with characters of the latest Unicode version may
count differently; `is_settled` tells whether a text has only those that all three know.
"""

from __future__ import annotations

import unicodedata
import warnings
from functools import cache
from typing import Any

from bench import offline_tiktoken


def peer(name: str, text: str) -> int:
    """Count the tokens of a text in an encoding, by GitHub's tokenizer."""
    return int(_tokenizer(name).count(text))


def tiktoken(name: str, text: str) -> int:
    """Count the tokens of a text in an encoding, by OpenAI's tokenizer."""
    return len(offline_tiktoken.encoding(name).encode(text, disallowed_special=()))


def published(name: str) -> bytes:
    """Return the file of an encoding as OpenAI publishes it, which tiktoken downloads."""
    return offline_tiktoken.published(name)


def is_settled(text: str) -> bool:
    """Return True if Python knows all characters: up to Python 3.14, they are of Unicode 16 or older."""
    return all(unicodedata.category(character) != "Cn" for character in text)


@cache
def _tokenizer(name: str) -> Any:
    """Return a tokenizer; its package takes a second to import, so only the tests that use it wait."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # it opens its tables in an older way
        from bpe_openai._bindings import tokenizer_for_encoding
    return tokenizer_for_encoding(name)
