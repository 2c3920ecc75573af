"""A very long tool output is shown by its two ends, and everything else is left alone."""

from __future__ import annotations

import json
import re
from functools import partial
from typing import Any

import pytest

from turnstate.context import reduction
from turnstate.context.frame import BARE
from turnstate.context.policy import OutputLimits, Reduction
from turnstate.context.reduction import full_range, output_id, output_texts, reduced, share
from turnstate.errors import InputError
from turnstate.ids import CallId
from turnstate.message import Message, ToolCallRequest, ToolCallResult
from turnstate.part import Edit, Native
from turnstate.tokens.cost import ExactCounter
from turnstate.tokens.counter import Count

DEFAULT = OutputLimits.of(Reduction(), 128_000)


class Fours:
    """Four bytes a token, and how often it was asked for how much."""

    name = "fours"

    def __init__(self) -> None:
        self.asked = 0
        self.characters = 0

    def count(self, text: str) -> Count:
        self.asked += 1
        self.characters += len(text)
        return Count(-(-len(text.encode()) // 4), "estimated")


def tool(*results: Any, is_error: bool = False) -> Message:
    return Message.tool(
        ToolCallResult(tool_call_id=CallId(f"call_{n}"), result=result, is_error=is_error)
        for n, result in enumerate(results, start=1)
    )


def shown(result: Any, limits: OutputLimits = DEFAULT) -> Any:
    return reduced(tool(result), Fours(), limits).tool_results[0].result


def numbered(count: int, end: str = "\n") -> str:
    return "".join(
        f"{n}: the harbour light turns, and the keeper writes it down{end}" for n in range(1, count + 1)
    )


def headings(frame: str) -> list[str]:
    return re.findall(r"^(?:\[Data Truncated\]|Start: .*|\.\.\. \(.*|End: .*)$", frame, re.MULTILINE)


# The frame


@pytest.mark.req("E1", "E2")
def test_eight_thousand_and_a_hundred_lines_become_fifty_and_fifty() -> None:
    log = numbered(8_100)
    kept = log.splitlines(keepends=True)
    assert shown(log) == "".join(
        [
            "[Data Truncated]\nStart: Line 1-50\n",
            *kept[:50],
            "... (8000 lines omitted) ...\nEnd: Line 8051-8100\n",
            *kept[-50:],
        ]
    )


@pytest.mark.req("E1")
def test_head_and_tail_are_settings() -> None:
    frame = shown(numbered(8_100), OutputLimits(3, 1, 4_000, 16_000))
    assert headings(frame)[1:] == ["Start: Line 1-3", "... (8096 lines omitted) ...", "End: Line 8100-8100"]
    assert frame.endswith("End: Line 8100-8100\n" + numbered(8_100).splitlines(keepends=True)[-1])


@pytest.mark.req("E1", "E2")
def test_one_line_of_two_megabytes_is_shown_by_its_characters() -> None:
    line = "no newline anywhere " * 100_000
    frame = shown(line)
    pattern = (
        r"\[Data Truncated\]\nStart: Character 1-(\d+)\n(.*)\n"
        r"\.\.\. \((\d+) characters omitted\) \.\.\.\nEnd: Character (\d+)-(\d+)\n(.*)"
    )
    found = re.fullmatch(pattern, frame, re.DOTALL)
    assert found
    first, head, omitted, begin, last, tail = found.groups()
    assert (head, tail) == (line[: int(first)], line[int(begin) - 1 :])
    assert int(first) + int(omitted) + len(tail) == int(last) == len(line)
    assert 15_000 < Fours().count(frame).tokens <= 16_000


@pytest.mark.req("E1")
def test_long_lines_leave_fewer_of_them_at_each_end() -> None:
    frame = shown("".join(f"{n} " + "long " * 200 + "\n" for n in range(1, 501)))
    _, start, omitted, end = headings(frame)
    assert (start, omitted, end) == ("Start: Line 1-7", "... (486 lines omitted) ...", "End: Line 494-500")
    assert Fours().count(frame).tokens <= 4_000


@pytest.mark.req("E1")
def test_short_lines_at_one_end_leave_their_room_to_the_other() -> None:
    frame = shown("".join("long " * 100 + "\n" for _ in range(200)) + "short\n" * 200)
    _, start, _, end = headings(frame)
    assert end == "End: Line 351-400"
    assert start in ("Start: Line 1-29", "Start: Line 1-30", "Start: Line 1-31")


@pytest.mark.req("E1")
def test_a_giant_first_line_among_many_is_shown_by_its_characters() -> None:
    frame = shown("giant " * 20_000 + "\n" + numbered(200))
    assert headings(frame)[1].startswith("Start: Character 1-")
    assert Fours().count(frame).tokens <= 4_000


# When


@pytest.mark.req("E2")
@pytest.mark.parametrize(
    ("lines", "tokens", "is_framed"), [(100, 5_000, False), (101, 4_000, False), (101, 4_001, True)]
)
def test_lines_and_tokens_together_decide(lines: int, tokens: int, is_framed: bool) -> None:
    text = "\n" * (lines - 1) + "x" * (4 * tokens - lines + 1)
    assert (Fours().count(text).tokens, text.count("\n") + 1) == (tokens, lines)
    assert (shown(text) != text) == is_framed


@pytest.mark.req("E2")
@pytest.mark.parametrize(("tokens", "is_framed"), [(16_000, False), (16_001, True)])
def test_above_the_hard_limit_tokens_alone_decide(tokens: int, is_framed: bool) -> None:
    text = "x" * 4 * tokens
    assert (shown(text) != text) == is_framed


@pytest.mark.req("E2")
def test_neither_limit_is_more_than_a_quarter_of_the_step_of_the_budget_nor_a_batch_than_three() -> None:
    assert OutputLimits.of(Reduction(), 128_000) == OutputLimits(50, 50, 4_000, 16_000, 3 * 16_384, 65_536)
    assert OutputLimits.of(Reduction(), 20_000) == OutputLimits(50, 50, 4_000, 4_096, 3 * 4_096, 16_384)
    assert OutputLimits.of(Reduction(), 375) == OutputLimits(50, 50, 64, 64, 192, 256)
    assert OutputLimits.of(Reduction(share=1), 375) == OutputLimits(50, 50, 256, 256, 256, 256)
    assert OutputLimits.of(Reduction(), 1) == OutputLimits(50, 50, 1, 1, 1, 1)


@pytest.mark.req("E2", "C8")
def test_limits_are_the_same_for_a_budget_that_moves_a_little() -> None:
    assert OutputLimits.of(Reduction(), 32_000) == OutputLimits.of(Reduction(), 30_400)
    assert OutputLimits.of(Reduction(), 32_767) != OutputLimits.of(Reduction(), 32_768)


@pytest.mark.req("E2")
@pytest.mark.parametrize(
    ("sizes", "room", "each"),
    [
        ([10, 100, 100], 210, 100),
        ([10, 100, 100], 110, 50),  # what the short one leaves goes to the long ones
        ([10, 60, 100], 160, 90),
        ([100, 100, 100], 91, 30),
        ([100, 100, 100], 9, 3),
        ([100, 100, 100], 8, None),  # not even the bare frames fit
        ([], 0, 1),
    ],
)
def test_outputs_share_a_room_evenly_and_leave_what_they_do_not_use_to_the_others(
    sizes: list[int], room: int, each: int | None
) -> None:
    assert share(sizes, [min(size, 3) for size in sizes], room) == each


@pytest.mark.parametrize("limits", [(0, 1, 1, 1), (1, 0, 1, 1), (1, 1, 0, 1), (1, 1, 2, 1)])
def test_limits_that_contradict_themselves_are_refused(limits: tuple[int, int, int, int]) -> None:
    with pytest.raises(InputError, match="hard must not be below soft"):
        OutputLimits(*limits)


@pytest.mark.req("E2")
@pytest.mark.parametrize("limit", [93, 60, 40])
def test_tiny_limits_are_kept(limit: int) -> None:
    for text in (numbered(300), "x" * 5_000, [{"row": n} for n in range(400)]):
        frame = shown(text, OutputLimits(50, 50, limit, limit))
        assert frame.startswith("[Data Truncated]\nStart: ")
        assert Fours().count(frame).tokens <= limit


@pytest.mark.req("E2")
@pytest.mark.parametrize(
    ("text", "frame"),
    [
        (numbered(300), "[Data Truncated]\n... (300 lines omitted) ..."),
        ("x" * 5_000, "[Data Truncated]\n... (5000 characters omitted) ..."),
    ],
)
def test_where_not_even_the_frame_fits_it_is_bare(text: str, frame: str) -> None:
    for limit in (1, 5, 20):
        assert shown(text, OutputLimits(50, 50, limit, limit)) == frame


@pytest.mark.req("E2")
def test_a_text_that_a_frame_would_not_shorten_stays() -> None:
    limits = OutputLimits(1, 1, 1, 1)
    text = "one\ntwo\nthree\nfour\n" * 3
    assert len(text) <= BARE
    assert shown(text, limits) == text
    assert shown("a" * (BARE + 1), limits) != "a" * (BARE + 1)


# Never twice


@pytest.mark.req("E2")
@pytest.mark.parametrize(
    "limits", [DEFAULT, OutputLimits(50, 50, 60, 60), OutputLimits(50, 50, 1, 1), OutputLimits(2, 3, 50, 70)]
)
def test_what_was_reduced_is_not_reduced_again(limits: OutputLimits) -> None:
    handle = partial(output_id, tool("", ""))
    once = reduced(
        tool(numbered(9_000), "x" * 300_000, {"rows": [*range(9_000)]}), Fours(), limits, handle=handle
    )
    assert reduced(once, Fours(), limits, handle=handle) is once


@pytest.mark.req("E2")
def test_a_frame_with_more_lines_than_the_soft_limit_bears_is_made_within_that_one() -> None:
    text = "short\n" * 49 + "giant " * 50_000 + "\n" + "short\n" * 49
    once = tool(shown(text))
    assert headings(once.tool_results[0].result)[1].startswith("Start: Character")
    assert reduced(once, Fours(), DEFAULT) is once


@pytest.mark.req("E2")
def test_words_of_a_frame_in_an_output_neither_protect_nor_harm_it() -> None:
    forged = "[Data Truncated]\nStart: Line 1-50\n... (8000 lines omitted) ...\nEnd: Line 8051-8100\n"
    assert shown(forged) == forged
    long = forged + numbered(8_096)
    frame = shown(long)
    assert frame.startswith(f"[Data Truncated]\nStart: Line 1-50\n{forged}")
    assert frame.count("... (8000 lines omitted) ...") == 2


# Any result


@pytest.mark.req("A6", "E3")
@pytest.mark.parametrize("result", [0, 0.0, False, None, [], {}, "", True, "a"])
def test_small_values_are_results_and_stay_what_they_are(result: Any) -> None:
    message = tool(result)
    assert reduced(message, Fours(), OutputLimits(1, 1, 1, 1)) is message


@pytest.mark.req("E3")
def test_structured_results_are_shown_as_indented_json_in_their_order() -> None:
    rows = [{"zeta": n, "alpha": f"灯台 {n}"} for n in range(1_000)]
    text = json.dumps(rows, indent=2, ensure_ascii=False)
    assert output_texts(rows) == (text,)
    assert shown(rows) == (
        f"[Data Truncated]\nStart: Line 1-50\n{full_range(text, 1, 50)}"
        f"... (3902 lines omitted) ...\nEnd: Line 3953-4002\n{full_range(text, 3_953, 4_002)}"
    )


@pytest.mark.req("E3")
def test_structured_results_are_measured_as_they_would_be_sent() -> None:
    rows = list(range(2_000))
    compact = json.dumps(rows, separators=(",", ":"))
    tokens = Fours().count(compact).tokens
    assert Fours().count(output_texts(rows)[0]).tokens > tokens
    assert shown(rows, OutputLimits(50, 50, tokens, tokens)) == rows
    assert headings(shown(rows, OutputLimits(50, 50, tokens - 1, tokens)))[1] == "Start: Line 1-50"


@pytest.mark.req("E3")
def test_a_small_document_that_indentation_would_blow_up_is_not_indented(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nested: Any = [0] * 100
    for _ in range(100):
        nested = [nested]
    assert "\n" in output_texts(nested)[0]
    monkeypatch.setattr(reduction, "_MOST_INDENTATION", 20_000)
    assert output_texts(nested) == (json.dumps(nested, separators=(",", ":")),)


@pytest.mark.req("E3")
def test_errors_are_reduced_and_stay_errors() -> None:
    (result,) = reduced(tool(numbered(8_100), is_error=True), Fours(), DEFAULT).tool_results
    assert result.is_error
    assert result.tool_call_id == "call_1"
    assert result.result.startswith("[Data Truncated]")


@pytest.mark.req("E3")
def test_each_result_of_a_message_has_the_limit_for_itself() -> None:
    message = tool("fine", numbered(8_100), 7)
    short = reduced(message, Fours(), DEFAULT)
    assert short.tool_results[0] is message.tool_results[0]
    assert short.tool_results[2] is message.tool_results[2]
    assert headings(short.tool_results[1].result)[1] == "Start: Line 1-50"


@pytest.mark.req("E3")
def test_text_parts_share_the_limit_and_media_stay() -> None:
    image = {"type": "image", "data": "aGFyYm91cg==", "media_type": "image/png"}
    parts = [{"type": "text", "text": numbered(8_100)}, image, {"type": "text", "text": "The log is above."}]
    long, picture, remark = shown(parts)
    assert headings(long["text"])[1:] == [
        "Start: Line 1-50",
        "... (8000 lines omitted) ...",
        "End: Line 8051-8100",
    ]
    assert picture == image
    assert remark == parts[2]


@pytest.mark.req("E3")
def test_parts_that_are_too_long_together_get_equal_shares() -> None:
    parts = [{"type": "text", "text": numbered(90)} for _ in range(4)]
    texts = [part["text"] for part in shown(parts)]
    costs = [Fours().count(text).tokens for text in texts]
    assert sum(costs) <= 4_000
    assert min(costs) > 900
    assert all(headings(text)[1].startswith("Start: Character") for text in texts)


@pytest.mark.req("E3")
def test_what_a_short_part_leaves_goes_to_the_longer_one() -> None:
    parts = [{"type": "text", "text": text} for text in ("x " * 200_000, "y " * 10_000, "A remark.")]
    giant, long, remark = shown(parts)
    assert (long, remark) == (parts[1], parts[2])
    assert 10_500 < Fours().count(giant["text"]).tokens <= 11_000


@pytest.mark.req("E3")
def test_parts_without_text_are_left_alone() -> None:
    message = tool([{"type": "image", "data": "A" * 400_000, "media_type": "image/png"}])
    assert reduced(message, Fours(), DEFAULT) is message


# Lines and characters


@pytest.mark.req("E3")
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", "\u2028", "\u2029"])
@pytest.mark.parametrize("final", [True, False])
def test_every_kind_of_line_end_is_kept(end: str, final: bool) -> None:
    text = numbered(8_100, end) if final else numbered(8_100, end).removesuffix(end)
    frame = shown(text)
    assert headings(frame)[1:] == ["Start: Line 1-50", "... (8000 lines omitted) ...", "End: Line 8051-8100"]
    head, middle, tail = (full_range(text, *ends) for ends in ((1, 50), (51, 8_050), (8_051, 8_100)))
    assert head + middle + tail == text
    assert f"Start: Line 1-50\n{head}" in frame
    assert frame.endswith(f"End: Line 8051-8100\n{tail}")


@pytest.mark.req("E3")
@pytest.mark.parametrize("cluster", ["e\u0301", "👩‍👩‍👧", "👍🏽", "\r\n", "ก้"])
def test_characters_that_belong_together_stay_together(cluster: str) -> None:
    text = cluster * 3_000
    for limit in range(60, 80):
        frame = shown(text, OutputLimits(4_000, 4_000, limit, limit))
        head, tail = re.findall(
            r"(?:Start|End): Character [^\n]*\n(.*?)(?:\n?\.\.\. \(|\Z)", frame, re.DOTALL
        )
        for kept in (head, tail):
            assert kept
            assert kept.rstrip("\n") == (cluster * (len(kept) // len(cluster) + 1))[: len(kept.rstrip("\n"))]
            assert len(kept) % len(cluster) == 0 or cluster == "\r\n"


@pytest.mark.req("E2")
def test_a_cluster_without_end_is_cut_all_the_same() -> None:
    frame = shown("e" + "\u0301" * 100_000, DEFAULT)
    assert headings(frame)[1].startswith("Start: Character 1-")
    assert Fours().count(frame).tokens <= 16_000


@pytest.mark.req("E2")
@pytest.mark.parametrize("counter", [ExactCounter("o200k_base"), ExactCounter("cl100k_base")])
@pytest.mark.parametrize("text", ["灯台の光は今夜も海を照らす。" * 9_000, "0123456789abcdef" * 9_000])
def test_real_vocabularies_get_what_fits_their_limit(counter: ExactCounter, text: str) -> None:
    limits = OutputLimits(50, 50, 1_000, 2_000)
    (result,) = reduced(tool(text), counter, limits).tool_results
    assert 1_800 < counter.count(result.result).tokens <= 2_000


@pytest.mark.req("E2")
@pytest.mark.parametrize("limits", [OutputLimits(50, 50, 2_000, 2_000), OutputLimits(50, 50, 93, 93)])
def test_a_million_spaces_become_a_frame_that_is_not_another_megabyte(limits: OutputLimits) -> None:
    counter = ExactCounter("o200k_base")
    (result,) = reduced(tool(" " * 1_000_000), counter, limits).tool_results
    assert headings(result.result)[1].startswith("Start: Character 1-")
    assert counter.count(result.result).tokens <= limits.hard
    assert len(result.result) < 20 * limits.hard


@pytest.mark.req("E2")
def test_a_giant_output_is_not_counted_whole() -> None:
    counter = Fours()
    reduced(tool("x" * 10_000_000), counter, DEFAULT)
    reduced(tool(numbered(150_000)), counter, DEFAULT)
    assert counter.asked <= 30
    assert counter.characters < 3_000_000


# The message around it


@pytest.mark.req("E4")
@pytest.mark.parametrize("text", [numbered(8_100), numbered(8_100).rstrip(), "x" * 100_000])
def test_where_a_store_holds_the_output_the_last_line_tells_its_id(text: str) -> None:
    message = tool(text)
    short = reduced(message, Fours(), DEFAULT, handle=partial(output_id, message))
    assert short.tool_results[0].result.splitlines()[-1] == f"[Full output: {message.id}]"
    assert "[Full output" not in shown(text)


@pytest.mark.req("E4")
def test_an_output_among_several_is_named_by_its_call_too() -> None:
    message = tool("fine", numbered(8_100))
    short = reduced(message, Fours(), DEFAULT, handle=partial(output_id, message))
    assert short.tool_results[1].result.endswith(f"\n[Full output: {message.id}/call_2]")


@pytest.mark.req("E4")
def test_even_a_bare_frame_tells_where_the_output_is() -> None:
    message = tool(numbered(300))
    short = reduced(message, Fours(), OutputLimits(50, 50, 1, 1), handle=lambda _: "here")
    assert (
        short.tool_results[0].result == "[Data Truncated]\n... (300 lines omitted) ...\n[Full output: here]"
    )


@pytest.mark.req("E3")
def test_messages_that_are_no_tool_results_are_given_back() -> None:
    text = numbered(8_100)
    call = ToolCallRequest(name="write", args={"text": text})
    for message in (Message.user(text), Message.assistant(text, tool_calls=[call]), Message.system(text)):
        assert reduced(message, Fours(), DEFAULT) is message


@pytest.mark.req("E3")
def test_a_reduced_message_keeps_its_id_and_drops_what_its_document_said_of_the_content() -> None:
    native = Native(format="openai-chat", edits=(Edit(("content",), "…"),), envelope={"model": "m"})
    message = tool(numbered(8_100)).replace(native=native)
    short = reduced(message, Fours(), DEFAULT)
    assert (short.id, short.timestamp, short.role) == (message.id, message.timestamp, "tool")
    assert short.native == Native(format="openai-chat", envelope={"model": "m"})
    assert message.tool_results[0].result == numbered(8_100)
