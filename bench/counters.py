"""Speed of token counters: ours beside the unmodified tokenizer, and the estimator.

The texts: English is the help of the standard library, code its source, JSON a table of
characters, Japanese a few paragraphs over and over; messages are 200 characters each. All three
ways count the same text in the same round; the best round of each is shown.
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
from importlib import import_module
from unittest import mock

import tiktoken

from turnstate.tokens import Estimator, ExactCounter, vocabulary

ROUNDS = 7
CHARACTERS = 300_000
VOCABULARIES = ("o200k_base", "cl100k_base")

JAPANESE = """会議は午後三時から始まります。資料は前日までに共有フォルダーへ保存してください。
新しいサーバーへの移行は来週の水曜日に行い、その間は一部の機能が使えなくなる予定です。
川沿いの道を歩いていると、向こうから犬を連れた老人がゆっくりとやって来た。\n"""


def texts() -> dict[str, list[str]]:
    """Return the texts, each as a list of what is counted in one call."""
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


def shipped(name: str) -> tiktoken.Encoding:
    """Build the tokenizer as it ships, with our copy of the ranks in place of a download."""
    public = import_module("tiktoken_ext.openai_public")
    with mock.patch.object(public, "load_tiktoken_bpe", return_value=vocabulary.ranks(name)):
        return tiktoken.Encoding(**getattr(public, name)())


def best(ways: dict[str, Callable[[str], object]], pieces: list[str]) -> dict[str, float]:
    """Time every way in turn, round after round, and keep the best of each."""
    seconds = dict.fromkeys(ways, float("inf"))
    for _ in range(ROUNDS):
        for name, count in ways.items():
            start = time.perf_counter()
            for piece in pieces:
                count(piece)
            seconds[name] = min(seconds[name], time.perf_counter() - start)
    return seconds


def main() -> None:
    """Print throughput and ratios."""
    print(f"{'':24}{'tiktoken':>12}{'ours':>12}{'estimate':>12}   ours / tiktoken   estimate / tiktoken")
    for name in VOCABULARIES:
        raw, ours = shipped(name), ExactCounter(name)
        ways: dict[str, Callable[[str], object]] = {
            "raw": lambda text, raw=raw: len(raw.encode(text, disallowed_special=())),  # type: ignore[misc]
            "ours": ours.count,
            "estimate": Estimator().count,
        }
        for label, pieces in texts().items():
            megabytes = sum(len(piece.encode()) for piece in pieces) / 1e6
            speed = {way: megabytes / seconds for way, seconds in best(ways, pieces).items()}
            row = "".join(f"{value:7.1f} MB/s" for value in speed.values())
            ratios = f"{speed['ours'] / speed['raw']:14.2f} {speed['estimate'] / speed['raw']:19.2f}"
            print(f"{name + ' ' + label:24}{row}   {ratios}")
