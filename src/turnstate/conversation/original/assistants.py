"""The assistant's side of an exchange, as a message and back.

The name and arguments that the model sees are the call's. Where the original first received others,
they stand beside it as ``orig_name`` and ``orig_args``, where the repair of names looks for them.
"""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, structs

from ... import sent
from ...formats import arguments
from ...formats.edits import apply, difference
from ...ids import CallId
from ...message import Message, ToolCallRequest
from ...native import Native
from ...part import ReasoningPart
from ...value import Extra
from ..tools import PLACEHOLDER
from .naming import Naming
from .users import FORMAT

__all__ = ["read", "written"]

METADATA = "request_metadata"
_ORIGINAL = {"orig_name": "name", "orig_args": "args"}


def read(entry: dict[str, Any], naming: Naming, *, answered_at: str) -> Message:
    """Read the answer of an exchange, and whatever the exchange says that is not the user's."""
    ((_, body),) = entry["assistant"].items()
    id = naming.message(entry["assistant"])
    uses = body.get("tool_uses", [])
    names = naming.calls(use["id"] for use in uses)
    calls = tuple(_call(use, name) for use, name in zip(uses, names, strict=True))
    content = body["content"] if body["content"] or not calls else None
    message = Message.assistant(content, tool_calls=calls, id=id, timestamp=answered_at)
    theirs = {name: value for name, value in entry.items() if name != "user"}
    if entry.get(METADATA) is not None:  # that is an entry of its own
        theirs[METADATA] = None
    edits = difference(_plain(message), theirs)
    return structs.replace(message, native=Native(format=FORMAT, edits=edits)) if edits else message


def written(message: Message) -> dict[str, Any]:
    """Write an answer with all that its exchange says but the user's side; metadata is null."""
    native = message.native
    plain: dict[str, Any] = _plain(message)
    return apply(plain, native.edits) if native and native.format == FORMAT else plain


def _plain(message: Message) -> dict[str, Any]:
    parts = (part for part in message.parts if not isinstance(part, ReasoningPart))
    body = {"message_id": str(message.id), "content": "\n".join(map(sent.described, parts))}
    uses = [_use(call) for call in message.tool_calls]
    said = {"ToolUse": {**body, "tool_uses": uses}} if uses else {"Response": body}
    return {"assistant": said, METADATA: None}


def _call(use: dict[str, Any], id: CallId) -> ToolCallRequest:
    first = {key: use[key] for key, now in _ORIGINAL.items() if use[key] != use[now]}
    return ToolCallRequest(
        id=id,
        name=use["name"] or PLACEHOLDER,
        args=arguments.parsed(use["args"]),
        provider_id=use["id"],
        extra=Extra(first) if first else UNSET,
    )


def _use(call: ToolCallRequest) -> dict[str, Any]:
    first = call.extra if isinstance(call.extra, Extra) else {}
    return {
        "id": call.provider_id if call.provider_id is not None else str(call.id),
        "name": call.name,
        "orig_name": first.get("orig_name", call.name),
        "args": call.args,
        "orig_args": first.get("orig_args", call.args),
    }
