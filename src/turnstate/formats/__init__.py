"""Provider formats: read, render and validate the documents of five provider APIs.

``get("anthropic")`` returns a format; a new provider is one module and one line in the registry.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib import import_module
from typing import Any

from msgspec.structs import replace

from ..errors import InvalidConversation, UnknownName
from ..message import Message
from ..toolspec import ToolSpec
from .equality import same
from .parser import Parser
from .port import Format, Omission, Rendering, Violation
from .replies.reply import Collector, ReceivedMessage

__all__ = [
    "Collector",
    "Format",
    "Omission",
    "Parser",
    "ReceivedMessage",
    "Rendering",
    "Violation",
    "continues",
    "convert",
    "detect",
    "get",
    "mended",
    "names",
    "refers",
    "rendered",
    "same",
    "unfolded",
]

_REGISTRY = {
    "openai-chat": ("openai_chat", "OpenAIChat"),
    "openai-responses": ("openai_responses", "OpenAIResponses"),
    "anthropic": ("anthropic", "Anthropic"),
    "bedrock": ("bedrock", "Bedrock"),
    "gemini": ("gemini", "Gemini"),
}

_KEYS = {
    "contents": "gemini",
    "input": "openai-responses",
    "toolConfig": "bedrock",
    "inferenceConfig": "bedrock",
    "modelId": "bedrock",
}
"""Fields of a document that identify its provider."""


def names() -> tuple[str, ...]:
    """List the formats."""
    return tuple(_REGISTRY)


def get(name: str) -> Format:
    """Return a format by name; raise `UnknownName` if there is none."""
    if not isinstance(name, str):
        raise UnknownName(f"the name of a format must be text, not {type(name).__name__}")
    return _format(name)


@cache
def _format(name: str) -> Format:
    if name not in _REGISTRY:
        raise UnknownName(f"no format is called {name!r:.60}; there are {', '.join(_REGISTRY)}")
    module, kind = _REGISTRY[name]
    found: Format = getattr(import_module(f"{__name__}.{module}"), kind)()
    return found


def detect(payload: Any) -> Format:
    """Return the most likely format of a document, judged by fields that only one provider has.

    A list of plain text messages is valid for several providers and is treated as OpenAI Chat.
    """
    items = payload
    if isinstance(payload, dict):
        for key, name in _KEYS.items():
            if key in payload:
                return get(name)
        items = payload.get("messages")
    for item in items if isinstance(items, list) else ():
        if isinstance(item, dict) and (found := _marked(item)):
            return get(found)
    return get("anthropic" if isinstance(payload, dict) and "system" in payload else "openai-chat")


def _marked(item: dict[str, Any]) -> str | None:
    """Return the name of the format that a message's fields and blocks identify, or None."""
    if "parts" in item:
        return "gemini"
    if "type" in item and item["type"] != "message":
        return "openai-responses"
    if "tool_calls" in item or item.get("role") in ("tool", "developer"):
        return "openai-chat"
    content = item.get("content")
    for block in content if isinstance(content, list) else ():
        kind = block.get("type") if isinstance(block, dict) else None
        if kind is None:
            return "bedrock"
        if kind in ("input_text", "output_text", "input_image", "input_file"):
            return "openai-responses"
        if kind in ("tool_use", "tool_result", "thinking", "redacted_thinking") or "source" in block:
            return "anthropic"
    return None


def continues(message: Message) -> bool:
    """Return True if a message begins a document whose provider keeps what came before it."""
    native = message.native
    if native is None or native.format not in _REGISTRY or not isinstance(native.envelope, dict):
        return False
    return any(native.envelope.get(key) is not None for key in get(native.format).continuing)


def unfolded(message: Message) -> tuple[Message, ...]:
    """Return the messages that a message stands for: itself, or the calls and results that it keeps folded.

    Their ids and bytes depend only on the message. The first one has its id.
    """
    native = message.native
    if native is None or type(message.content) is not tuple or native.format not in _REGISTRY:
        return (message,)
    return get(native.format).unfolded(message)


def refers(message: Message) -> bool:
    """Return True if a message refers to calls that only its provider has."""
    native = message.native
    if native is None or type(message.content) is not tuple or native.format not in _REGISTRY:
        return False
    return get(native.format).refers(message)


def mended(message: Message) -> tuple[Message, str | None]:
    """Return a message without what its own provider rejects, and a note on what was changed, or None."""
    if message.native is None or message.native.format not in _REGISTRY:
        return message, None
    return get(message.native.format).mended(message)


def rendered(
    messages: Sequence[Message], format: Format, *, tools: Iterable[ToolSpec] = (), request: bool = False
) -> Rendering:
    """Render messages, or raise `InvalidConversation` if the provider would reject the result.

    `request` adds the rules about the last message.
    """
    rendering = format.rendering(messages, tools=tools)
    if violations := format.validate(rendering.payload, request=request):
        more = f" (and {len(violations) - 1:,} more)" if len(violations) > 1 else ""
        raise InvalidConversation(f"{format.name} would reject the result: {violations[0]}{more}")
    return rendering


def convert(payload: Any, source: Format, target: Format) -> Rendering:
    """Convert a document and its tool definitions to another format, and list what was left out."""
    if source.name == target.name:
        return source.rendering(source.parse(payload))
    rendering = target.rendering(source.parse(payload), tools=source.tools(payload))
    given = (
        {key for key, value in payload.items() if value is not None} if isinstance(payload, dict) else set()
    )
    lost = [f"the request's field `{field}`" for field in sorted(given & source.keys - source.carried)]
    lost += [f"the response's field `{field}`" for field in sorted(given & source.response_keys)]
    lost += [f"the provider's own tool {label:.80}" for label in _hosted_tools(payload, source)]
    return replace(rendering, left_out=(*(Omission(0, text) for text in lost), *rendering.left_out))


def _hosted_tools(payload: Any, source: Format) -> Iterator[str]:
    """Yield the tools of a request that have no definition because their provider hosts them."""
    match payload:
        case {"toolConfig": {"tools": list(listed)}} | {"tools": list(listed)}:
            for tool in listed:
                if isinstance(tool, dict) and not source.tools(
                    {"tools": [tool], "toolConfig": {"tools": [tool]}}
                ):
                    yield str(tool.get("type") or next(iter(tool), "of no kind"))
