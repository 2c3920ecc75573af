"""A provider's model: the format builds the request and reads the reply, an SDK sends it.

    ModelRequest ──► format.request ──► send ──► chunks ──► format.collector ──► events of the model port

A failed request is sent again if that may help: after a rate limit, a server error or a lost connection, even
in the middle of an answer. `Retry` says how often; `Retried` tells whoever shows the answer that it starts
over. A request that is too long for the model raises `RequestTooLong`, so that a caller can compact and try
again.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterator,
    Mapping,
)
from contextlib import aclosing
from typing import Any, Self

from .. import formats
from ..entry import Usage
from ..errors import ModelFailed, TooManyTools, TurnstateError
from ..formats.replies.reply import ReceivedMessage
from ..telemetry import TracedSpan, captures_content, message_texts, started
from .port import (
    Answered,
    Finished,
    FinishReason,
    ModelEvent,
    ModelRequest,
    Retried,
    TextDelta,
    UsageReported,
)
from .retry import Retry, asked_pause, described, failure, is_passing

Send = Callable[[dict[str, Any]], Awaitable[AsyncIterable[Any]]]
Limit = Callable[[int], dict[str, Any]]
Shape = Callable[[dict[str, Any]], dict[str, Any]]

_PROVIDERS = {
    "openai-chat": "openai",
    "openai-responses": "openai",
    "gemini": "gcp.gemini",
    "bedrock": "aws.bedrock",
}
"""OpenTelemetry's name of the provider by format, where it differs from the name of the format."""

_log = logging.getLogger(__name__)


class ProviderModel:
    """A model of a provider.

    `send` sends a request in the provider's format and returns the stream of the answer. `limit` returns the
    option that limits the tokens of an answer; `shape`, if given, returns the option that makes the answer
    JSON of a schema. `cache_key`, if given, is the name of the option for the request's cache key. `secret`
    is removed from error messages. `most_tools` is how many tools a request may offer; more raise
    `TooManyTools` before anything is sent.
    """

    def __init__(
        self,
        name: str,
        format: str,
        send: Send,
        *,
        limit: Limit,
        shape: Shape | None = None,
        cache_key: str | None = None,
        close: Callable[[], Awaitable[None]] | None = None,
        retry: Retry | None = None,
        options: Mapping[str, Any] | None = None,
        secret: str | None = None,
        most_tools: int | None = None,
        url: str = "",
    ) -> None:
        self.name, self._format, self._send, self._close = name, formats.get(format), send, close
        self._limit, self._shape, self._cache_key = limit, shape, cache_key
        self._most_tools = most_tools
        self._retry, self._options, self._secret = retry or Retry(), dict(options or {}), secret
        self.url = url
        """Where the SDK sends requests, if it says so."""

    @property
    def format(self) -> str:
        """The name of the format of the requests."""
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
        """Answer a request, event by event; send it again if it fails and that may help."""
        span = self._span(request)
        try:
            async with aclosing(self._attempts(request, span)) as events:
                async for event in events:
                    yield event
        except Exception as error:
            span.fail(type(error).__name__)
            raise
        finally:
            span.end()

    async def _attempts(self, request: ModelRequest, span: TracedSpan) -> AsyncGenerator[ModelEvent, None]:
        payload, retry, loop = self._payload(request), self._retry, asyncio.get_running_loop()
        until = None if retry.deadline is None else loop.time() + retry.deadline
        failures = 0
        while True:
            try:
                collector = self._format.collector()
                async with aclosing(self._chunks(payload, until, span)) as chunks:
                    async for chunk in chunks:
                        if text := collector.add(chunk):
                            yield TextDelta(text)
                reply = collector.reply()
                break
            except Exception as error:  # an SDK may raise anything
                failures += 1
                pause = retry.pause(failures, asked_pause(error))
                is_late = until is not None and loop.time() + pause >= until
                if failures >= retry.attempts or is_late or not is_passing(error):
                    raise self._failed(error, is_late=is_late) from self._shown(error)
                reason, kind = described(error, secret=self._secret), type(error).__name__
            # The text of an error may quote the prompt: it goes into the event, but is not logged or traced.
            _log.warning("%s failed (%s); attempt %d in %.1f s", self.name, kind, failures + 1, pause)
            span.event("turnstate.retry", {"turnstate.attempt": failures, "error.type": kind})
            yield Retried(attempt=failures, pause=pause, reason=reason)
            await asyncio.sleep(pause)
        finish = _reason(reply, request.max_output)
        _report(span, reply, finish)
        for event in _events(reply, finish):
            yield event

    def _span(self, request: ModelRequest) -> TracedSpan:
        attributes: dict[str, Any] = {
            "gen_ai.provider.name": _PROVIDERS.get(self.format, self.format),
            "gen_ai.request.model": self.name,
            "gen_ai.request.max_tokens": request.max_output,
            "gen_ai.output.type": "json" if request.schema is not None else None,
        }
        if captures_content():
            attributes["gen_ai.input.messages"] = message_texts(request.messages)
        return started("chat", self.name, attributes, kind="CLIENT")

    def _payload(self, request: ModelRequest) -> dict[str, Any]:
        if self._most_tools is not None and len(request.tools) > self._most_tools:
            raise TooManyTools(
                f"{self.name} accepts at most {self._most_tools} tools, and there are {len(request.tools)}"
            )
        options = {"model": self.name, **self._options}
        if request.max_output is not None:
            options |= self._limit(request.max_output)
        if request.schema is not None and self._shape:
            options |= self._shape(request.schema)
        if request.cache_key is not None and self._cache_key:
            options.setdefault(self._cache_key, request.cache_key)
        options |= request.settings
        return self._format.request(request.messages, tools=request.tools, **options)

    async def _chunks(
        self, payload: dict[str, Any], until: float | None, span: TracedSpan
    ) -> AsyncGenerator[Any, None]:
        """Send a request and yield the chunks of its answer; always release the connection."""
        loop = asyncio.get_running_loop()

        def limit() -> asyncio.Timeout:
            silent = loop.time() + self._retry.first_chunk
            return asyncio.timeout_at(silent if until is None else min(silent, until))

        async with limit():
            with span.current():
                stream = await self._send(payload)
        try:
            chunks = aiter(stream)
            while True:
                async with limit():
                    try:
                        chunk = await anext(chunks)
                    except StopAsyncIteration:
                        return
                yield chunk
        finally:
            await _close(stream)

    def _failed(self, error: Exception, *, is_late: bool) -> Exception:
        if isinstance(error, TimeoutError):
            most = self._retry.deadline if is_late else self._retry.first_chunk
            return ModelFailed(f"{self.name} did not answer within {most:g} seconds")
        if isinstance(error, TurnstateError) and not isinstance(error, ModelFailed):
            return error
        return failure(error, self.name, secret=self._secret)

    def _shown(self, error: Exception) -> Exception | None:
        """Return the cause to show in a traceback: None if it is our own error or contains the key."""
        hides = self._secret is not None and self._secret in str(error)
        return None if hides or isinstance(error, TurnstateError) else error


async def _close(stream: Any) -> None:
    """Close an SDK's stream, whether its method is called `aclose` or `close`."""
    close = getattr(stream, "aclose", None) or getattr(stream, "close", None)
    if close is not None and inspect.isawaitable(closing := close()):
        await closing


def _report(span: TracedSpan, reply: ReceivedMessage, finish: FinishReason) -> None:
    usage = reply.usage
    attributes: dict[str, Any] = {"gen_ai.response.finish_reasons": [finish]}
    if usage is not None:
        id = usage.details.get("id")
        attributes |= {
            "gen_ai.response.id": id if isinstance(id, str) else None,
            "gen_ai.response.model": usage.model or None,
            "gen_ai.usage.input_tokens": usage.input,
            "gen_ai.usage.output_tokens": usage.output,
            "gen_ai.usage.cache_read.input_tokens": usage.cached,
        }
    if captures_content():
        attributes["gen_ai.output.messages"] = message_texts([reply])
    span.set(attributes)


def _events(reply: ReceivedMessage, finish: FinishReason) -> Iterator[ModelEvent]:
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
    yield Finished(finish)


def _reason(reply: ReceivedMessage, most: int | None) -> FinishReason:
    usage = reply.usage or Usage()
    if usage.ended_early:
        return usage.ended_early
    if reply.tool_calls:
        return "tool_calls"
    is_full = most is not None and reply.usage is not None and usage.output >= most
    return (
        "length" if is_full and not usage.reasons else "stop"
    )  # some servers do not report a cut-off answer
