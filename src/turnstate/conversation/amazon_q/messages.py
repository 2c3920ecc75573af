"""Exchanges of an Amazon Q document as messages, and back.

A call has the name and arguments that the model sees. If Amazon Q first received others, they are kept with
the call as ``orig_name`` and ``orig_args``, where the repair of names looks for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType, structs

from ... import ids, wire_text
from ...formats import draft
from ...formats.edits import apply, difference
from ...ids import CallId, MessageId
from ...message import Message, ToolCallRequest, ToolCallResult
from ...part import ImagePart, Native, Part, ReasoningPart, TextPart
from ...value import Extra
from ..tools import PLACEHOLDER
from . import fields, times

# Ids for messages and calls, the same each time a document is read.


ASIDE = b"tangent"

_encode = msgspec.json.Encoder(order="deterministic").encode


class Naming:
    """Creates the ids of the messages and calls of one path in order, and knows the newest calls."""

    def __init__(self, conversation: str, *, aside_from: int | None = None) -> None:
        self._conversation, self._aside_from = conversation.encode(), aside_from
        self._place = 0
        self._awaited = dict[str, list[CallId]]()
        self.theirs = dict[CallId, str]()

    def message(self, document: Any) -> MessageId:
        """Return the id of the next message."""
        self._place += 1
        return ids.derived_id(self._place, *self._salt, _encode(document))

    def calls(self, theirs: Iterable[str]) -> list[CallId]:
        """Return ids for the calls of the last message; results of earlier calls are late from now on."""
        self._awaited = {}
        found = list[CallId]()
        for number, id in enumerate(theirs):
            call = ids.derived_call_id(self._place, *self._salt, str(number).encode(), id.encode())
            self._awaited.setdefault(id, []).append(call)
            self.theirs[call] = id
            found.append(call)
        return found

    def answered(self, theirs: str) -> CallId:
        """Return the id of the call that a result answers; the given id if there is no such call."""
        if waiting := self._awaited.get(theirs):
            return waiting.pop(0)
        return CallId(theirs) if theirs else ids.derived_call_id(self._place, *self._salt)

    @property
    def _salt(self) -> tuple[bytes, ...]:
        aside = self._aside_from is not None and self._place > self._aside_from
        return (self._conversation, ASIDE) if aside else (self._conversation,)


# Tool results: a list of blocks, text or JSON, as one JSON value, and back.


BLOCKS = "blocks"
JSON, TEXT = "Json", "Text"


def read_results(document: dict[str, Any], call: CallId) -> ToolCallResult:
    """Read a result of this call."""
    kinds = [next(iter(block)) for block in document["content"]]
    values = [next(iter(block.values())) for block in document["content"]]
    value = values[0] if len(values) == 1 else _several(kinds, values)
    return ToolCallResult(
        tool_call_id=call,
        result=value,
        is_error=document["status"] == "Error",
        extra=UNSET if len(kinds) == 1 and kinds == _natural(value) else Extra({BLOCKS: kinds}),
    )


def written_results(result: ToolCallResult, id: str) -> dict[str, Any]:
    """Return a result under the id that the document has for its call."""
    return {
        "tool_use_id": id,
        "content": _content(result),
        "status": "Error" if result.is_error else "Success",
    }


def _content(result: ToolCallResult) -> list[dict[str, Any]]:
    kinds = _kinds(result)
    if len(kinds) == 1:
        return [{kinds[0]: result.result}]
    in_parts = all(kind == TEXT for kind in kinds)
    values = [item["text"] if in_parts else item for item in result.result]
    return [{kind: value} for kind, value in zip(kinds, values, strict=True)]


def _kinds(result: ToolCallResult) -> list[str]:
    """Return the kinds of the blocks that a result was read from, if known, or kinds that fit its value."""
    natural = _natural(result.result)
    kinds = result.extra.get(BLOCKS) if isinstance(result.extra, Extra) else None
    if not isinstance(kinds, list) or not all(kind in (JSON, TEXT) for kind in kinds):
        return natural
    if len(kinds) == 1:
        return kinds if kinds[0] == JSON else natural
    values = result.result
    if not isinstance(values, list) or len(values) != len(kinds):
        return natural
    in_parts = all(kind == TEXT for kind in kinds)
    sound = all(_fits(value, kind, in_parts) for value, kind in zip(values, kinds, strict=True))
    return kinds if sound else natural


def _fits(value: Any, kind: str, in_parts: bool) -> bool:
    if in_parts:
        return isinstance(value, dict) and isinstance(value.get("text"), str)
    return kind == JSON or isinstance(value, str)


def _several(kinds: list[str], values: list[Any]) -> list[Any]:
    if all(kind == TEXT for kind in kinds):
        return [{"type": "text", "text": value} for value in values]
    return values


def _natural(value: Any) -> list[str]:
    return [TEXT if isinstance(value, str) else JSON]


# The user's side of an exchange, which is one message in the document and several here, and back.


FORMAT = "qcli"
"""The name under which messages keep what only the document has."""

CANCELLED, EDITED, ENVIRONMENT, PURPOSE = "cancelled", "edited", "env_context", "purpose"
ADDED = "additional_context"
NO_ENVIRONMENT: dict[str, Any] = {"env_state": None}

_MEDIA_TYPES = {"Gif": "image/gif", "Jpeg": "image/jpeg", "Png": "image/png", "Webp": "image/webp"}
_FORMATS = {kind: name for name, kind in _MEDIA_TYPES.items()}


def read_user(document: dict[str, Any], naming: Naming, *, sent_at: str, at: str) -> list[Message]:
    """Read the user's side of an exchange; `sent_at` is its time if it has no timestamp."""
    ((variant, body),) = document["content"].items()
    prompt, answers = body.get("prompt"), body.get("tool_use_results", [])
    stamp = document.get("timestamp")
    time = times.utc(stamp, at=f"{at}.timestamp") if stamp is not None else sent_at
    parts = _parts(document, prompt)
    found = list[Message]()
    if answers:
        answered = [read_results(one, naming.answered(one["tool_use_id"])) for one in answers]
        extra = Extra({CANCELLED: True}) if variant == "CancelledToolUses" else UNSET
        found.append(_tool(answered, id=naming.message(document), timestamp=time, extra=extra))
    if parts or prompt is not None or not answers:
        content = (prompt or "") if all(_is_prompt(part) for part in parts) else parts
        found.append(Message.user(content, id=naming.message(document), timestamp=time))
    return _marked(found, document, naming.theirs)


def written_user(messages: Sequence[Message], theirs: Mapping[CallId, str]) -> dict[str, Any]:
    """Return the user's side of an exchange; `theirs` has the ids of calls in the document."""
    plain = _users_plain(messages, theirs)
    native = messages[-1].native if messages else None
    if native is None or native.format != FORMAT or _extra(messages[-1]).get(EDITED) != fields.digest(plain):
        return plain
    edited: dict[str, Any] = apply(plain, native.edits)
    return edited


def _tool(answered: list[ToolCallResult], *, id: str, timestamp: str, extra: Extra | UnsetType) -> Message:
    return structs.replace(Message.tool(answered, id=id, timestamp=timestamp), extra=extra)


def _marked(messages: list[Message], document: dict[str, Any], theirs: Mapping[CallId, str]) -> list[Message]:
    """Keep the rest of the document with the messages: the environment, and fields we write differently."""
    if document["env_context"] != NO_ENVIRONMENT:
        extra = {**_extra(messages[0]), ENVIRONMENT: document["env_context"]}
        messages[0] = structs.replace(messages[0], extra=Extra(extra))
    plain = _users_plain(messages, theirs)
    if edits := difference(plain, document):
        extra = {**_extra(messages[-1]), EDITED: fields.digest(plain)}
        native = Native(format=FORMAT, edits=edits)
        messages[-1] = structs.replace(messages[-1], native=native, extra=Extra(extra))
    return messages


def _users_plain(messages: Sequence[Message], theirs: Mapping[CallId, str]) -> dict[str, Any]:
    words = [message for message in messages if message.role == "user"]
    parts = [part for message in words for part in message.parts]
    texts = [text for message in words if (text := _prompt(message)) is not None]
    pictures = [_picture(part) for part in parts if is_picture(part)]
    environments = (_extra(message).get(ENVIRONMENT) for message in messages)
    return {
        "additional_context": "\n".join(_added(parts)),
        "env_context": next((one for one in environments if one is not None), NO_ENVIRONMENT),
        "content": _users_content("\n\n".join(texts) if texts else None, messages, theirs),
        "timestamp": _time(words),
        "images": pictures or None,
    }


def _users_content(
    prompt: str | None, messages: Sequence[Message], theirs: Mapping[CallId, str]
) -> dict[str, Any]:
    answers = [
        written_results(result, theirs.get(result.tool_call_id, result.tool_call_id))
        for message in messages
        for result in message.tool_results
    ]
    if not answers:
        return {"Prompt": {"prompt": prompt or ""}}
    if prompt is not None or any(_extra(message).get(CANCELLED) for message in messages):
        return {"CancelledToolUses": {"prompt": prompt, "tool_use_results": answers}}
    return {"ToolUseResults": {"tool_use_results": answers}}


def _time(words: Sequence[Message]) -> str | None:
    """Return the time of the user's message; a document has none for tool results."""
    return words[0].timestamp if words and words[0].timestamp != ids.UNKNOWN_TIME else None


def _parts(document: dict[str, Any], prompt: str | None) -> list[Part]:
    parts = list[Part]()
    if document[ADDED]:
        parts.append(TextPart(document[ADDED], extra=Extra({PURPOSE: ADDED})))
    if prompt:
        parts.append(TextPart(prompt))
    for image in document.get("images") or ():
        data = bytes(image["source"]["Bytes"])
        parts.append(ImagePart(data=data, media_type=_MEDIA_TYPES[image["format"]]))
    return parts


def _prompt(message: Message) -> str | None:
    """Return the user's text, with a line for each part that the document cannot hold; None if no text."""
    if isinstance(message.content, str):
        return message.content
    own = [part for part in message.parts if not is_picture(part) and not _is_added(part)]
    return "\n".join(map(wire_text.described, own)) if own else None


def _added(parts: Sequence[Part]) -> Iterator[str]:
    return (wire_text.described(part) for part in parts if _is_added(part))


def _is_added(part: Part) -> bool:
    return isinstance(part.extra, Extra) and part.extra.get(PURPOSE) == ADDED


def _is_prompt(part: Part) -> bool:
    return isinstance(part, TextPart) and not _is_added(part)


def is_picture(part: Part) -> bool:
    """Return True if the user's side of a document can hold a part as a picture."""
    return isinstance(part, ImagePart) and part.data is not None and part.media_type in _FORMATS


def _picture(part: Part) -> dict[str, Any]:
    if not isinstance(part, ImagePart) or part.data is None or part.media_type is None:
        raise TypeError("only a picture with bytes of a known type is written as one")
    return {"format": _FORMATS[part.media_type], "source": {"Bytes": list(part.data)}}


def _extra(message: Message) -> dict[str, Any]:
    return message.extra if isinstance(message.extra, Extra) else {}


METADATA = "request_metadata"
_ORIGINAL = {"orig_name": "name", "orig_args": "args"}


def read_assistant(entry: dict[str, Any], naming: Naming, *, answered_at: str) -> Message:
    """Read the answer of an exchange, with everything else that is not the user's side."""
    ((_, body),) = entry["assistant"].items()
    id = naming.message(entry["assistant"])
    uses = body.get("tool_uses", [])
    names = naming.calls(use["id"] for use in uses)
    calls = tuple(_call(use, name) for use, name in zip(uses, names, strict=True))
    content = body["content"] if body["content"] or not calls else None
    message = Message.assistant(content, tool_calls=calls, id=id, timestamp=answered_at)
    theirs = {name: value for name, value in entry.items() if name != "user"}
    if entry.get(METADATA) is not None:  # it becomes an entry of its own
        theirs[METADATA] = None
    edits = difference(_plain(message), theirs)
    return structs.replace(message, native=Native(format=FORMAT, edits=edits)) if edits else message


def written_assistant(message: Message) -> dict[str, Any]:
    """Return an exchange without the user's side; its metadata is null."""
    native = message.native
    plain: dict[str, Any] = _plain(message)
    return apply(plain, native.edits) if native and native.format == FORMAT else plain


def _plain(message: Message) -> dict[str, Any]:
    parts = (part for part in message.parts if not isinstance(part, ReasoningPart))
    body = {"message_id": str(message.id), "content": "\n".join(map(wire_text.described, parts))}
    uses = [_use(call) for call in message.tool_calls]
    answer = {"ToolUse": {**body, "tool_uses": uses}} if uses else {"Response": body}
    return {"assistant": answer, METADATA: None}


def _call(use: dict[str, Any], id: CallId) -> ToolCallRequest:
    first = {key: use[key] for key, now in _ORIGINAL.items() if use[key] != use[now]}
    asked = draft.call(use["name"], use["args"], use["id"])
    return ToolCallRequest(
        id=id,
        name=asked.name or PLACEHOLDER,
        args=asked.args,
        raw=asked.raw,
        provider_id=use["id"],
        extra=Extra(first) if first else UNSET,
    )


def _use(call: ToolCallRequest) -> dict[str, Any]:
    first = call.extra if isinstance(call.extra, Extra) else {}
    return {
        "id": call.provider_id if call.provider_id is not None else str(call.id),
        "name": call.name,
        "orig_name": first.get("orig_name", call.name),
        "args": call.as_object,
        "orig_args": first.get("orig_args", call.as_object),
    }
