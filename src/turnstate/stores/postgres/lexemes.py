"""Words as PostgreSQL keeps them: quoted lexemes of a ``tsvector``, and a ``tsquery`` that wants them all.

The words come ready from Python; PostgreSQL neither splits nor folds them. Beside them every entry has
marks, made of its tenant and its user, so that the index by itself finds only what is theirs. A mark
begins with ``_``, which no word does; the query looks at tenant and user all the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from hashlib import sha256

__all__ = ["kept", "marks", "query_of", "quoted", "vector"]

LONGEST = 500
"""Characters of a word: at most 2,000 bytes, where PostgreSQL takes 2,046."""

MOST_BYTES = 1_000_000
"""Of all words of an entry, quoted: PostgreSQL takes 1,048,575. By what is more it is not found."""

_IMPOSSIBLE = re.compile("[\0\ud800-\udfff]").search


def vector(words: Sequence[str]) -> str | None:
    """Give the words of an entry as the text of a ``tsvector``; nothing where there are none."""
    text = quoted(word for word in words if _usable(word))
    return (text if len(text.encode()) <= MOST_BYTES else quoted(kept(words))) or None


def query_of(words: Sequence[str], *, tenant: str, user: str | None) -> str | None:
    """Give the text of a ``tsquery`` for entries with all these words; nothing where none can have them."""
    if not words or not all(_usable(word) for word in words):
        return None
    return " & ".join(_quoted(word) for word in dict.fromkeys([*marks(tenant, user), *words]))


def marks(tenant: str, user: str | None) -> list[str]:
    """Give the marks of a session's entries."""
    return [_mark("t", tenant)] + ([] if user is None else [_mark("u", user)])


def kept(words: Sequence[str]) -> Iterator[str]:
    """Give the words that can be kept."""
    size = 0
    for word in filter(_usable, words):
        size += len(_quoted(word).encode()) + 1
        if size <= MOST_BYTES:
            yield word


def quoted(words: Iterator[str] | Sequence[str]) -> str:
    """Give words as the text of a ``tsvector``."""
    return " ".join(_quoted(word) for word in words)


def _mark(kind: str, name: str) -> str:
    return f"_{kind}{sha256(name.encode(errors='surrogatepass')).hexdigest()[:16]}"


def _usable(word: str) -> bool:
    return 0 < len(word) <= LONGEST and not _IMPOSSIBLE(word)


def _quoted(word: str) -> str:
    doubled = word.replace("\\", "\\\\").replace("'", "''")
    return f"'{doubled}'"
