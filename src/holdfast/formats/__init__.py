"""Provider formats: read, render and validate what five providers speak.

``get("anthropic")`` gives a format; a new provider is one module and one line in the registry.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

from ..errors import UnknownName
from .port import Format, Omission, Rendering, Violation
from .same import same

__all__ = ["Format", "Omission", "Rendering", "Violation", "convert", "get", "names", "same"]

_REGISTRY = {
    "openai-chat": ("openai_chat", "OpenAIChat"),
    "openai-responses": ("openai_responses", "OpenAIResponses"),
    "anthropic": ("anthropic", "Anthropic"),
    "bedrock": ("bedrock", "Bedrock"),
    "gemini": ("gemini", "Gemini"),
}


def names() -> tuple[str, ...]:
    """List the formats."""
    return tuple(_REGISTRY)


@cache
def get(name: str) -> Format:
    """Give the format of that name."""
    if name not in _REGISTRY:
        raise UnknownName(f"no format is called {name!r:.60}; there are {', '.join(_REGISTRY)}")
    module, kind = _REGISTRY[name]
    found: Format = getattr(import_module(f"{__name__}.{module}"), kind)()
    return found


def convert(payload: Any, source: Format, target: Format) -> Rendering:
    """Translate a document, its tool definitions included, and list what did not come along."""
    if source.name == target.name:
        return source.rendering(source.parse(payload))
    rendering = target.rendering(source.parse(payload), tools=source.tools(payload))
    carried = {
        source.list_key,
        "system",
        "systemInstruction",
        "system_instruction",
        "instructions",
        "tools",
        "toolConfig",
    }
    fields = payload.keys() & source.keys - carried if isinstance(payload, dict) else ()
    lost = tuple(Omission(0, f"the request's field `{field}`") for field in sorted(fields))
    return Rendering(rendering.payload, lost + rendering.left_out)
