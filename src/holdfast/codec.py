"""JSON in and out: our own bytes fast, everybody's bytes strictly, old versions upcast.

``encode`` and ``decode`` are for bytes that Holdfast keeps; ``dump`` and ``load`` are for
documents that leave and enter: ``{"version": 1, "messages": [...]}``. A document without a
version is a bare list as the first specifications drew it, where a system message has no kind.
Fields that this version does not know survive the round trip in the place where they stood.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from . import reader
from .errors import InvalidMessage, InvalidPayload, NewerFormat
from .message import Message, ToolCallRequest, ToolCallResult
from .native import Native
from .part import FilePart, ImagePart, OpaquePart, ReasoningPart, TextPart
from .value import Extra, Value

__all__ = ["VERSION", "decode", "dump", "encode", "from_builtins", "load", "to_builtins"]

VERSION = 1

_PARTS: dict[str, type[Value]] = {
    "text": TextPart,
    "image": ImagePart,
    "file": FilePart,
    "reasoning": ReasoningPart,
    "opaque": OpaquePart,
}


def _kind_for_system_messages(message: dict[str, Any]) -> dict[str, Any]:
    if message.get("role") == "system" and "kind" not in message:
        return {**message, "kind": "foreign"}
    return message


UPCASTERS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {0: _kind_for_system_messages}
"""From each version to the next, one message at a time."""


def _hook(kind: type, value: Any) -> Any:
    if kind is Extra and isinstance(value, _SetAside):
        return Extra(value)
    raise ValueError(f"unexpected value for {kind.__name__}")


class _SetAside(dict[str, Any]):
    """Unknown fields on their way into `Extra`; no document can hold one."""


_decoder = msgspec.json.Decoder(Message, dec_hook=_hook)
_encoder = msgspec.json.Encoder()


def encode(message: Message) -> bytes:
    """Encode one message as compact UTF-8 JSON."""
    return _encoder.encode(to_builtins(message) if _has_extra(message) else message)


def decode(data: bytes, *, version: int = VERSION) -> Message:
    """Decode bytes that `encode` wrote, in this version or an older one."""
    if version == VERSION:
        try:
            return _decoder.decode(data)
        except (msgspec.DecodeError, RecursionError):
            pass  # an unknown field, or damage: the strict way keeps the one and names the other
    return from_builtins(reader.read(data), version=version)


def dump(messages: Iterable[Message]) -> bytes:
    """Write a document that `load` reads."""
    return b'{"version":%d,"messages":[%s]}' % (VERSION, b",".join(map(encode, messages)))


def load(data: bytes | str) -> list[Message]:
    """Read a document strictly, whoever wrote it, whichever version it has."""
    document = reader.read(data)
    if isinstance(document, list):
        document = {"version": 0, "messages": document}
    if not isinstance(document, dict) or not isinstance(document.get("messages"), list):
        raise InvalidPayload("expected a list of messages, or an object with `version` and `messages`")
    version = document.get("version", 0)
    if type(version) is not int or version < 0:
        raise InvalidPayload(f"version {version!r:.40} is not a whole number", path="$.version")
    messages = document["messages"]
    return [from_builtins(item, version=version, at=f"$.messages[{i}]") for i, item in enumerate(messages)]


def to_builtins(message: Message) -> dict[str, Any]:
    """Give a message as plain JSON values."""
    plain: dict[str, Any] = msgspec.to_builtins(message)
    if not _has_extra(message):
        return plain
    for name in ("content", "tool_calls", "tool_results"):
        if isinstance(plain.get(name), list | tuple):
            plain[name] = [_put_back(item) for item in plain[name]]
    if "native" in plain:
        plain["native"] = _put_back(plain["native"])
    return _put_back(plain)


def from_builtins(value: Any, *, version: int = VERSION, at: str = "$") -> Message:
    """Take a message from plain JSON values, keeping the fields that it does not know."""
    if not isinstance(value, dict):
        raise InvalidMessage(f"expected an object, got {type(value).__name__}", path=at)
    reader.check(value, at=at)
    if version > VERSION:
        raise NewerFormat(
            f"format version {version} is newer than {VERSION}; update Holdfast to read it", path=at
        )
    for step in range(version, VERSION):
        value = UPCASTERS[step](value)
    try:
        return msgspec.convert(_set_aside_in_message(value), Message, dec_hook=_hook)
    except msgspec.ValidationError as error:
        text, _, inner = str(error).partition(" - at `$")
        raise InvalidMessage(text, path=at + inner.rstrip("`")) from None


def _has_extra(message: Message) -> bool:
    content = message.content
    return bool(
        message.extra
        or (message.native and message.native.extra)
        or (content and type(content) is tuple and any(part.extra for part in content))
        or any(call.extra for call in message.tool_calls)
        or any(result.extra for result in message.tool_results)
    )


def _put_back(plain: dict[str, Any]) -> dict[str, Any]:
    extra = plain.pop("extra", None)
    return {**plain, **extra} if extra else plain


def _set_aside(value: Any, kind: type[Value]) -> Any:
    if not isinstance(value, dict):
        return value
    known = set(kind.__struct_fields__) - {"extra"} | {"type"} & set(value)
    unknown = _SetAside({key: item for key, item in value.items() if key not in known})
    kept = {key: item for key, item in value.items() if key in known}
    return {**kept, "extra": unknown} if unknown else kept


def _set_aside_in_message(value: dict[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = _set_aside(value, Message)
    if isinstance(kept.get("content"), list):
        kept["content"] = [_set_aside_in_part(part) for part in kept["content"]]
    for name, kind in (("tool_calls", ToolCallRequest), ("tool_results", ToolCallResult)):
        if isinstance(kept.get(name), list):
            kept[name] = [_set_aside(item, kind) for item in kept[name]]
        elif name in kept and kept[name] is None:
            del kept[name]
    if "native" in kept:
        kept["native"] = _set_aside(kept["native"], Native)
    return kept


def _set_aside_in_part(part: Any) -> Any:
    kind = _PARTS.get(part.get("type", "")) if isinstance(part, dict) else None
    return _set_aside(part, kind) if kind else part
