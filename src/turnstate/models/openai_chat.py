"""Models behind an endpoint that speaks OpenAI's Chat Completions: the service itself, or any server like it.

    model = OpenAiChatModel("gpt-4.1-mini")                                    # the key is in OPENAI_API_KEY
    model = OpenAiChatModel("qwen3", url="http://localhost:11434/v1")

A request is rendered and checked by the format ``openai-chat``, and its stream is read by it, so what a
window contains is what the provider accepts. The SDK repeats a request that failed before it was answered.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from .. import formats
from ..errors import InputError, InvalidPayload, ModelFailed
from .port import (
    Finished,
    FinishReason,
    ModelEvent,
    ModelRequest,
    TextDelta,
    ToolCallMade,
    UsageReported,
)

__all__ = ["OpenAiChatModel", "connect"]

_REASONS: dict[str, FinishReason] = {
    "stop": "stop",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "length": "length",
    "content_filter": "refusal",
}


class OpenAiChatModel:
    """A model by its name, at OpenAI or at another URL."""

    def __init__(
        self,
        name: str,
        *,
        url: str | None = None,
        key: str | None = None,
        timeout: float = 120.0,
        max_retries: int = 2,
    ) -> None:
        if not name:
            raise InputError("a model needs a name, such as gpt-4.1-mini")
        try:
            import openai  # an optional dependency
        except ModuleNotFoundError:
            raise InputError(
                "an OpenAI endpoint needs its package: pip install 'turnstate[openai]'"
            ) from None
        self.name = name
        self._format = formats.get("openai-chat")
        self._failures = openai.OpenAIError
        try:
            self._client = openai.AsyncOpenAI(
                base_url=url,
                api_key=key or ("none" if url else None),
                timeout=timeout,
                max_retries=max_retries,
            )
        except openai.OpenAIError as error:
            raise InputError(f"the endpoint of {name} cannot be used: {error}") from None

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Answer a request, event by event. Raise ModelFailed if the provider fails."""
        options: dict[str, Any] = {"model": self.name, "stream": True, **request.settings}
        options.setdefault("stream_options", {"include_usage": True})
        if request.max_output is not None:
            options.setdefault("max_completion_tokens", request.max_output)
        if request.schema is not None:
            shape = {"name": "answer", "schema": request.schema, "strict": True}
            options.setdefault("response_format", {"type": "json_schema", "json_schema": shape})
        sent = self._format.request(request.messages, tools=request.tools, **options)
        try:
            async with await self._client.chat.completions.create(**sent) as chunks:
                async for event in self._events(chunks):
                    yield event
        except self._failures as error:
            raise ModelFailed(f"{self.name} failed: {error}") from error

    async def _events(self, chunks: Any) -> AsyncIterator[ModelEvent]:
        collector, reason = self._format.collector(), ""
        async for chunk in chunks:
            if text := collector.add(chunk):
                yield TextDelta(text)
            for choice in chunk.choices or ():
                reason = choice.finish_reason or reason
        if not reason:
            return  # interrupted: whoever folds the stream says so
        try:
            reply = collector.reply()
        except InvalidPayload as error:
            raise ModelFailed(f"{self.name} sent a reply that cannot be read: {error}") from error
        for call in reply.tool_calls:
            yield ToolCallMade(call)
        if reply.usage is not None:
            usage = reply.usage
            yield UsageReported(input=usage.input, output=usage.output, cached=usage.cached)
        yield Finished(_REASONS.get(reason, "other"))

    async def close(self) -> None:
        """Close connections."""
        await self._client.close()


def connect(address: str) -> OpenAiChatModel:
    """Return the model of an address: its name, and after an ``@`` the URL of an endpoint."""
    name, _, url = address.partition("@")
    return OpenAiChatModel(name, url=url or None)
