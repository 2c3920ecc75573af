"""Records: counted once, found by their words, and told from other requests by what they say."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.session.session_fixtures import answer, answers, asks, call
from turnstate import Message
from turnstate.codec import decode_entry
from turnstate.context.policy import COUNTED_WHOLE, Policy
from turnstate.entry import Prompt
from turnstate.log.records import digest
from turnstate.log.records import records as make_records
from turnstate.message import ToolCallRequest
from turnstate.part import ImagePart, ReasoningPart, TextPart
from turnstate.search_terms import entry_words, searchable
from turnstate.stores.values import Record
from turnstate.tokens import cost, counter, message_cost
from turnstate.value import Extra

EXACT = counter("o200k_base")


def recorded(*entries: Any) -> tuple[Record, ...]:
    return asyncio.run(make_records(entries, EXACT, Policy()))


@pytest.mark.req("B1")
@pytest.mark.parametrize(
    "message",
    [
        Message.user("hello"),
        Message.assistant("hi", tool_calls=[call("grep", pattern="x")]),
        answers(answer("c", [1])),
    ],
)
def test_a_message_is_recorded_with_its_tokens_and_its_bytes(message: Message) -> None:
    (record,) = recorded(message)
    assert (record.id, record.kind, record.tokens) == (
        message.id,
        "message",
        message_cost(message, EXACT).tokens,
    )
    assert decode_entry("message", record.body) == message


@pytest.mark.req("B1", "E1")
def test_a_long_output_is_counted_as_it_is_sent_and_kept_whole() -> None:
    message = answers(answer("c", "\n".join(f"line {number}" for number in range(5_000))))
    (record,) = recorded(message)
    assert record.tokens < 4_000 < message_cost(message, EXACT).tokens
    assert decode_entry("message", record.body) == message


@pytest.mark.req("B1")
def test_an_output_of_a_moderate_size_is_counted_whole_whatever_the_policy() -> None:
    message = answers(answer("c", "word\n" * 300))
    sparing = Policy(reduction=Policy().reduction.__class__(soft_tokens=10, hard_tokens=10))
    (record,) = asyncio.run(make_records([message], EXACT, sparing))
    assert len(record.body) <= COUNTED_WHOLE
    assert record.tokens == message_cost(message, EXACT).tokens


def test_what_is_no_message_costs_nothing_and_is_not_searched() -> None:
    (record,) = recorded(Prompt("You help."))
    assert (record.kind, record.tokens) == ("prompt", 0)
    assert entry_words(record.kind, record.body) == []


def test_what_is_not_counted_waits_for_no_vocabulary(monkeypatch: pytest.MonkeyPatch) -> None:
    loading = list[bool]()

    async def off_loop(work: Callable[[], Any], *, large: bool) -> Any:
        loading.append(large)
        return work()

    monkeypatch.setattr(cost, "loaded", {})
    monkeypatch.setattr("turnstate.log.records.off_loop", off_loop)
    assert recorded() == ()
    assert [record.kind for record in recorded(Prompt("You help."))] == ["prompt"]
    assert (loading, cost.loaded) == ([], {})
    recorded(Message.user("hello"))
    assert loading == [True]


def test_much_at_once_is_counted_in_a_thread_and_comes_out_the_same() -> None:
    many = [Message.user(f"message {number} " + "word " * 500) for number in range(40)]
    assert recorded(*many) == tuple(recorded(one)[0] for one in many)


@pytest.mark.req("C9")
def test_texts_names_arguments_and_results_are_searched_and_thoughts_are_not() -> None:
    parts = [TextPart(text="seen"), ReasoningPart("hidden"), ImagePart(url="https://e.org/picture.png")]
    message = Message.assistant(parts, tool_calls=[call("grep", pattern="needle")])
    assert list(searchable(message)) == ["seen", "grep", '{"pattern":"needle"}']
    assert list(searchable(answers(answer("c", {"found": True}), answer("d", "plain")))) == [
        '{"found":true}',
        "plain",
    ]


def test_a_nul_is_kept_and_parts_words_in_the_index() -> None:
    (record,) = recorded(Message.user("before\0after"))
    assert entry_words(record.kind, record.body) == ["before", "after"]
    assert decode_entry("message", record.body).text == "before\0after"  # type: ignore[union-attr]


USER = Message.user("pay")
ROUND = [asks(call("a", x=1), call("b"))]


def again(message: Message, **changes: Any) -> Message:
    calls = tuple(
        ToolCallRequest(name=one.name, args=one.args, provider_id=one.provider_id)
        for one in message.tool_calls
    )
    return message.replace(
        id=Message.user("").id, timestamp="2031-01-01T00:00:00Z", tool_calls=calls, **changes
    )


@pytest.mark.req("G5")
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([USER], [again(USER)]),
        (ROUND, [again(ROUND[0])]),
        ([asks(call("a", x=1, y=2))], [asks(call("a", y=2, x=1))]),
        ([Message.user([TextPart(text="a")])], [Message.user((TextPart(text="a"),))]),
    ],
)
def test_what_says_the_same_has_the_same_digest(one: list[Message], other: list[Message]) -> None:
    assert digest(one) == digest(other)


@pytest.mark.req("G5")
@pytest.mark.parametrize(
    "other",
    [
        [Message.user("pay ")],
        [Message.assistant("pay")],
        [Message.user([TextPart(text="pay")])],
        [USER, USER],
        [],
        [again(USER, extra=Extra(note="x"))],
        [asks(call("pay"))],
        [answers(answer("pay", "pay"))],
    ],
)
def test_what_says_something_else_has_another_digest(other: list[Message]) -> None:
    assert digest([USER]) != digest(other)


@pytest.mark.req("G5")
def test_messages_cannot_be_shifted_into_each_other() -> None:
    assert digest([Message.user("a"), Message.user("b")]) != digest([Message.user("ab")])
    assert digest([Message.user("a"), Message.user("b")]) != digest([Message.user("b"), Message.user("a")])


@pytest.mark.req("G5")
@pytest.mark.parametrize("result", [True, 1.0, "1", [1], None])
def test_results_are_told_apart_by_value_and_by_call(result: Any) -> None:
    assert digest([answers(answer("c", 1))]) != digest([answers(answer("c", result))])
    assert digest([answers(answer("c", 1))]) != digest([answers(answer("d", 1))])
    assert digest([answers(answer("c", 1))]) != digest([answers(answer("c", 1, is_error=True))])


@pytest.mark.req("G5")
def test_a_result_speaks_of_a_call_of_its_own_request_by_its_place() -> None:
    def request(*order: int) -> bytes:
        calls = [call("a"), call("a")]
        return digest(
            [asks(*calls), answers(*[answer(calls[place], number) for number, place in enumerate(order)])]
        )

    assert request(0, 1) == request(0, 1)
    assert request(0, 1) != request(1, 0)
