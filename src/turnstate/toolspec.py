"""Tool definitions: what a model is told about a tool, independent of the provider."""

from __future__ import annotations

from typing import Any

import msgspec

from .errors import InvalidMessage
from .value import Value, settle, settle_object

__all__ = ["EMPTY_SCHEMA", "ToolSpec"]

EMPTY_SCHEMA: dict[str, Any] = {"type": "object", "properties": {}}
"""The minimal schema of a tool that every provider accepts."""


class ToolSpec(Value, frozen=True):
    """A tool's name, what it does, and the JSON schema of its arguments."""

    name: str
    description: str = ""
    input_schema: dict[str, Any] = msgspec.field(default_factory=EMPTY_SCHEMA.copy)

    def __post_init__(self) -> None:
        settle(self, "name", "description")
        if not self.name:
            raise InvalidMessage("a tool needs a name")
        settle_object(self, "input_schema")
