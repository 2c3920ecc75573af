"""The tokens that a text is found by, the same for every store.

Text is normalized (NFKC), casefolded, and split at everything that is not a letter, digit, mark or
underscore, so paths, addresses and numbers are found by their parts. ``snake_case`` and ``camelCase``
names are indexed whole and in parts. Scripts written without spaces, and Hangul, whose particles are
attached to the word, become overlapping pairs of characters. A Han character is also a token alone,
since it is often a word. An entry matches if its ``entry_words`` contain all tokens of ``query``.

A token is unique in its entry and at most 64 characters long. Its only ASCII characters are
``a-z0-9_``, and it neither begins nor ends with ``_``: a store may mark rows with its own tokens that
begin with one.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from itertools import pairwise
from string import ascii_lowercase, ascii_uppercase, digits
from typing import NamedTuple
from unicodedata import category, normalize

from . import wire_text
from .codec import decode_entry
from .errors import InputError, TurnstateError
from .message import Message
from .part import TextPart

SEARCHED_BYTES = 100_000
"""Only this much of an entry is searched: a dump of megabytes would bury the conversation."""

LONGEST_TOKEN = 64  # a SHA-256 in hex is indexed whole; the beginning of a longer blob is enough
KNOWN_NAMES = 4_096
MOST_HUMPS = 8  # a word with more is base64 rather than a name, and its parts are noise

_HAN = "\u3005\u3007\u3021-\u3029\u3038-\u303b\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"
_KANA = "\u3031-\u3035\u3041-\u3096\u3099\u309a\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff"
_RARE_KANA_AND_BOPOMOFO = "\U0001aff0-\U0001b16f\u3105-\u312f\u31a0-\u31bf"
_HANGUL = "\u1100-\u11ff\ua960-\ua97c\uac00-\ud7a3\ud7b0-\ud7fb"
_THAI_AND_LAO = "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ebd\u0ec0-\u0ece\u0edc-\u0edf"
_MYANMAR_AND_KHMER = "\u1000-\u103f\u1050-\u108f\u1780-\u17b3\u17b6-\u17d3\u17d7\u17dc\u17dd"
_DENSE = _HAN + _KANA + _RARE_KANA_AND_BOPOMOFO + _HANGUL + _THAI_AND_LAO + _MYANMAR_AND_KHMER

_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u180b-\u180f\u200c-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff"
    "\U000e0100-\U000e01ef]+"
)
"""Soft hyphens, joiners, direction marks and variation selectors, which do not change a word."""

_ASCII_WORD = re.compile("[A-Za-z0-9_]+")

# The shape of an ASCII text: "A" for a capital, "_", "a" for any other character of a name, and a space.
_IN_NAMES = {"_": "_", **dict.fromkeys(ascii_uppercase, "A"), **dict.fromkeys(ascii_lowercase + digits, "a")}
_SHAPE = "".join(_IN_NAMES.get(chr(code), " ") for code in range(256)).encode()
_ANY_IN_NAME = bytes.maketrans(b"A_", b"aa")
_CAPITAL_OR_UNDERSCORE = bytes.maketrans(b"_", b"A")
_TOO_LONG = b"a" * (LONGEST_TOKEN + 1)

_PLAIN = re.compile(f"[A-Z]?[a-z0-9]{{1,{LONGEST_TOKEN - 1}}}|[A-Z0-9]{{1,{LONGEST_TOKEN}}}").fullmatch
_HEADLESS = re.compile(r"^[\W_]+")  # underscores, and marks without a letter before them
_HUMP = re.compile("[A-Z]+(?![a-z])|[A-Z]?[^A-Z]+")
_GAP = re.compile("[\\s\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]+")  # would break or reorder a line


def words(text: str) -> list[str]:
    """Return the tokens that an entry with this text is found by, in order of first appearance."""
    tokens = dict.fromkeys(token for word in _cut(text) for token in _indexed(word))
    tokens.pop("", None)
    return list(tokens)


def searchable(message: Message) -> Iterator[str]:
    """Yield the texts of a message that are searched."""
    if isinstance(message.content, str):
        yield message.content
    else:
        yield from (part.text for part in message.content or () if isinstance(part, TextPart))
    for call in message.tool_calls:
        yield call.name
        yield wire_text.args_text(call)
    for result in message.tool_results:
        yield wire_text.result_text(result.result)


def words_of(message: Message) -> list[str]:
    """Return the tokens that a message is found by."""
    plain = message.content if not (message.tool_calls or message.tool_results) else None
    return words(plain if isinstance(plain, str) else "\n".join(searchable(message)))


def entry_words(kind: str, body: bytes) -> list[str]:
    """Return the tokens that an entry is found by; only messages have any."""
    return words("\n".join(_texts_in(kind, body)))


def entry_text(kind: str, body: bytes) -> str:
    """Return a text that yields the tokens of an entry if split at all ASCII except letters, digits and _.

    In plain text only compound names are replaced. The reader must ignore the case of ASCII letters, and a
    token may occur more than once.
    """
    text = _searched("\n".join(_texts_in(kind, body)))
    cut = _names_cut(text) if text and text.isascii() else None
    return " ".join(words(text)) if cut is None else cut


def _names_cut(text: str) -> str | None:
    """Return an ASCII text with tokens in place of compound names; None if a name is too long.

    Such a name has an underscore, or a capital that is not its first letter.
    """
    # Finding one byte in the shape of the text takes 10 µs for a report of 400 tokens, a pattern 26 µs, and
    # `words` 47 µs. The benchmark of sessions needs that: 64 clients, until all is indexed, write 0.52 of
    # what the bare loop writes, and the goal is 0.4; with `words` it was 0.24 to 0.38, with a pattern 0.40.
    text = f" {text} "
    shape = text.encode().translate(_SHAPE)
    if _TOO_LONG in shape.translate(_ANY_IN_NAME):
        return None
    inner = shape.replace(b" A", b"  ").translate(_CAPITAL_OR_UNDERSCORE)
    pieces: list[str] = []
    done, place = 0, inner.find(b"A")
    while place >= 0:
        begin, end = shape.rfind(b" ", done, place) + 1, shape.find(b" ", place)
        pieces += (text[done:begin], _with_parts(text[begin:end]))
        done = end
        place = inner.find(b"A", end)
    return "".join([*pieces, text[done:]])


@lru_cache(maxsize=KNOWN_NAMES)  # agents name the same tools and files again and again: 5 µs a message, not 8
def _with_parts(name: str) -> str:
    """Return the tokens of an ASCII name as a text."""
    return " ".join(_indexed(name))


def _texts_in(kind: str, body: bytes) -> Iterable[str]:
    """Return the texts that an entry is found by; only messages have any, those of `searchable`."""
    if kind != "message":
        return ()
    try:
        entry = decode_entry(kind, body)
    except TurnstateError:  # it is damaged
        return ()
    return searchable(entry) if isinstance(entry, Message) else ()


def query(text: str) -> list[str]:
    """Return the tokens that an entry must contain, all of them, to match."""
    tokens = dict.fromkeys(token for word in _cut(text) for token in _asked(word) if token)
    if not tokens:
        raise InputError(f"nothing to search for in {text[:40]!r}: give at least one letter or digit")
    return list(tokens)


def snippet(text: str, terms: list[str], width: int = 80) -> str:
    """Return one line of the text around the first match of any term, or its beginning if none matches."""
    line = _GAP.sub(" ", _searched(text)).strip()
    if len(line) <= width:
        return line
    begin, end = _match(line, terms)
    margin = max(0, width - (end - begin)) // 2
    start = max(0, min(begin - margin, len(line) - width))
    left = "…" if start else ""
    right = "…" if start + width < len(line) else ""
    return (left + line[start + len(left) : start + width - len(right)] + right)[:width]


def _cut(text: str) -> dict[str, None]:
    """Return each word once, unchanged; a switch to or from a dense script begins a new word."""
    text = _searched(text)
    if text.isascii() or _only_separates(text):
        return dict.fromkeys(_ASCII_WORD.findall(text))
    patterns = _beyond_ascii()
    found = dict.fromkeys(patterns.word.findall(normalize("NFKC", _INVISIBLE.sub("", text))))
    return dict.fromkeys(part for word in found for part in patterns.dense_or_not.findall(word))


def _only_separates(text: str) -> bool:
    """Return True if nothing beyond ASCII can be part of a word, as quotes, dashes and emoji."""
    beyond = "".join(character for character in set(text) if not character.isascii())
    return not any(category(character)[0] in "LMNC" for character in normalize("NFKC", beyond))


def _searched(text: str) -> str:
    if len(text) * 4 <= SEARCHED_BYTES:  # no character takes more than four bytes
        return text
    return text[:SEARCHED_BYTES].encode(errors="replace")[:SEARCHED_BYTES].decode(errors="ignore")


class _Patterns(NamedTuple):
    word: re.Pattern[str]
    dense: re.Pattern[str]
    dense_or_not: re.Pattern[str]
    han: re.Pattern[str]


@cache
def _beyond_ascii() -> _Patterns:
    r"""Compile the patterns for text beyond ASCII, which take milliseconds and are often never needed.

    ``\w`` does not match marks, so Indic words would break at their vowels; hence a word continues after
    marks. The lookaheads are for speed: most words are followed by a space.
    """
    marks = _marks()
    return _Patterns(
        word=re.compile(
            rf"(?:\w+|(?![\x00-\u0e00])[{_DENSE}]+\w*)"  # the second: a dense script's vowel sign comes first
            rf"(?:(?![\x00-\u02ff])[{marks}]+\w*)*"
        ),
        dense=re.compile(f"[{_DENSE}]+"),
        dense_or_not=re.compile(f"[{_DENSE}]+|[^{_DENSE}]+"),
        han=re.compile(f"[{_HAN}]"),
    )


def _marks() -> str:
    """Return the ranges of combining marks; the skipped Han and Hangul blocks contain none."""
    codes = [*range(0x300, 0x3400), *range(0xA000, 0xAC00), *range(0xFB00, 0x1F000)]
    categories = "".join(category(chr(code)) for code in codes)
    runs = (run.span() for run in re.finditer("(?:Mn|Mc)+", categories))
    return "".join(f"{chr(codes[begin // 2])}-{chr(codes[end // 2 - 1])}" for begin, end in runs)


def _is_dense(word: str) -> bool:
    return not word.isascii() and _beyond_ascii().dense.match(word) is not None


def _indexed(word: str) -> Iterable[str]:
    if _PLAIN(word):
        return [word.lower()]
    if _is_dense(word):
        return [*_pairs(word), *_beyond_ascii().han.findall(word)]
    tokens = [_token(word)]
    for part in word.split("_"):
        tokens.append(_token(part))
        humps = [] if part.islower() else _HUMP.findall(part)
        if 1 < len(humps) <= MOST_HUMPS:
            tokens += [_token(hump) for hump in humps if len(hump) > 1]
    return tokens


def _asked(word: str) -> Iterable[str]:
    return _pairs(word) if _is_dense(word) else [_token(word)]


def _pairs(run: str) -> Iterable[str]:
    return map("".join, pairwise(run)) if len(run) > 1 else [run]


def _token(word: str) -> str:
    if word.isascii():
        return word.lower().lstrip("_")[:LONGEST_TOKEN].rstrip("_")
    return _HEADLESS.sub("", _folded(word))[:LONGEST_TOKEN].rstrip("_")


def _folded(text: str) -> str:
    return text.lower() if text.isascii() else normalize("NFKC", normalize("NFKC", text).casefold())


def _match(line: str, terms: list[str]) -> tuple[int, int]:
    """Return the start and end of the first match of a term in the line, preferably as a whole word."""
    folded = _folded(_INVISIBLE.sub("", line))
    inside = "|".join(map(re.escape, terms))
    alone = rf"(?<![^\W_])(?:{inside})(?![^\W_])"
    found = (re.search(alone, folded) or re.search(inside, folded)) if terms else None
    return (_origin(line, folded, found.start()), _origin(line, folded, found.end())) if found else (0, 0)


def _origin(line: str, folded: str, offset: int) -> int:
    """Return the position in the line that corresponds to an offset in the folded line."""
    if len(line) == len(folded):
        return offset

    def reach(place: int) -> int:
        return len(_folded(_INVISIBLE.sub("", line[: place + 1])))

    return bisect_right(range(len(line)), offset, key=reach)
