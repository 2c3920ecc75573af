"""The SDKs of providers: one function for each, which creates a client and returns a model that uses it.

    openai(...)  anthropic(...)  gemini(...)  bedrock(...)  connect("name") ──► ProviderModel

An SDK is imported when its function is called. Its own retries are turned off, since `Retry` does them all.
Unless a key is given, the SDK reads it from its usual environment variable. Keys are never logged or stored,
and are removed from error messages.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterable, AsyncIterator
from importlib.util import find_spec
from typing import Any

import msgspec

from .. import wire_text
from ..errors import InputError, ModelFailed
from ..message import UNPARSED
from .cache_marks import marked_for_anthropic, marked_for_bedrock, takes_marks
from .endpoint import Endpoint, endpoint_of, provider_of
from .provider import ProviderModel
from .retry import Retry

OPENAI_TOOLS, GEMINI_TOOLS = 128, 512
"""How many tools these providers accept in a request; Anthropic and Bedrock document no limit."""


def openai(
    model: str,
    *,
    base_url: str | None = None,
    api_key: str | None = None,
    responses: bool = False,
    cache: bool | None = None,
    retry: Retry | None = None,
    **options: Any,
) -> ProviderModel:
    """Return a model of OpenAI, or of any endpoint that speaks its protocol.

    It uses the Chat Completions API, or the Responses API with `responses`. Options go into each request.
    With `cache`, each request names its session's cache key; by default it does so at OpenAI itself, since
    other endpoints may reject a field that they do not know.
    """
    try:
        from openai import AsyncOpenAI
    except ImportError:
        raise _missing("openai") from None
    client = AsyncOpenAI(base_url=base_url, api_key=api_key, max_retries=0)
    is_other = not _is_openai(client.base_url.host)  # of the client, since its variable may lead elsewhere

    async def send_chat(request: dict[str, Any]) -> AsyncIterable[Any]:
        usage = {"stream_options": {"include_usage": True}}
        given = usage | (_parsable(request) if is_other else request)
        stream: AsyncIterable[Any] = await client.chat.completions.create(**given, stream=True)
        return stream

    async def send_response(request: dict[str, Any]) -> AsyncIterable[Any]:
        given = _parsable(request) if is_other else request
        stream: AsyncIterable[Any] = await client.responses.create(**given, stream=True)
        return stream

    settings: dict[str, Any] = {
        "close": client.close,
        "retry": retry,
        "options": options,
        "secret": client.api_key,
        "url": str(client.base_url),
        "most_tools": None if is_other else OPENAI_TOOLS,
    }
    if not is_other if cache is None else cache:
        settings["cache_key"] = "prompt_cache_key"
    if responses:
        return ProviderModel(
            model,
            "openai-responses",
            send_response,
            limit=lambda most: {"max_output_tokens": most},
            shape=lambda schema: {"text": {"format": {"type": "json_schema", **_named(schema)}}},
            **settings,
        )
    name = "max_tokens" if is_other else "max_completion_tokens"  # other servers know the older name
    return ProviderModel(
        model,
        "openai-chat",
        send_chat,
        limit=lambda most: {name: most},
        shape=lambda schema: {"response_format": {"type": "json_schema", "json_schema": _named(schema)}},
        **settings,
    )


def _is_openai(host: str) -> bool:
    return host == "api.openai.com" or host.endswith(".api.openai.com")  # a region, such as eu


def _parsable(request: dict[str, Any]) -> dict[str, Any]:
    """Return a request in which the arguments of every call are valid JSON.

    OpenAI accepts what its model wrote, JSON or not. Other servers parse it, and would reject the
    conversation from then on.
    """
    if "input" in request:  # of the Responses API
        return request | {"input": [_mended(item) for item in request["input"]]}
    return request | {"messages": [_with_json_calls(message) for message in request["messages"]]}


def _with_json_calls(message: dict[str, Any]) -> dict[str, Any]:
    calls = message.get("tool_calls")
    if not calls:
        return message
    mended = [one | {"function": _mended(one["function"])} if "function" in one else one for one in calls]
    return message | {"tool_calls": mended}


def _mended(call: dict[str, Any]) -> dict[str, Any]:
    text = call.get("arguments")
    if not isinstance(text, str) or _is_json(text):
        return call
    return call | {"arguments": wire_text.json_text({UNPARSED: text})}


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except msgspec.DecodeError:
        return False
    return True


def anthropic(
    model: str,
    *,
    base_url: str | None = None,
    api_key: str | None = None,
    cache: bool = True,
    retry: Retry | None = None,
    **options: Any,
) -> ProviderModel:
    """Return a model of Anthropic; with `cache`, each request marks the prefixes that later ones reuse."""
    try:
        from anthropic import AsyncAnthropic
    except ImportError:
        raise _missing("anthropic") from None
    client = AsyncAnthropic(base_url=base_url, api_key=api_key, max_retries=0)

    async def send(request: dict[str, Any]) -> AsyncIterable[Any]:
        marked = marked_for_anthropic(request) if cache else request
        stream: AsyncIterable[Any] = await client.messages.create(**marked, stream=True)
        return stream

    return ProviderModel(
        model,
        "anthropic",
        send,
        limit=lambda most: {"max_tokens": most},
        shape=lambda schema: {"output_config": {"format": {"type": "json_schema", "schema": schema}}},
        close=client.close,
        retry=retry,
        options=options,
        secret=client.api_key,
        url=str(client.base_url),
    )


def gemini(
    model: str,
    *,
    base_url: str | None = None,
    api_key: str | None = None,
    retry: Retry | None = None,
    **options: Any,
) -> ProviderModel:
    """Return a model of Google Gemini."""
    try:
        from google import genai
    except ImportError:
        raise _missing("gemini") from None
    given: dict[str, Any] = {"http_options": {"base_url": base_url}, "vertexai": False} if base_url else {}
    client = genai.Client(api_key=api_key, **given)

    async def send(request: dict[str, Any]) -> AsyncIterable[Any]:
        stream: AsyncIterable[Any] = await client.aio.models.generate_content_stream(**request)
        return stream

    return ProviderModel(
        model,
        "gemini",
        send,
        limit=lambda most: {"generationConfig": {"maxOutputTokens": most}},
        close=client.aio.aclose,
        retry=retry,
        options=options,
        secret=api_key or os.environ.get("GOOGLE_API_KEY") or os.environ.get("GEMINI_API_KEY"),
        most_tools=GEMINI_TOOLS,
    )


def bedrock(
    model: str, *, client: Any = None, cache: bool | None = None, retry: Retry | None = None, **options: Any
) -> ProviderModel:
    """Return a model on Amazon Bedrock; `client` is a ``bedrock-runtime`` client, if not the default one.

    With `cache`, each request marks the prefixes that later ones reuse. By default it does so if the model is
    a Claude that accepts marks.
    """
    if client is None:
        try:
            import boto3
        except ImportError:
            raise _missing("bedrock") from None
        from botocore.config import Config

        once = Config(retries={"total_max_attempts": 1})  # `Retry` does the others
        client = boto3.client("bedrock-runtime", config=once)
    is_cached = takes_marks(model) if cache is None else cache

    async def send(request: dict[str, Any]) -> AsyncIterable[Any]:
        marked = marked_for_bedrock(request, tools="nova" not in model) if is_cached else request
        answer = await asyncio.to_thread(lambda: client.converse_stream(**marked))
        return _threaded(answer["stream"])

    return ProviderModel(
        model,
        "bedrock",
        send,
        limit=lambda most: {"inferenceConfig": {"maxTokens": most}},
        retry=retry,
        options=options,
    )


async def _threaded(stream: Any) -> AsyncIterator[Any]:
    """Read a blocking stream in a thread, and close it at the end."""
    chunks, end = iter(stream), object()
    try:
        while (chunk := await asyncio.to_thread(next, chunks, end)) is not end:
            yield chunk
    finally:
        if close := getattr(stream, "close", None):
            close()


def connect(address: str, *, api_key: str | None = None, endpoint: Endpoint | None = None) -> ProviderModel:
    """Return the model of an address: ``gpt-6.1-sol``, ``claude-sonnet-5-5``, ``qwen3@http://localhost:11434/v1``.

    An ``@`` is followed by the URL of an endpoint that speaks OpenAI's protocol. Without one, the name
    decides the provider: Claude is Anthropic's, Gemini is Google's, and anything else is OpenAI's. With an
    `endpoint`, requests go there and nowhere else, whatever the address and the environment say.
    """
    name, _, url = address.partition("@")
    here = endpoint_of(address)
    if endpoint is not None and endpoint != here:
        url, here = endpoint.url, endpoint
    match here.provider:
        case "openai" if url:
            key = api_key or os.environ.get("OPENAI_API_KEY", "none")
            return openai(name, base_url=url, api_key=key)
        case "openai":
            return openai(name, api_key=api_key)
        case "anthropic":
            return anthropic(name, base_url=url or None, api_key=api_key)
        case "gemini":
            return gemini(name, base_url=url or None, api_key=api_key)
        case "vertex" if not url:
            return gemini(name, api_key=api_key)
    raise InputError(f"{name} at {here} cannot be reached from this environment; name another model")


def check_installed(address: str) -> None:
    """Raise `ModelFailed` if a model's address needs a package that is not installed; import nothing."""
    provider = provider_of(address)
    for package in {"gemini": ("google", "google.genai")}.get(provider, (provider,)):
        if find_spec(package) is None:
            raise _missing(provider)


def _named(schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": "answer", "schema": schema, "strict": True}


def _missing(extra: str) -> ModelFailed:
    return ModelFailed(
        f"this model needs a package of its provider; install: pip install 'turnstate[{extra}]'"
    )
