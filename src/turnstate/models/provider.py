"""Models behind the SDKs of their providers: the format makes the request and reads the reply.

    openai(...)  anthropic(...)  gemini(...)  bedrock(...)  ──►  ProviderModel  ──►  events of the model port

A request that fails before anything of its answer has arrived is sent again: after a rate limit, an error of
the server or a lost connection, with growing pauses, or as long as the provider says in ``Retry-After``. Once
an answer has begun, it is not repeated; it ends with `ModelFailed`. A request that is too long for the model
raises `RequestTooLong`, so that a caller can compact and try again.

Keys are read by the SDKs from their usual environment variables unless they are given; they are never logged
and never stored.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Self

from msgspec import Struct

from .. import formats
from ..errors import ModelFailed, RequestTooLong, TurnstateError
from ..formats.replies.reply import ReceivedMessage
from ..value import check_number, check_whole
from .port import Answered, Finished, FinishReason, ModelEvent, ModelRequest, TextDelta, UsageReported

__all__ = ["ProviderModel", "Retry", "anthropic", "bedrock", "connect", "gemini", "openai"]

Send = Callable[[dict[str, Any]], Awaitable[AsyncIterable[Any]]]
Limit = Callable[[int], dict[str, Any]]
Shape = Callable[[dict[str, Any]], dict[str, Any]]

ANTHROPIC_OUTPUT = 8_192
"""Tokens of an answer if nothing else is said: Anthropic demands a limit."""

_TOO_LONG = re.compile(
    r"context.?(length|window|size)|maximum context|prompt is too long|input is too long|too many tokens"
    r"|exceeds the maximum number of tokens|input length and .?max_tokens",
    re.IGNORECASE,
)
_LENGTH = frozenset(
    {"length", "max_tokens", "max_output_tokens", "MAX_TOKENS", "model_context_window_exceeded"}
)
_REFUSAL = frozenset({"refusal", "content_filter", "SAFETY", "PROHIBITED_CONTENT", "guardrail_intervened"})
_REASONS = ("finish_reason", "stop_reason", "stopReason", "finishReason", "reason")


class Retry(Struct, frozen=True, kw_only=True):
    """How often and how long a request is tried; times are in seconds."""

    attempts: int = 5
    first_pause: float = 0.5
    longest_pause: float = 30.0
    first_chunk: float = 120.0
    """How long the first part of an answer may take, and each pause between two parts."""

    def __post_init__(self) -> None:
        check_whole("Retry.attempts", self.attempts, least=1)
        for name in ("first_pause", "longest_pause", "first_chunk"):
            check_number(f"Retry.{name}", getattr(self, name), least=0, most=86_400)

    def pause(self, failures: int, asked: float | None) -> float:
        """Return how long to wait after so many failures: what the provider asked for, or twice as long."""
        if asked is not None:
            return min(asked, self.longest_pause)
        pause: float = min(self.longest_pause, self.first_pause * 2 ** (failures - 1))
        return pause * random.uniform(0.5, 1.0)  # noqa: S311 - so that many clients do not come back at once


class ProviderModel:
    """A model of a provider.

    `send` sends a request of its format and returns the stream of the answer. `limit` returns the option that
    limits the tokens of an answer, and `shape` the one that makes it JSON of a schema, if there is one.
    """

    def __init__(
        self,
        name: str,
        format: str,
        send: Send,
        *,
        limit: Limit,
        shape: Shape | None = None,
        close: Callable[[], Awaitable[None]] | None = None,
        retry: Retry | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.name, self._format, self._send, self._close = name, formats.get(format), send, close
        self._limit, self._shape = limit, shape
        self._retry, self._options = retry or Retry(), dict(options or {})

    @property
    def format(self) -> str:
        """The name of the format of its requests."""
        return self._format.name

    async def close(self) -> None:
        """Close the connections to the provider; ``async with`` does it at the end of a block."""
        if self._close:
            await self._close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Answer a request, event by event."""
        payload = self._payload(request)
        collector = self._format.collector()
        try:
            async for chunk in self._chunks(payload):
                if text := collector.add(chunk):
                    yield TextDelta(text)
            reply = collector.reply()
        except TurnstateError:
            raise
        except Exception as error:  # an SDK may raise anything
            raise self._failed(error) from error
        for event in _events(reply):
            yield event

    def _payload(self, request: ModelRequest) -> dict[str, Any]:
        options = {"model": self.name, **self._options}
        if request.max_output is not None:
            options |= self._limit(request.max_output)
        if request.schema is not None and self._shape:
            options |= self._shape(request.schema)
        options |= request.settings
        return self._format.request(request.messages, tools=request.tools, **options)

    async def _chunks(self, payload: dict[str, Any]) -> AsyncIterator[Any]:
        """Yield the parts of an answer; send the request again while none has arrived."""
        failures = 0
        while True:
            begun = False
            try:
                async with asyncio.timeout(self._retry.first_chunk) as limit:
                    async for chunk in await self._send(payload):
                        begun = True
                        limit.reschedule(None)
                        yield chunk
                        limit.reschedule(asyncio.get_running_loop().time() + self._retry.first_chunk)
                return
            except TurnstateError:
                raise
            except Exception as error:
                failures += 1
                if begun or failures >= self._retry.attempts or not _is_passing(error):
                    raise
                await asyncio.sleep(self._retry.pause(failures, _asked_pause(error)))

    def _failed(self, error: Exception) -> ModelFailed:
        if isinstance(error, TimeoutError):
            return ModelFailed(f"{self.name} did not answer within {self._retry.first_chunk:g} seconds")
        text = f"{self.name}: {type(error).__name__}: {_first_line(error)}"
        if _status(error) in (400, 413, None) and _TOO_LONG.search(str(error)):
            return RequestTooLong(text)
        return ModelFailed(text)


def openai(
    model: str,
    *,
    base_url: str | None = None,
    api_key: str | None = None,
    responses: bool = False,
    retry: Retry | None = None,
    **options: Any,
) -> ProviderModel:
    """Return a model of OpenAI, or of any endpoint that speaks its protocol.

    The Chat Completions API is used, or the Responses API with `responses`. Options go to each request.
    """
    try:
        from openai import AsyncOpenAI
    except ImportError:
        raise _missing("openai") from None
    client = AsyncOpenAI(base_url=base_url, api_key=api_key, max_retries=0)

    async def send_chat(request: dict[str, Any]) -> AsyncIterable[Any]:
        usage = {"stream_options": {"include_usage": True}}
        stream: AsyncIterable[Any] = await client.chat.completions.create(**usage | request, stream=True)
        return stream

    async def send_response(request: dict[str, Any]) -> AsyncIterable[Any]:
        stream: AsyncIterable[Any] = await client.responses.create(**request, stream=True)
        return stream

    settings: dict[str, Any] = {"close": client.close, "retry": retry, "options": options}
    if responses:
        return ProviderModel(
            model,
            "openai-responses",
            send_response,
            limit=lambda most: {"max_output_tokens": most},
            shape=lambda schema: {"text": {"format": {"type": "json_schema", **_named(schema)}}},
            **settings,
        )
    name = "max_tokens" if base_url else "max_completion_tokens"  # other servers know the older name
    return ProviderModel(
        model,
        "openai-chat",
        send_chat,
        limit=lambda most: {name: most},
        shape=lambda schema: {"response_format": {"type": "json_schema", "json_schema": _named(schema)}},
        **settings,
    )


def anthropic(
    model: str,
    *,
    base_url: str | None = None,
    api_key: str | None = None,
    cache: bool = True,
    retry: Retry | None = None,
    **options: Any,
) -> ProviderModel:
    """Return a model of Anthropic; with `cache`, the provider caches the prefix that requests share."""
    try:
        from anthropic import AsyncAnthropic
    except ImportError:
        raise _missing("anthropic") from None
    client = AsyncAnthropic(base_url=base_url, api_key=api_key, max_retries=0)

    async def send(request: dict[str, Any]) -> AsyncIterable[Any]:
        marker = {"cache_control": {"type": "ephemeral"}} if cache else {}
        stream: AsyncIterable[Any] = await client.messages.create(**marker | request, stream=True)
        return stream

    options.setdefault("max_tokens", ANTHROPIC_OUTPUT)
    return ProviderModel(
        model,
        "anthropic",
        send,
        limit=lambda most: {"max_tokens": most},
        shape=lambda schema: {"output_config": {"format": {"type": "json_schema", "schema": schema}}},
        close=client.close,
        retry=retry,
        options=options,
    )


def gemini(
    model: str, *, api_key: str | None = None, retry: Retry | None = None, **options: Any
) -> ProviderModel:
    """Return a model of Google Gemini."""
    try:
        from google import genai
    except ImportError:
        raise _missing("gemini") from None
    client = genai.Client(api_key=api_key)

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
    )


def bedrock(model: str, *, client: Any = None, retry: Retry | None = None, **options: Any) -> ProviderModel:
    """Return a model on Amazon Bedrock; `client` is one of ``bedrock-runtime``, if not the default."""
    if client is None:
        try:
            import boto3
        except ImportError:
            raise _missing("bedrock") from None
        client = boto3.client("bedrock-runtime")

    async def send(request: dict[str, Any]) -> AsyncIterable[Any]:
        answer = await asyncio.to_thread(lambda: client.converse_stream(**request))
        return _threaded(iter(answer["stream"]))

    return ProviderModel(
        model,
        "bedrock",
        send,
        limit=lambda most: {"inferenceConfig": {"maxTokens": most}},
        retry=retry,
        options=options,
    )


async def _threaded(chunks: Iterator[Any]) -> AsyncIterator[Any]:
    """Read a blocking stream in a thread."""
    end = object()
    while (chunk := await asyncio.to_thread(next, chunks, end)) is not end:
        yield chunk


def _events(reply: ReceivedMessage) -> Iterator[ModelEvent]:
    yield Answered(reply.without_usage)
    usage = reply.usage
    if usage is not None and (usage.input or usage.output):
        yield UsageReported(
            input=usage.input,
            output=usage.output,
            cached=usage.cached,
            model=usage.model,
            details=usage.details,
        )
    yield Finished(_reason(reply))


def _reason(reply: ReceivedMessage) -> FinishReason:
    details = reply.usage.details if reply.usage else {}
    said = {details[name] for name in _REASONS if isinstance(details.get(name), str)}
    if said & _LENGTH:
        return "length"
    if said & _REFUSAL:
        return "refusal"
    return "tool_calls" if reply.tool_calls else "stop"


def connect(address: str) -> ProviderModel:
    """Return the model of an address: ``gpt-5``, ``claude-sonnet-4-5``, ``qwen3@http://localhost:11434/v1``.

    After an ``@`` is the URL of an endpoint that speaks OpenAI's protocol. Without one, the name says which
    provider has the model: Claude is Anthropic's, Gemini Google's, and any other OpenAI's.
    """
    name, _, url = address.partition("@")
    if url:
        return openai(name, base_url=url, api_key=os.environ.get("OPENAI_API_KEY", "none"))
    if name.startswith("claude"):
        return anthropic(name)
    return gemini(name) if name.startswith("gemini") else openai(name)


def _named(schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": "answer", "schema": schema, "strict": True}


def _status(error: Exception) -> int | None:
    """Return the HTTP status of an error of any SDK."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):  # botocore's
        return int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)) or None
    for name in ("status_code", "code"):
        if isinstance(status := getattr(error, name, None), int):
            return status
    return None


def _is_passing(error: Exception) -> bool:
    """Return True if an error may be gone when the request is sent again."""
    if isinstance(error, TimeoutError | ConnectionError):
        return True
    status = _status(error)
    if status is not None:
        return status in (408, 409, 425, 429) or status >= 500
    return any(
        word in type(error).__name__ for word in ("Connection", "Connect", "Timeout", "Protocol", "Network")
    )


def _asked_pause(error: Exception) -> float | None:
    """Return the seconds that the provider asks to wait, if it does."""
    response = getattr(error, "response", None)
    headers: Any = getattr(response, "headers", None)
    with suppress(AttributeError, TypeError, ValueError):
        if (ms := headers.get("retry-after-ms")) is not None:
            return max(0.0, float(ms) / 1_000)
        return max(0.0, float(headers.get("retry-after")))
    return None


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or ["no message"])[0][:500]


def _missing(extra: str) -> ModelFailed:
    return ModelFailed(
        f"this model needs a package of its provider; install: pip install 'turnstate[{extra}]'"
    )
