"""What `turn.request` returns can be passed to five SDKs, and what arrives is what the provider accepts."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable
from typing import Any

import pytest
from provider_replies import REPLIES, Reply
from provider_server import LocalServer, Sent

from turnstate import Budget, ImagePart, Message, TextPart, ToolSpec, formats
from turnstate.message import ToolCallResult
from turnstate.session import SessionManager
from turnstate.stores.memory import MemoryStore

pytestmark = [pytest.mark.req("A8"), pytest.mark.filterwarnings("default")]

PICTURE = b"\x89PNG\xff\xfe picture"
TOOLS = [ToolSpec(name=name, description=name) for name in ("look", "listen")]
WORDS = (TextPart("How is the sea?"), ImagePart(data=PICTURE, media_type="image/png"))

Ask = Callable[..., Any]


def clients(url: str) -> dict[str, Ask]:
    """Return the call of each SDK that takes a request."""
    import anthropic
    import boto3
    import openai
    from google import genai

    chat = openai.OpenAI(base_url=f"{url}/v1", api_key="key", max_retries=0)
    claude = anthropic.Anthropic(base_url=url, api_key="key", max_retries=0)
    gemini = genai.Client(api_key="key", http_options={"base_url": url})
    keys = {"aws_access_key_id": "id", "aws_secret_access_key": "secret", "region_name": "us-east-1"}
    bedrock = boto3.client("bedrock-runtime", endpoint_url=url, **keys)
    return {
        "openai-chat": chat.chat.completions.create,
        "openai-responses": chat.responses.create,
        "anthropic": claude.messages.create,
        "gemini": lambda **request: gemini.models.generate_content(**request),  # it must stay alive
        "bedrock": bedrock.converse,
    }


class Script:
    """A provider that answers with one response after the other, and keeps the requests."""

    def __init__(self) -> None:
        self.responses: list[dict[str, Any]] = []
        self.requests: list[tuple[str, dict[str, Any]]] = []

    def answer(self, path: str, body: bytes) -> Sent:
        self.requests.append((path, json.loads(body)))
        response = self.responses.pop(0)
        return Sent(200, json.dumps(response, default=lambda data: base64.b64encode(data).decode()).encode())


def test_every_sdk_takes_the_request_and_its_reply_goes_back() -> None:
    script = Script()
    with LocalServer(script.answer) as server:
        for name, ask in clients(server.url).items():
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


async def conversation(name: str, ask: Ask, sample: Reply) -> list[Message]:
    """Take a turn with a sample's reply, and a second one if that reply ended the first."""
    session = await SessionManager(MemoryStore()).create(system="Be brief.")
    prompts = [Message.user(WORDS)] + [Message.user("And now?")] * (not sample.calls)
    for prompt in prompts:
        async with session.turn(prompt, budget=Budget(8_000), tools=TOOLS) as turn:
            while request := await turn.request(name, model="m"):
                for call in await turn.reply(ask(**request)):
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
    assert path == paths[name]
    assert formats.get(name).validate(request, request=True, strict=True) == [], (name, sample)
    assert "Be brief." in json.dumps(request)
    assert [tool.name for tool in formats.get(name).tools(request)] == ["look", "listen"], (name, request)


def test_signatures_and_redacted_thoughts_arrive_as_they_were_sent() -> None:
    for name, marks in {
        "gemini": {"thoughtSignature": "c2ln"},
        "bedrock": {"redactedContent": "ZGF0YQ=="},
    }.items():
        script = Script()
        with LocalServer(script.answer) as server:
            ask = clients(server.url)[name]
            sample = next(one for one in REPLIES if one.provider == name and one.calls)
            script.responses[:] = [
                sample.response,
                next(one for one in REPLIES if one.provider == name).response,
            ]
            asyncio.run(conversation(name, ask, sample))
            sent = json.dumps(script.requests[1][1])
            assert all(f'"{key}": "{value}"' in sent for key, value in marks.items()), sent


def test_a_call_of_another_model_carries_the_signature_that_skips_validation() -> None:
    """Its text is the base64 of some bytes, which is how the SDK takes it and writes it again."""
    script = Script()
    called = formats.get("openai-chat").reply(next(one for one in REPLIES if one.calls).response)
    results = Message.tool([ToolCallResult.of(call.id, "fog") for call in called.tool_calls])
    request = formats.get("gemini").request([Message.user("How?"), called, results], tools=TOOLS, model="m")
    with LocalServer(script.answer) as server:
        script.responses[:] = [next(one for one in REPLIES if one.provider == "gemini").response]
        clients(server.url)["gemini"](**request)
    assert '"thoughtSignature": "skip_thought_signature_validator"' in json.dumps(script.requests)
