"""Calls and answers: who answers whom, where an answer goes, and under which id."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstate import formats
from turnstate.formats.pairing import Answers, core_id, gathered, wire_ids, wire_name
from turnstate.ids import CallId, call_id
from turnstate.message import Message, ToolCallRequest, ToolCallResult
from turnstate.part import Native

ANYTHING = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=150)


def call(id: str, name: str = "look", provider_id: str | None = None) -> ToolCallRequest:
    return ToolCallRequest(id=CallId(id), name=name, args={}, provider_id=provider_id)


def calls(*requests: ToolCallRequest, format: str | None = None) -> Message:
    message = Message.assistant(tool_calls=requests)
    return message.replace(native=Native(format=format)) if format else message


def tool(*ids: str, format: str | None = None) -> Message:
    message = Message.tool([ToolCallResult(tool_call_id=CallId(id), result=id) for id in ids])
    return message.replace(native=Native(format=format)) if format else message


def said(messages: list[Message]) -> list[Any]:
    """Shorten a conversation: the text, the ids of calls, or the ids of answers."""
    return [
        message.content
        or "+".join(call.id for call in message.tool_calls)
        or "/".join(result.tool_call_id for result in message.tool_results)
        for message in messages
    ]


# Who answers whom.


def answers_to(*batches: tuple[ToolCallRequest, ...]) -> Answers:
    answers = Answers()
    for batch in batches:
        answers.ask(batch)
    return answers


@pytest.mark.req("A5")
def test_an_answer_finds_its_call_by_the_cores_id_and_by_the_providers() -> None:
    answers = answers_to((call("a", provider_id="p"), call("b", provider_id="q")))
    assert answers.answer(1, "q") == "b"
    assert answers.answer(1, "a") == "a"


@pytest.mark.req("A4", "A5")
def test_an_id_that_a_provider_repeats_means_the_newest_open_call() -> None:
    answers = answers_to((call("a", provider_id="call_0"),), (call("b", provider_id="call_0"),))
    assert [answers.answer(2, "call_0") for _ in range(3)] == ["b", "a", "b"]


@pytest.mark.req("A4", "A5")
def test_an_id_that_stands_twice_in_one_batch_means_its_calls_in_order() -> None:
    answers = answers_to((call("a", provider_id="x"), call("b", provider_id="x")))
    assert [answers.answer(1, "x"), answers.answer(2, "x")] == ["a", "b"]


@pytest.mark.req("A4", "A5")
def test_an_answer_without_an_id_goes_by_name_and_order() -> None:
    answers = answers_to((call("a", "look"), call("b", "hear"), call("c", "look")))
    assert [answers.answer(1, None, name) for name in ("hear", "look", "look")] == ["b", "a", "c"]


@pytest.mark.req("A4", "A5")
def test_an_answer_with_an_id_may_answer_a_call_without_one() -> None:
    answers = answers_to((call("a", "look", "p"), call("b", "look")))
    assert answers.answer(1, "unheard", "look") == "b"
    assert answers.answer(1, None, "look") == "a"


def test_answers_to_nobody_get_ids_of_their_own() -> None:
    answers = answers_to((call("a"),))
    unknown = [
        answers.answer(1, "zz"),
        answers.answer(2, "zz"),
        answers.answer(1, None, "x"),
        answers.answer(1, None, "y"),
    ]
    assert len(set(unknown)) == 4
    assert "a" not in unknown


def test_answers_without_an_id_to_calls_elsewhere_name_their_tool() -> None:
    answers = answers_to((call("a"),))
    assert answers.answer(1, None, "x") == answers.answer(2, None, "x") == "name:x"


@pytest.mark.req("A4")
def test_an_id_that_the_core_minted_is_known_again_once() -> None:
    own, taken = call_id(), set[CallId]()
    assert core_id(own, 0, taken) == own
    assert core_id(own, 1, taken) != own
    assert core_id("call_1", 2, taken) != "call_1"


# Where an answer goes.


@pytest.mark.req("A5")
@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([calls(call("a")), tool("a")], ["a", "a"]),
        ([calls(call("a")), Message.user("hm"), tool("a")], ["a", "a", "hm"]),
        ([calls(call("a"), call("b")), tool("b"), Message.user("hm"), tool("a")], ["a+b", "b", "a", "hm"]),
        ([calls(call("a")), calls(call("b")), tool("b", "a")], ["a", "b", "b/a"]),
        (
            [calls(call("a")), Message.user("hm"), calls(call("b")), tool("a", "b")],
            ["a", "a", "hm", "b", "b"],
        ),
        ([tool("a"), calls(call("a"))], ["a", "a"]),
        ([calls(call("a")), tool("a"), tool("a")], ["a", "a", "a"]),
        ([calls(call("a")), tool("a"), Message.user("hm"), tool("a")], ["a", "a", "hm", "a"]),
        ([calls(call("a")), Message.user("hm"), tool("zz", "a")], ["a", "a", "hm", "zz"]),
        (
            [calls(call("a")), tool("a"), calls(call("a")), Message.user("hm"), tool("a")],
            ["a", "a", "a", "a", "hm"],
        ),
        ([], []),
    ],
)
def test_the_first_answer_moves_behind_its_call_and_all_else_stays(
    messages: list[Message], expected: list[str]
) -> None:
    assert said(gathered(messages)) == expected


@pytest.mark.req("A8")
def test_answers_stay_where_their_own_document_had_them() -> None:
    document = [
        calls(call("a"), format="f"),
        Message.user("hm").replace(native=Native(format="f")),
        tool("a", format="f"),
    ]
    assert gathered(document, format="f") == document
    assert said(gathered(document, format="g")) == ["a", "a", "hm"]
    assert said(gathered(document)) == ["a", "a", "hm"]


@pytest.mark.req("A8")
def test_a_message_that_was_put_between_moves_behind_the_answer() -> None:
    messages = [calls(call("a"), format="f"), Message.user("hm"), tool("a", format="f")]
    assert said(gathered(messages, format="f")) == ["a", "a", "hm"]


@pytest.mark.req("A8")
def test_a_new_answer_comes_behind_those_that_are_there() -> None:
    messages = [calls(call("a"), call("b"), format="f"), tool("a", format="f"), Message.user("hm"), tool("b")]
    assert said(gathered(messages, format="f")) == ["a+b", "a", "b", "hm"]


def test_an_answer_that_is_not_moved_is_the_very_same_value() -> None:
    messages = [calls(call("a")), tool("a"), Message.user("hm")]
    assert all(one is other for one, other in zip(gathered(messages), messages, strict=True))


# Under which id.


def anthropic(id: str) -> Any:
    return re.fullmatch(r"[a-zA-Z0-9_-]+", id)


@pytest.mark.req("A4")
def test_a_provider_id_that_is_accepted_is_used() -> None:
    assert wire_ids([calls(call("a", provider_id="p"))], anthropic, unique=True) == {"a": "p"}


@pytest.mark.req("A4")
def test_an_id_that_is_not_accepted_gives_way_to_the_cores() -> None:
    assert wire_ids([calls(call("a", provider_id="p:1"))], anthropic, unique=True) == {"a": "a"}


@pytest.mark.req("A4")
def test_where_no_id_is_accepted_one_is_derived_and_always_the_same() -> None:
    (wire,) = wire_ids([calls(call("a:b", provider_id="p:1"))], anthropic, unique=True).values()
    assert re.fullmatch(r"call_[0-9a-f]{32}", wire)
    assert wire_ids([calls(call("a:b"))], anthropic, unique=True) == {"a:b": wire}


@pytest.mark.req("A4")
def test_repeated_ids_become_unique_where_they_must() -> None:
    batches = [
        calls(call("a", provider_id="call_0")),
        tool("a"),
        calls(call("b", provider_id="call_0")),
        tool("b"),
    ]
    assert wire_ids(batches, anthropic, unique=True) == {"a": "call_0", "b": "b"}
    assert wire_ids(batches, anthropic, unique=False) == {"a": "call_0", "b": "call_0"}


@pytest.mark.req("A4")
def test_an_id_is_not_used_again_while_an_answer_still_refers_to_it() -> None:
    batches = [calls(call("a", provider_id="x")), calls(call("b", provider_id="x")), tool("b"), tool("a")]
    assert wire_ids(batches, anthropic, unique=False) == {"a": "x", "b": "b"}


@pytest.mark.req("A4")
def test_a_provider_id_that_is_another_calls_core_id_does_not_collide() -> None:
    first = wire_ids([calls(call("a"), call("b", provider_id="a"))], anthropic, unique=True)
    second = wire_ids([calls(call("b", provider_id="a"), call("a"))], anthropic, unique=True)
    for ids in (first, second):
        assert len(set(ids.values())) == 2
    assert first == {"a": "a", "b": "b"}


@pytest.mark.req("A4")
@pytest.mark.parametrize("unique", [True, False])
def test_an_answer_to_nobody_never_takes_the_id_of_a_call(unique: bool) -> None:
    messages = [
        tool("p"),
        calls(call("a", provider_id="p")),
        tool("a"),
        calls(call("b", provider_id="q")),
        tool("q"),
    ]
    ids = wire_ids(messages, anthropic, unique=unique)
    assert (ids["a"], ids["b"]) == ("p", "q")
    assert len(set(ids.values())) == 4


@pytest.mark.req("A4", "A8")
def test_a_provider_gets_its_own_ids_back_even_those_it_should_not_have_made() -> None:
    messages = [calls(call("a", provider_id="x" * 60), format="f"), tool("a")]
    assert wire_ids(messages, lambda id: len(id) <= 40, unique=False, format="f") == {"a": "x" * 60}
    assert wire_ids(messages, lambda id: len(id) <= 40, unique=False, format="g") == {"a": "a"}


@given(
    provider_ids=st.lists(
        st.none() | ANYTHING | st.sampled_from(["call_0", "call_1"]), min_size=1, max_size=6
    )
)
def test_ids_are_unique_accepted_and_the_same_every_time(provider_ids: list[str | None]) -> None:
    messages = [calls(call(f"c{place}", provider_id=id)) for place, id in enumerate(provider_ids)]
    ids = wire_ids(messages, anthropic, unique=True)
    assert ids == wire_ids(messages, anthropic, unique=True)
    assert len(set(ids.values())) == len(messages)
    assert all(anthropic(id) for id in ids.values())


@pytest.mark.req("A8")
@given(
    provider_ids=st.lists(st.none() | st.sampled_from(["call_0", "call_1", "a:b"]), min_size=2, max_size=6)
)
def test_what_comes_later_does_not_change_the_ids_that_were_sent(provider_ids: list[str | None]) -> None:
    messages: list[Message] = []
    for place, id in enumerate(provider_ids):
        messages += [calls(call(f"c{place}", provider_id=id)), tool(f"c{place}")]
    for unique in (True, False):
        before = wire_ids(messages[:-2], anthropic, unique=unique)
        assert before.items() <= wire_ids(messages, anthropic, unique=unique).items()


# And which name.


@pytest.mark.parametrize("name", ["look", "A" * 64, "mcp__x__y-z", "0"])
def test_a_name_that_everybody_takes_stays(name: str) -> None:
    assert wire_name(name) == name


@given(name=ANYTHING, longest=st.sampled_from([64, 128]))
def test_any_name_is_sent_in_the_shared_alphabet(name: str, longest: int) -> None:
    wire = wire_name(name, longest)
    assert re.fullmatch(r"[a-zA-Z0-9_-]+", wire)
    assert len(wire) <= longest
    assert wire_name(wire, longest) == wire
    assert wire_name(wire) == wire_name(name)


@pytest.mark.parametrize("name", ["A" * 56 + ".", "A" * 65, "A" * 129, "read file " * 20, "é" * 70])
@pytest.mark.parametrize("longest", [64, 128])
def test_a_long_name_is_cut_to_what_every_provider_takes(name: str, longest: int) -> None:
    wire = wire_name(name, longest)
    assert len(wire) <= (longest if wire == name else 64)
    assert wire_name(wire) == wire_name(name)


def test_names_that_look_alike_in_the_shared_alphabet_stay_apart() -> None:
    names = [
        "files.read",
        "files/read",
        "files:read",
        "files_read",
        "filés_read",
        "A" * 65,
        "A" * 66,
        "読む",
        "書く",
    ]
    assert len({wire_name(name) for name in names}) == len(names)


@pytest.mark.req("A5")
@pytest.mark.parametrize("format", formats.names())
def test_parallel_calls_of_one_name_keep_their_answers_through_every_provider(format: str) -> None:
    asked = [call(f"call_{place}", "look") for place in range(4)]
    order = [2, 0, 3, 1]
    messages = [Message.user("Look."), calls(*asked), tool(*(f"call_{place}" for place in order))]
    provider = formats.get(format)
    back = provider.parse(provider.render(messages))
    by_call = {one.tool_call_id: one.result for message in back for one in message.tool_results}
    made = [one for message in back for one in message.tool_calls]
    assert [by_call[one.id] for one in made] == [f"call_{place}" for place in range(4)]
