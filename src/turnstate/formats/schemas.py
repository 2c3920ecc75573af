"""Tool definitions in the shape that most providers share: name, description, JSON schema."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from ..errors import InputError
from ..message import Message
from ..toolspec import EMPTY_SCHEMA, ToolSpec


def function_schemas(tools: Iterable[ToolSpec], *, schema_key: str = "parameters") -> list[dict[str, Any]]:
    """Write definitions as objects with name, description and schema."""
    return [
        {
            "name": tool.name,
            **({"description": tool.description} if tool.description else {}),
            schema_key: tool.input_schema,
        }
        for tool in tools
    ]


def read_function_schemas(
    payload: Any, *, kind: str = "function", inner: str | None = None, schema_key: str = "parameters"
) -> list[ToolSpec]:
    """Read the definitions under `tools`, skipping kinds that only their provider knows."""
    listed = payload.get("tools") if isinstance(payload, dict) else None
    found: list[ToolSpec] = []
    for tool in listed if isinstance(listed, list) else ():
        if isinstance(tool, dict) and tool.get("type", kind) == kind:
            spec = read_spec(tool.get(inner) if inner else tool, schema_key)
            found += [spec] if spec else []
    return found


def read_spec(body: Any, schema_key: str) -> ToolSpec | None:
    """Read one definition; return None if it does not have this shape."""
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


def read_declaration(declared: dict[str, Any]) -> ToolSpec | None:
    """Read a Gemini definition, whose schema is JSON Schema or the provider's own dialect of it."""
    if "parametersJsonSchema" in declared:
        return read_spec(declared, "parametersJsonSchema")
    spec = read_spec(declared, "parameters")
    return spec and replace(spec, input_schema=_json_schema(spec.input_schema))


def _json_schema(schema: Any) -> Any:
    """Convert the type names of the provider's dialect to JSON Schema: `OBJECT` becomes `object`."""
    if isinstance(schema, list):
        return [_json_schema(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: value.lower() if key == "type" and isinstance(value, str) else _json_schema(value)
        for key, value in schema.items()
    }


def minimal_specs(messages: Iterable[Message]) -> list[ToolSpec]:
    """Return a minimal definition of every tool that the messages use, in order of first use."""
    names = {call.name: None for message in messages for call in message.tool_calls}
    return [ToolSpec(name=name) for name in names]
