"""The generator: what it promises of valid conversations, and that every fault it plants is there."""

from __future__ import annotations

import hashlib
import os
import re
import struct
import subprocess
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.harness.thoroughness import runs
from turnstate import codec
from turnstate.errors import InputError
from turnstate.message import Message, ToolCallRequest
from turnstate.part import FilePart, ImagePart
from turnstate.testing import conversations, samples
from turnstate.testing.conversations import Fault

COUNT = runs(1_000, long=2_000)
BROKEN = 500
ENOUGH = 10  # conversations that show a feature, so that chance plays no part


@cache
def written() -> tuple[list[Message], ...]:
    return tuple(conversations.many(COUNT))


@cache
def written_broken() -> tuple[list[Message], ...]:
    return tuple(conversations.many(BROKEN, kind=conversations.broken))


@cache
def written_with(fault: Fault) -> tuple[list[Message], ...]:
    return tuple(conversations.broken_with(seed, fault) for seed in range(25))


def problems(messages: Sequence[Message]) -> set[str]:
    """Name what is wrong with a conversation: an independent reading of the rules, for these tests."""
    found: set[str] = set()
    asked: set[str] = set()
    answered: dict[str, Any] = {}
    pending: set[str] = set()
    to_come = {call.id for message in messages for call in message.tool_calls}
    spoken = [message for message in messages if message.role != "system"]
    if spoken[0].role != "user":
        found.add(f"{spoken[0].role} first")
    for message in messages:
        if message.role != "tool" and pending:
            found.add(f"{message.role} before results")
            pending = set()
        for result in message.tool_results:
            call = result.tool_call_id
            if call in pending:
                pending.remove(call)
            elif call in answered:
                found.add("same result twice" if answered[call] == result.result else "another result")
            elif call in asked:
                found.add("late result")
            else:
                found.add("early result" if call in to_come else "unknown result")
            answered[call] = result.result
        for request in message.tool_calls:
            if request.id in asked:
                found.add("call id twice")
            asked.add(request.id)
            pending.add(request.id)
        if message.role != "tool" and not message.tool_calls and is_blank(message):
            found.add("blank")
    if pending or asked - answered.keys():
        found.add("no result")
    return found


def is_blank(message: Message) -> bool:
    return not message.text.strip() and not any(isinstance(p, ImagePart | FilePart) for p in message.parts)


def batches(messages: Sequence[Message]) -> Iterator[tuple[Message, list[Message]]]:
    """Return each message with calls, and the tool messages right after it."""
    for i, message in enumerate(messages):
        if message.tool_calls:
            end = i + 1
            while end < len(messages) and messages[end].role == "tool":
                end += 1
            yield message, list(messages[i + 1 : end])


def calls(messages: Sequence[Message]) -> list[ToolCallRequest]:
    return [call for message in messages for call in message.tool_calls]


def results(messages: Sequence[Message]) -> list[Any]:
    return [result.result for message in messages for result in message.tool_results]


def values(messages: Sequence[Message], kind: type) -> list[Any]:
    return [result for result in results(messages) if type(result) is kind]


def provider_ids(messages: Sequence[Message]) -> list[str]:
    return [call.provider_id for call in calls(messages) if call.provider_id is not None]


def in_order(message: Message, answers: Sequence[Message]) -> bool:
    return [call.id for call in message.tool_calls] == [
        result.tool_call_id for answer in answers for result in answer.tool_results
    ]


def says(pattern: str) -> Callable[[list[Message]], bool]:
    return lambda messages: any(re.search(pattern, message.text) for message in messages)


def gives(pattern: str) -> Callable[[list[Message]], bool]:
    return lambda messages: any(re.search(pattern, text) for text in values(messages, str))


def holds(value: Any) -> Callable[[list[Message]], bool]:
    return lambda messages: any(type(r) is type(value) and r == value for r in results(messages))


def has_part(kind: type) -> Callable[[list[Message]], bool]:
    return lambda messages: any(
        isinstance(part, kind) for message in messages if message.role == "user" for part in message.parts
    )


def ends_with(role: str) -> Callable[[list[Message]], bool]:
    return lambda messages: messages[-1].role == role


def heads(count: int) -> Callable[[list[Message]], bool]:
    return lambda messages: [m.role for m in messages[: count + 1]] == ["system"] * count + ["user"]


def has_content_parts(messages: Sequence[Message]) -> bool:
    lists = values(messages, list)
    return any(value and all(set(item) == {"type", "text"} for item in value if item) for value in lists)


FEATURES: dict[str, Callable[[list[Message]], object]] = {
    "no system message": lambda ms: all(m.role != "system" for m in ms),
    "one leading system message": heads(1),
    "two leading system messages": heads(2),
    "a system message between turns": lambda ms: any(
        before.role != "system" and after.role == "system" for before, after in pairwise(ms)
    ),
    "two user messages in a row": lambda ms: any(
        before.role == after.role == "user" for before, after in pairwise(ms)
    ),
    "a turn without calls": lambda ms: any(
        before.role == "user" and after.role == "assistant" and not after.tool_calls
        for before, after in pairwise(ms)
    ),
    "several rounds in a turn": lambda ms: any(
        before.role == "tool" and after.tool_calls for before, after in pairwise(ms)
    ),
    "a turn that ends with results": lambda ms: any(
        before.role == "tool" and after.role == "user" for before, after in pairwise(ms)
    ),
    "ends with user": ends_with("user"),
    "ends with tool": ends_with("tool"),
    "ends with assistant": ends_with("assistant"),
    "parallel calls": lambda ms: any(len(m.tool_calls) > 1 for m in ms),
    "six calls in a batch": lambda ms: any(len(m.tool_calls) == 6 for m in ms),
    "answers out of order": lambda ms: any(not in_order(*batch) for batch in batches(ms)),
    "answers in one tool message": lambda ms: any(len(b[0].tool_calls) > len(b[1]) == 1 for b in batches(ms)),
    "answers in several tool messages": lambda ms: any(len(b[1]) > 1 for b in batches(ms)),
    "several answers in one of several": lambda ms: any(
        len(b[0].tool_calls) > len(b[1]) > 1 for b in batches(ms)
    ),
    "text with calls": lambda ms: any(m.tool_calls and m.content for m in ms),
    "empty text with calls": lambda ms: any(m.tool_calls and m.content == "" for m in ms),
    "no content with calls": lambda ms: any(m.tool_calls and m.content is None for m in ms),
    "result: text": lambda ms: values(ms, str),
    'result: ""': holds(""),
    "result: 0": holds(0),
    "result: false": holds(False),
    "result: true": holds(True),
    "result: null": holds(None),
    "result: []": holds([]),
    "result: {}": holds({}),
    "result: whole number": lambda ms: any(values(ms, int)),
    "result: fraction": lambda ms: values(ms, float),
    "result: nested object": lambda ms: any(
        isinstance(item, list | dict) for value in values(ms, dict) for item in value.values()
    ),
    "result: nested list": lambda ms: any(isinstance(i, list) for value in values(ms, list) for i in value),
    "result: content parts": has_content_parts,
    "result: error": lambda ms: any(result.is_error for m in ms for result in m.tool_results),
    "result: hundreds of lines": lambda ms: any(text.count("\n") >= 149 for text in values(ms, str)),
    "result: thousands of lines": lambda ms: any(text.count("\n") >= 1_999 for text in values(ms, str)),
    "result: CJK": gives("[\u3040-\u30ff\u4e00-\u9fff]"),
    "result: NUL": gives("\x00"),
    "Japanese": says("[\u3040-\u30ff]"),
    "Chinese": says("请|數據庫"),
    "Korean": says("[\uac00-\ud7a3]"),
    "Arabic": says("[\u0600-\u06ff]"),
    "emoji": says("[\U0001f300-\U0001faff]"),
    "combining characters": says("[\u0300-\u036f]"),
    "NUL": says("\x00"),
    "a tokenizer's marker": says(r"<\|endoftext\|>"),
    "text like a summary": lambda ms: any(
        m.role == "user" and m.text.startswith("[Memory Summary]") for m in ms
    ),
    "line ends of every kind": says("\r\n.*\r.*\u2028"),
    "args: empty": lambda ms: any(call.args == {} for call in calls(ms)),
    "args: nested": lambda ms: any(
        isinstance(v, dict | list) for call in calls(ms) for v in call.args.values()
    ),
    "args: unicode keys": lambda ms: any(not key.isascii() for call in calls(ms) for key in call.args),
    "provider id: missing": lambda ms: any(call.provider_id is None for call in calls(ms)),
    "provider id: given": provider_ids,
    "provider id: repeated across batches": lambda ms: len(provider_ids(ms)) > len(set(provider_ids(ms))),
    "provider id: over 40 characters": lambda ms: any(len(name) > 40 for name in provider_ids(ms)),
    "provider id: odd characters": lambda ms: any(
        not re.fullmatch("[a-zA-Z0-9_-]+", name) for name in provider_ids(ms)
    ),
    "provider id: of two kinds": lambda ms: len({str(c.provider_id)[:5] for c in calls(ms)}) > 1,
    "a picture": has_part(ImagePart),
    "a file": has_part(FilePart),
}

EXPECTED: dict[Fault, set[str]] = {
    Fault.ASSISTANT_FIRST: {"assistant first"},
    Fault.ORPHAN_AT_START: {"tool first", "unknown result"},
    Fault.PARTIAL_RESULTS: {"no result"},
    Fault.NO_RESULTS: {"no result"},
    Fault.DANGLING_CALL: {"no result", "user before results"},
    Fault.LATE_RESULT: {"late result"},
    Fault.DUPLICATE_RESULT: {"same result twice"},
    Fault.CONFLICTING_RESULT: {"another result"},
    Fault.UNKNOWN_RESULT: {"unknown result"},
    Fault.RESULT_BEFORE_CALL: {"early result"},
    Fault.REPEATED_CALL_ID: {"call id twice"},
    Fault.CONSECUTIVE_ASSISTANTS: {"assistant before results", "late result"},
    Fault.REORDERED: set(),
    Fault.BLANK_MESSAGE: {"blank"},
}
"""What the checker must say of each fault; messages in a wrong order show in many ways."""


@pytest.mark.parametrize("kind", [conversations.valid, conversations.broken])
def test_a_seed_gives_the_same_bytes_each_time(kind: Callable[[int], list[Message]]) -> None:
    for seed in range(25):
        assert codec.dump(kind(seed)) == codec.dump(kind(seed))


def test_another_process_gives_the_same_bytes() -> None:
    script = (
        "import hashlib; from turnstate import codec; from turnstate.testing import conversations as c\n"
        "both = [*c.many(15), *c.many(15, kind=c.broken)]\n"
        "print(hashlib.sha256(b''.join(map(codec.dump, both))).hexdigest())"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONHASHSEED": "1"}
    there = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    both = [*conversations.many(15), *conversations.many(15, kind=conversations.broken)]
    assert there.stdout.strip() == hashlib.sha256(b"".join(map(codec.dump, both))).hexdigest()


def test_seeds_differ_in_text_and_in_ids() -> None:
    documents = {codec.dump(messages) for messages in written()}
    first_ids = Counter(messages[0].id for messages in written())
    assert len(documents) == COUNT
    assert max(first_ids.values()) == 1


@pytest.mark.req("A5", "A8")
def test_valid_conversations_answer_every_call_once_and_at_once() -> None:
    for seed, messages in enumerate(written()):
        assert problems(messages) == set(), f"seed {seed}"


@pytest.mark.req("C3")
def test_every_batch_of_a_valid_conversation_is_one_unbroken_group() -> None:
    for messages in written()[:300]:
        for message, answers in batches(messages):
            answered = [result.tool_call_id for answer in answers for result in answer.tool_results]
            assert sorted(answered) == sorted(call.id for call in message.tool_calls)


@pytest.mark.req("A4")
def test_ids_of_messages_and_calls_never_repeat_in_a_valid_conversation() -> None:
    for messages in written():
        names = [message.id for message in messages]
        assert len(set(names)) == len(names)
        assert names == sorted(names)
        requests = calls(messages)
        assert len({call.id for call in requests}) == len(requests)


def test_provider_ids_never_repeat_within_a_batch() -> None:
    for messages in written():
        for message, _ in batches(messages):
            names = provider_ids([message])
            assert len(set(names)) == len(names)


def test_tool_names_are_such_as_every_provider_takes() -> None:
    names = {call.name for messages in written() for call in calls(messages)}
    assert all(re.fullmatch("[a-zA-Z0-9_-]{1,64}", name) for name in names)
    assert {1, 64} <= {len(name) for name in names}


def test_system_messages_are_foreign() -> None:
    kinds = {message.kind for messages in written() for message in messages if message.role == "system"}
    assert kinds == {"foreign"}


def test_times_grow_with_the_position() -> None:
    times = [message.timestamp for message in conversations.valid(1, turns=30)]
    assert times == sorted(set(times))


@pytest.mark.req("A6")
@pytest.mark.parametrize("feature", FEATURES)
def test_the_seeds_show_every_feature(feature: str) -> None:
    showing = (messages for messages in written() if FEATURES[feature](messages))
    assert len(list(islice(showing, ENOUGH))) == ENOUGH


@pytest.mark.req("A7")
@pytest.mark.parametrize("kind", [conversations.valid, conversations.broken])
def test_every_message_survives_the_codec(kind: Callable[[int], list[Message]]) -> None:
    for messages in conversations.many(50, kind=kind):
        assert codec.load(codec.dump(messages)) == messages


def test_the_picture_is_a_real_one() -> None:
    assert samples.TINY_PNG.startswith(b"\x89PNG\r\n\x1a\n")
    at, names = 8, []
    while at < len(samples.TINY_PNG):
        (size,) = struct.unpack_from(">I", samples.TINY_PNG, at)
        body = samples.TINY_PNG[at + 4 : at + 8 + size]
        assert struct.unpack_from(">I", samples.TINY_PNG, at + 8 + size) == (zlib.crc32(body),)
        names.append(body[:4])
        at += size + 12
    assert names == [b"IHDR", b"IDAT", b"IEND"]


@pytest.mark.parametrize("turns", [1, 2, 7, 40])
def test_the_number_of_turns_can_be_asked_for(turns: int) -> None:
    for seed in range(6):
        messages = conversations.valid(seed, turns=turns)
        opened = [m for before, m in pairwise([None, *messages]) if m and m.role == "user" and opens(before)]
        assert len(opened) <= turns <= sum(message.role == "user" for message in messages)


def opens(before: Message | None) -> bool:
    return before is None or before.role != "user"


def test_a_conversation_without_turns_is_refused() -> None:
    with pytest.raises(InputError, match="at least one turn, not 0"):
        conversations.valid(1, turns=0)


def test_many_begins_at_its_seed() -> None:
    assert list(conversations.many(2, seed=5)) == [conversations.valid(5), conversations.valid(6)]


def test_many_takes_any_function_of_a_seed() -> None:
    [first] = conversations.many(1, seed=3, kind=lambda seed: conversations.long_turn(seed, 2))
    assert first == conversations.long_turn(3, 2)


@pytest.mark.parametrize("rounds", [0, 1, 80])
def test_a_long_turn_is_one_question_and_its_rounds(rounds: int) -> None:
    messages = conversations.long_turn(4, rounds)
    assert [message.role for message in messages] == ["user", *["assistant", "tool"] * rounds]
    assert all(len(message.tool_calls) == 1 for message in messages[1::2])
    assert problems(messages) == set()


@pytest.mark.parametrize("lines", [1, 2, 8_100])
def test_a_huge_output_has_as_many_lines_as_asked_for(lines: int) -> None:
    text = conversations.huge_output(lines)
    assert len(text.split("\n")) == len(text.splitlines()) == lines
    assert text == conversations.huge_output(lines)


def test_every_fault_has_a_sentence_and_an_expectation() -> None:
    assert set(EXPECTED) == set(Fault)
    assert len({fault.value for fault in Fault}) == len(Fault)


def test_the_page_about_testing_lists_every_fault() -> None:
    page = Path(__file__).parents[3] / "docs" / "testing.md"
    rows = re.findall(r"^\| `([A-Z_]+)` \| (.*) \|$", page.read_text("utf-8"), re.MULTILINE)
    assert rows == [(fault.name, fault.value) for fault in Fault]


@pytest.mark.req("A5")
@pytest.mark.parametrize("fault", Fault)
def test_each_fault_is_there_when_asked_for(fault: Fault) -> None:
    for seed, messages in enumerate(written_with(fault)):
        found = problems(messages)
        assert found, f"seed {seed}"
        assert found >= EXPECTED[fault], f"seed {seed}"


@pytest.mark.parametrize("fault", Fault)
def test_a_single_turn_has_room_for_each_fault(fault: Fault) -> None:
    for seed in range(10):
        found = problems(conversations.broken_with(seed, fault, turns=1))
        assert found, f"seed {seed}"
        assert found >= EXPECTED[fault], f"seed {seed}"


@pytest.mark.parametrize("fault", [Fault.ASSISTANT_FIRST, Fault.REPEATED_CALL_ID, Fault.BLANK_MESSAGE])
def test_a_fault_that_touches_no_result_brings_no_other(fault: Fault) -> None:
    for seed, messages in enumerate(written_with(fault)):
        assert problems(messages) == EXPECTED[fault], f"seed {seed}"


@pytest.mark.parametrize("fault", [Fault.PARTIAL_RESULTS, Fault.NO_RESULTS, Fault.DANGLING_CALL])
def test_a_fault_that_loses_results_breaks_one_batch_only(fault: Fault) -> None:
    for seed, messages in enumerate(written_with(fault)):
        answered = {result.tool_call_id for message in messages for result in message.tool_results}
        lacking = [m for m in messages if any(call.id not in answered for call in m.tool_calls)]
        assert len(lacking) == 1, f"seed {seed}"


def test_every_broken_conversation_is_broken() -> None:
    for seed, messages in enumerate(written_broken()):
        assert problems(messages), f"seed {seed}"


def test_broken_conversations_show_every_problem() -> None:
    seen = Counter(problem for messages in written_broken() for problem in problems(messages))
    expected = set().union(*EXPECTED.values())
    assert all(seen[problem] >= 20 for problem in expected), seen


def test_message_ids_stay_unique_in_broken_conversations() -> None:
    for seed, messages in enumerate(written_broken()):
        assert len({message.id for message in messages}) == len(messages), f"seed {seed}"
