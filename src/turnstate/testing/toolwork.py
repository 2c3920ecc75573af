"""Tool calls and what they give, as real agents and real providers write them.

A *dialect* is how a provider names its calls: some give no id at all, some start counting again in
every batch, some use ids that are longer than others take or hold characters that others refuse.
Within one batch ids never repeat. Results are of every JSON type, and now and then of great length.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from .. import ids
from ..message import ToolCallRequest, ToolCallResult
from . import prose

__all__ = ["DIALECTS", "TOOLS", "Dialect", "call", "result"]

TOOLS = (
    "read_file",
    "write_file",
    "run_command",
    "search-files",
    "mcp__tracker__get_item",
    "f",
    "A" * 64,
)
"""Names that every provider takes: letters, digits, ``_`` and ``-``, at most 64."""

Dialect = Callable[[Random, str, int], str | None]
"""How a provider names a call, given the tool's name and the call's place in its batch."""


def _odd(rng: Random, name: str, place: int) -> str:
    shapes = (f"functions.{name}:{place}", f"id with space/{place}", f"通話-{place}", f"call|fc_{place}==")
    return rng.choice(shapes)


DIALECTS: dict[str, Dialect] = {
    "unnamed": lambda _rng, _name, _place: None,
    "call": lambda rng, _name, _place: f"call_{rng.getrandbits(96):024x}",
    "toolu": lambda rng, _name, _place: f"toolu_01{rng.getrandbits(88):022x}",
    "counted": lambda _rng, _name, place: f"call_{place}",
    "long": lambda rng, _name, place: f"call_{place}_{rng.getrandbits(256):064x}",
    "odd": _odd,
}
"""Every way to name calls, by what is special about it."""

_ERRORS: tuple[Any, ...] = (
    "Error: permission denied",
    'Traceback (most recent call last):\n  File "job.py", line 7, in <module>\nTimeoutError: 30 s',
    "",
    {"error": {"code": 404, "message": "見つかりません"}},
)
_SCALARS: tuple[Any, ...] = ("", 0, False, True, None, [], {}, 1, -7, 3.5, 1e-9, 2**53 + 1)
_ERROR_RATE = 0.08
_LONG_RATE = 0.004  # rare: one long output weighs more than a whole conversation
_LONG_LINES = (150, 600, 2_000, 5_000)


def call(rng: Random, dialect: Dialect, position: int, place: int, salt: bytes) -> ToolCallRequest:
    """Ask for a tool; ``place`` is the call's place in the batch that stands at this position."""
    name = rng.choice(TOOLS)
    return ToolCallRequest(
        id=ids.derived_call_id(position, salt, str(place).encode()),
        name=name,
        args=_args(rng),
        provider_id=dialect(rng, name, place),
    )


def result(rng: Random, request: ToolCallRequest) -> ToolCallResult:
    """Answer a call."""
    if rng.random() < _ERROR_RATE:
        return ToolCallResult(tool_call_id=request.id, result=rng.choice(_ERRORS), is_error=True)
    return ToolCallResult(tool_call_id=request.id, result=_value(rng))


def _args(rng: Random) -> dict[str, Any]:
    path = rng.choice(prose.FILES)
    shapes: tuple[Callable[[], dict[str, Any]], ...] = (
        dict,
        lambda: {"path": path},
        lambda: {"command": f"grep -n 'timeout' \"{path}\" | head -{rng.randint(1, 99)}", "timeout": 2.5},
        lambda: {
            "path": path,
            "edits": [{"line": rng.randint(1, 400), "text": prose.answer(rng), "old": None}],
        },
        lambda: {
            "query": prose.question(rng),
            "filters": {"ext": [".py", ".md"], "depth": {"max": 3}},
            "all": False,
        },
        lambda: {"名前": path, "clé": {"🔑": True}, "": "", "a.b[0]": []},
    )
    return rng.choice(shapes)()


def _value(rng: Random) -> Any:
    if rng.random() < _LONG_RATE:
        return prose.huge_output(rng.choice(_LONG_LINES))
    shapes: tuple[Callable[[Random], Any], ...] = (
        _listing,
        _listing,
        prose.answer,
        lambda rng: rng.choice(_SCALARS),
        _record,
        lambda rng: [_record(rng), None, [1, [2, [3]]]],
        _content_parts,
    )
    return rng.choice(shapes)(rng)


def _listing(rng: Random) -> str:
    start = rng.randint(1, 500)
    lines = "\n".join(f"{start + i:>5}  {rng.choice(prose.FILES)}" for i in range(rng.choice((1, 3, 12))))
    return lines + rng.choice(("", "\n", "\r\n"))


def _record(rng: Random) -> dict[str, Any]:
    return {
        "ok": True,
        "count": rng.randint(0, 10**6),
        "ratio": rng.randint(0, 1000) / 8,
        "items": [{"path": rng.choice(prose.FILES), "tags": [], "owner": None}],
        "説明": prose.answer(rng),
    }


def _content_parts(rng: Random) -> list[dict[str, Any]]:
    return [{"type": "text", "text": prose.answer(rng)} for _ in range(rng.randint(1, 2))]
