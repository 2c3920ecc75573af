"""The estimator against the exact counter.

The texts in `texts` took no part in the fit. Source of the standard library and the conversations
of TURNSTATE_DATA did, in part: they show that nothing broke, not how well it generalizes.
"""

from __future__ import annotations

import inspect
import json
import os
from pathlib import Path
from types import ModuleType

import pytest

from turnstate.errors import UnknownName
from turnstate.tokens import Count, Estimator, ExactCounter
from turnstate.tokens.estimate import FACTORS, LONGEST, _table, estimator, pieces_of

TEXTS = {path.stem: path.read_text() for path in sorted((Path(__file__).parent / "texts").glob("*.txt"))}
PROMISED = 0.15
ELSEWHERE = 0.25

pytestmark = pytest.mark.req("B2")


def error(text: str) -> float:
    exact = ExactCounter("o200k_base").count(text)
    assert exact.quality == "exact"
    return Estimator().count(text).tokens / exact.tokens - 1


def kind(name: str) -> str:
    return name.partition("-")[0]


@pytest.mark.parametrize("name", [name for name in TEXTS if "-" in name])
def test_english_japanese_chinese_code_and_json_are_within_fifteen_percent(name: str) -> None:
    assert abs(error(TEXTS[name])) <= PROMISED


def test_there_are_several_samples_of_each() -> None:
    kinds = [kind(name) for name in TEXTS]
    assert all(kinds.count(one) >= 3 for one in ("english", "japanese", "chinese", "code", "json"))


@pytest.mark.parametrize("name", [name for name in TEXTS if "-" not in name])
def test_other_scripts_are_within_a_quarter(name: str) -> None:
    assert abs(error(TEXTS[name])) <= ELSEWHERE


@pytest.mark.parametrize("module", [inspect, json, os, json.decoder])
def test_the_source_of_the_standard_library_is_within_fifteen_percent(module: ModuleType) -> None:
    source = inspect.getsource(module)
    assert abs(error(source)) <= PROMISED
    escaped = json.dumps({"file": module.__name__, "lines": source.splitlines()}, indent=2)
    assert abs(error(escaped)) <= PROMISED


def test_a_bad_estimator_would_be_caught() -> None:
    exact = ExactCounter("o200k_base")
    by_four = {name: len(text) / 4 / exact.count(text).tokens - 1 for name, text in TEXTS.items()}
    assert any(abs(off) > PROMISED for name, off in by_four.items() if kind(name) == "japanese")


@pytest.mark.parametrize("data", ["tau-airline-dev.jsonl"])
def test_real_conversations_are_within_fifteen_percent(data: str) -> None:
    folder = os.environ.get("TURNSTATE_DATA")
    if not folder:
        pytest.skip("TURNSTATE_DATA does not say where the conversations are")
    for line in (Path(folder) / data).read_text().splitlines():
        texts = [message["content"] or "" for message in json.loads(line)["messages"]]
        assert abs(error("\n".join(texts))) <= PROMISED


def test_an_estimate_says_that_it_is_one() -> None:
    assert Estimator().count("two words") == Count(2, "estimated")
    assert Estimator().count("") == Count(0, "estimated")


def test_a_factor_scales_what_is_counted() -> None:
    assert Estimator("double", 2.0).count("two words") == Count(4, "estimated")
    assert Estimator("tiny", 0.01).count("two words").tokens == 1, "no text costs nothing"


def test_more_text_is_never_fewer_tokens() -> None:
    text = TEXTS["english-harbour"] + TEXTS["chinese-market"] + TEXTS["code-queue"]
    counts = [Estimator().count(text[:length]).tokens for length in range(0, len(text), 97)]
    assert counts == sorted(counts)


@pytest.mark.parametrize(
    ("text", "least", "most"),
    [
        (" " * 100_000, 500, 2_000),
        ("a" * 100_000, 10_000, 60_000),
        ("\n" * 100_000, 5_000, 10_000),
        ("=" * 100_000, 1_000, 3_000),
        ("。" + "\n" * 10_000, 500, 1_000),
        ("0123456789abcdef" * 1_000, 5_000, 12_000),
        ("😀" * 1_000, 1_000, 2_000),
    ],
)
def test_strange_texts_grow_with_their_length(text: str, least: int, most: int) -> None:
    assert least <= Estimator().count(text).tokens <= most


def test_claude_counts_a_quarter_more_until_calibrated() -> None:
    assert estimator("claude") == Estimator("estimate:claude", 1.25)


def test_no_factor_is_out_of_this_world() -> None:
    assert all(1.0 <= factor <= 1.7 for factor in FACTORS.values())


def test_an_unknown_family_is_refused_with_those_there_are() -> None:
    with pytest.raises(UnknownName, match="'eliza'; available: claude, "):
        estimator("eliza")


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("Hello world", {"Aaaaa": 1, " aaaaa": 1}),
        ("a, b, c", {"a": 1, ".": 2, " a": 2}),
        ("self.name", {"aaaa": 1, ".aaaa": 1}),
        ("XMLParser", {"AAA": 1, "Aaaaaa": 1}),
        ("1234567", {"000": 2, "0": 1}),
        ("x = 42", {"a": 1, " -": 1, " ": 1, "00": 1}),
        ("if x:\n    y", {"aa": 1, " a": 2, ".\n": 1, "   ": 1}),
        ("-----\n", {"-----\n": 1}),
        ("東京タワー", {"T": 1, "H": 1, "kkk": 1}),
        ("café", {"aaal": 1}),
        ("привет мир", {"cccccc": 1, " ccc": 1}),
        ("한국어", {"KKK": 1}),
        ("ok。", {"aa": 1, ",": 1}),
        ("\x00", {"x": 1}),
    ],
)
def test_a_text_is_cut_as_a_tokenizer_cuts_it(text: str, shapes: dict[str, int]) -> None:
    assert dict(pieces_of(text)) == shapes


def test_no_character_falls_between_the_pieces() -> None:
    text = "".join(map(chr, range(0x3000))) + "😀𝔘" + "".join(map(chr, range(0x11FFF, 0x3000, -7)))
    covered = sum(len(piece) * times for piece, times in pieces_of(text).items())
    assert covered == len(text)


def test_a_run_of_letters_is_cut_where_no_word_is_as_long() -> None:
    assert dict(pieces_of("a" * 40)) == {"a" * LONGEST: 2, "a" * 8: 1}


def test_every_character_of_the_basic_plane_has_a_kind() -> None:
    assert len(_table()) == 0x10000
    assert _table().isascii()
