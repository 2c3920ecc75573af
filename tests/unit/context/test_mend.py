from __future__ import annotations

import asyncio
from typing import Any

import pytest

from turnstate import formats
from turnstate.context import Budget, StateManager
from turnstate.context.fit import fitted_document
from turnstate.context.turns import Repair
from turnstate.errors import InvalidConversation
from turnstate.formats import rendered
from turnstate.session import SessionManager
from turnstate.stores.memory import MemoryStore

pytestmark = pytest.mark.req("A8", "P4")

CALL = {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
NAMED = {"role": "user", "content": "hi", "name": "Ada"}
ANSWER = {"role": "tool", "tool_call_id": "c1", "content": "notes.txt"}


def sent(document: Any, format: formats.Format) -> tuple[Any, tuple[Repair, ...]]:
    """Render the window of a document in its shape, and return it with what was repaired."""
    window = StateManager().window(format.parse(document), Budget.UNLIMITED)
    return rendered(window.messages, format).document, window.report.repairs


def calling(*calls: Any, **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": list(calls), **fields}


def called(**changes: Any) -> dict[str, Any]:
    return {**CALL, "function": {**CALL["function"], **changes}}  # type: ignore[dict-item]


CHAT: dict[str, list[dict[str, Any]]] = {
    "an empty list of calls": [{"role": "assistant", "content": "yes", "tool_calls": []}],
    "no content": [{"role": "assistant", "content": None}],
    "a user who says nothing": [{"role": "user", "content": None}],
    "a list without parts": [{"role": "user", "content": []}],
    "an id that is too long": [calling({**CALL, "id": "x" * 50}), {**ANSWER, "tool_call_id": "x" * 50}],
    "a name that is none": [calling(called(name="list files!")), ANSWER],
    "arguments that are no text": [calling(called(arguments={"path": "."})), ANSWER],
    "one id for two calls": [calling(CALL, CALL), ANSWER, {**ANSWER, "content": "more"}],
    "a result of null": [calling(CALL), {**ANSWER, "content": None}],
}


@pytest.mark.parametrize("middle", CHAT.values(), ids=CHAT)
def test_what_chat_rejects_is_rewritten_and_the_neighbors_keep_their_marks(
    middle: list[dict[str, Any]],
) -> None:
    chat = formats.get("openai-chat")
    document = [NAMED, *middle, NAMED]
    assert chat.validate(document) != []
    payload, repairs = sent(document, chat)
    assert chat.validate(payload) == []
    assert (payload[0], payload[-1]) == (NAMED, NAMED)
    assert {repair.text for repair in repairs} == {"rewritten without what the provider rejects"}


MARKED = {"role": "user", "content": [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}]}
ANTHROPIC: dict[str, list[dict[str, Any]]] = {
    "an empty message": [{"role": "assistant", "content": ""}],
    "an empty block": [{"role": "assistant", "content": [{"type": "text", "text": ""}]}],
    "a thought without its signature": [
        {
            "role": "assistant",
            "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "a"}],
        }
    ],
}


@pytest.mark.parametrize("middle", ANTHROPIC.values(), ids=ANTHROPIC)
def test_what_anthropic_rejects_is_rewritten_and_marks_elsewhere_stay(middle: list[dict[str, Any]]) -> None:
    anthropic = formats.get("anthropic")
    document = {"model": "m", "system": "Be brief.", "messages": [MARKED, *middle, MARKED]}
    payload, repairs = sent(document, anthropic)
    assert anthropic.validate(payload) == []
    assert payload["messages"][0] == payload["messages"][-1] == MARKED
    assert (payload["model"], payload["system"]) == ("m", "Be brief.")
    assert len(repairs) == 1


def test_messages_that_may_not_stand_in_a_row_are_joined() -> None:
    bedrock = formats.get("bedrock")
    document = [{"role": "user", "content": [{"text": text}]} for text in ("one", "two", "three")]
    payload, _ = sent(document, bedrock)
    assert [message["content"] for message in payload] == [
        [{"text": "one"}, {"text": "two"}, {"text": "three"}]
    ]


BEDROCK = {
    "modelId": "m",
    "messages": [
        {"role": "user", "content": [{"text": "hi"}]},
        {
            "role": "assistant",
            "content": [
                {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "s"}}},
                {"toolUse": {"toolUseId": "c1", "name": "ls", "input": {}}},
            ],
        },
        {"role": "user", "content": [{"toolResult": {"toolUseId": "c1", "content": [{"text": "a"}]}}]},
    ],
}


def test_tools_that_must_be_defined_and_are_not_get_the_least_definition() -> None:
    bedrock = formats.get("bedrock")
    payload, repairs = sent(BEDROCK, bedrock)
    assert bedrock.validate(payload) == []
    assert {key: payload[key] for key in BEDROCK} == BEDROCK
    assert repairs == ()
    fit = fitted_document(BEDROCK, bedrock, StateManager(), Budget(10_000))
    assert fit.payload == payload
    assert [(repair.id, repair.text) for repair in fit.repairs] == [("ls", "the least definition is added")]


@pytest.mark.parametrize("name", formats.names())
def test_no_definition_is_added_where_none_is_wanted(name: str) -> None:
    format = formats.get(name)
    chat = formats.get("openai-chat")
    document = formats.convert([NAMED, calling(CALL), ANSWER, NAMED], chat, format).payload
    assert sent(document, format) == (document, ())


def test_a_system_text_that_is_rejected_is_rewritten() -> None:
    anthropic = formats.get("anthropic")
    document = {"system": [{"type": "text", "text": ""}], "messages": [{"role": "user", "content": "hi"}]}
    payload, _ = sent(document, anthropic)
    assert anthropic.validate(payload) == []
    assert payload["messages"] == document["messages"]


@pytest.mark.parametrize("name", formats.names())
def test_what_is_accepted_stays_as_it_is(name: str) -> None:
    format = formats.get(name)
    chat = formats.get("openai-chat")
    document = formats.convert([NAMED, calling(CALL), ANSWER, NAMED], chat, format).document
    assert sent(document, format) == (document, ())


def test_one_bad_message_among_many_is_the_only_one_touched() -> None:
    chat = formats.get("openai-chat")
    document: list[Any] = [{**NAMED, "content": f"number {number}"} for number in range(300)]
    document[137] = {"role": "user", "content": None, "name": "Eve"}
    payload, repairs = sent(document, chat)
    assert len(repairs) == 1
    assert [one for one in payload if one.get("name") != "Ada"] == [
        {"role": "user", "content": "", "name": "Eve"}
    ]


def test_what_cannot_be_mended_is_an_error_that_says_what_is_rejected() -> None:
    anthropic = formats.get("anthropic")
    document = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
    with pytest.raises(InvalidConversation, match="anthropic would reject the result: message 1: last-user"):
        rendered(anthropic.parse(document), anthropic, request=True)


LONG = "x" * 60
CACHED = {"cache_control": {"type": "ephemeral"}}


def chat_batch(*ids: str, name: str = "ls", answers: tuple[str, ...] | None = None) -> list[dict[str, Any]]:
    calls = [{**called(name=name), "id": id} for id in ids]
    results = [{**ANSWER, "tool_call_id": id} for id in (ids if answers is None else answers)]
    return [calling(*calls), *results]


def use(id: str, name: str = "ls", **marks: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": name, "input": {}, **marks}


def turn(*uses: dict[str, Any], answers: int | None = None) -> list[dict[str, Any]]:
    results = [{"type": "tool_result", "tool_use_id": one["id"], "content": "a"} for one in uses]
    asked = {"role": "assistant", "content": [*uses]}
    return [{"role": "user", "content": "go"}, asked, {"role": "user", "content": results[:answers]}]


def converse(id: str, name: str = "ls") -> list[dict[str, Any]]:
    asked = {"toolUse": {"toolUseId": id, "name": name, "input": {}}}
    result = {"toolResult": {"toolUseId": id, "content": [{"text": "a"}]}}
    return [
        {"role": "user", "content": [{"text": "go"}]},
        {"role": "assistant", "content": [asked]},
        {"role": "user", "content": [result]},
    ]


def contents(id: str, name: str = "ls") -> list[dict[str, Any]]:
    return [
        {"role": "user", "parts": [{"text": "go"}]},
        {"role": "model", "parts": [{"functionCall": {"id": id, "name": name, "args": {}}}]},
        {"role": "user", "parts": [{"functionResponse": {"id": id, "name": name, "response": {"a": 1}}}]},
    ]


def items(id: str, name: str = "ls") -> list[dict[str, Any]]:
    return [
        {"role": "user", "content": "go"},
        {"type": "function_call", "call_id": id, "name": name, "arguments": "{}"},
        {"type": "function_call_output", "call_id": id, "output": "a"},
    ]


REJECTED: dict[str, tuple[str, Any]] = {
    "two calls of one id, one answer": ("openai-chat", [NAMED, *chat_batch("c1", "c1", answers=("c1",))]),
    "an empty id": ("openai-chat", [NAMED, *chat_batch("")]),
    "an id of 60 characters": ("openai-chat", [NAMED, *chat_batch(LONG)]),
    "two long ids that begin alike": ("openai-chat", [NAMED, *chat_batch(f"{LONG}1", f"{LONG}2")]),
    "a name with a space": ("openai-chat", [NAMED, *chat_batch("c1", name="list files!")]),
    "no content": ("openai-chat", [NAMED, {"role": "assistant", "content": None}, NAMED]),
    "no calls": ("openai-chat", [NAMED, {"role": "assistant", "content": "a", "tool_calls": []}]),
    "an id in two turns": ("anthropic", [*turn(use("t1")), *turn(use("t1"))]),
    "an id in two turns, with marks": ("anthropic", [*turn(use("t1", **CACHED)), *turn(use("t1", **CACHED))]),
    "an id in two turns, words behind the call": (
        "anthropic",
        [*turn(use("t1"), answers=1), *turn(use("t1"), {"type": "text", "text": "a", "id": ""}, answers=1)],
    ),
    "a foreign id and a foreign name": ("anthropic", turn(use("functions.ls:0", "list files!", **CACHED))),
    "one id twice in a message": ("anthropic", turn(use("t1"), use("t1"), answers=1)),
    "an id of Bedrock's that is too long": ("bedrock", {"messages": converse("x" * 65)}),
    "an id of Bedrock's in two turns": ("bedrock", {"messages": [*converse("t1"), *converse("t1")]}),
    "a name of Bedrock's": ("bedrock", {"messages": converse("t1", "list files!")}),
    "a name of Gemini's": ("gemini", {"contents": contents("g1", "list files!")}),
    "an empty id of Gemini's": ("gemini", {"contents": contents("")}),
    "an id of an item in two turns": ("openai-responses", [*items("c1"), *items("c1")]),
    "a long id of an item": ("openai-responses", items("x" * 65)),
    "an empty id of an item": ("openai-responses", items("")),
    "a name of an item": ("openai-responses", items("c1", "list files!")),
}
each_rejected = pytest.mark.parametrize(("name", "document"), REJECTED.values(), ids=REJECTED.keys())


@each_rejected
def test_the_window_of_a_rejected_document_is_accepted(name: str, document: Any) -> None:
    format = formats.get(name)
    if name != "gemini" or "list" in str(document):
        assert format.validate(document) != []
    window = StateManager().window(format.parse(document), Budget.UNLIMITED)
    payload = window.render(name)
    assert format.validate(payload) == []
    assert window.render(name) == payload == format.render(window.messages)


@each_rejected
def test_a_rejected_document_goes_through_a_session_and_is_accepted(name: str, document: Any) -> None:
    format = formats.get(name)

    async def scene() -> tuple[Any, Any]:
        store = MemoryStore()
        session = await SessionManager(store).create(id="s1")
        await session.append(*format.parse(document))
        live = (await session.window(Budget(100_000))).messages
        again = await SessionManager(store).open("s1")
        return live, (await again.window(Budget(100_000))).messages

    live, reopened = asyncio.run(scene())
    assert format.validate(format.render(live)) == []
    assert format.render(reopened) == format.render(live)


def test_calls_that_get_another_id_keep_their_marks() -> None:
    anthropic = formats.get("anthropic")
    payload, _ = sent([*turn(use("t1", **CACHED)), *turn(use("t1", **CACHED))], anthropic)
    uses = [block for wire in payload for block in wire["content"] if "name" in block]
    assert [one["cache_control"] for one in uses] == [CACHED["cache_control"]] * 2
    assert len({one["id"] for one in uses}) == 2


def test_ids_and_names_that_begin_alike_stay_apart() -> None:
    chat = formats.get("openai-chat")
    batch = [calling(*({**called(name=f"{LONG}{n}" * 2), "id": f"{LONG}{n}"} for n in (1, 2)))]
    answers = [{**ANSWER, "tool_call_id": f"{LONG}{n}"} for n in (1, 2)]
    payload, _ = sent([NAMED, *batch, *answers], chat)
    calls = payload[1]["tool_calls"]
    assert len({one["id"] for one in calls}) == len({one["function"]["name"] for one in calls}) == 2
    assert [one["tool_call_id"] for one in payload[2:]] == [one["id"] for one in calls]
