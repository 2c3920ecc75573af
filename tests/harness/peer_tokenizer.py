"""Token counts of GitHub's tokenizer for OpenAI's encodings, which shares no code with ours."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any


def peer(name: str, text: str) -> int:
    """Count the tokens of a text in an encoding."""
    return int(_tokenizer(name).count(text))


@cache
def _tokenizer(name: str) -> Any:
    """Return a tokenizer; its package takes a second to import, so only the tests that use it wait."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # it opens its tables in an older way
        from bpe_openai._bindings import tokenizer_for_encoding
    return tokenizer_for_encoding(name)
