"""Splits text into the terms that memory is found by: word stems, or character pairs without spaces.

`search_terms` finds a message that contains all the words of a query. Memory answers questions, which is
different: words that are in every sentence are left out, "moved" is found by "move", and each occurrence
counts. Stems come from SQLite's Porter tokenizer, which runs at the speed of C. Japanese, Chinese, Korean
and Thai become overlapping pairs of characters; pairs that are only grammar, such as です or 了吗, are left
out. A Han character is also a term by itself, since it is often a word.
"""

from __future__ import annotations

import re
import threading
from functools import cache
from itertools import pairwise
from typing import Any
from unicodedata import normalize

import apsw

MAX_TEXT = 16_000
"""The most characters kept and indexed of a message; anything beyond is a dump, which buries the rest."""

LONGEST = 40
"""The most characters of a term; longer ones are keys and hashes, whose beginning suffices."""

_DENSE = (
    "\u3005\u3007\u3041-\u3096\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\uac00-\ud7a3\u1100-\u11ff\u0e01-\u0e3a\u0e40-\u0e4e\U00020000-\U000323af"
)
_RUN = re.compile(f"[{_DENSE}]+")
_HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af]")

_STOP = """
" a about after all also am an and any are as at be because been before being both but by can could d did
do does doing done don down each for from had has have having he her here hers him his how i if in into is
it its just ll m may me might mine more most must my no not of off on only or other our out over own re s
shall she should so some such t than that the their theirs them then there these they this those to too up
us ve very was we were what when where which who whom whose why will with would you your yours
"""

_GLUE = frozenset("のはがをにへとでもやかねよなだのですますたてしいるれらあこそどんくさけせばまりきっうおわ")
"""Hiragana of particles and endings; a pair of them is grammar."""

_STOP_HAN = frozenset(
    "的了是在我你他她它们这那有和与吗呢吧啊呀嘛也都就还很把被让给对从到会能要不没什么怎哪谁个之其"
)


def terms(text: str) -> list[str]:
    """Return the terms of a text in order; a term that occurs twice is listed twice."""
    text = text[:MAX_TEXT]
    if text.isascii():
        return _stems(text)
    text = normalize("NFKC", text)
    found = _stems(_RUN.sub(" ", text))
    for run in _RUN.findall(text):
        found += _pairs(run)
    return found


def stem(word: str) -> str:
    """Return the term of one word; empty for a word that is left out."""
    found = terms(word)
    return found[0] if found else ""


def words(text: str) -> list[str]:
    """Return all words of a text in lower case; none are left out."""
    return _WORD.findall(normalize("NFKC", text[:MAX_TEXT]).lower())


def is_dense(text: str) -> bool:
    """Return True if a text has characters of a script without spaces."""
    return not text.isascii() and _RUN.search(text) is not None


_WORD = re.compile(r"[^\W_]+(?:['’][a-z]+)?")


def _stems(text: str) -> list[str]:
    stop = _stop_stems()
    return [token[:LONGEST] for token in _tokens(text) if token not in stop]


def _pairs(run: str) -> list[str]:
    alone = [character for character in _HAN.findall(run) if character not in _STOP_HAN]
    return alone + ["".join(pair) for pair in pairwise(run) if not _is_glue(pair)]


def _is_glue(pair: tuple[str, str]) -> bool:
    return all(character in _GLUE for character in pair) or all(
        character in _STOP_HAN or character in _GLUE for character in pair
    )


class _Porter(threading.local):
    """A tokenizer for each thread, because two threads cannot use an SQLite connection together."""

    def __init__(self) -> None:
        self.connection = apsw.Connection("")
        self.tokenizer = self.connection.fts5_tokenizer("porter", ["unicode61", "remove_diacritics", "2"])


_porter = _Porter()


def _tokens(text: str) -> list[str]:
    if not text or text.isspace():
        return []
    found: Any = _porter.tokenizer(
        text.encode(errors="replace"),
        apsw.FTS5_TOKENIZE_DOCUMENT,
        None,
        include_offsets=False,
        include_colocated=False,
    )
    return list(found)


@cache
def _stop_stems() -> frozenset[str]:
    return frozenset(_tokens(_STOP))
