"""Tools as a conversation knows them: where each comes from, its definition, and names that changed.

A history outlives its tools: a server is removed, a tool gets a prefix. Before a request, a call whose
tool is gone is renamed to the tool's current name if exactly one name matches, else to a placeholder.
The log keeps the original name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, Self

import msgspec
from msgspec import Struct

from ..message import Message, ToolCallRequest
from ..toolspec import ToolSpec

PLACEHOLDER = "dummy"
"""The name under which a call is shown whose tool no longer exists."""

NATIVE, CUSTOM = "native___", "custom___"
"""Keys of a map of tools; any other key is the name of an MCP server."""


class ToolOrigin(Struct, frozen=True, order=True):
    """Where a tool comes from: built in, the user's own, or an MCP server."""

    kind: Literal["builtin", "custom", "mcp"]
    server: str = ""

    @classmethod
    def mcp(cls, server: str) -> Self:
        """Return the origin of a server's tools."""
        return cls("mcp", server)

    @property
    def key(self) -> str:
        """Its key in a JSON object."""
        return {"builtin": NATIVE, "custom": CUSTOM}.get(self.kind, self.server)

    @classmethod
    def of(cls, key: str) -> Self:
        """Return the origin for a key."""
        match key:
            case "native___":
                return cls("builtin")
            case "custom___":
                return cls("custom")
            case _:
                return cls("mcp", key)


BUILTIN = ToolOrigin("builtin")

Tools = dict[ToolOrigin, list[ToolSpec]]


def specs(tools: Mapping[ToolOrigin, Iterable[ToolSpec]]) -> tuple[ToolSpec, ...]:
    """Return all definitions in a stable order: by origin, then as listed; the first of each name wins."""
    ordered = (spec for origin in sorted(tools) for spec in tools[origin])
    return tuple({spec.name: spec for spec in reversed(list(ordered))}.values())[::-1]


def repaired(message: Message, names: frozenset[str]) -> Message:
    """Return a message whose calls name existing tools; without any names, nothing changes."""
    if not names or not any(call.name not in names for call in message.tool_calls):
        return message
    calls = tuple(_repaired_call(call, names) for call in message.tool_calls)
    return message.replace(tool_calls=calls)


def _repaired_call(call: ToolCallRequest, names: frozenset[str]) -> ToolCallRequest:
    if call.name in names:
        return call
    extra = call.extra if isinstance(call.extra, dict) else {}
    original = extra.get("orig_name")
    if isinstance(original, str) and original in names:
        args = extra.get("orig_args")
        if isinstance(args, dict):
            return msgspec.structs.replace(call, name=original, args=args, raw=None)
        return msgspec.structs.replace(call, name=original)
    ending = [name for name in names if _ends_with_word(name, call.name)]
    return msgspec.structs.replace(call, name=ending[0] if len(ending) == 1 else PLACEHOLDER)


def _ends_with_word(name: str, word: str) -> bool:
    """Return True if a name ends with a word of its own: ``fs_write`` or ``fsWrite``, not ``overwrite``."""
    if not word or not name.endswith(word) or len(name) == len(word):
        return False
    before, first = name[-len(word) - 1], word[0]
    return not before.isalnum() or not first.isalnum() or (first.isupper() and not before.isupper())
