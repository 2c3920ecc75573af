"""The borders of a conversation's document: what would be read as something else is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.conversation.conversation_fixtures import prompts, talk
from turnstate import Budget, Message, catalog
from turnstate.conversation import ConversationState, fields, from_json, to_json
from turnstate.errors import InvalidPayload

pytestmark = pytest.mark.req("I9")


def document(*, whole: bool = True) -> dict[str, Any]:
    """Return a conversation of two exchanges with something that waits, with our own part or without."""
    state = ConversationState("c")
    talk(state, "one", "two")
    state.set_next_user_message("three")
    plain = to_json(state) if whole else fields(state)
    return json.loads(json.dumps(plain))  # type: ignore[no-any-return]


def refused(plain: dict[str, Any]) -> str:
    """Return the path that a document is refused with."""
    with pytest.raises(InvalidPayload) as raised:
        from_json(plain)
    return raised.value.path or ""


WHOLE = pytest.mark.parametrize("whole", [True, False], ids=["with our part", "without it"])


@WHOLE
def test_a_document_as_it_should_be_is_read(whole: bool) -> None:
    state = from_json(document(whole=whole))
    assert prompts(state) == ["one", "two"]
    assert state.next_message is not None
    assert state.next_message.prompt == "three"


@WHOLE
@pytest.mark.parametrize("role", ["user", "tool", "system"])
def test_only_the_assistant_stands_in_the_assistants_place(whole: bool, role: str) -> None:
    plain = document(whole=whole)
    plain["history"][1]["assistant"] = _said_by(role)
    assert refused(plain).startswith("$.history[1].assistant")


@WHOLE
def test_the_assistant_does_not_stand_in_the_users_place(whole: bool) -> None:
    plain = document(whole=whole)
    plain["history"][1]["user"] = [_said_by("assistant")]
    assert refused(plain).startswith("$.history[1].user")


@WHOLE
def test_the_assistant_does_not_wait_to_be_sent(whole: bool) -> None:
    plain = document(whole=whole)
    plain["next_message"] = [_said_by("assistant")]
    assert refused(plain).startswith("$.next_message")


def _said_by(role: str) -> dict[str, Any]:
    state = ConversationState("other")
    state.set_next_user_message("hello")
    state.push_assistant_message(Message.assistant("hi"))
    entry = fields(state)["history"][0]
    said: dict[str, Any] = entry["assistant"] if role == "assistant" else entry["user"][0]
    return {**said, "role": role}


@WHOLE
@pytest.mark.parametrize("where", ["another exchange", "the same exchange", "what waits"])
def test_an_id_that_is_there_twice_is_refused(whole: bool, where: str) -> None:
    plain = document(whole=whole)
    first = plain["history"][0]
    match where:
        case "another exchange":
            plain["history"][1] = first
        case "the same exchange":
            first["assistant"]["id"] = first["user"][0]["id"]
        case _:
            plain["next_message"] = first["user"]
    assert refused(plain).startswith(("$.history", "$.next_message"))


def test_an_id_that_a_branch_names_twice_is_refused() -> None:
    plain = document()
    entries = plain["turnstate"]["branches"][0]["entries"]
    entries.append(entries[0])
    assert refused(plain).startswith("$.turnstate.branches[0].entries[")


def test_an_id_that_a_branch_says_again_is_refused() -> None:
    plain = document()
    again = plain["history"][0]["user"][0]
    plain["turnstate"]["branches"][0]["entries"].append(["message", again])
    assert refused(plain).startswith("$.turnstate.branches[0].entries[")


def test_two_branches_may_each_go_on_from_the_same_message() -> None:
    state = ConversationState("c")
    talk(state, "one")
    for word in ("left", "right"):
        state.begin_tangent()
        talk(state, word)
        state.exit_tangent_mode()
    restored = from_json(to_json(state))
    assert [one.opening for one in restored.kept_tangents()] == ["left", "right"]


def test_two_branches_may_hold_the_same_message() -> None:
    plain = document()
    said = plain["history"][1]
    again = ["message", said["user"][0]], ["message", said["assistant"]]
    plain["turnstate"]["branches"].append(
        {"entries": list(again), "parent": 1, "at": 2, "former": 1, "operation": "rewind"}
    )
    plain["turnstate"]["head"] = 2
    state = from_json(plain)
    assert prompts(state) == ["one", "two"]
    assert state.next_message is None
    assert state.undo() == "rewind"
    assert state.next_message is not None


@WHOLE
@pytest.mark.parametrize("model", ["gpt-4o", "nobody-knows-it"])
def test_a_counter_that_nobody_knows_is_refused_or_the_catalogs_is_taken(whole: bool, model: str) -> None:
    plain = document(whole=whole)
    plain["model_info"] = {"model_id": model, "counter": "nope"}
    try:
        state = from_json(plain)
    except InvalidPayload as error:
        assert (error.path or "").startswith("$.model_info")  # noqa: PT017
        return
    assert state.model_info is not None
    assert state.model_info.counter == catalog.model(model).counter
    assert state.window(Budget(20_000)).messages


@WHOLE
@pytest.mark.parametrize("extra", [["x"], "x", 7, True])
def test_extra_that_is_no_object_is_refused(whole: bool, extra: Any) -> None:
    assert refused({**document(whole=whole), "extra": extra}) == "$.extra"


@WHOLE
@pytest.mark.parametrize(
    ("context", "told"),
    [
        ({"paths": [1]}, "$.context_manager.paths[0]"),
        ({"paths": ["a.md", {"owner": "agent"}]}, "$.context_manager.paths[1]"),
        ({"paths": "a.md"}, "$.context_manager.paths"),
        (["a.md"], "$.context_manager"),
    ],
)
def test_the_path_to_a_sticky_file_that_is_unreadable_names_its_manager(
    whole: bool, context: Any, told: str
) -> None:
    assert refused({**document(whole=whole), "context_manager": context}).startswith(told)
