"""The open vocabularies, which are part of the package.

A vocabulary is a list of byte strings, in which a token's place is its rank, and a pattern that says
where text is split before bytes are paired. The lists are xz files that hold the length of every token,
a byte each, and then the tokens in the order of rank; the container has a SHA-256 of its content, so
damage is noticed. Nothing is downloaded. A vocabulary is loaded once, at its first use (about a quarter
of a second), whichever thread asks.
"""

from __future__ import annotations

import threading
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from ..errors import TurnstateError, UnknownName

if TYPE_CHECKING:
    from tiktoken import Encoding

__all__ = ["SIZES", "SPECIAL", "encoding", "loaded", "ranks", "unpacked"]

SIZES = {"cl100k_base": 100_256, "o200k_base": 199_998}
"""How many tokens each vocabulary has, its special ones left out: text never holds those."""

_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_BEFORE_WORD = r"[^\r\n\p{L}\p{N}]?"
_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"

# All but the look-ahead is in one group: the engine then runs it as a single automaton,
# which counts code and JSON a third faster than the same alternatives side by side.
_SHAPE = r"(?:{0})|\s+(?!\S)|\s+"

_PATTERNS = {
    "cl100k_base": _SHAPE.format(
        rf"{_CONTRACTION}|{_BEFORE_WORD}\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+"
    ),
    "o200k_base": _SHAPE.format(
        rf"{_BEFORE_WORD}{_UPPER}*{_LOWER}+{_CONTRACTION}?|{_BEFORE_WORD}{_UPPER}+{_LOWER}*{_CONTRACTION}?"
        rf"|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|\s*[\r\n]+"
    ),
}

# A vocabulary without any special token is searched for the empty one, which takes twice as long.
SPECIAL = "<|endoftext|>"

loaded: dict[str, Encoding] = {}
"""The encoders of the vocabularies that are in memory, by name."""

_loading = threading.Lock()


def encoding(name: str) -> Encoding:
    """Return the encoder of a vocabulary, loading it at the first call."""
    found = loaded.get(name)
    if found is not None:
        return found
    with _loading:
        if name not in loaded:
            loaded[name] = _built(name)
        return loaded[name]


def ranks(name: str) -> dict[bytes, int]:
    """Return the rank of every token, read from the package."""
    if name not in SIZES:
        raise UnknownName(f"there is no vocabulary {name!r:.60}; there are {', '.join(sorted(SIZES))}")
    tokens = unpacked(_packed(name), size=SIZES[name])
    return {token: rank for rank, token in enumerate(tokens)}


def unpacked(packed: bytes, *, size: int) -> list[bytes]:
    """Return the tokens of a packed vocabulary in the order of rank."""
    import lzma  # with the first vocabulary, not with `import turnstate`

    try:
        plain = lzma.decompress(packed, format=lzma.FORMAT_XZ)
    except (lzma.LZMAError, EOFError) as error:
        raise TurnstateError(
            f"a vocabulary of this installation is damaged ({error}): reinstall Turnstate"
        ) from None
    ends = list(accumulate(plain[:size], initial=size))
    if len(ends) != size + 1 or ends[-1] != len(plain):
        raise TurnstateError(
            f"a vocabulary of this installation does not hold {size:,} tokens: reinstall Turnstate"
        )
    return [plain[start:end] for start, end in pairwise(ends)]


def _built(name: str) -> Encoding:
    table = ranks(name)
    from tiktoken import Encoding  # heavy; only those who count exactly need it

    return Encoding(
        name,
        pat_str=_PATTERNS[name],
        mergeable_ranks=table,
        special_tokens={SPECIAL: len(table)},
    )


def _packed(name: str) -> bytes:
    from importlib import resources  # 10 ms, which only those who count should pay

    return (resources.files(__package__) / "data" / f"{name}.ranks.xz").read_bytes()
