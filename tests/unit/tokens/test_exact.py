from __future__ import annotations

import base64
import random
import warnings

import pytest

from turnstate.errors import UnknownName
from turnstate.tokens import Count, ExactCounter, vocabulary
from turnstate.tokens.pieces import LIMIT, UNBROKEN

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # the peer opens its tables in an older way
    from bpe_openai._bindings import tokenizer_for_encoding

pytestmark = pytest.mark.req("B2")

NAMES = sorted(vocabulary.SIZES)
PEERS = {name: tokenizer_for_encoding(name) for name in NAMES}
SPECIALS = [
    "<|endoftext|>",
    "<|endofprompt|>",
    "<|fim_prefix|>",
    "<|fim_suffix|>",
    "<|im_start|>",
    "<|start|>",
]
MILLION = 1_000_000


def peer(name: str, text: str) -> int:
    """Count with an implementation that shares no code with ours."""
    return int(PEERS[name].count(text))


@pytest.mark.parametrize(
    ("name", "text", "tokens"),
    [
        ("o200k_base", "", 0),
        ("o200k_base", "hello world", 2),
        ("cl100k_base", "hello world", 2),
        ("o200k_base", "こんにちは世界", 2),
        ("cl100k_base", "こんにちは世界", 4),
        ("o200k_base", "1234567", 3),
    ],
)
def test_known_texts_have_their_known_counts(name: str, text: str, tokens: int) -> None:
    assert ExactCounter(name).count(text) == Count(tokens, "exact")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("special", SPECIALS)
def test_the_name_of_a_special_token_is_ordinary_text(name: str, special: str) -> None:
    for text in (special, f"say {special}{special} twice", f"{special}\n", special[:-1], f"<{special}>"):
        count = ExactCounter(name).count(text)
        assert count == Count(peer(name, text), "exact")
        assert count.tokens > 1, "a special token would be one"


@pytest.mark.parametrize("name", NAMES)
def test_odd_characters_count_as_the_peer_counts_them(name: str) -> None:
    for text in (
        "\x00",
        "a\x00b",
        "\r\n\r\n",
        " \t\n \u3000",
        "e\u0301",
        "\u200b\u200d",
        "👩‍👩‍👧‍👦",
        "\U0010ffff",
        "ﷺ",
        "'S'LL'ſ",
    ):
        assert ExactCounter(name).count(text) == Count(peer(name, text), "exact"), repr(text)


def test_a_lone_surrogate_is_counted_and_not_refused() -> None:
    assert ExactCounter("o200k_base").count("a\ud800b") == ExactCounter("o200k_base").count("a\ufffdb")


@pytest.mark.parametrize("name", NAMES)
def test_a_text_of_many_pieces_counts_exactly(name: str) -> None:
    paragraph = (
        "Every ferry leaves at 6:10, rain or shine.\n\n\tif x == 'y':  return \"don't\"  # 東京、大阪。\n"
    )
    text = paragraph * 4_000
    assert len(text) > 3 * LIMIT
    assert ExactCounter(name).count(text) == Count(peer(name, text), "exact")


@pytest.mark.parametrize("name", NAMES)
def test_base64_of_many_pieces_counts_exactly(name: str) -> None:
    text = base64.b64encode(random.Random(7).randbytes(300_000)).decode()
    assert ExactCounter(name).count(text) == Count(peer(name, text), "exact")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(" " * MILLION, id="spaces"),
        pytest.param("a" * MILLION, id="letters"),
        pytest.param("\n" * MILLION, id="line ends"),
        pytest.param("\t" * MILLION + "x", id="tabs"),
        pytest.param("的一是不了人我在" * (MILLION // 8), id="Chinese without a mark"),
        pytest.param("=" * MILLION, id="marks"),
        pytest.param("\x00" * MILLION, id="nul"),
        pytest.param("e" + "\u0301" * MILLION, id="accents"),
    ],
)
def test_a_million_characters_without_a_seam_are_counted_and_said_to_be_an_estimate(text: str) -> None:
    count = ExactCounter("o200k_base").count(text)
    assert count.quality == "estimated"
    expected = peer("o200k_base", text)
    assert abs(count.tokens - expected) <= 2 * (len(text) // UNBROKEN + 1)


def test_a_text_that_the_tokenizer_gives_up_on_is_estimated(monkeypatch: pytest.MonkeyPatch) -> None:
    class Overflowing:
        def encode(self, text: str, *, disallowed_special: tuple[str, ...]) -> list[int]:
            raise ValueError("the pattern overflowed")

    monkeypatch.setattr(vocabulary, "_loaded", {"o200k_base": Overflowing()})
    assert ExactCounter("o200k_base").count("six words that are quite short") == Count(6, "estimated")


def test_ten_megabytes_in_one_line_are_counted_exactly() -> None:
    text = "the quick brown fox jumps over it, " * 300_000
    assert ExactCounter("o200k_base").count(text) == Count(2_400_001, "exact")


def test_an_unknown_vocabulary_is_refused_at_once() -> None:
    with pytest.raises(UnknownName, match="'gpt2'; there are cl100k_base, o200k_base"):
        ExactCounter("gpt2")


def test_equal_names_are_equal_counters() -> None:
    assert ExactCounter("o200k_base") == ExactCounter("o200k_base") != ExactCounter("cl100k_base")
