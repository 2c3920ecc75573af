from __future__ import annotations

import contextlib
import copy
import json
from typing import Any

import pytest

import turnstate
from tests.harness.thoroughness import runs
from turnstate import formats
from turnstate.context import Budget, Policy, StateManager
from turnstate.context.fit import Fitted, fitted_document
from turnstate.errors import ContextOverflow, InvalidConversation, InvalidPayload
from turnstate.formats.port import Format
from turnstate.testing import conversations

pytestmark = pytest.mark.req("P4")

MANAGER = StateManager(policy=Policy(low_water=1.0))
FORMATS = [formats.get(name) for name in formats.names()]
each_format = pytest.mark.parametrize("format", FORMATS, ids=lambda format: format.name)
CHAT = formats.get("openai-chat")
LABEL = "[Memory Summary]"
OUTPUT = "\n".join(f"line {n}: nothing of note in sector {n * 7}" for n in range(14))
LONG_OUTPUT = "\n".join(f"line {n}: nothing of note in sector {n * 7}" for n in range(150))


def call(id: str, **arguments: Any) -> dict[str, Any]:
    function = {"name": "scan", "arguments": json.dumps(arguments)}
    return {"id": id, "type": "function", "function": function}


def turn(number: int) -> list[dict[str, Any]]:
    id = f"call_{number}"
    return [
        {"role": "user", "content": f"Look into question number {number}, please."},
        {"role": "assistant", "content": None, "tool_calls": [call(id, sector=number)]},
        {"role": "tool", "tool_call_id": id, "content": OUTPUT},
        {"role": "assistant", "content": f"Answer number {number}: all is well."},
    ]


def talk(turns: int, *, first: int = 0, system: str = "You look into things.") -> list[dict[str, Any]]:
    said = [message for number in range(first, first + turns) for message in turn(number)]
    return [{"role": "system", "content": system}, *said] if system else said


def talk_in(format: Format, turns: int, *, first: int = 0, system: str = "You look into things.") -> Any:
    return formats.convert(talk(turns, first=first, system=system), CHAT, format).document


def as_object(payload: Any, format: Format, **fields: Any) -> dict[str, Any]:
    return {**fields, **(payload if isinstance(payload, dict) else {format.list_key: payload})}


def listed(payload: Any, format: Format) -> list[Any]:
    found: list[Any] = payload[format.list_key] if isinstance(payload, dict) else payload
    return found


def cost(payload: Any, format: Format) -> int:
    return MANAGER.count(format.parse(payload), format.tools(payload)).tokens


def fit(payload: Any, format: Format = CHAT, budget: int = 1_000) -> Fitted:
    """Fit a document and check what holds for every one: it fits, is valid, and was not touched."""
    before = copy.deepcopy(payload)
    result = fitted_document(payload, format, MANAGER, Budget(budget))
    assert payload == before
    assert cost(result.payload, format) == result.after.tokens <= budget
    assert format.validate(result.payload) == []
    assert type(result.payload) is type(payload)
    return result


@each_format
def test_a_document_of_any_provider_fits_and_keeps_its_fields(format: Format) -> None:
    document = as_object(talk_in(format, 12), format, id="a", model="m", note={"kept": [1.0, None]})
    result = fit(document, format)
    assert len(listed(result.payload, format)) < len(listed(document, format))
    assert {key: result.payload[key] for key in ("id", "model", "note")} == {
        "id": "a",
        "model": "m",
        "note": {"kept": [1.0, None]},
    }
    assert json.dumps(result.payload).count(LABEL) == 1


@each_format
def test_a_bare_list_stays_one_even_where_the_summary_has_no_place_in_it(format: Format) -> None:
    document = listed(talk_in(format, 12, system=""), format)
    result = fit(document, format)
    assert isinstance(result.payload, list)
    assert LABEL in json.dumps(result.payload[0])


@each_format
def test_what_is_valid_and_fits_is_given_back_as_it_is(format: Format) -> None:
    document = as_object(talk_in(format, 3), format, temperature=1.0)
    limit = cost(document, format)
    result = fitted_document(document, format, MANAGER, Budget(limit))
    assert result.payload is document
    assert (result.window, result.before, result.after) == (None, result.after, result.before)
    assert fit(document, format, limit - 1).window


def test_a_long_output_is_left_alone_where_the_document_fits() -> None:
    document = [*talk(1), {"role": "user", "content": "again"}, *turn(7)[1:2]]
    document += [{"role": "tool", "tool_call_id": "call_7", "content": LONG_OUTPUT}]
    limit = cost(document, CHAT)
    assert fitted_document(document, CHAT, MANAGER, Budget(limit)).payload == document
    broken = [*document, {"role": "tool", "tool_call_id": "nobody", "content": "?"}]
    result = fit(broken, budget=limit + 100)
    assert result.payload[:-1] == document
    assert result.reduced == ()


@pytest.mark.parametrize("kind", [conversations.valid, conversations.broken])
@each_format
def test_generated_conversations_fit_or_overflow(format: Format, kind: Any) -> None:
    done = 0
    seeds = runs(2, long=4)
    for seed in range(seeds):
        payload = format.render(kind(seed))
        for document in (as_object(payload, format, model="m"), listed(payload, format)):
            whole = cost(document, format)
            for budget in (whole, whole * 2 // 3, whole // 3):
                with contextlib.suppress(ContextOverflow):
                    result = fit(document, format, budget)
                    assert not isinstance(result.payload, dict) or result.payload["model"] == "m"
                    done += 1
    assert done > 4 * seeds - 1


def test_the_fields_stay_when_the_message_that_carried_them_is_gone() -> None:
    tools = [{"type": "function", "function": {"name": "scan", "strict": True, "parameters": {}}}]
    document = {"id": "x", "messages": talk(12, system=""), "model": "m", "tools": tools}
    result = fit(document, budget=1_200)
    assert list(result.payload) == list(document)
    assert result.payload["tools"] == tools
    assert result.payload["messages"][-4:] == document["messages"][-4:]


def test_even_a_document_of_which_no_message_stays_as_it_was_keeps_its_fields() -> None:
    document = {"model": "m", "messages": [{"role": "tool", "tool_call_id": "c", "content": "whose?"}]}
    result = fit(document)
    assert result.payload["model"] == "m"
    assert [message["role"] for message in result.payload["messages"]] == ["user"]


def test_the_message_that_carried_the_fields_is_mended_like_any_other() -> None:
    responses = formats.get("openai-responses")
    thought = {"type": "reasoning", "id": "rs_1", "summary": []}
    document = {"model": "m", "input": [thought, {"role": "user", "content": "Hello?"}]}
    result = fit(document, responses)
    assert result.payload["model"] == "m"
    assert result.payload["input"][-1] == document["input"][-1]


def test_tool_definitions_count_towards_the_budget() -> None:
    schema = {"type": "object", "properties": {f"field_{n}": {"type": "string"} for n in range(40)}}
    tools = [{"type": "function", "function": {"name": "scan", "parameters": schema}}]
    bare, defined = fit({"messages": talk(12)}), fit({"messages": talk(12), "tools": tools})
    assert len(defined.payload["messages"]) < len(bare.payload["messages"])
    assert defined.to_json()["usage"]["tools"] > bare.to_json()["usage"]["tools"]


def test_definitions_that_the_provider_wants_and_the_document_lacks_are_counted_too() -> None:
    bedrock = formats.get("bedrock")
    document = as_object(talk_in(bedrock, 12), bedrock)
    del document["toolConfig"]
    result = fit(document, bedrock, 1_000)
    assert result.payload["toolConfig"]["tools"][0]["toolSpec"]["name"] == "scan"
    for budget in range(1_000, 1_020):
        fit(document, bedrock, budget)


@each_format
def test_what_could_be_sent_before_can_be_sent_after(format: Format) -> None:
    document = talk_in(format, 12)
    question = formats.convert([{"role": "user", "content": "And now?"}], CHAT, format).payload
    document = as_object(document, format)
    document[format.list_key] = listed(document, format) + listed(question, format)
    assert format.validate(document, request=True) == []
    assert format.validate(fit(document, format).payload, request=True) == []


@each_format
def test_fitting_again_folds_the_summary_and_does_not_add_another(format: Format) -> None:
    document = as_object(talk_in(format, 8), format)
    document = fit(document, format, 1_500).payload
    for round in range(1, 4):
        more = listed(talk_in(format, 6, first=8 * round, system=""), format)
        document = {**document, format.list_key: listed(document, format) + more}
        document = fit(document, format, 1_500).payload
        text = json.dumps(document)
        assert text.count(LABEL) == 1
        assert text.count("Earlier summary") <= 1
        assert text.count("You look into things.") == 1
        assert "question number 0" in text


def test_marks_on_the_system_prompt_outlast_the_summary_behind_it() -> None:
    anthropic = formats.get("anthropic")
    prompt = {"type": "text", "text": "You look into things.", "cache_control": {"type": "ephemeral"}}
    document = {**talk_in(anthropic, 8), "system": [prompt]}
    once = fit(document, anthropic).payload
    more = listed(talk_in(anthropic, 4, first=8), anthropic)
    twice = fit({**once, "messages": once["messages"] + more}, anthropic).payload
    for result in (once, twice):
        assert result["system"][0] == prompt
        assert len(result["system"]) == 2


def test_calls_without_an_answer_and_answers_without_a_call_are_mended_and_named() -> None:
    document = [
        {"role": "user", "content": "Scan it."},
        {"role": "assistant", "content": None, "tool_calls": [call("call_left")]},
        {"role": "user", "content": "Never mind. Scan that."},
        {"role": "assistant", "content": None, "tool_calls": [call("call_open")]},
    ]
    result = fit(document)
    assert [violation.id for violation in result.violations] == ["call_left", "call_open"]
    assert {repair.id: repair.text for repair in result.repairs} == {
        "call_left": "an abandoned call is answered by a visible error",
        "call_open": "a call that is still open is answered as still running",
    }


def test_a_missing_question_is_mended_and_told() -> None:
    document = {"messages": [{"role": "assistant", "content": "Good morning!"}]}
    result = fit(document, formats.get("anthropic"))
    assert [repair.text for repair in result.repairs] == [
        "the user's question is missing; a line takes its place"
    ]


def test_the_report_names_the_calls_whose_output_is_not_whole() -> None:
    document = [*talk(6), {"role": "user", "content": "again"}, *turn(9)[1:2]]
    document += [{"role": "tool", "tool_call_id": "call_9", "content": LONG_OUTPUT}]
    result = fit(document, budget=3_000)
    told = result.to_json()
    assert told["reduced"] == ["call_9"]
    assert set(told["hidden"]) <= {f"call_{number}" for number in range(6)}
    assert told["changed"] is True
    assert told["tokens_before"] > 3_000 >= told["tokens_after"] == result.after.tokens
    assert sum(told["usage"].values()) == 3_000
    assert json.loads(json.dumps(told)) == told


def test_the_report_of_what_was_left_alone_has_the_same_fields() -> None:
    changed, same = fit(talk(12)).to_json(), fit(talk(1)).to_json()
    assert changed.keys() == same.keys()
    assert (same["changed"], same["summary"], same["evicted_messages"], same["events"]) == (
        False,
        None,
        0,
        [],
    )
    assert changed["summary"]
    assert changed["evicted_messages"] > 0


def test_an_overflow_carries_the_numbers_and_names_the_budget_that_was_asked_for() -> None:
    bedrock = formats.get("bedrock")
    document = as_object(talk_in(bedrock, 2), bedrock)
    del document["toolConfig"]
    for budget in (1, 20, 30):
        with pytest.raises(ContextOverflow) as overflow:
            fitted_document(document, bedrock, MANAGER, Budget(budget))
        numbers = overflow.value
        assert numbers.limit == budget
        assert numbers.preface + numbers.question + numbers.last > budget


def test_an_overflow_counts_what_the_form_adds_to_the_head() -> None:
    bedrock = formats.get("bedrock")
    document = as_object(formats.convert(talk(1, system="")[:3], CHAT, bedrock).payload, bedrock)
    del document["toolConfig"]
    with pytest.raises(ContextOverflow) as overflow:
        fitted_document(document, bedrock, MANAGER, Budget(60))
    numbers = overflow.value
    assert numbers.preface > 20
    assert numbers.preface + numbers.question + numbers.last > numbers.limit == 60


def test_outputs_make_room_for_what_the_form_adds() -> None:
    bedrock = formats.get("bedrock")
    document = as_object(formats.convert(talk(1, system="")[:3], CHAT, bedrock).payload, bedrock)
    del document["toolConfig"]
    result = fitted_document(document, bedrock, MANAGER, Budget(cost(document, bedrock)))
    assert result.after.tokens <= cost(document, bedrock)
    assert len(result.reduced) == 1


def test_strict_keeps_the_newest_turns_or_fails() -> None:
    strict = StateManager(policy=Policy(low_water=1.0, strict=True))
    with pytest.raises(ContextOverflow, match="strict"):
        fitted_document(talk(12), CHAT, strict, Budget(1_000))
    roomy = fitted_document(talk(12), CHAT, strict, Budget(3_000))
    assert "Look into question number 7, please." in json.dumps(roomy.payload)


def test_nothing_at_all_cannot_be_made_valid() -> None:
    with pytest.raises(InvalidConversation, match=r"openai-chat would reject the result: .*no-messages"):
        fitted_document([], CHAT, MANAGER, Budget(100))


def test_what_is_no_document_of_the_format_is_refused() -> None:
    with pytest.raises(InvalidPayload):
        fitted_document({"foo": 1}, CHAT, MANAGER, Budget(100))


def test_the_same_document_gives_the_same_bytes() -> None:
    assert json.dumps(fit(talk(12)).payload) == json.dumps(fit(copy.deepcopy(talk(12))).payload)


def test_a_program_with_nothing_but_a_list_fits_it_in_one_call() -> None:
    messages = [message for number in range(40) for message in turn(number)]
    for format in FORMATS:
        payload = format.render(CHAT.parse(messages))
        listed = payload[format.list_key]
        for given in (payload, listed):
            before = copy.deepcopy(given)
            short = turnstate.fit(given, budget=2_000)
            assert given == before
            assert type(short) is type(given)
            assert StateManager().count(format.parse(short)).tokens <= 2_000
            assert format.validate(short) == []
            assert turnstate.fit(given, 2_000, format=format.name) == short
            assert turnstate.fit(given, Budget(1_000_000)) is given


def test_what_an_sdk_returned_may_stand_in_the_list() -> None:
    from openai.types.chat import ChatCompletionMessage

    asked, *rest = turn(0)[1:]
    said = ChatCompletionMessage.model_validate(asked)
    short = turnstate.fit([*turn(1) * 40, turn(0)[0], said, *rest], 2_000)
    assert short[-3] == asked


def test_bytes_stay_bytes() -> None:
    image = {"image": {"format": "png", "source": {"bytes": b"\x89PNG"}}}
    said = [
        {"role": "user", "content": [{"text": "word " * 50}, image]},
        {"role": "assistant", "content": [{"text": "ok"}]},
    ]
    short = turnstate.fit([*said * 40, said[0]], 8_000)
    assert len(short) < 81
    assert short[-1]["content"][-1] == image


def test_a_list_that_is_not_of_the_named_format_is_refused() -> None:
    for name in ("gemini", "bedrock"):
        with pytest.raises(InvalidPayload):
            turnstate.fit([{"role": "assistant", "content": "hi"}], 10, format=name)
