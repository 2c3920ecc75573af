"""Tool definitions in the shape that most providers share: name, description, JSON schema."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..errors import InputError
from ..message import Message
from ..toolspec import EMPTY_SCHEMA, ToolSpec

__all__ = ["function_schemas", "minimal_specs", "read_function_schemas", "read_spec"]


def function_schemas(tools: Iterable[ToolSpec], *, schema_key: str = "parameters") -> list[dict[str, Any]]:
    """Write definitions as objects of name, description and schema."""
    return [
        {
            "name": tool.name,
            **({"description": tool.description} if tool.description else {}),
            schema_key: tool.input_schema,
        }
        for tool in tools
    ]


def read_function_schemas(
    payload: Any, *, inner: str | None = None, schema_key: str = "parameters"
) -> list[ToolSpec]:
    """Read the definitions under `tools`, passing over a provider's own hosted tools."""
    listed = payload.get("tools") if isinstance(payload, dict) else None
    found: list[ToolSpec] = []
    for tool in listed if isinstance(listed, list) else ():
        body = tool.get(inner) if inner and isinstance(tool, dict) else tool
        if spec := read_spec(body, schema_key):
            found.append(spec)
    return found


def read_spec(body: Any, schema_key: str) -> ToolSpec | None:
    """Read one definition, or None where it is not of this shape."""
    match body:
        case {"name": str(name), **rest} if name:
            description, schema = rest.get("description"), rest.get(schema_key)
            if not isinstance(schema, dict | None):
                return None
            try:
                return ToolSpec(
                    name=name,
                    description=description if isinstance(description, str) else "",
                    input_schema=EMPTY_SCHEMA if schema is None else schema,
                )
            except InputError:
                return None
        case _:
            return None


def minimal_specs(messages: Iterable[Message]) -> list[ToolSpec]:
    """Give the least definition of every tool that the messages use, in order of first use."""
    names = {call.name: None for message in messages for call in message.tool_calls}
    return [ToolSpec(name=name) for name in names]
