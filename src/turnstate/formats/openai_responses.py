"""OpenAI Responses: a flat list of items, of which one assistant message makes a run.

Reasoning stands before the item that it produced and stays with it, since both belong to one
message. A run ends, and another message begins, where an item would stand before what we write
first: content comes before calls. Hosted-tool items are kept as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from .. import sent
from ..errors import InvalidPayload
from ..message import Message, Role, ToolCallRequest
from ..part import FilePart, ImagePart, ReasoningPart
from ..toolspec import ToolSpec
from . import arguments, media
from .adapter import Adapter
from .draft import Document, Draft
from .port import Violation
from .response_items import FORMAT, STORED, drafts
from .rules import openai_responses as rules
from .schemas import function_schemas, read_function_schemas
from .scope import Piece, Scope, Slot
from .wire import expect

__all__ = ["OpenAIResponses"]


class OpenAIResponses(Adapter):
    """The `input` (and `instructions`) of a Responses request."""

    name = FORMAT
    list_key = "input"
    fields = rules.DOCUMENT
    keys = rules.DOCUMENT.request
    response_keys = rules.DOCUMENT.response
    carried = frozenset({"input", "instructions", "tools"})
    bare = True
    system_anywhere = True

    def _violations(self, payload: Any, *, request: bool) -> list[Violation]:
        return rules.violations(payload)

    def tools(self, payload: Any) -> list[ToolSpec]:
        """Read the function `tools` of a request."""
        return read_function_schemas(payload)

    def _write_tools(self, tools: Sequence[ToolSpec]) -> dict[str, Any]:
        return {"tools": [{"type": "function", **schema} for schema in function_schemas(tools)]}

    def _accepts_id(self, id: str) -> bool:
        return len(id) <= rules.LONGEST_ID

    def _open(self, payload: Any) -> Document:
        if isinstance(payload, list):
            return Document(None, None, payload)
        if not isinstance(payload, dict) or not isinstance(payload.get("input"), str | list):
            raise InvalidPayload("expected a list of items, or an object with `input`", path="$")
        system, listed = payload.get("instructions"), payload["input"]
        own = ("input",) if system is None else ("input", "instructions")
        envelope = {key: value for key, value in payload.items() if key not in own}
        return Document(envelope, system, listed)

    def _read(self, document: Document) -> Iterator[Draft]:
        if document.system is not None:
            instructions = expect(document.system, str, "$.instructions")
            yield Draft("system", {"instructions": instructions}, instructions)
        if isinstance(document.items, str):
            yield Draft("user", document.items, document.items)
        else:
            yield from drafts(document.items)

    def _write(self, message: Message, scope: Scope) -> list[dict[str, Any]]:
        if message.role == "tool":
            return [
                {
                    "type": "function_call_output",
                    "call_id": scope.wire_id(one.tool_call_id),
                    "output": self._output(one.result, scope),
                }
                for one in message.tool_results
            ]
        items = self._content(message, scope)
        return items + [_write_call(call, scope) for call in message.tool_calls]

    def _slots(self, body: Any) -> Iterator[Slot]:
        for index, item in enumerate(body if isinstance(body, list) else ()):
            kind = item.get("type") if isinstance(item, dict) else None
            if kind == "function_call":
                yield Slot(False, (index, "call_id"), (index, "name"))
            elif kind == "function_call_output":
                yield Slot(True, (index, "call_id"))

    def _fits(self, body: Any, *, leading: bool) -> bool:
        if isinstance(body, dict):
            return isinstance(body.get("instructions"), str)
        return isinstance(body, str | list)

    def _assemble(self, pieces: Sequence[Piece]) -> dict[str, Any]:
        bodies = [piece.body for piece in pieces]
        fields = bodies[0] if bodies and isinstance(bodies[0], dict) else {}
        rest = bodies[1:] if fields else bodies
        if len(rest) == 1 and isinstance(rest[0], str):
            return {**fields, "input": rest[0]}
        return {**fields, "input": [item for body in rest for item in _as_items(body)]}

    def _content(self, message: Message, scope: Scope) -> list[dict[str, Any]]:
        """Write content: text and media as message items, reasoning and hosted items as themselves."""
        if isinstance(message.content, str):
            silent = not message.content and message.tool_calls
            return [] if silent else [_message_item(message.role, message.content)]
        items: list[dict[str, Any]] = []
        spoken = message.role == "assistant"
        for is_item, run in groupby(
            self.blocks(message, scope), lambda block: spoken and not _is_content(block)
        ):
            blocks = list(run)
            items += blocks if is_item else [_message_item(message.role, blocks)]
        return items if items or message.tool_calls else [_message_item(message.role, "")]

    def _output(self, result: Any, scope: Scope) -> Any:
        parts = sent.result_parts(result)
        return self.result_blocks(parts, scope) if parts else sent.result_text(result)

    def _text(self, text: str, role: Role) -> dict[str, Any]:
        return {"type": "output_text" if role == "assistant" else "input_text", "text": text}

    def _media(self, part: ImagePart | FilePart, role: Role) -> dict[str, Any] | None:
        if role != "user":
            return None
        source: dict[str, Any]
        if part.url is not None and not media.is_web(part.url):
            return None
        if isinstance(part, ImagePart):
            url = part.url if part.data is None else media.data_url(part.data, part.media_type)
            source = {"image_url": url} if url else {"file_id": part.file_id}
            return {"type": "input_image", **source, **({"detail": part.detail} if part.detail else {})}
        if part.data is not None:
            source = {"file_data": media.data_url(part.data, part.media_type)}
        else:
            source = {"file_url": part.url} if part.url else {"file_id": part.file_id}
        return {"type": "input_file", **source, **({"filename": part.name} if part.name else {})}

    def _reasoning(self, part: ReasoningPart) -> dict[str, Any] | None:
        if not part.signature:
            return None
        summary = [{"type": "summary_text", "text": part.text}] if part.text else []
        key = "id" if part.signature.startswith(STORED) else "encrypted_content"
        return {"type": "reasoning", "summary": summary, key: part.signature}


def _as_items(body: str | list[Any] | dict[str, Any]) -> list[Any]:
    if isinstance(body, dict):
        return [_message_item("system", body["instructions"])]
    return [_message_item("user", body)] if isinstance(body, str) else body


def _is_content(block: dict[str, Any]) -> bool:
    """Tell what goes inside an assistant's message from what is an item of its own."""
    kind = block.get("type")
    return kind == "refusal" or str(kind).startswith(("input_", "output_"))


def _message_item(role: str, content: str | list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": content}


def _write_call(call: ToolCallRequest, scope: Scope) -> dict[str, Any]:
    return {
        "type": "function_call",
        "call_id": scope.wire_id(call.id),
        "name": scope.name(call.name),
        "arguments": arguments.written(call.args),
    }
