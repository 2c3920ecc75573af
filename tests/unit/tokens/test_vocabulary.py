from __future__ import annotations

import asyncio
import base64
import lzma
import random
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cases import each
from peer_tokenizer import peer
from thoroughness import runs

from turnstate.errors import TurnstateError, UnknownName
from turnstate.tokens import Count, ExactCounter, count_off_loop, vocabulary
from turnstate.tokens.cost import INLINE
from turnstate.tokens.counter import total
from turnstate.tokens.pieces import LIMIT, UNBROKEN

pytestmark = pytest.mark.req("B2")

NAMES = sorted(vocabulary.SIZES)
SPECIALS = [
    "<|endoftext|>",
    "<|endofprompt|>",
    "<|fim_prefix|>",
    "<|fim_suffix|>",
    "<|im_start|>",
    "<|start|>",
]
MANY = runs(250_000, long=1_000_000)


@each(
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


@each("name", NAMES)
@each("special", SPECIALS)
def test_the_name_of_a_special_token_is_ordinary_text(name: str, special: str) -> None:
    for text in (special, f"say {special}{special} twice", f"{special}\n", special[:-1], f"<{special}>"):
        count = ExactCounter(name).count(text)
        assert count == Count(peer(name, text), "exact")
        assert count.tokens > 1, "a special token would be one"


@each("name", NAMES)
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


@each("name", NAMES)
def test_a_text_of_many_pieces_counts_exactly(name: str) -> None:
    paragraph = (
        "Every ferry leaves at 6:10, rain or shine.\n\n\tif x == 'y':  return \"don't\"  # 東京、大阪。\n"
    )
    text = paragraph * 4_000
    assert len(text) > 3 * LIMIT
    assert ExactCounter(name).count(text) == Count(peer(name, text), "exact")


@each("name", NAMES)
def test_base64_of_many_pieces_counts_exactly(name: str) -> None:
    text = base64.b64encode(random.Random(7).randbytes(300_000)).decode()
    assert ExactCounter(name).count(text) == Count(peer(name, text), "exact")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(" " * MANY, id="spaces"),
        pytest.param("a" * MANY, id="letters"),
        pytest.param("\n" * MANY, id="line ends"),
        pytest.param("\t" * MANY + "x", id="tabs"),
        pytest.param("的一是不了人我在" * (MANY // 8), id="Chinese without a mark"),
        pytest.param("=" * MANY, id="marks"),
        pytest.param("\x00" * MANY, id="nul"),
        pytest.param("e" + "\u0301" * MANY, id="accents"),
    ],
)
def test_very_many_characters_without_a_seam_are_counted_and_said_to_be_an_estimate(text: str) -> None:
    count = ExactCounter("o200k_base").count(text)
    assert count.quality == "estimated"
    expected = peer("o200k_base", text)
    assert abs(count.tokens - expected) <= 2 * (len(text) // UNBROKEN + 1)


def test_a_text_that_the_tokenizer_gives_up_on_is_estimated(monkeypatch: pytest.MonkeyPatch) -> None:
    class Overflowing:
        def encode(self, text: str, *, disallowed_special: tuple[str, ...]) -> list[int]:
            raise ValueError("the pattern overflowed")

    monkeypatch.setattr(vocabulary, "loaded", {"o200k_base": Overflowing()})
    assert ExactCounter("o200k_base").count("six words that are quite short") == Count(6, "estimated")


@each("texts", [[" " * 200_000, "a"], ["word " * 30_000] * 2, ["a\ud800", "\udc00b"]])
def test_texts_that_cannot_be_counted_together_are_counted_each_alone(texts: list[str]) -> None:
    ours = ExactCounter("o200k_base")
    assert ours.count_groups([texts, texts[:1]]) == [total(map(ours.count, texts)), ours.count(texts[0])]


def test_ten_megabytes_in_one_line_are_counted_exactly() -> None:
    text = "the quick brown fox jumps over it, " * 300_000
    assert ExactCounter("o200k_base").count(text) == Count(2_400_001, "exact")


def test_an_unknown_vocabulary_is_refused_at_once() -> None:
    with pytest.raises(UnknownName, match="'gpt2'; there are cl100k_base, o200k_base"):
        ExactCounter("gpt2")


def test_equal_names_are_equal_counters() -> None:
    assert ExactCounter("o200k_base") == ExactCounter("o200k_base") != ExactCounter("cl100k_base")


TOOL = Path(__file__).parents[3] / "tools" / "pack_vocabularies.py"
DATA = Path(vocabulary.__file__).parent / "data"


def tool(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(TOOL), *arguments], capture_output=True, text=True, check=False
    )


def packed(*tokens: bytes) -> bytes:
    plain = bytes(map(len, tokens)) + b"".join(tokens)
    return lzma.compress(plain, format=lzma.FORMAT_XZ, check=lzma.CHECK_SHA256, preset=0)


def test_the_shipped_vocabularies_are_the_published_ones() -> None:
    done = tool("--check")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_planted_wrong_token_is_caught(tmp_path: Path) -> None:
    for name, size in vocabulary.SIZES.items():
        tokens = vocabulary.unpacked((DATA / f"{name}.ranks.xz").read_bytes(), size=size)
        tokens[300], tokens[301] = tokens[301], tokens[300]
        (tmp_path / f"{name}.ranks.xz").write_bytes(packed(*tokens))
    done = tool("--check", "--folder", str(tmp_path))
    assert done.returncode == 1
    assert [line.partition(":")[0] for line in done.stderr.splitlines()] == sorted(vocabulary.SIZES)


def test_the_tool_explains_itself() -> None:
    assert "--check" in tool("--help").stdout


def test_tokens_come_out_in_the_order_of_rank() -> None:
    assert vocabulary.unpacked(packed(b"a", b"", b"\x00bc"), size=3) == [b"a", b"", b"\x00bc"]


def test_every_vocabulary_has_all_single_bytes() -> None:
    for name in vocabulary.SIZES:
        table = vocabulary.ranks(name)
        assert len(table) == vocabulary.SIZES[name]
        assert {bytes([byte]) for byte in range(256)} <= table.keys()


@each("damage", [b"", b"not an xz file", packed(b"a", b"b")[:-9], packed(b"a")])
def test_a_damaged_file_is_named_as_such(damage: bytes) -> None:
    with pytest.raises(TurnstateError, match="reinstall Turnstate"):
        vocabulary.unpacked(damage, size=2)


def test_a_flipped_bit_is_noticed() -> None:
    whole = bytearray(packed(b"some", b"tokens"))
    whole[len(whole) // 2] ^= 1
    with pytest.raises(TurnstateError, match="reinstall Turnstate"):
        vocabulary.unpacked(bytes(whole), size=2)


def test_an_unknown_vocabulary_is_refused_with_those_there_are() -> None:
    with pytest.raises(UnknownName, match="cl100k_base, o200k_base"):
        vocabulary.ranks("p50k_base")


def test_many_threads_get_one_vocabulary(monkeypatch: pytest.MonkeyPatch) -> None:
    built = []
    monkeypatch.setattr(vocabulary, "loaded", {})
    monkeypatch.setattr(vocabulary, "_built", lambda name: built.append(name) or object())
    with ThreadPoolExecutor(16) as pool:
        found = set(pool.map(vocabulary.encoding, ["o200k_base"] * 200))
    assert len(found) == 1
    assert built == ["o200k_base"]
    assert ExactCounter("o200k_base").is_loaded
    assert not ExactCounter("cl100k_base").is_loaded


def test_importing_the_package_loads_no_tokenizer() -> None:
    late = {"tiktoken", "lzma", "asyncio", "tomllib"}
    code = f"import sys, turnstate.tokens as t; t.counter('o200k_base'); print({late} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


class Witness:
    """Counts characters and remembers in which thread."""

    name = "witness"

    def __init__(self) -> None:
        self.threads: list[bool] = []

    def count(self, text: str) -> Count:
        self.threads.append(threading.current_thread() is threading.main_thread())
        return Count(len(text))


def test_a_short_text_is_counted_on_the_spot() -> None:
    witness = Witness()
    assert asyncio.run(count_off_loop(witness, "x" * INLINE)) == Count(INLINE)
    assert witness.threads == [True]


def test_a_long_text_is_counted_in_a_thread() -> None:
    witness = Witness()
    assert asyncio.run(count_off_loop(witness, "x" * (INLINE + 1))) == Count(INLINE + 1)
    assert witness.threads == [False]


def test_the_first_loading_of_a_vocabulary_is_off_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    on_loop = []
    build = vocabulary._built
    monkeypatch.setattr(vocabulary, "loaded", {})
    monkeypatch.setattr(
        vocabulary,
        "_built",
        lambda name: on_loop.append(threading.current_thread() is threading.main_thread()) or build(name),
    )
    assert asyncio.run(count_off_loop(ExactCounter("cl100k_base"), "hi")) == Count(1)
    assert on_loop == [False]


def test_the_loop_keeps_turning_while_ten_megabytes_are_counted() -> None:
    counter = ExactCounter("o200k_base")
    counter.count("load it first")
    text = "the quick brown fox jumps over it, " * 300_000

    async def ticks_meanwhile() -> tuple[Count, int]:
        counting = asyncio.ensure_future(count_off_loop(counter, text))
        ticks = 0
        while not counting.done():
            await asyncio.sleep(0.001)
            ticks += 1
        return counting.result(), ticks

    count, ticks = asyncio.run(ticks_meanwhile())
    assert count == Count(2_400_001)
    assert ticks >= 10, "counted on the loop there would be one"
