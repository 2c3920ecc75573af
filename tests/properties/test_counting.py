"""Our counts against two other implementations, on texts of every kind."""

from __future__ import annotations

import json
import os
import random
from itertools import product
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.harness.peer_tokenizer import is_settled, peer, tiktoken
from tests.harness.thoroughness import examples
from turnstate.tokens import Count, Counter, counter
from turnstate.tokens.cost import VOCABULARIES
from turnstate.tokens.estimate import pieces_of
from turnstate.tokens.pieces import pieces

pytestmark = pytest.mark.req("B2")

NAMES = VOCABULARIES
SEED = 20_240_507
SCRIPTS = [
    (0x20, 0x7F), (0x20, 0x7F), (0x00, 0x20), (0x09, 0x0E), (0x80, 0x250), (0x300, 0x370), (0x370, 0x530),
    (0x590, 0x700), (0x900, 0xE80), (0x1100, 0x1200), (0x2000, 0x2070), (0x20A0, 0x2C00), (0x3000, 0x3100),
    (0x4E00, 0xA000), (0xAC00, 0xD7A4), (0xFB00, 0xFFFE), (0x1F300, 0x1FB00), (0x10000, 0x110000),
]  # fmt: skip
WORDS = [
    "the",
    "don't",
    "I'LL",
    "İstanbul",
    "東京",
    "です。",
    "안녕",
    "🙂",
    "👩‍👩‍👧",
    "2026",
    "привет",
    "مرحبا",
    "<|endoftext|>",
    "<|im_end|>",
]
SPACES = [" ", "  ", "\n", "\r\n", "\t", "\u3000", "\u00a0", "\x0b", "\x85", "\u2028", " \n ", "\x00", "    "]

# One of each class that the patterns tell apart, the letters of contractions among them.
ALPHABET = "aSʰ中ǅ\u03011' .\n/"

# Without characters that Python does not know, since the tokenizers may not agree on these: see `is_settled`.
texts = st.text(st.characters(exclude_categories=["Cs", "Cn"]), max_size=60)
seamy = st.text(st.sampled_from("aZé中あ한я19'’s.,/-_(\"「。\u3000 \t\n\r\u0301\u00a0🙂ſǅʰ\x00"), max_size=60)


def assert_as_others(name: str, text: str) -> None:
    expected = peer(name, text)
    assert tiktoken(name, text) == expected, repr(text)
    assert counter(name).count(text) == Count(expected, "exact"), repr(text)


def random_text(chance: random.Random) -> str:
    """Return words, white space and characters of many scripts, without those that Unicode added recently."""
    parts = []
    for _ in range(chance.randrange(12)):
        kind = chance.random()
        if kind < 0.3:
            parts.append(chance.choice(SPACES))
        elif kind < 0.6:
            parts.append(chance.choice(WORDS))
        else:
            first, end = chance.choice(SCRIPTS)
            run = (chr(chance.randrange(first, end)) for _ in range(chance.randrange(8)))
            parts += filter(is_settled, run)
    return "".join(parts)


@pytest.mark.parametrize("name", NAMES)
def test_ten_thousand_random_texts_count_as_others_count_them(name: str) -> None:
    chance = random.Random(SEED)
    for _ in range(10_000):
        assert_as_others(name, random_text(chance))


@pytest.mark.parametrize("name", NAMES)
def test_every_short_text_over_the_classes_counts_as_others_count_it(name: str) -> None:
    for length in range(1, 5):
        for letters in product(ALPHABET, repeat=length):
            assert_as_others(name, "".join(letters))


@pytest.mark.parametrize("name", NAMES)
def test_real_conversations_count_as_others_count_them(name: str) -> None:
    folder = os.environ.get("TURNSTATE_DATA")
    if not folder:
        pytest.skip("TURNSTATE_DATA does not say where the conversations are")
    for line in (Path(folder) / "tau-airline-dev.jsonl").read_text().splitlines():
        assert_as_others(name, line)
        for message in json.loads(line)["messages"]:
            assert_as_others(name, message["content"] or json.dumps(message))


@examples(40, long=1_000)
@given(texts)
@example("\u0301A")
@example("x" * 200 + "\u2028")
def test_any_text_counts_as_others_count_it(text: str) -> None:
    for name in NAMES:
        assert_as_others(name, text)


@examples(100, long=5_000)
@given(st.one_of(texts, seamy), st.integers(1, 20))
def test_pieces_with_exact_cuts_count_as_the_whole(text: str, limit: int) -> None:
    cut = list(pieces(text, limit=limit))
    assert "".join(piece.text for piece in cut) == text
    assert all(len(piece.text) <= limit for piece in cut)
    for name in NAMES:
        exact = _exact_runs(counter(name), [(piece.text, piece.exact) for piece in cut])
        assert all(parts == whole for parts, whole in exact)


def _exact_runs(ours: Counter, cut: list[tuple[str, bool]]) -> list[tuple[int, int]]:
    """Join pieces up to each hard cut, and count each run in pieces and as a whole."""
    runs: list[list[str]] = [[]]
    for text, exact in cut:
        runs[-1].append(text)
        if not exact:
            runs.append([])
    return [(sum(ours.count(text).tokens for text in run), ours.count("".join(run)).tokens) for run in runs]


def test_a_planted_wrong_seam_is_caught() -> None:
    halves = [("don", True), ("'t", True)]
    assert any(parts != whole for parts, whole in _exact_runs(counter("o200k_base"), halves))


@examples(40, long=1_000)
@given(texts)
def test_an_estimate_exists_for_any_text_and_leaves_no_character_out(text: str) -> None:
    assert sum(len(piece) * times for piece, times in pieces_of(text).items()) == len(text)
    estimate = counter("estimate").count(text)
    assert estimate.quality == "estimated"
    assert (estimate.tokens > 0) == bool(text)


@examples(40, long=1_000)
@given(texts, texts)
def test_counting_a_text_never_depends_on_what_was_counted_before(one: str, other: str) -> None:
    for name in ("o200k_base", "estimate"):
        before = counter(name).count(one)
        counter(name).count(other)
        assert counter(name).count(one) == before
