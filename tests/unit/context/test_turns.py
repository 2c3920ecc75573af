"""Many messages at once are taken as they would be one by one, whatever is wrong with them."""

from __future__ import annotations

import pytest

from tests.unit.context.scripts import Letters, shown, talk
from turnstate import Message, ToolCallRequest, ToolCallResult
from turnstate.context import Budget, StateManager
from turnstate.context.policy import OutputLimits
from turnstate.context.tally import Tally
from turnstate.entry import ABANDONED, PENDING, Answer
from turnstate.ids import CallId


def state(structure: Tally) -> tuple[object, ...]:
    return (
        structure.length,
        structure.leading,
        structure.items,
        structure.groups,
        structure.turns,
        structure.repairs,
        structure.answers,
        list(structure.group_starts()),
    )


def one_by_one(messages: list[Message]) -> Tally:
    structure = Tally(Letters(), OutputLimits.unlimited())
    for message in messages:
        structure.add(message)
    return structure


@pytest.mark.req("C3")
@pytest.mark.parametrize(
    "script",
    [
        "S U A[x,y] T[y] T[x] A U A",
        "U A[x] T[x] S U A[y] T[y] S A",
        "U A[x] T[x] T[x] A U A",
        "U A[x,y] T[x] U A[z] T[z] A",
        "U A[x] T[q] T[x] A[y] T[y] U",
        "U A[x] T[x] A[x] T[x] A U",
        "U A[x] T[x] A[y,x] T[y] T[x] A U",
        "U A[x] A[y] T[x,y] A",
        "T[x] U A T[y] A",
    ],
)
def test_extending_at_once_or_in_pieces_is_adding_one_by_one(script: str) -> None:
    messages = talk(script)
    expected = state(one_by_one(messages))
    for cut in range(len(messages) + 1):
        structure = Tally(Letters(), OutputLimits.unlimited())
        structure.extend(messages[:cut])
        structure.extend(messages[cut:])
        assert state(structure) == expected, f"cut at {cut}"


@pytest.mark.req("C3")
@pytest.mark.parametrize("end", range(8))
def test_ids_that_come_twice_are_told_apart_as_one_by_one(end: int) -> None:
    messages = talk("U A[x] T[x] A U A[y,z] T[z] T[y] A")
    messages += messages[:end] + talk("U:again A[w] T[w]")[:1]
    structure = Tally(Letters(), OutputLimits.unlimited())
    structure.extend(messages)
    assert state(structure) == state(one_by_one(messages))


@pytest.mark.req("C3")
def test_calls_stay_under_way_until_something_else_is_said() -> None:
    structure = Tally(Letters(), OutputLimits.unlimited())
    structure.extend(talk("U A[x] T[x]"))
    assert [message.role for message in structure.items] == ["user"]
    structure.extend([Message.assistant("done")])
    assert [message.role for message in structure.items] == ["user", "assistant", "tool", "assistant"]
    assert structure.groups == [0, 1, 3]


# Any list, however broken, becomes one that every provider takes; what was mended can be seen.

MANAGER = StateManager(Letters())
WIDE = Budget(1_000_000)


def mended(script: str) -> str:
    return shown(MANAGER.window(talk(script), WIDE).messages)


@pytest.mark.req("C3", "A5", "I7")
@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("S U A", "S U A"),
        ("U A[x,y] T[y] T[x] A", "U A[x,y] T[x] T[y] A"),
        ("U A[x,y] T[x,y]", "U A[x,y] T[x,y]"),
        ("U A[x,y,z] T[y] T[x]", "U A[x,y,z] T[x] T[y] T[z!]"),
        ("U A[x,y] S T[y] T[x] A", "U A[x,y] T[x] T[y] S A"),
        ("U A[x] S T[x] A", "U A[x] T[x] S A"),
        ("U A[x] A[y] T[x] T[y]", "U A[x] T[x] A[y] T[y]"),
        ("U A[x] A[y] T[y,x]", "U A[x] T[x] A[y] T[y]"),
        ("U A[x,y] T[x] U A", "U A[x,y] T[x] T[y!] U A"),
        ("U A[x] U T[x] A", "U A[x] T[x!] U U A"),
        ("U A[x]", "U A[x] T[x!]"),
        ("U A[x,y] T[y]", "U A[x,y] T[y] T[x!]"),
        ("T[x] U A", "U U A"),
        ("A U A", "U A U A"),
        ("A[x] T[x] U", "U A[x] T[x] U"),
        ("U T[x] A[x] T[x] A", "U U A[x] T[x] A"),
        ("U A[x] T[x] T[x] A", "U A[x] T[x] A"),
        ("U A[x] T[q] T[x] A", "U A[x] T[x] U A"),
        ("U A[x] T[x] A T[x]", "U A[x] T[x] A U"),
    ],
)
def test_a_broken_list_becomes_a_sound_one(script: str, expected: str) -> None:
    assert mended(script) == expected


@pytest.mark.req("A5")
def test_a_different_second_answer_is_kept_as_text() -> None:
    messages = talk("U A[x] T[x]:first T[x]:second A")
    window = MANAGER.window(messages, WIDE)
    assert shown(window.messages) == "U A[x] T[x] U A"
    assert "second" in window.messages[3].text
    assert [repair.id for repair in window.report.repairs] == ["x"]


@pytest.mark.req("C3")
def test_a_call_left_behind_is_answered_by_a_decision_that_can_be_written_down() -> None:
    messages = talk("U A[x,y] T[x] U")
    window = MANAGER.window(messages, WIDE)
    assert window.decisions == (Answer(call=CallId("y"), text=ABANDONED),)
    again = MANAGER.window(messages, WIDE, decisions=window.decisions)
    assert again.messages == window.messages
    assert again.decisions == ()


@pytest.mark.req("C3")
def test_a_call_under_way_is_shown_as_such_and_nothing_is_decided() -> None:
    window = MANAGER.window(talk("U A[x]"), WIDE)
    assert window.messages[-1].tool_results[0].result == PENDING
    assert window.decisions == ()


@pytest.mark.req("A5")
def test_a_late_result_is_shown_as_text_at_its_own_place() -> None:
    window = MANAGER.window(talk("U A[x] U T[x]:later A"), WIDE)
    assert shown(window.messages) == "U A[x] T[x!] U U A"
    assert "later" in window.messages[4].text


def test_bytes_that_were_sent_stay_when_a_late_result_arrives() -> None:
    before = MANAGER.window(talk("U A[x] U A"), WIDE).messages
    after = MANAGER.window(talk("U A[x] U A T[x]"), WIDE).messages
    assert after[: len(before)] == before


def test_calls_with_one_id_in_two_batches_are_told_apart() -> None:
    messages = talk("U A[x] T[x] U A[x] T[x]:again")
    window = MANAGER.window(messages, WIDE)
    calls = [call.id for message in window.messages for call in message.tool_calls]
    answers = [one.tool_call_id for message in window.messages for one in message.tool_results]
    assert len(set(calls)) == 2
    assert answers == calls
    assert window.messages[-1].tool_results[0].result == "again"


def test_two_messages_with_one_id_are_told_apart() -> None:
    messages = [*talk("U A"), *talk("U A")]
    ids = [message.id for message in MANAGER.window(messages, WIDE).messages]
    assert len(set(ids)) == 4


def test_an_untouched_conversation_keeps_its_very_objects() -> None:
    messages = talk("S U A[x] T[x] A")
    assert all(
        one is other for one, other in zip(MANAGER.window(messages, WIDE).messages, messages, strict=True)
    )


def test_nothing_that_was_said_is_dropped() -> None:
    messages = [
        Message.tool([ToolCallResult(tool_call_id=CallId("lost"), result={"finding": "the valve"})]),
        Message.assistant("first", tool_calls=[ToolCallRequest(id=CallId("x"), name="a", args={})]),
        Message.user("second"),
    ]
    said = "\n".join(message.text for message in MANAGER.window(messages, WIDE).messages)
    assert all(word in said for word in ("the valve", "first", "second"))
