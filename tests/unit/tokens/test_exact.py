from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.harness.peer_tokenizer import peer, tiktoken
from tests.harness.thoroughness import runs
from turnstate.errors import UnknownName
from turnstate.threads import INLINE
from turnstate.tokens import Count, ExactCounter, cost, count_off_loop
from turnstate.tokens.cost import count_texts

pytestmark = pytest.mark.req("B2")

NAMES = cost.VOCABULARIES
SPECIALS = [
    "<|endoftext|>",
    "<|endofprompt|>",
    "<|fim_prefix|>",
    "<|fim_suffix|>",
    "<|im_start|>",
    "<|start|>",
]
MANY = runs(1_000_000, long=10_000_000)
HOSTILE = {
    "spaces": " " * MANY,
    "tabs before a letter": "\t" * MANY + "x",
    "lines of spaces": (" " * 99 + "\n") * (MANY // 100),
    "line ends": "\n" * MANY,
    "one letter": "a" * MANY,
    "one word": "international" * (MANY // 13),
    "random letters": "".join(random.Random(7).choices("abcdefghijklmnopqrstuvwxyz", k=MANY)),
    "digits": "7" * MANY,
    "marks": "=-" * (MANY // 2),
    "apostrophes": "'s" * (MANY // 2),
    "NUL": "\x00" * MANY,
    "accents": "e" + "\u0301" * MANY,
    "Chinese without a mark": "的一是不了人我在" * (MANY // 8),
    "emoji": "👩‍👩‍👧‍👦🙂" * (MANY // 8),
}


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


@pytest.mark.parametrize(
    ("joined", "text"), [("a🙂b", "a\ud83d\ude42b"), ("\ufffd\ufffd🙂", "\ude42\ud83d\ud83d\ude42")]
)
def test_surrogates_are_counted_as_the_pair_that_they_are_or_as_replaced(joined: str, text: str) -> None:
    for name in NAMES:
        assert ExactCounter(name).count(text) == ExactCounter(name).count(joined)
        assert ExactCounter(name).count(text).tokens == tiktoken(name, text)


@pytest.mark.parametrize("kind", HOSTILE)
def test_very_many_characters_without_a_break_are_counted_exactly(kind: str) -> None:
    text = HOSTILE[kind]
    for name in NAMES:
        assert ExactCounter(name).count(text) == Count(peer(name, text), "exact")


def test_several_texts_are_counted_each_on_its_own() -> None:
    ours, texts = ExactCounter("o200k_base"), ["hel", "lo", "", "a\ud800", " " * 200_000, "<|endoftext|>"]
    alone = [ours.count(text).tokens for text in texts]
    assert ours.tokens(texts) == sum(alone) != ours.count("".join(texts)).tokens
    assert count_texts(ours, texts) == Count(sum(alone), "exact")


def test_ten_megabytes_in_one_line_are_counted_exactly() -> None:
    text = "the quick brown fox jumps over it, " * 300_000
    assert ExactCounter("o200k_base").count(text) == Count(2_400_001, "exact")


def test_an_unknown_vocabulary_is_refused_at_once() -> None:
    with pytest.raises(UnknownName, match="'gpt2'; available: cl100k_base, o200k_base"):
        ExactCounter("gpt2")


def test_equal_names_are_equal_counters() -> None:
    assert ExactCounter("o200k_base") == ExactCounter("o200k_base") != ExactCounter("cl100k_base")


def test_many_threads_load_a_vocabulary_once(monkeypatch: pytest.MonkeyPatch) -> None:
    built, build = list[str](), cost._tokenizer

    def slowly(name: str) -> Callable[[str], int]:
        built.append(name)
        time.sleep(0.05)  # the other threads come meanwhile
        return build(name)

    monkeypatch.setattr(cost, "loaded", {})
    monkeypatch.setattr(cost, "_tokenizer", slowly)
    assert not ExactCounter("o200k_base").is_loaded
    with ThreadPoolExecutor(16) as pool:
        found = set(pool.map(ExactCounter("o200k_base").tokens, [["hello world"]] * 200))
    assert (found, built) == ({2}, ["o200k_base"])
    assert ExactCounter("o200k_base").is_loaded
    assert not ExactCounter("cl100k_base").is_loaded


def test_importing_the_package_loads_no_tokenizer() -> None:
    late = {"toktok", "asyncio", "tomllib"}
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
    build = cost._tokenizer
    monkeypatch.setattr(cost, "loaded", {})
    monkeypatch.setattr(
        cost,
        "_tokenizer",
        lambda name: on_loop.append(threading.current_thread() is threading.main_thread()) or build(name),
    )
    assert asyncio.run(count_off_loop(ExactCounter("cl100k_base"), "hi")) == Count(1)
    assert on_loop == [False]


def test_the_loop_keeps_turning_while_ten_megabytes_are_counted() -> None:
    counter = ExactCounter("o200k_base")
    counter.count("load it first")
    text = "的一是不了人我在" * 420_000

    async def ticks_meanwhile() -> tuple[Count, int]:
        counting = asyncio.ensure_future(count_off_loop(counter, text))
        ticks = 0
        while not counting.done():
            await asyncio.sleep(0)
            ticks += 1
        return counting.result(), ticks

    count, ticks = asyncio.run(ticks_meanwhile())
    assert count == counter.count(text)
    assert ticks >= 10, "counted on the loop there would be two"
