"""Read and write JSON: entries and messages as bytes of a log, messages as documents.

``encode``, ``decode`` and ``decode_entry`` handle the bytes that Turnstate stores: they are fast and support
every entry of the closed union in `entry`. ``dump`` and ``load`` export and import documents of the form
``{"version": 1, "messages": [...]}``, which are read strictly. A document without a version is a bare list,
as in the first specifications, where a system message has no kind. Older versions are upcast. Message fields
that this version does not know survive a round trip, each in the object it came from.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import msgspec

from . import long_json, strict_json
from .entry import (
    CAP,
    Answer,
    Bootstrap,
    Checkpoint,
    Cut,
    Data,
    Entry,
    FileLines,
    Mask,
    ModelChange,
    Note,
    Prompt,
    Restore,
    Revert,
    SettingsChange,
    Started,
    Summary,
    Tangent,
    Usage,
)
from .errors import InputError, InvalidMessage, InvalidPayload, NewerFormat, TurnstateError
from .message import Message, ToolCallRequest, ToolCallResult
from .part import Edit, FilePart, ImagePart, Native, OpaquePart, ReasoningPart, TextPart
from .value import Extra, Value, wire_names

VERSION = 1

_LONGEST_TEXT = 200  # characters of a decoder's error message, which may quote a hostile document

_PLACE = re.compile(r"(?P<text>.*) - at `\$(?P<path>[^`]*)`", re.DOTALL)

_Kind = type[Value] | Mapping[str, type[Value]]
_PARTS: Mapping[str, type[Value]] = {
    "text": TextPart,
    "image": ImagePart,
    "file": FilePart,
    "reasoning": ReasoningPart,
    "opaque": OpaquePart,
}
_NESTED: Mapping[type[Value], Mapping[str, _Kind]] = {
    Message: {
        "content": _PARTS,
        "tool_calls": ToolCallRequest,
        "tool_results": ToolCallResult,
        "native": Native,
    },
    Native: {"edits": Edit},
}
"""The fields that hold nested values: either of one type, or of the type that their ``type`` names."""


def _kind_for_system_messages(message: dict[str, Any]) -> dict[str, Any]:
    if message.get("role") == "system" and message.get("kind") is None:
        return {**message, "kind": "foreign"}
    return message


UPCASTERS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {0: _kind_for_system_messages}
"""Functions that upgrade one message from each version to the next."""


def _hook(kind: type, value: Any) -> Any:
    if kind is Extra and isinstance(value, _SetAside):
        return Extra(value)
    raise ValueError(f"unexpected value for {kind.__name__}")


class _SetAside(dict[str, Any]):
    """Unknown fields to be stored as `Extra`; a type that no document can contain."""


_read = partial(strict_json.read, max_bytes=sys.maxsize)
_decoder = msgspec.json.Decoder(Message, dec_hook=_hook)
_encoder = msgspec.json.Encoder()

_KINDS: dict[str, type[Any]] = {
    "prompt": Prompt,
    "bootstrap": Bootstrap,
    "model": ModelChange,
    "cut": Cut,
    "compaction": Cut,
    "mask": Mask,
    "summary": Summary,
    "answer": Answer,
    "revert": Revert,
    "usage": Usage,
    "started": Started,
    "note": Note,
    "settings": SettingsChange,
    "data": Data,
    "lines": FileLines,
    "tangent": Tangent,
    "checkpoint": Checkpoint,
    "restore": Restore,
}
_NAMES = {kind: name for name, kind in _KINDS.items()} | {Cut: "cut"}
_DECODERS = {name: msgspec.json.Decoder(kind) for name, kind in _KINDS.items()}


def kind_of(entry: Entry) -> str:
    """Return the name of an entry's kind; a cut that the user requested is a compaction."""
    if isinstance(entry, Message):
        return "message"
    if isinstance(entry, Cut) and entry.asked and entry.asked.get("operation") != CAP:
        return "compaction"
    return _NAMES[type(entry)]


def encode(entry: Entry, *, short: bool = False) -> bytes:
    """Encode an entry as compact UTF-8 JSON; `short` skips the check for long values."""
    if isinstance(entry, Message) and type(entry) is not Message:  # drop the fields that a subclass adds
        entry = Message(**{name: getattr(entry, name) for name in Message.__struct_fields__})
    try:
        data = _encoder.encode(entry) if short else long_json.encode(entry, _encoder)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        # A message is checked when it is created, but its dicts and lists can be changed in place.
        raise InvalidMessage(
            f"an entry of the log holds a value that JSON cannot represent: {error!s:.200}"
        ) from None
    if not isinstance(entry, Message) or b'"extra":' not in data:
        return data
    return long_json.encode(_put_back(msgspec.to_builtins(entry), Message), _encoder)


def decode_entry(kind: str, data: bytes) -> Entry:
    """Decode an entry of the given kind; raise `InvalidPayload` if the bytes are damaged."""
    if kind == "message":
        return decode(data)
    if kind not in _DECODERS:
        raise NewerFormat(
            f"an entry of the kind {kind!r:.40} was written by a newer Turnstate; update this one"
        )
    try:
        if len(data) <= long_json.LONG:
            entry: Entry = _DECODERS[kind].decode(data)
        else:
            entry = msgspec.convert(long_json.decode(data), _KINDS[kind])
    except (msgspec.DecodeError, UnicodeDecodeError, TurnstateError) as error:
        raise InvalidPayload(f"a damaged {kind}: {error}") from None
    return entry


def decode(data: bytes, *, version: int = VERSION) -> Message:
    """Decode a message that `encode` wrote, in this version or an older one."""
    if version == VERSION:
        try:
            if len(data) <= long_json.LONG:
                return _decoder.decode(data)
            return msgspec.convert(long_json.decode(data), Message, dec_hook=_hook)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass  # an unknown field or damage: the strict path below keeps the field or reports the damage
    _check_version(version)
    return _message(long_json.decode(data, _read), version, "$")


def dump(messages: Iterable[Message]) -> bytes:
    """Encode messages as a document that `load` reads."""
    return b'{"version":%d,"messages":[%s]}' % (VERSION, b",".join(map(encode, messages)))


def load(data: bytes | str, *, max_bytes: int = strict_json.MAX_BYTES) -> list[Message]:
    """Read a document of any supported version strictly."""
    document = strict_json.read(data, max_bytes=max_bytes)
    if isinstance(document, list):
        document = {"messages": document}
    version = document.get("version", 0) if isinstance(document, dict) else 0
    _check_version(version, at="$.version")
    if not isinstance(document, dict) or not isinstance(document.get("messages"), list):
        raise InvalidPayload("expected a list of messages, or an object with `version` and `messages`")
    return [_message(item, version, f"$.messages[{i}]") for i, item in enumerate(document["messages"])]


def to_builtins(message: Message) -> dict[str, Any]:
    """Return a message as plain JSON values."""
    plain: dict[str, Any] = long_json.decode(encode(message))
    return plain


def from_builtins(value: Any, *, version: int = VERSION, at: str = "$") -> Message:
    """Build a message from plain JSON values and keep unknown fields."""
    _check_version(version)
    strict_json.check(value, at=at)
    return _message(value, version, at)


def _check_version(version: Any, *, at: str = "") -> None:
    if type(version) is not int or version < 0:
        raise InvalidPayload("a format version is a whole number", path=at)
    if version > VERSION:
        raise NewerFormat(
            f"format version {version} is newer than {VERSION}; update Turnstate to read it", path=at
        )


def _message(value: Any, version: int, at: str) -> Message:
    if not isinstance(value, dict):
        raise InvalidMessage(f"expected an object, got {type(value).__name__}", path=at)
    for step in range(version, VERSION):
        value = UPCASTERS[step](value)
    try:
        return msgspec.convert(value, Message, dec_hook=_hook)
    except msgspec.ValidationError:
        pass  # an unknown field, or an error
    try:
        return msgspec.convert(_set_aside(value, Message), Message, dec_hook=_hook)
    except msgspec.ValidationError as error:
        raise _refusal(error, at) from None


def _refusal(error: msgspec.ValidationError, at: str) -> InputError:
    """Return the error that the value itself raised, with the path to the value."""
    text, path = str(error), at
    if match := _PLACE.fullmatch(text):
        text, path = match["text"], at + match["path"]
    cause = error.__cause__
    if isinstance(cause, InputError):
        return type(cause)(cause.text, path=f"{path}.{cause.path}" if cause.path else path)
    return InvalidMessage(text[:_LONGEST_TEXT], path=path)


def _put_back(plain: Any, kind: _Kind) -> Any:
    """Move the `extra` fields of a value, and of all nested values, back among its other fields."""
    if isinstance(plain, list | tuple):
        return [_put_back(item, kind) for item in plain]
    known = _kind_of(plain, kind)
    if known is None:
        return plain
    nested = _NESTED.get(known, {})
    fields = {key: _put_back(item, nested[key]) if key in nested else item for key, item in plain.items()}
    extra = fields.pop("extra", {})
    return {**fields, **extra}


def _set_aside(plain: Any, kind: _Kind) -> Any:
    """Move the unknown fields of a value, and of all nested values, into `extra`; drop null nested fields."""
    if isinstance(plain, list | tuple):
        return [_set_aside(item, kind) for item in plain]
    known = _kind_of(plain, kind)
    if known is None:
        return plain
    nested, names = _NESTED.get(known, {}), wire_names(known)
    fields, unknown = dict[str, Any](), _SetAside()
    for key, item in plain.items():
        if key not in names:
            unknown[key] = item
        elif key not in nested:
            fields[key] = item
        elif item is not None:
            fields[key] = _set_aside(item, nested[key])
    return {**fields, "extra": unknown} if unknown else fields


def _kind_of(plain: Any, kind: _Kind) -> type[Value] | None:
    if not isinstance(plain, dict):
        return None
    if isinstance(kind, type):
        return kind
    tag = plain.get("type")
    return kind.get(tag) if isinstance(tag, str) else None
