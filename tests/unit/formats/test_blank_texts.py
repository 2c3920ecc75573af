"""Text that says nothing, thinking between other blocks, and system messages inside the list."""

from __future__ import annotations

import copy
from itertools import pairwise
from typing import Any

import pytest

from turnstate import Budget, Message, StateManager, formats
from turnstate.context.fit import fit
from turnstate.message import ToolCallResult

pytestmark = pytest.mark.req("A8")

MARK = {"cache_control": {"type": "ephemeral"}}
ASK = {"role": "user", "content": [{"type": "text", "text": "Look.", **MARK}]}
USE = {"type": "tool_use", "id": "a", "name": "look", "input": {}, **MARK}
THOUGHT = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
SEARCHED = [
    {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "fog"}},
    {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
]


def blank(text: str = "\n\n") -> dict[str, Any]:
    return {"type": "text", "text": text}


def answer(**fields: Any) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", **fields}]}


CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "before a call, beside thinking": (
        {"messages": [ASK, {"role": "assistant", "content": [THOUGHT, blank(), USE]}, answer(content="fog")]},
        {"messages": [ASK, {"role": "assistant", "content": [THOUGHT, USE]}, answer(content="fog")]},
    ),
    "empty, before a call": (
        {"messages": [ASK, {"role": "assistant", "content": [blank(""), USE]}, answer(content="fog")]},
        {"messages": [ASK, {"role": "assistant", "content": [USE]}, answer(content="fog")]},
    ),
    "all that the assistant says": (
        {"messages": [ASK, {"role": "assistant", "content": [blank()]}, ASK]},
        {"messages": [ASK, {"role": "assistant", "content": [{"type": "text", "text": "[empty]"}]}, ASK]},
    ),
    "beside the user's words": (
        {"messages": [{"role": "user", "content": [*ASK["content"], blank()]}]},
        {"messages": [ASK]},
    ),
    "in the blocks of a result": (
        {"messages": [ASK, {"role": "assistant", "content": [USE]}, answer(content=[blank()], **MARK)]},
        {"messages": [ASK, {"role": "assistant", "content": [USE]}, answer(**MARK)]},
    ),
    "as a result": (
        {"messages": [ASK, {"role": "assistant", "content": [USE]}, answer(content="\n", **MARK)]},
        {"messages": [ASK, {"role": "assistant", "content": [USE]}, answer(**MARK)]},
    ),
    "in the system prompt": (
        {"system": [blank(), {"type": "text", "text": "Be brief.", **MARK}], "messages": [ASK]},
        {"system": [{"type": "text", "text": "Be brief.", **MARK}], "messages": [ASK]},
    ),
    "as the system prompt": ({"system": [blank()], "messages": [ASK]}, {"messages": [ASK]}),
}


@pytest.mark.parametrize(("given", "wanted"), CASES.values(), ids=CASES)
def test_blank_text_is_reported_and_never_sent_and_nothing_else_changes(
    given: dict[str, Any], wanted: dict[str, Any]
) -> None:
    anthropic = formats.get("anthropic")
    assert {one.rule for one in anthropic.validate(given)} <= {"text-blank", "text-empty", "system"}
    assert anthropic.validate(given) != []
    messages = anthropic.parse(given)
    assert anthropic.render(messages) == given  # the log keeps it
    window = StateManager().window(messages, Budget.UNLIMITED)
    assert window.render("anthropic") == wanted
    repairs = [] if "system" in given else ["rewritten without what the provider rejects"]
    assert [one.text for one in window.report.repairs] == repairs
    assert fit(copy.deepcopy(given), 10_000, format="anthropic") == wanted
    if wanted["messages"][-1]["role"] == "user":
        assert anthropic.request(messages, model="m", max_tokens=100) == {
            "max_tokens": 100,
            "model": "m",
            **wanted,
        }


def test_a_result_of_our_own_that_is_white_space_is_sent_without_content() -> None:
    anthropic = formats.get("anthropic")
    asked = anthropic.parse([ASK, {"role": "assistant", "content": [USE]}])
    done = Message.tool([ToolCallResult.of(asked[-1].tool_calls[0].id, " \n")])
    sent = anthropic.request([*asked, done], model="m")
    assert sent["messages"][-1] == {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a"}]}


def test_converse_gets_no_blank_text_either() -> None:
    bedrock = formats.get("bedrock")
    call = {"toolUse": {"toolUseId": "a", "name": "look", "input": {}}}
    config = {"toolConfig": {"tools": [{"toolSpec": {"name": "look", "inputSchema": {"json": {}}}}]}}

    def document(said: list[Any], content: list[Any], system: list[Any]) -> dict[str, Any]:
        result = {"toolUseId": "a", "content": content, "status": "error"}
        messages = [
            {"role": "user", "content": [{"text": "Look."}]},
            {"role": "assistant", "content": said},
            {"role": "user", "content": [{"toolResult": result}]},
        ]
        return {**config, "system": system, "messages": messages}

    brief = {"text": "Be brief."}
    given = document([{"text": "\n"}, call], [{"text": " "}, {"json": {"a": 1}}], [{"text": " "}, brief])
    wanted = document([call], [{"json": {"a": 1}}], [brief])
    assert bedrock.render(bedrock.parse(given)) == given
    assert StateManager().window(bedrock.parse(given), Budget.UNLIMITED).render("bedrock") == wanted
    assert bedrock.request(bedrock.parse(given)) == wanted
    silent = document([call], [{"text": " "}], [brief])
    assert bedrock.request(bedrock.parse(silent)) == document([call], [{"text": "[empty]"}], [brief])


@pytest.mark.parametrize("name", ["anthropic", "bedrock"])
@pytest.mark.parametrize("at", [0, 1, 2])
def test_blank_text_beside_results_costs_none_of_them_its_fields(name: str, at: int) -> None:
    format = formats.get(name)
    if name == "anthropic":
        uses: list[Any] = [{**USE, "id": id} for id in "ab"]
        results: list[Any] = [
            {"type": "tool_result", "tool_use_id": id, "content": id, **MARK, "of_tomorrow": id}
            for id in "ab"
        ]
        nothing = blank()
    else:
        uses = [{"toolUse": {"toolUseId": id, "name": "look", "input": {}}} for id in "ab"]
        results = [
            {"toolResult": {"toolUseId": id, "content": [{"text": id}], "status": "success", "type": id}}
            for id in "ab"
        ]
        nothing = {"text": "\n"}
    beside = {"role": "user", "content": [*results[:at], nothing, *results[at:], nothing]}
    question: Any = ASK if name == "anthropic" else {"role": "user", "content": [{"text": "Look."}]}
    document = [question, {"role": "assistant", "content": uses}, beside]
    asked = format.parse(document)
    assert format.render(asked)["messages"] == document
    (done,) = asked[2:]
    for place, result in enumerate(done.tool_results):
        part = done.with_results([(place, result)])
        other = done.with_results([(1 - place, done.tool_results[1 - place])])
        shares = [*asked[:2], part, other] if place == 0 else [*asked[:2], other, part]
        content = [block for one in format.render(shares)["messages"][2:] for block in one["content"]]
        assert content == beside["content"]
        sent = StateManager().window(shares, Budget.UNLIMITED).render(name)["messages"]
        assert [block for one in sent[2:] for block in one["content"]] == results
        first = StateManager().append(asked[:2], Message.tool([done.tool_results[1 - place]]))
        (*_, last) = StateManager().append(first, done)  # one result is known, so it is taken in part
        assert last.tool_results == (result,)
        assert results[place] in format.render([*first, last])["messages"][-1]["content"]


def test_a_turn_that_the_service_paused_goes_on_without_white_space_at_its_end() -> None:
    anthropic = formats.get("anthropic")
    paused = {"role": "assistant", "content": [*SEARCHED, {"type": "text", "text": "Fog. \n"}]}
    request = anthropic.request(anthropic.parse([ASK, paused]), model="m")
    assert request["messages"][-1]["content"][-1] == {"type": "text", "text": "Fog."}


THINKING_ON = {"type": "enabled", "budget_tokens": 1_024}


def test_thinking_between_other_blocks_goes_back_exactly_as_it_came() -> None:
    anthropic = formats.get("anthropic")
    blocks = [THOUGHT, *SEARCHED, THOUGHT, {"type": "text", "text": "Now the lamp."}, USE]
    reply = anthropic.reply({"role": "assistant", "content": blocks, "stop_reason": "tool_use"})
    done = Message.tool([ToolCallResult.of(reply.tool_calls[0].id, "lit")])
    said = [Message.user("Look."), reply.without_usage, done]
    request = anthropic.request(said, model="m", thinking=THINKING_ON)
    assert request["messages"][1] == {"role": "assistant", "content": blocks}
    assert request["thinking"] == THINKING_ON
    window = StateManager().window(said, Budget.UNLIMITED)
    assert window.render("anthropic", request=True)["messages"][1] == {"role": "assistant", "content": blocks}
    assert window.report.repairs == ()


HURRY = {"role": "system", "content": "Hurry."}
SAY = {"role": "assistant", "content": "Fog."}


def test_a_system_message_stays_where_the_service_takes_it() -> None:
    anthropic = formats.get("anthropic")
    document = {"system": "Be brief.", "messages": [ASK, HURRY, SAY, ASK, HURRY]}
    messages = anthropic.parse(document)
    assert [one.role for one in messages] == ["system", "user", "system", "assistant", "user", "system"]
    assert anthropic.render(messages) == document
    assert StateManager().window(messages, Budget.UNLIMITED).render("anthropic", request=True) == document
    assert fit(document, 10_000, format="anthropic") == document


SLOWLY = {"role": "system", "content": "Slowly.", "clear_at": "next_user_message"}
DISPLACED = [
    [HURRY, ASK],
    [ASK, HURRY, ASK],
    [ASK, SAY, HURRY, ASK],
    [ASK, SAY, HURRY, HURRY, ASK],
    [ASK, HURRY, HURRY, SAY, ASK],
    [ASK, HURRY, SLOWLY, HURRY, ASK, HURRY],
]


@pytest.mark.parametrize("listed", DISPLACED)
def test_a_system_message_that_the_service_would_reject_there_is_sent_in_another_form(
    listed: list[Any],
) -> None:
    anthropic = formats.get("anthropic")
    assert "system-place" in {one.rule for one in anthropic.validate(listed)}
    messages = anthropic.parse(listed)
    assert anthropic.render(messages) == {"messages": listed}
    sent = StateManager().window(messages, Budget.UNLIMITED).render("anthropic", request=True)
    assert anthropic.validate(sent, request=True) == []
    assert str(sent).count("Hurry.") == listed.count(HURRY)
    assert anthropic.request(messages, model="m")["messages"] == sent["messages"]


def blocks(payload: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Return what a model reads, block by block."""
    found = []
    for wire in payload["messages"]:
        said = wire["content"]
        listed = [{"type": "text", "text": said}] if isinstance(said, str) else said
        fields = {key: value for key, value in wire.items() if key != "content"}
        found += [(fields, block) for block in listed]
    return found


@pytest.mark.parametrize("listed", [*DISPLACED, [ASK, HURRY, SAY, ASK, HURRY, ASK, SAY]])
def test_a_system_message_that_was_sent_never_changes(listed: list[Any]) -> None:
    anthropic = formats.get("anthropic")
    messages = anthropic.parse(listed)

    def windowed(count: int) -> list[tuple[Any, ...]]:
        window = StateManager().window(messages[:count], Budget.UNLIMITED)
        return blocks(window.render("anthropic"))

    def requested(count: int) -> list[tuple[Any, ...]]:
        return blocks(anthropic.request(messages[:count], model="m"))

    ends = [count for count in range(1, len(listed) + 1) if listed[count - 1]["role"] != "assistant"]
    for sent in (windowed, requested):
        requests = [sent(count) for count in ends]
        for before, after in pairwise(requests):
            assert after[: len(before)] == before


def test_system_messages_in_a_row_are_one_and_the_user_may_go_on() -> None:
    anthropic = formats.get("anthropic")
    messages = anthropic.parse([ASK, HURRY, HURRY, ASK])
    text = {"type": "text", "text": "Hurry."}
    assert anthropic.request(messages, model="m")["messages"] == [
        ASK,
        {"role": "system", "content": [text, text]},
        {"role": "assistant", "content": [{"type": "text", "text": "[empty]"}]},
        ASK,
    ]


def test_converse_keeps_system_messages_in_their_place_too() -> None:
    bedrock = formats.get("bedrock")
    ask, say = (
        {"role": "user", "content": [{"text": "Look."}]},
        {"role": "assistant", "content": [{"text": "Fog."}]},
    )
    hurry = {"role": "system", "content": [{"text": "Hurry."}]}
    document = {"messages": [ask, hurry, say, ask, hurry]}
    assert bedrock.validate(document, request=True) == []
    assert bedrock.render(bedrock.parse(document)) == document
    assert StateManager().window(bedrock.parse(document), Budget.UNLIMITED).render("bedrock") == document
    displaced = bedrock.request(bedrock.parse([ask, hurry, hurry, ask]))["messages"]
    hurries = {"role": "system", "content": hurry["content"] * 2}
    assert displaced == [ask, hurries, {"role": "assistant", "content": [{"text": "[empty]"}]}, ask]
    assert bedrock.validate(displaced, request=True) == []
