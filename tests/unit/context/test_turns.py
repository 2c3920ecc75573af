"""Many messages at once are taken as they would be one by one, whatever is wrong with them."""

from __future__ import annotations

import pytest
from scripts import talk

from turnstate import Message
from turnstate.context.turns import Structure


def state(structure: Structure) -> tuple[object, ...]:
    return (
        structure.length,
        structure.head,
        structure.items,
        structure.groups,
        structure.turns,
        structure.repairs,
        structure.answers,
        list(structure.group_starts()),
    )


def one_by_one(messages: list[Message]) -> Structure:
    structure = Structure()
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
        structure = Structure()
        structure.extend(messages[:cut])
        structure.extend(messages[cut:])
        assert state(structure) == expected, f"cut at {cut}"


@pytest.mark.req("C3")
@pytest.mark.parametrize("end", range(8))
def test_ids_that_come_twice_are_told_apart_as_one_by_one(end: int) -> None:
    messages = talk("U A[x] T[x] A U A[y,z] T[z] T[y] A")
    messages += messages[:end] + talk("U:again A[w] T[w]")[:1]
    structure = Structure()
    structure.extend(messages)
    assert state(structure) == state(one_by_one(messages))


@pytest.mark.req("C3")
def test_calls_stay_under_way_until_something_else_is_said() -> None:
    structure = Structure()
    structure.extend(talk("U A[x] T[x]"))
    assert [message.role for message in structure.items] == ["user"]
    structure.extend([Message.assistant("done")])
    assert [message.role for message in structure.items] == ["user", "assistant", "tool", "assistant"]
    assert structure.groups == [0, 1, 3]
