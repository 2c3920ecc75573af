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
    (topic,) = evidence.topics(Message.user("Fix the login page.\n\n" + "details " * 500))
    assert topic.startswith("Fix the login page.")


@pytest.mark.parametrize("text", ["ok", "Yes!", "go on.", "Thanks", "はい。", "好的", "  ", ""])
def test_agreement_and_greetings_raise_no_topic(text: str) -> None:
    assert evidence.topics(Message.user(text)) == ()


def test_the_words_beside_a_picture_are_the_topic() -> None:
    message = Message.user(
        [ImagePart(url="https://example.org/a.png"), TextPart("\n"), TextPart("What is this?")]
    )
    assert evidence.topics(message) == ("What is this?",)
    assert evidence.topics(Message.user([ImagePart(url="https://example.org/a.png")])) == ()


@pytest.mark.parametrize("is_error", [True, False])
def test_a_result_that_the_view_shows_as_text_was_not_said_by_the_user(is_error: bool) -> None:
    late = Message.tool([failed("late", is_error=is_error)])
    assert evidence.is_note(turns.note(late, late.tool_results[0], 0))
    assert not evidence.is_note(Message.user("[Tool time] what is open?"))


def test_a_call_that_nobody_answered_neither_succeeded_nor_failed() -> None:
    found = read(group("f", {}, 1)[:1])
    assert found.outcomes == []


def test_a_result_whose_call_is_gone_counts_for_an_earlier_call() -> None:
    assert read(group("f", {}, 1)[1:]).succeeded == [evidence.EARLIER.name]


def test_a_result_that_comes_twice_counts_once_as_it_came_first() -> None:
    asked, answered = group("f", {}, 1)
    id = asked.tool_calls[0].id
    later = Message.tool([ToolCallResult(tool_call_id=id, result="Error: too late")])
    found = read([asked, answered, answered, later])
    assert [one.failed for one in found.outcomes] == [False]


def test_reading_in_pieces_shows_what_reading_at_once_shows() -> None:
    for messages in conversations.many(30, kind=lambda seed: conversations.valid(seed, turns=8)):
        at_once, in_pieces, halves = read(messages), Evidence(), Evidence()
        for message in messages:
            in_pieces.read([message])
        starts = [place for place, one in enumerate(messages) if one.role == "user"]
        middle = starts[len(starts) // 2]
        halves = read(messages[:middle]) + read(messages[middle:])
        for name in (*evidence._LISTS, "messages"):
            shown = [_plain(getattr(one, name)) for one in (at_once, in_pieces, halves)]
            assert shown[0] == shown[1] == shown[2]


def _plain(found: Any) -> Any:
    if isinstance(found, list):
        return [_plain(one) for one in found]
    return (found.call, found.result, found.said) if isinstance(found, evidence.Outcome) else found


def test_a_list_that_a_call_wrote_is_read_where_the_call_was_answered() -> None:
    listed = {"todos": [{"content": "b", "status": "open"}]}
    before, after = Message.user("- [ ] a"), Message.user("- [ ] c")
    found = read([before, *group("plan", listed, "ok"), after])
    assert evidence.open_tasks(found.tasks) == ("b", "c")
    refused = read([before, *group("plan", listed, "no", is_error=True), after])
    assert evidence.open_tasks(refused.tasks) == ("a", "c")
