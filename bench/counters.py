"""Speed of token counters: ours and the estimator, compared with the bare tokenizer and two others.

The texts: English is the help of the standard library, code is its source, JSON is a table of characters,
Japanese is a few paragraphs repeated; messages have 200 characters each. All counters count the same text in
the same round; the best round of each is shown. Our exact counter calls toktok's
`truncate`, since its `batch_count` hands even a short text to a pool of threads.
"""

from __future__ import annotations

import argparse
import inspect
import json
import pydoc_data.topics
import time
import typing
import unicodedata
from collections.abc import Callable

import toktok
from bpe_openai._bindings import tokenizer_for_encoding

from turnstate.tokens import Estimator, ExactCounter

from . import offline_tiktoken

ROUNDS = 8
CHARACTERS = 300_000
VOCABULARIES = ("o200k_base", "cl100k_base")
RATIOS = "   ours / tiktoken   ours / toktok"

JAPANESE = """会議は午後三時から始まります。資料は前日までに共有フォルダーへ保存してください。
新しいサーバーへの移行は来週の水曜日に行い、その間は一部の機能が使えなくなる予定です。
川沿いの道を歩いていると、向こうから犬を連れた老人がゆっくりとやって来た。\n"""


def texts() -> dict[str, list[str]]:
    """Return the texts, each as a list of pieces that are counted in one call each."""
    english = "\n".join(pydoc_data.topics.topics.values())[:CHARACTERS]
    code = "".join(map(inspect.getsource, (argparse, inspect, typing)))[:CHARACTERS]
    characters = [chr(point) for point in range(0x21, 0x3000) if unicodedata.name(chr(point), "")]
    rows = [{"char": c, "name": unicodedata.name(c), "code": ord(c), "wide": False} for c in characters]
    japanese = JAPANESE * (CHARACTERS // len(JAPANESE))
    return {
        "English": [english],
        "code": [code],
        "JSON": [json.dumps(rows, indent=2)[:CHARACTERS]],
        "Japanese": [japanese],
        "messages": [english[start : start + 200] for start in range(0, len(english), 200)],
    }


def best(ways: dict[str, Callable[[str], object]], pieces: list[str]) -> dict[str, float]:
    """Time the counters in turn, round after round, and keep the best time of each.

    Every other round is in reverse order: a counter that runs after one with the same tables finds them in
    the processor's cache.
    """
    seconds = dict.fromkeys(ways, float("inf"))
    for number in range(ROUNDS):
        for name, count in list(ways.items())[:: -1 if number % 2 else 1]:
            start = time.perf_counter()
            for piece in pieces:
                count(piece)
            seconds[name] = min(seconds[name], time.perf_counter() - start)
    return seconds


def main() -> None:
    """Print the throughputs, and the ratios of ours to tiktoken's and toktok's."""
    for name in VOCABULARIES:
        ways = counters(name)
        print(f"{name + ', MB/s':24}" + "".join(f"{way:>12}" for way in ways) + RATIOS)
        for label, pieces in texts().items():
            megabytes = sum(len(piece.encode()) for piece in pieces) / 1e6
            speed = {way: megabytes / seconds for way, seconds in best(ways, pieces).items()}
            row = "".join(f"{value:12.1f}" for value in speed.values())
            ratios = f"{speed['ours'] / speed['tiktoken']:18.2f}{speed['ours'] / speed['toktok']:16.2f}"
            print(f"{label:24}{row}{ratios}")


def counters(name: str) -> dict[str, Callable[[str], object]]:
    """Return the counters for a vocabulary, by name."""
    encode = offline_tiktoken.encoding(name).encode
    return {
        "tiktoken": lambda text: len(encode(text, disallowed_special=())),
        "bpe-openai": tokenizer_for_encoding(name).count,
        "toktok": lambda text: toktok.truncate(text, 0, name),
        "ours": ExactCounter(name).count,
        "estimate": Estimator().count,
    }
