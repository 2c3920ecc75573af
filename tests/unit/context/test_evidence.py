"""What messages, calls and results show is read off by rule, and nothing is invented."""

from __future__ import annotations

from typing import Any

import pytest

from turnstate.context import evidence, turns
from turnstate.context.evidence import Evidence
from turnstate.ids import CallId
from turnstate.message import Message, ToolCallRequest, ToolCallResult
from turnstate.part import ImagePart, TextPart
from turnstate.testing import conversations


def failed(result: Any, *, is_error: bool = True) -> ToolCallResult:
    return ToolCallResult(tool_call_id=CallId("c"), result=result, is_error=is_error)


def group(name: str, args: dict[str, Any], result: Any, *, is_error: bool = False) -> list[Message]:
    call = ToolCallRequest(name=name, args=args)
    answer = ToolCallResult(tool_call_id=call.id, result=result, is_error=is_error)
    return [Message.assistant(tool_calls=[call]), Message.tool([answer])]


def read(messages: list[Message]) -> Evidence:
    return Evidence().read(messages)


@pytest.mark.req("D6")
def test_a_topic_is_how_the_user_begins() -> None:
    assert evidence.topic(Message.user("Fix the login page.\n\n" + "details " * 500)).startswith(
        "Fix the login page."
    )


@pytest.mark.parametrize("text", ["ok", "Yes!", "go on.", "Thanks", "はい。", "好的", "  ", ""])
def test_agreement_and_greetings_raise_no_topic(text: str) -> None:
    assert evidence.topic(Message.user(text)) == ""


def test_the_words_beside_a_picture_are_the_topic() -> None:
    message = Message.user(
        [ImagePart(url="https://example.org/a.png"), TextPart("\n"), TextPart("What is this?")]
    )
    assert evidence.topic(message) == "What is this?"
    assert evidence.topic(Message.user([ImagePart(url="https://example.org/a.png")])) == ""


@pytest.mark.parametrize("is_error", [True, False])
def test_a_result_that_the_view_shows_as_text_was_not_said_by_the_user(is_error: bool) -> None:
    late = Message.tool([failed("late", is_error=is_error)])
    assert evidence.is_note(turns.note(late, late.tool_results[0], 0))
    assert not evidence.is_note(Message.user("[Tool time] what is open?"))


@pytest.mark.parametrize(
    ("result", "why"),
    [
        ("permission denied\nat line 7", "permission denied"),
        ("\n\n  disk full  \n", "disk full"),
        (
            'Traceback (most recent call last):\n  File "job.py", line 7\nTimeoutError: 30 s',
            "TimeoutError: 30 s",
        ),
        ({"error": {"code": 404, "message": "not found"}}, "not found"),
        ({"error": {"code": 404}}, ""),
        ([{"type": "text", "text": "no such file"}], "no such file"),
        ({"detail": [{"message": "field required"}]}, "field required"),
        (17, "17"),
        (None, ""),
        ("", ""),
        ([], ""),
        ({}, ""),
    ],
)
def test_the_reason_of_a_failure_is_one_line_of_its_result(result: Any, why: str) -> None:
    assert evidence.reason(failed(result)) == why


def test_a_long_reason_is_cut() -> None:
    assert len(evidence.reason(failed("x" * 10_000))) == evidence.WHY_CHARS


@pytest.mark.parametrize(
    "result", ["Error: no such user", "Traceback (most recent call last):\n", {"error": "no such user"}]
)
def test_a_result_that_says_error_is_a_failure_without_a_flag(result: Any) -> None:
    assert len(read(group("f", {}, result)).failed) == 1


@pytest.mark.parametrize(
    "result", ["ERROR 12:00 a line of a log", "Errors are rare", {"error": None}, "", None, []]
)
def test_a_result_that_only_mentions_errors_is_none(result: Any) -> None:
    found = read(group("f", {}, result))
    assert (len(found.succeeded), len(found.failed)) == (1, 0)


def test_a_call_that_nobody_answered_neither_succeeded_nor_failed() -> None:
    found = read(group("f", {}, 1)[:1])
    assert (found.succeeded, found.failed) == ([], [])


def test_a_result_whose_call_is_gone_counts_for_an_earlier_call() -> None:
    assert read(group("f", {}, 1)[1:]).succeeded == [evidence.EARLIER.name]


def test_a_result_that_comes_twice_counts_once_as_it_came_first() -> None:
    asked, answered = group("f", {}, 1)
    id = asked.tool_calls[0].id
    later = Message.tool([ToolCallResult(tool_call_id=id, result="Error: too late")])
    found = read([asked, answered, answered, later])
    assert (len(found.succeeded), len(found.failed)) == (1, 0)


def test_paths_are_the_values_of_arguments_named_for_them() -> None:
    args: dict[str, Any] = {
        "path": "a.py",
        "files": ["b.py", "c.py"],
        "file_path": "/d",
        "text": "e.py",
        "depth": 3,
    }
    assert evidence.paths([args]) == ["a.py", "b.py", "c.py", "/d"]


@pytest.mark.parametrize(
    "args", [{"path": ""}, {"file": "x" * 5_000}, {"path": None}, {"files": [1, {}]}, {"path": 3}]
)
def test_what_cannot_be_a_path_is_left_out(args: dict[str, Any]) -> None:
    assert evidence.paths([args]) == []


def test_a_target_is_a_path_only_when_it_looks_like_one() -> None:
    targets = ["src/app.py", "notes.md", "production", "https://example.org/a"]
    assert evidence.paths([{"target": target} for target in targets]) == ["src/app.py", "notes.md"]


def test_ids_are_the_values_of_fields_named_for_them() -> None:
    fields = {
        "user_id": "u7",
        "id": 12,
        "orderId": "o9",
        "ticket_ids": ["t1", "t2"],
        "valid": True,
        "name": "n",
    }
    assert evidence.ids([fields]) == [
        ("user_id", "u7"),
        ("id", "12"),
        ("orderId", "o9"),
        ("ticket_ids", "t1"),
        ("ticket_ids", "t2"),
    ]


@pytest.mark.parametrize("value", [None, True, 1.5, "", "x" * 65, {"a": 1}])
def test_what_cannot_be_an_id_is_left_out(value: Any) -> None:
    assert evidence.ids([{"user_id": value}]) == []


def test_reading_in_pieces_shows_what_reading_at_once_shows() -> None:
    for messages in conversations.many(30, kind=lambda seed: conversations.valid(seed, turns=8)):
        at_once, in_pieces, halves = read(messages), Evidence(), Evidence()
        for message in messages:
            in_pieces.read([message])
        starts = [place for place, one in enumerate(messages) if one.role == "user"]
        middle = starts[len(starts) // 2]
        halves = read(messages[:middle]) + read(messages[middle:])
        for name in (*evidence._LISTS, "messages"):
            assert getattr(in_pieces, name) == getattr(at_once, name) == getattr(halves, name)


def test_a_list_that_a_call_wrote_is_read_where_the_call_was_answered() -> None:
    listed = {"todos": [{"content": "b", "status": "open"}]}
    before, after = Message.user("- [ ] a"), Message.user("- [ ] c")
    found = read([before, *group("plan", listed, "ok"), after])
    assert evidence.open_tasks(found.tasks) == ("b", "c")
    refused = read([before, *group("plan", listed, "no", is_error=True), after])
    assert evidence.open_tasks(refused.tasks) == ("a", "c")
