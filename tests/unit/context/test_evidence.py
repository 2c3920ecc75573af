"""What messages, calls and results show is read off by rule, and nothing is invented."""

from __future__ import annotations

from typing import Any

import pytest
from cases import each

from turnstate.context import evidence, turns
from turnstate.context.evidence import Capacity, Mention, Mentions, folded
from turnstate.ids import CallId
from turnstate.message import Message, ToolCallRequest, ToolCallResult
from turnstate.part import ImagePart, TextPart


def failed(result: Any, *, is_error: bool = True) -> ToolCallResult:
    return ToolCallResult(tool_call_id=CallId("c"), result=result, is_error=is_error)


def group(name: str, args: dict[str, Any], result: Any, *, is_error: bool = False) -> list[Message]:
    call = ToolCallRequest(name=name, args=args)
    answer = ToolCallResult(tool_call_id=call.id, result=result, is_error=is_error)
    return [Message.assistant(tool_calls=[call]), Message.tool([answer])]


@pytest.mark.req("D6")
def test_a_topic_is_how_the_user_begins() -> None:
    assert evidence.topic(Message.user("Fix the login page.\n\n" + "details " * 500)).startswith(
        "Fix the login page."
    )


@each("text", ["ok", "Yes!", "go on.", "Thanks", "はい。", "好的", "  ", ""])
def test_agreement_and_greetings_raise_no_topic(text: str) -> None:
    assert evidence.topic(Message.user(text)) == ""


def test_the_words_beside_a_picture_are_the_topic() -> None:
    message = Message.user(
        [ImagePart(url="https://example.org/a.png"), TextPart("\n"), TextPart("What is this?")]
    )
    assert evidence.topic(message) == "What is this?"
    assert evidence.topic(Message.user([ImagePart(url="https://example.org/a.png")])) == ""


@each("is_error", [True, False])
def test_a_result_that_the_view_shows_as_text_was_not_said_by_the_user(is_error: bool) -> None:
    late = Message.tool([failed("late", is_error=is_error)])
    assert evidence.is_note(turns.note(late, late.tool_results[0], 0))
    assert not evidence.is_note(Message.user("[Tool time] what is open?"))


@each(
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


@each("result", ["Error: no such user", "Traceback (most recent call last):\n", {"error": "no such user"}])
def test_a_result_that_says_error_is_a_failure_without_a_flag(result: Any) -> None:
    assert len(evidence.read(group("f", {}, result)).outcomes.failed) == 1


@each("result", ["ERROR 12:00 a line of a log", "Errors are rare", {"error": None}, "", None, []])
def test_a_result_that_only_mentions_errors_is_none(result: Any) -> None:
    found = evidence.read(group("f", {}, result)).outcomes
    assert (len(found.succeeded), len(found.failed)) == (1, 0)


def test_a_call_that_nobody_answered_neither_succeeded_nor_failed() -> None:
    found = evidence.read(group("f", {}, 1)[:1]).outcomes
    assert (found.succeeded, found.failed) == ([], [])


def test_a_result_whose_call_is_gone_counts_for_an_earlier_call() -> None:
    assert evidence.read(group("f", {}, 1)[1:]).outcomes.succeeded == [evidence.EARLIER]


def test_a_result_that_comes_twice_counts_once_as_it_came_first() -> None:
    asked, answered = group("f", {}, 1)
    id = asked.tool_calls[0].id
    later = Message.tool([ToolCallResult(tool_call_id=id, result="Error: too late")])
    found = evidence.read([asked, answered, answered, later]).outcomes
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


@each("args", [{"path": ""}, {"file": "x" * 5_000}, {"path": None}, {"files": [1, {}]}, {"path": 3}])
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


@each("value", [None, True, 1.5, "", "x" * 65, {"a": 1}])
def test_what_cannot_be_an_id_is_left_out(value: Any) -> None:
    assert evidence.ids([{"user_id": value}]) == []


# Mentions keep the first and the newest things, and count all the others.

ROOM = Capacity(first=2, newest=3)


def names(mentions: Mentions) -> list[str]:
    return [" ".join(mention.parts) for mention in mentions]


def test_the_first_and_the_newest_stay() -> None:
    assert names(folded(Mentions(), list("abcdefgh"), ROOM)) == list("abfgh")


def test_what_drops_out_is_counted() -> None:
    mentions = folded(Mentions(), list("abcdefgh"), ROOM)
    assert mentions.others == 3
    assert mentions.total == 8


def test_what_comes_up_again_is_counted_and_becomes_the_newest() -> None:
    mentions = folded(Mentions(), list("abcdec"), ROOM)
    assert names(mentions) == list("abdec")
    assert [mention.times for mention in mentions] == [1, 1, 1, 1, 2]


def test_what_came_up_first_stays_in_its_place() -> None:
    assert folded(Mentions(), list("abcaa"), ROOM).first == (Mention("a", 3), Mention("b", 1))


def test_folding_in_pieces_lists_what_folding_at_once_lists() -> None:
    letters = list("abracadabra simsalabim hocus pocus")
    at_once = folded(Mentions(), letters, ROOM)
    for size in (1, 2, 5, 11):
        in_pieces = Mentions()
        for start in range(0, len(letters), size):
            in_pieces = folded(in_pieces, letters[start : start + size], ROOM)
        assert names(in_pieces) == names(at_once)
        assert in_pieces.total == at_once.total == len(letters)


def test_what_is_not_read_is_counted_all_the_same() -> None:
    assert folded(Mentions(), ["a"], ROOM, unread=4) == Mentions((Mention("a"),), (), 4)


def test_words_that_belong_together_are_one_thing() -> None:
    mentions = folded(Mentions(), [("user_id", "7"), ("user_id", "8"), ("user_id", "7")], ROOM)
    assert [mention.parts for mention in mentions] == [("user_id", "7"), ("user_id", "8")]


def test_some_of_them_are_old_and_new_ones() -> None:
    mentions = folded(Mentions(), list("abcdefgh"), ROOM)
    some, others = mentions.some(3)
    assert [mention.words for mention in some] == ["a", "g", "h"]
    assert others == 5
    assert [mention.words for mention in mentions.some(1)[0]] == ["a"]
    assert mentions.some(0) == ([], 8)
    assert mentions.some(99) == (list(mentions), 3)


def test_too_much_from_elsewhere_is_brought_back_to_the_room() -> None:
    crowded = Mentions(tuple(map(Mention, "abcdef")), tuple(map(Mention, "ghijkl")), 5)
    mentions = folded(crowded, [], ROOM)
    assert names(mentions) == list("abjkl")
    assert mentions.total == crowded.total
