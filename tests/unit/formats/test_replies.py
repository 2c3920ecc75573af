"""The way back from a provider: what the SDK returned becomes a message, and goes back as it came."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.unit.formats.provider_replies import REPLIES, sdk_object
from turnstate import Budget, Message, StateManager, ToolSpec, codec, errors, formats, ids
from turnstate.formats import ReceivedMessage
from turnstate.message import ToolCallRequest, ToolCallResult

pytestmark = pytest.mark.req("A4", "A8")

TOOLS = [ToolSpec(name="look"), ToolSpec(name="listen")]
QUESTION = Message.user("How is the sea?")


def conversation(reply: Message) -> list[Message]:
    """Return a reply with a question, and with answers to its calls, as a request has it."""
    results = [ToolCallResult.of(call.id, "fog") for call in reply.tool_calls]
    return [QUESTION, reply, Message.tool(results) if results else Message.user("Go on.")]


def content(message: Message) -> tuple[Any, ...]:
    """Return what a message says, without its ids."""
    calls = [(call.name, call.args, call.raw, call.provider_id) for call in message.tool_calls]
    usage = message.usage if isinstance(message, ReceivedMessage) else None
    edits = sorted(message.native.edits, key=str) if message.native else None
    return message.role, message.content, calls, edits, usage


def test_a_response_becomes_a_message_whether_it_is_an_object_or_json() -> None:
    for sample in REPLIES:
        provider = formats.get(sample.provider)
        for response in (sdk_object(sample.provider, sample.response), copy.deepcopy(sample.response)):
            reply = provider.reply(response)
            assert (reply.role, reply.text) == ("assistant", sample.text), sample.name
            assert tuple((call.name, call.args) for call in reply.tool_calls) == sample.calls, sample.name
            assert tuple(call.raw for call in reply.tool_calls if call.error) == sample.bad
            assert reply.usage is not None
            assert (reply.usage.input, reply.usage.output, reply.usage.cached) == sample.usage


def test_a_dumped_response_is_the_response() -> None:
    for sample in REPLIES:
        found = sdk_object(sample.provider, sample.response)
        dumped = found if isinstance(found, dict) else found.model_dump()
        provider = formats.get(sample.provider)
        assert content(provider.reply(dumped)) == content(provider.reply(found)), sample.name


def test_each_reply_has_ids_and_a_time_of_its_own() -> None:
    for sample in REPLIES:
        replies = [formats.get(sample.provider).reply(sample.response) for _ in range(2)]
        named = [[one.id, *(call.id for call in one.tool_calls)] for one in replies]
        assert len({id for one in named for id in one}) == 2 * len(named[0])
        assert not any(ids.is_derived(id) for one in named for id in one)
        assert all(one.timestamp > "2020" for one in replies)
        assert [[call.parsed_id for call in one.tool_calls] for one in replies] == [
            [None] * len(sample.calls)
        ] * 2


def test_a_reply_goes_back_to_its_provider_and_to_every_other() -> None:
    for sample in REPLIES:
        reply = formats.get(sample.provider).reply(sdk_object(sample.provider, sample.response))
        for name in formats.names():
            target = formats.get(name)
            request = target.request(conversation(reply), tools=TOOLS, model="m")
            assert isinstance(request, dict)
            payload = target.render(conversation(reply), tools=TOOLS)
            assert target.validate(payload, request=True) == [], (sample.name, name)
            assert target.warnings(payload) == [], (sample.name, name)


def test_chunks_add_up_to_the_reply() -> None:
    streamed = [sample for sample in REPLIES if sample.chunks]
    assert {sample.provider for sample in streamed} == set(formats.names())
    for sample in streamed:
        provider = formats.get(sample.provider)
        whole = content(provider.reply(sample.response))
        for chunks in (
            sample.chunks,
            [sdk_object(sample.provider, one, chunk=True) for one in sample.chunks],
        ):
            heard: list[str] = []
            reply = provider.collect(copy.deepcopy(chunks), on_text=heard.append)
            assert without_request_id(content(reply)) == without_request_id(whole), sample.name
            assert (
                "".join(heard) == (sample.text if "refusal" not in sample.name else "")
                or sample.name == "audio"
            )

            async def stream(chunks: Any = chunks) -> AsyncIterator[Any]:
                for chunk in copy.deepcopy(chunks):
                    yield chunk

            assert content(asyncio.run(provider.collect(stream()))) == content(reply)


def without_request_id(said: tuple[Any, ...]) -> tuple[Any, ...]:
    """Leave out the id of the HTTP request, which boto3 has outside of the stream."""
    *rest, usage = said
    return (
        *rest,
        {key: value for key, value in usage.details.items() if key != "id"},
        usage.input,
        usage.output,
    )


def test_a_stream_that_breaks_off_is_no_reply() -> None:
    for sample in REPLIES:
        provider = formats.get(sample.provider)
        for end in range(len(sample.chunks) - 2):
            with pytest.raises(errors.ModelFailed, match="before the reply was complete"):
                provider.collect(copy.deepcopy(sample.chunks[:end]))


def test_a_response_that_says_what_went_wrong_is_an_error() -> None:
    failed = {"error": {"message": "overloaded", "type": "server_error"}}
    for name in formats.names():
        with pytest.raises(errors.ModelFailed, match="overloaded"):
            formats.get(name).reply(failed)
        for odd in ({}, {"messages": []}, {"choices": []}, [], 7, "text", None, object()):
            with pytest.raises(errors.InvalidPayload):
                formats.get(name).reply(odd)
    with pytest.raises(errors.ModelFailed, match="blocked the prompt: SAFETY"):
        formats.get("gemini").reply({"candidates": [], "promptFeedback": {"blockReason": "SAFETY"}})


def test_arguments_that_are_not_json_go_back_as_they_came() -> None:
    for sample in (one for one in REPLIES if one.bad):
        provider = formats.get(sample.provider)
        reply = provider.reply(sample.response)
        assert all("look" in (call.error or "") for call in reply.tool_calls)
        sent = str(provider.render(conversation(reply)))
        assert all(repr(raw)[1:-1] in sent for raw in sample.bad)
        again = formats.get("anthropic").parse(formats.get("anthropic").render(conversation(reply)))
        assert [call.raw for call in again[1].tool_calls] == list(sample.bad)


@pytest.mark.filterwarnings("default")
def test_a_request_is_taken_by_the_sdk() -> None:
    """The SDKs check little; what they do check is done here, and the rest by the provider's rules."""
    import botocore.session
    from botocore.validate import ParamValidator
    from google.genai import types

    converse = botocore.session.get_session().get_service_model("bedrock-runtime").operation_model("Converse")
    for sample in REPLIES:
        reply = formats.get(sample.provider).reply(sample.response)
        gemini = formats.get("gemini").request(conversation(reply), tools=TOOLS, model="m", temperature=0.5)
        assert gemini.keys() == {"model", "contents", "config"}
        config = types.GenerateContentConfig.model_validate(gemini["config"])
        assert config.temperature == 0.5
        assert [types.Content.model_validate(one) for one in gemini["contents"]]
        bedrock = formats.get("bedrock").request(conversation(reply), tools=TOOLS, model="m")
        assert not ParamValidator().validate(bedrock, converse.input_shape).has_errors()


def test_a_request_holds_what_was_asked_for_and_no_more() -> None:
    said = [Message.system("Be brief.", kind="prompt"), QUESTION]
    chat = formats.get("openai-chat").request(said, tools=TOOLS, model="m", temperature=0)
    assert chat.keys() == {"messages", "tools", "model", "temperature"}
    assert formats.get("openai-chat").request(said).keys() == {"messages"}
    anthropic = formats.get("anthropic").request(said, model="m")
    assert (anthropic["system"], anthropic["max_tokens"]) == ("Be brief.", 8_192)
    assert formats.get("anthropic").request(said, model="m", max_tokens=9)["max_tokens"] == 9
    for model, most in (
        ("claude-3-haiku", 4_096),
        ("claude-sonnet-5-5", 20_000),
        ("claude-sonnet-9", 20_000),
    ):
        assert formats.get("anthropic").request(said, model=model)["max_tokens"] == most
    gemini = formats.get("gemini").request(said, config={"temperature": 0})
    assert gemini["config"] == {"system_instruction": {"parts": [{"text": "Be brief."}]}, "temperature": 0}
    assert formats.get("bedrock").request(said, model="m")["modelId"] == "m"
    assert formats.get("openai-responses").request(said, model="m").keys() == {"input", "model"}


def test_a_request_that_the_provider_would_reject_is_an_error() -> None:
    torn = Message.tool([ToolCallResult.of("call_9", "fog")])
    for name in formats.names():
        with pytest.raises(errors.InvalidConversation, match=f"{name} would reject the request"):
            formats.get(name).request([torn, QUESTION])
        with pytest.raises(errors.InvalidSetting, match="is built from the messages argument"):
            formats.get(name).request([QUESTION], **{formats.get(name).list_key: []})


def test_thinking_is_off_where_another_model_called_the_tools() -> None:
    called = next(one for one in REPLIES if one.name == "parallel tools")
    foreign = formats.get("openai-chat").reply(called.response)
    thought = next(one for one in REPLIES if one.name.startswith("thinking"))
    own = formats.get("anthropic").reply(thought.response)
    thinking = {"type": "enabled", "budget_tokens": 1_024}
    for reply, kept in ((foreign, False), (own, True)):
        request = formats.get("anthropic").request(conversation(reply), model="m", thinking=thinking)
        assert ("thinking" in request) is kept


def test_calls_that_were_stored_with_their_text_as_an_argument_are_read_as_before() -> None:
    stored = Message.assistant(tool_calls=[ToolCallRequest(name="look", args={"_unparsed": "{oops"})])
    (call,) = codec.decode(codec.encode(stored)).tool_calls
    assert "not valid JSON" in (call.error or "")
    request = formats.get("openai-chat").request(conversation(stored))
    assert request["messages"][1]["tool_calls"][0]["function"]["arguments"] == "{oops"
    assert ToolCallRequest(name="look", args={"_unparsed": 7}).error is None


def test_reasoning_that_the_service_keeps_is_not_named_where_it_keeps_nothing() -> None:
    responses = formats.get("openai-responses")
    for sample in (one for one in REPLIES if one.provider == "openai-responses" and "reasoning" in one.name):
        said = conversation(responses.reply(sample.response))
        for store in (True, False):
            items = responses.request(said, tools=TOOLS, store=store)["input"]
            thoughts = [item for item in items if item["type"] == "reasoning"]
            assert all(store or "encrypted_content" in item for item in thoughts)
        assert any(item["type"] == "reasoning" for item in responses.request(said)["input"])


def test_a_reply_is_written_as_the_message_that_it_is() -> None:
    for sample in REPLIES:
        reply = formats.get(sample.provider).reply(sample.response)
        assert codec.kind_of(reply) == "message"
        assert codec.decode(codec.encode(reply)) == reply.without_usage
        taken = StateManager().snapshot([QUESTION, reply])
        assert type(taken).from_json(taken.to_json()).messages[-1] == reply.without_usage
        assert StateManager().window([QUESTION, reply], Budget(8_000)).tokens > 0


@pytest.mark.req("A6")
def test_a_response_that_is_too_deep_or_contains_itself_is_refused() -> None:
    deep: list[Any] = []
    for _ in range(10_000):
        deep = [deep]
    itself: dict[str, Any] = {}
    itself["choices"] = itself
    for name in formats.names():
        for response in (deep, itself):
            with pytest.raises(errors.TooLarge):
                formats.get(name).reply(response)


def test_the_name_of_a_format_is_text() -> None:
    for name in (None, 5, ["openai-chat"], 10**5_000):
        with pytest.raises(errors.UnknownName):
            formats.get(name)  # type: ignore[arg-type]
