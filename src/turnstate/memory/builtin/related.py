"""Words that are related to a word: a table that was made once with an embedding model, and ships as data.

"Which pets does she have?" is answered by a turn about a dog. No rule of spelling leads there, so a term
of a question also counts for the terms near it in meaning. The table has English stems only; other
languages are found by their own words, or by an embedder. ``tools/related_words.py`` makes it.
"""

from __future__ import annotations

import gzip
from functools import cache
from importlib.resources import files

__all__ = ["related"]


def related(term: str) -> list[tuple[str, float]]:
    """Return the terms near a term, each with its similarity, from 0 to 1."""
    line = _table().get(term, "")
    return [(pair[:-2], int(pair[-2:]) / 100) for pair in line.split()]


@cache
def _table() -> dict[str, str]:
    packed = files(__package__).joinpath("related_words.txt.gz").read_bytes()
    lines = gzip.decompress(packed).decode().splitlines()
    return dict(line.split(" ", 1) for line in lines if " " in line)
