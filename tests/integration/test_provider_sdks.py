"""What `turn.request` returns can be passed to five SDKs, whole or streamed; what arrives is accepted."""

from __future__ import annotations

import asyncio
import base64
import inspect
import json
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from typing import Any

import pytest

from tests.harness.provider_server import LocalServer, Sent
from tests.unit.formats.provider_replies import REPLIES, Reply
from turnstate import Budget, ImagePart, Message, TextPart, ToolSpec, formats
from turnstate.message import ToolCallResult
from turnstate.session import Pending, SessionManager
from turnstate.stores.memory import MemoryStore

pytestmark = [pytest.mark.req("A8"), pytest.mark.filterwarnings("default")]

PICTURE = b"\x89PNG\xff\xfe picture"
TOOLS = [ToolSpec(name=name, description=name) for name in ("look", "listen")]
WORDS = (TextPart("How is the sea?"), ImagePart(data=PICTURE, media_type="image/png"))
KEYS = {"aws_access_key_id": "id", "aws_secret_access_key": "secret", "region_name": "us-east-1"}

Ask = Callable[..., Any]


@contextmanager
def clients(url: str) -> Iterator[dict[str, Ask]]:
    """Yield the call of each SDK that takes a request, and close the connections afterwards."""
    import anthropic
    import boto3
    import openai
    from google import genai

    with (
        openai.OpenAI(base_url=f"{url}/v1", api_key="key", max_retries=0) as chat,
        anthropic.Anthropic(base_url=url, api_key="key", max_retries=0) as claude,
        closing(genai.Client(api_key="key", http_options={"base_url": url})) as gemini,
        closing(boto3.client("bedrock-runtime", endpoint_url=url, **KEYS)) as bedrock,
    ):
        yield {
            "openai-chat": chat.chat.completions.create,
            "openai-responses": chat.responses.create,
            "anthropic": claude.messages.create,
            "gemini": gemini.models.generate_content,
            "bedrock": bedrock.converse,
        }


class Script:
    """A provider that answers with one response after the other, and keeps the requests.

    A response that is a tuple of chunks is streamed: as AWS's event stream, or as server-sent events.
    """

    def __init__(self) -> None:
        self.responses: list[dict[str, Any] | tuple[dict[str, Any], ...]] = []
        self.requests: list[tuple[str, dict[str, Any]]] = []

    def answer(self, path: str, body: bytes) -> Sent:
        self.requests.append((path, json.loads(body)))
        response = self.responses.pop(0)
        if isinstance(response, dict):
            return Sent(200, written(response))
        if path.endswith("/converse-stream"):
            return Sent(200, b"".join(map(aws_event, response)), "application/vnd.amazon.eventstream")
        events = b"".join(b"data: " + written(chunk) + b"\r\n\r\n" for chunk in response)
        return Sent(200, events, "text/event-stream")


def written(value: Any) -> bytes:
    return json.dumps(value, default=lambda data: base64.b64encode(data).decode()).encode()


def aws_event(chunk: dict[str, Any]) -> bytes:
    """Return a chunk as AWS streams it: lengths and their checksum, headers, the body, a checksum."""
    ((kind, body),) = chunk.items()
    failed = kind.endswith("Exception")
    marks = {
        ":message-type": "exception" if failed else "event",
        ":exception-type" if failed else ":event-type": kind,
        ":content-type": "application/json",
    }
    headers = b"".join(
        bytes([len(name)]) + name.encode() + b"\x07" + len(value).to_bytes(2) + value.encode()
        for name, value in marks.items()
    )
    payload = written(body)
    lengths = (len(headers) + len(payload) + 16).to_bytes(4) + len(headers).to_bytes(4)
    whole = lengths + zlib.crc32(lengths).to_bytes(4) + headers + payload
    return whole + zlib.crc32(whole).to_bytes(4)


def test_every_sdk_takes_the_request_and_its_reply_goes_back() -> None:
    script = Script()
    with LocalServer(script.answer) as server, clients(server.url) as asks:
        for name, ask in asks.items():
            spoken, *_ = (one for one in REPLIES if one.provider == name and one.name == "text")
            for sample in (one for one in REPLIES if one.provider == name):
                script.requests.clear()
                script.responses[:] = [sample.response, spoken.response]
                messages = asyncio.run(conversation(name, ask, sample))
                assert messages[1].text == sample.text
                for path, request in script.requests:
                    check(name, path, request, sample.name)
                assert len(script.requests) == 2, (name, sample.name)
                sent = json.dumps(script.requests)
                alphabets = (base64.b64encode, base64.urlsafe_b64encode)
                assert any(encoded(PICTURE).decode() in sent for encoded in alphabets)


async def conversation(name: str, ask: Ask, sample: Reply, *, streamed: bool = False) -> list[Message]:
    """Take a turn with a sample's reply, and a second one if that reply ended the first."""
    session = await SessionManager(MemoryStore()).create(system="Be brief.")
    prompts = [Message.user(WORDS)] + [Message.user("And now?")] * (not sample.calls)
    for prompt in prompts:
        async with session.turn(prompt, budget=Budget(8_000), tools=TOOLS) as turn:
            while request := await turn.request(name, model="m"):
                answer = ask(**request)
                if inspect.isawaitable(answer):
                    answer = await answer
                for call in await (turn.collect(answer) if streamed else turn.reply(answer)):
                    await turn.result(call, call.error or "fog", is_error=bool(call.error))
    return await session.messages()


def check(name: str, path: str, request: dict[str, Any], sample: str) -> None:
    """Check a request as it came over the wire, by the rules for documents."""
    paths = {
        "openai-chat": "/v1/chat/completions",
        "openai-responses": "/v1/responses",
        "anthropic": "/v1/messages",
        "gemini": "/v1/models/m:generateContent",
        "bedrock": "/model/m/converse",
    }
    streams = {"gemini": "/v1/models/m:streamGenerateContent", "bedrock": "/model/m/converse-stream"}
    assert path in (paths[name], streams.get(name))
    assert formats.get(name).validate(request, request=True, strict=True) == [], (name, sample)
    assert "Be brief." in json.dumps(request)
    assert [tool.name for tool in formats.get(name).tools(request)] == ["look", "listen"], (name, request)


@asynccontextmanager
async def streams(url: str) -> AsyncIterator[dict[str, Ask]]:
    """Yield the calls that stream of the SDKs that the quick start does not use."""
    import boto3
    from google import genai

    with (
        closing(genai.Client(api_key="key", http_options={"base_url": url})) as client,
        closing(boto3.client("bedrock-runtime", endpoint_url=url, **KEYS)) as bedrock,
    ):
        async with client.aio as gemini:
            yield {
                "gemini": client.models.generate_content_stream,
                "gemini, async": gemini.models.generate_content_stream,
                "bedrock": bedrock.converse_stream,
            }


def test_streams_of_gemini_and_bedrock_are_the_replies_that_they_add_up_to() -> None:
    script = Script()

    async def scene(url: str) -> None:
        async with streams(url) as asks:
            for kind, ask in asks.items():
                name = kind.partition(",")[0]
                samples = [one for one in REPLIES if one.provider == name and one.chunks]
                for sample in samples:
                    script.requests.clear()
                    script.responses[:] = [sample.chunks, samples[0].chunks]
                    messages = await conversation(name, ask, sample, streamed=True)
                    assert said(messages[1]) == said(formats.get(name).reply(sample.response)), kind
                    for path, request in script.requests:
                        check(name, path, request, sample.name)
                    assert len(script.requests) == 2, (kind, sample.name)

    with LocalServer(script.answer) as server:
        asyncio.run(scene(server.url))


def said(message: Message) -> tuple[object, ...]:
    """Return what a message says, without our ids."""
    return message.content, [(call.name, call.args, call.provider_id) for call in message.tool_calls]


def test_a_stream_that_ends_with_an_error_leaves_the_prompt_pending() -> None:
    script = Script()
    failures = {
        "gemini": {"error": {"code": 503, "message": "overloaded", "status": "UNAVAILABLE"}},
        "bedrock": {"internalServerException": {"message": "overloaded"}},
    }

    async def scene(url: str) -> None:
        async with streams(url) as asks:
            for name, failure in failures.items():
                sample = next(one for one in REPLIES if one.provider == name and one.chunks)
                script.responses[:] = [(sample.chunks[0], failure)]
                session = await SessionManager(MemoryStore()).create()
                async with session.turn("How is the sea?", budget=Budget(8_000)) as turn:
                    request = await turn.request(name, model="m") or {}
                    with pytest.raises(Exception, match="overloaded"):
                        await turn.collect(asks[name](**request))
                waiting = await session.pending()
                assert waiting is not None
                assert [waiting.prompt] == await session.messages()

    with LocalServer(script.answer) as server:
        asyncio.run(scene(server.url))


def test_a_turn_that_anthropic_paused_goes_on_with_the_next_request_also_in_another_process() -> None:
    """The service ran its own tools, stopped in the middle, and wants its reply back as it is."""
    searched = {
        "type": "server_tool_use",
        "id": "srvtoolu_1",
        "name": "web_search",
        "input": {"query": "sea"},
    }
    spoken, *_ = (one.response for one in REPLIES if (one.provider, one.name) == ("anthropic", "text"))
    content = [{"type": "text", "text": "Let me search."}, searched]
    paused = {**spoken, "content": content, "stop_reason": "pause_turn"}
    script = Script()

    async def scene(ask: Ask) -> None:
        store = MemoryStore()
        session = await SessionManager(store).create(id="s1")
        async with session.turn("How is the sea?", budget=Budget(8_000)) as turn:
            for _ in range(2):
                assert await turn.reply(ask(**await turn.request("anthropic", model="m") or {})) == ()
        session = await SessionManager(store).open("s1")
        assert await session.pending() == Pending(paused=True)
        async with session.turn(budget=Budget(8_000)) as turn:
            while request := await turn.request("anthropic", model="m"):
                await turn.reply(ask(**request))
        assert await session.pending() is None
        assert [one.role for one in await session.messages()] == ["user"] + ["assistant"] * 3

    with LocalServer(script.answer) as server, clients(server.url) as asks:
        script.responses[:] = [paused, paused, spoken]
        asyncio.run(scene(asks["anthropic"]))
    for number, (_, request) in enumerate(script.requests):
        _, *replies = request["messages"]
        assert [block for one in replies for block in one["content"]] == content * number


def test_signatures_and_redacted_thoughts_arrive_as_they_were_sent() -> None:
    for name, marks in {
        "gemini": {"thoughtSignature": "c2ln"},
        "bedrock": {"redactedContent": "ZGF0YQ=="},
    }.items():
        script = Script()
        with LocalServer(script.answer) as server, clients(server.url) as asks:
            sample = next(one for one in REPLIES if one.provider == name and one.calls)
            script.responses[:] = [
                sample.response,
                next(one for one in REPLIES if one.provider == name).response,
            ]
            asyncio.run(conversation(name, asks[name], sample))
            sent = json.dumps(script.requests[1][1])
            assert all(f'"{key}": "{value}"' in sent for key, value in marks.items()), sent


def test_a_call_of_another_model_carries_the_signature_that_skips_validation() -> None:
    """Its text is the base64 of some bytes, which is how the SDK takes it and writes it again."""
    script = Script()
    called = formats.get("openai-chat").reply(next(one for one in REPLIES if one.calls).response)
    results = Message.tool([ToolCallResult.of(call.id, "fog") for call in called.tool_calls])
    request = formats.get("gemini").request([Message.user("How?"), called, results], tools=TOOLS, model="m")
    with LocalServer(script.answer) as server, clients(server.url) as asks:
        script.responses[:] = [next(one for one in REPLIES if one.provider == "gemini").response]
        asks["gemini"](**request)
    assert '"thoughtSignature": "skip_thought_signature_validator"' in json.dumps(script.requests)
