"""Texts of one size that are hard on tokenizers, patterns and JSON, by name."""

from __future__ import annotations

import base64
from random import Random
from typing import Any

NAMES = (
    *("one letter", "spaces", "digits", "marks", "Chinese", "Hangul", "emoji", "accents", "base64"),
    *("newlines", "short lines", "carriage returns", "one long line, then short ones", "quotes", "NUL"),
    *("rows", "deep lists"),
)


def hostile(name: str, size: int) -> Any:
    """Return the text, or the structured value, of about so many bytes."""
    match name:
        case "base64":
            return base64.b64encode(Random(1).randbytes(size * 3 // 4)).decode()
        case "one long line, then short ones":
            return "a" * (size - 1_000) + "\nb" * 500
        case "rows":
            return [{"row": n, "name": "keeper"} for n in range(size // 28)]
        case "deep lists":
            return [_nested(150) for _ in range(size // 302)]
        case _:
            unit = _UNITS[name]
            return unit * (size // len(unit.encode()))


_UNITS = {
    "one letter": "a",
    "spaces": " ",
    "digits": "7",
    "marks": "=",
    "Chinese": "数据库连接失败请检查网络",
    "Hangul": "한",
    "emoji": "👩‍👧🎉",
    "accents": "e\u0301",
    "newlines": "\n",
    "short lines": "ok 1\n",
    "carriage returns": "a\r\n",
    "quotes": '"\\',
    "NUL": "\0",
}


def _nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value
