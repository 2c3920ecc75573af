"""Exact counts with the open vocabularies, which are part of the package.

The numbers are those of the model's own tokenizer. Names of special tokens, such as ``<|endoftext|>``,
are counted as ordinary text, which they are in a message. Counting never fails on a text: one that the
tokenizer cannot take is counted in part by the estimator, and the result says so.

A vocabulary is a list of byte strings, in which a token's place is its rank, and a pattern that says
where text is split before bytes are paired. The lists are xz files that hold the length of every token,
a byte each, and then the tokens in the order of rank; the container has a SHA-256 of its content, so
damage is noticed. Nothing is downloaded. A vocabulary is loaded once, at its first use (about a quarter
of a second), whichever thread asks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct

from ..errors import TurnstateError, UnknownName
from ..long_json import exceeds
from .counter import Count, Counter, total
from .estimate import Estimator
from .pieces import LIMIT, TextPiece, pieces

if TYPE_CHECKING:
    from tiktoken import Encoding

__all__ = [
    "INLINE",
    "SIZES",
    "ExactCounter",
    "count_off_loop",
    "count_texts",
    "encoding",
    "is_large",
    "is_ready",
    "off_loop",
    "ranks",
    "unpacked",
]

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
_SPECIAL = "<|endoftext|>"
_SPECIALS = {_SPECIAL}

_loaded: dict[str, Encoding] = {}
_loading = threading.Lock()


def encoding(name: str) -> Encoding:
    """Return the encoder of a vocabulary, loading it at the first call."""
    found = _loaded.get(name)
    if found is not None:
        return found
    with _loading:
        if name not in _loaded:
            _loaded[name] = _built(name)
        return _loaded[name]


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
        special_tokens={_SPECIAL: len(table)},
    )


def _packed(name: str) -> bytes:
    from importlib import resources  # 10 ms, which only those who count should pay

    return (resources.files(__package__) / "data" / f"{name}.ranks.xz").read_bytes()


class ExactCounter(Struct, frozen=True):
    """Counts with ``o200k_base`` or ``cl100k_base``."""

    name: str

    def __post_init__(self) -> None:
        if self.name not in SIZES:
            known = ", ".join(sorted(SIZES))
            raise UnknownName(f"no open vocabulary is called {self.name!r:.60}; there are {known}")

    @property
    def is_loaded(self) -> bool:
        """Whether the vocabulary is in memory; the first count loads it."""
        return self.name in _loaded

    def count(self, text: str) -> Count:
        """Count a text: exactly, unless it has no seam for 100,000 characters."""
        if len(text) > LIMIT:
            return total(map(self._counted_piece, pieces(text)))
        encoder = _loaded.get(self.name) or encoding(self.name)
        try:
            # Not `encode_ordinary`: where the pattern overflows, that one panics past `except Exception`.
            return Count(len(encoder.encode(text, disallowed_special=())), "exact")
        except ValueError:
            return Estimator().count(text)

    def count_groups(self, groups: Sequence[Sequence[str]]) -> list[Count]:
        """Count groups of texts, each text on its own, in one call: return the sum of each group.

        Texts are joined by a special token, at which the tokenizer always splits. A call for each text takes
        longer, since two threads that count take Python's lock from each other at every call.
        """
        texts = [text for group in groups for text in group]
        joined = _SPECIAL.join(texts)
        if len(joined) > LIMIT or joined.count(_SPECIAL) >= len(texts):  # or one of them has it, too
            return self._counted_apart(groups)
        encoder = _loaded.get(self.name) or encoding(self.name)
        try:
            tokens = encoder.encode(joined, allowed_special=_SPECIALS, disallowed_special=())
        except ValueError:
            return self._counted_apart(groups)
        mark, start, counts = SIZES[self.name], 0, list[Count]()
        tokens.append(mark)
        for group in groups:
            sum = 0
            for _ in group:
                end = tokens.index(mark, start)
                sum, start = sum + end - start, end + 1
            counts.append(Count(sum))
        return counts

    def _counted_apart(self, groups: Sequence[Sequence[str]]) -> list[Count]:
        if len(groups) < 2:
            return [total(map(self.count, group)) for group in groups]
        half = len(groups) // 2
        return self.count_groups(groups[:half]) + self.count_groups(groups[half:])

    def _counted_piece(self, piece: TextPiece) -> Count:
        count = self.count(piece.text)
        return count if piece.exact else Count(count.tokens, "estimated")


def count_texts(counter: Counter, texts: Sequence[str]) -> Count:
    """Count several texts, each on its own, and return the sum."""
    if len(texts) == 1:
        return counter.count(texts[0])
    if isinstance(counter, ExactCounter):
        return counter.count_groups([texts])[0]
    return total(map(counter.count, texts))


# Work that leaves an event loop free.


T = TypeVar("T")

INLINE = 20_000
"""Characters that are counted on the spot: two milliseconds, a pause that no user notices."""


async def off_loop(work: Callable[[], T], *, large: bool) -> T:
    """Do large work in a thread and small work at once; in a thread without a loop, all work."""
    if not large:
        return work()
    import asyncio  # a process that runs a loop has it loaded already

    return await asyncio.to_thread(work) if asyncio._get_running_loop() else work()


def is_large(*values: Any) -> bool:
    """Return True if values hold more text than is processed inline, looking at no more than that."""
    return exceeds(INLINE, *values)


def is_ready(counter: Counter) -> bool:
    """Return False if the first count would load a vocabulary."""
    return not isinstance(counter, ExactCounter) or counter.is_loaded


async def count_off_loop(counter: Counter, text: str) -> Count:
    """Count a text without holding up the event loop, a vocabulary's first loading included."""
    return await off_loop(lambda: counter.count(text), large=len(text) > INLINE or not is_ready(counter))
