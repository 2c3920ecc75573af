"""A reduced output fits, its numbers add up, and reducing it again changes nothing."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.harness.thoroughness import examples
from turnstate import wire_text
from turnstate.context import text as lines
from turnstate.context.frame import BARE, Frames, bare
from turnstate.context.policy import OutputLimits
from turnstate.context.reduction import full_range, output_texts, reduced
from turnstate.ids import CallId
from turnstate.message import Message, ToolCallResult
from turnstate.tokens.cost import ExactCounter
from turnstate.tokens.counter import Count, Counter


class Bytes:
    """One token per some bytes."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.name = f"bytes-{size}"

    def count(self, text: str) -> Count:
        return Count(-(-len(text.encode()) // self.size), "estimated")


WORDS = [
    *("\n", "\r", "\r\n", "\u2028", "\u2029", " ", "a", "é", "e\u0301", "灯台", "👩‍👧", "\x00", "\f"),
    *("the keeper writes\n", "x" * 40, " " * 60, "line\r\n", '{"a": [1, 2]}'),
    *("[Data Truncated]\n", "Start: Line 1-50\n", "... (8000 lines omitted) ...\n", "End: Line 8051-8100\n"),
]
FRAME = re.compile(r"\[Data Truncated\]\nStart: (Line|Character) 1-(\d+)\n")
GAP = re.compile(r"\.\.\. \((\d+) (line|character)s omitted\) \.\.\.\nEnd: (Line|Character) (\d+)-(\d+)\n")

runs = st.tuples(st.sampled_from(WORDS), st.integers(1, 60)).map(lambda run: run[0] * run[1])
texts = st.lists(runs, max_size=8).map("".join)
values: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-9, 2**40)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.sampled_from("zyx"), inner),
    max_leaves=12,
)
image = {"type": "image", "data": "aGFyYm91cg==", "media_type": "image/png"}
parts = st.lists(
    st.just(image) | st.builds(lambda text: {"type": "text", "text": text}, texts), min_size=1, max_size=5
)
limits = st.builds(
    lambda head, tail, soft, more: OutputLimits(head, tail, soft, soft + more),
    *(st.integers(1, 9), st.integers(1, 9), st.integers(1, 300), st.just(0) | st.integers(0, 300)),
)
counters = st.sampled_from([Bytes(1), Bytes(4), Bytes(100), ExactCounter("o200k_base")])
handles = st.sampled_from([None, lambda result: f"message/{result.tool_call_id}"])


def tool(result: Any) -> Message:
    return Message.tool([ToolCallResult(tool_call_id=CallId("call_1"), result=result, is_error=True)])


def sizes(result: Any, counter: Counter) -> list[int]:
    found = wire_text.result_parts(result) if not isinstance(result, str) else None
    pieces = (
        [wire_text.result_text(result)]
        if found is None
        else [part.text for part in found if hasattr(part, "text")]
    )
    return [counter.count(piece).tokens for piece in pieces]


def limit_exceeded(result: Any, counter: Counter, limits: OutputLimits) -> int | None:
    """Return True if an output exceeds its limit, by counting all of it."""
    tokens = sum(sizes(result, counter))
    if sum(map(lines.count, output_texts(result))) > limits.head + limits.tail and tokens > limits.soft:
        return limits.soft
    return limits.hard if tokens > limits.hard else None


@pytest.mark.req("E2", "E3")
@given(texts | values | parts, counters, limits, handles)
@examples(50, long=2_000)
def test_a_result_is_within_its_limit_or_as_short_as_it_can_be(
    result: Any, counter: Counter, limits: OutputLimits, handle: Any
) -> None:
    message = tool(result)
    short = reduced(message, counter, limits, handle=handle)
    target = limit_exceeded(result, counter, limits)
    if target is None:
        assert short is message
        return
    before, after = sizes(result, counter), sizes(short.tool_results[0].result, counter)
    if sum(after) <= target:
        return
    frames = Frames(limits.head, limits.tail, "[Full output: message/call_1]" if handle else "")
    for text, was, now in zip(output_texts(short.tool_results[0].result), before, after, strict=True):
        is_bare = len(text) <= BARE + len(frames.note)
        assert is_bare or now == was <= counter.count(bare(text, frames)).tokens
        assert now <= was


@pytest.mark.req("E2")
@given(texts | values | parts, counters, limits, handles)
@examples(50, long=2_000)
def test_reducing_twice_is_reducing_once(
    result: Any, counter: Counter, limits: OutputLimits, handle: Any
) -> None:
    once = reduced(tool(result), counter, limits, handle=handle)
    assert reduced(once, counter, limits, handle=handle) is once


@pytest.mark.req("E1", "E3")
@given(texts, counters, limits)
@examples(50, long=2_000)
def test_head_and_omitted_and_tail_are_the_whole(text: str, counter: Counter, limits: OutputLimits) -> None:
    frame = reduced(tool(text), counter, limits).tool_results[0].result
    opening = FRAME.match(frame)
    if frame == text or opening is None:
        return
    unit, first = opening[1], int(opening[2])
    head = full_range(text, 1, first) if unit == "Line" else text[:first]
    rest = frame[opening.end() :]
    assert rest.startswith(head)
    gap = GAP.match(rest, len(head) + (not head.endswith("\n")))
    assert gap
    assert gap[2] == unit.lower()
    assert gap[3] == unit
    omitted, begin, last = int(gap[1]), int(gap[4]), int(gap[5])
    assert last == (lines.count(text) if unit == "Line" else len(text))
    assert first + omitted + (last - begin + 1) == last
    assert omitted > 0
    assert rest[gap.end() :] == (full_range(text, begin, last) if unit == "Line" else text[begin - 1 :])


@pytest.mark.req("E3")
@given(texts)
@examples(50, long=1_000)
def test_lines_side_by_side_are_the_text(text: str) -> None:
    total = lines.count(text)
    assert "".join(full_range(text, n, n) for n in range(1, total + 1)) == text
    assert lines.ends(text, total) == [len(full_range(text, 1, n)) for n in range(1, total + 1)]
    assert lines.starts(text, total) == [0, *lines.ends(text, total)][:total]


@pytest.mark.req("E3")
@given(texts | values | parts, counters, limits)
@examples(50, long=1_000)
def test_nothing_but_the_text_changes_and_always_in_the_same_way(
    result: Any, counter: Counter, limits: OutputLimits
) -> None:
    message = tool(result)
    short = reduced(message, counter, limits)
    assert reduced(message, counter, limits) == short
    (new,) = short.tool_results
    assert (short.id, short.timestamp, short.role) == (message.id, message.timestamp, message.role)
    assert (new.tool_call_id, new.is_error) == ("call_1", True)
    assert message.tool_results[0].result == result
    if wire_text.result_parts(result) and not isinstance(result, str):
        assert [part for part in new.result if part["type"] == "image"] == [
            p for p in result if p["type"] == "image"
        ]
        assert [part["type"] for part in new.result] == [part["type"] for part in result]
