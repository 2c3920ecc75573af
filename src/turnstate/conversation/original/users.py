"""The user's side of an exchange: the original's one message, as ours and back.

Words are a user message, results a tool message; results with words behind them are calls that were
cancelled. Pictures follow the words. What a hook added to the prompt leads them as a text of its own,
since the model has read it. The edits that make the original's message of what we would write stand on
the last of ours, with a digest of what they are for: so it comes back as it was, whatever it held, and
nothing that was said since is lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import UNSET, UnsetType, structs

from ... import ids, sent
from ...formats.edits import apply, difference
from ...ids import CallId
from ...message import Message, ToolCallResult
from ...native import Native
from ...part import ImagePart, Part, TextPart
from ...value import Extra
from . import kept, results, times
from .naming import Naming

__all__ = ["FORMAT", "read", "written"]

FORMAT = "qcli"
"""The name under which messages keep what only the original's document says."""

CANCELLED, EDITED, ENVIRONMENT, PURPOSE = "cancelled", "edited", "env_context", "purpose"
ADDED = "additional_context"
NO_ENVIRONMENT: dict[str, Any] = {"env_state": None}

_MEDIA_TYPES = {"Gif": "image/gif", "Jpeg": "image/jpeg", "Png": "image/png", "Webp": "image/webp"}
_FORMATS = {kind: name for name, kind in _MEDIA_TYPES.items()}


def read(document: dict[str, Any], naming: Naming, *, sent_at: str, at: str) -> list[Message]:
    """Read a message; `sent_at` is its time where it has none."""
    ((variant, body),) = document["content"].items()
    prompt, answers = body.get("prompt"), body.get("tool_use_results", [])
    stamp = document.get("timestamp")
    time = times.utc(stamp, at=f"{at}.timestamp") if stamp is not None else sent_at
    parts = _parts(document, prompt)
    found = list[Message]()
    if answers:
        answered = [results.read(one, naming.answered(one["tool_use_id"])) for one in answers]
        extra = Extra({CANCELLED: True}) if variant == "CancelledToolUses" else UNSET
        found.append(_tool(answered, id=naming.message(document), timestamp=time, extra=extra))
    if parts or prompt is not None or not answers:
        content = (prompt or "") if all(_is_prompt(part) for part in parts) else parts
        found.append(Message.user(content, id=naming.message(document), timestamp=time))
    return _marked(found, document, naming.theirs)


def written(messages: Sequence[Message], theirs: Mapping[CallId, str]) -> dict[str, Any]:
    """Write what stands before an answer; `theirs` are the original's ids of calls."""
    plain = _plain(messages, theirs)
    native = messages[-1].native if messages else None
    if native is None or native.format != FORMAT or _extra(messages[-1]).get(EDITED) != kept.digest(plain):
        return plain
    edited: dict[str, Any] = apply(plain, native.edits)
    return edited


def _tool(answered: list[ToolCallResult], *, id: str, timestamp: str, extra: Extra | UnsetType) -> Message:
    return structs.replace(Message.tool(answered, id=id, timestamp=timestamp), extra=extra)


def _marked(messages: list[Message], document: dict[str, Any], theirs: Mapping[CallId, str]) -> list[Message]:
    """Keep with messages what else their document says: the environment, and whatever we would not write."""
    if document["env_context"] != NO_ENVIRONMENT:
        extra = {**_extra(messages[0]), ENVIRONMENT: document["env_context"]}
        messages[0] = structs.replace(messages[0], extra=Extra(extra))
    plain = _plain(messages, theirs)
    if edits := difference(plain, document):
        extra = {**_extra(messages[-1]), EDITED: kept.digest(plain)}
        native = Native(format=FORMAT, edits=edits)
        messages[-1] = structs.replace(messages[-1], native=native, extra=Extra(extra))
    return messages


def _plain(messages: Sequence[Message], theirs: Mapping[CallId, str]) -> dict[str, Any]:
    words = [message for message in messages if message.role == "user"]
    parts = [part for message in words for part in message.parts]
    said = [text for message in words if (text := _prompt(message)) is not None]
    pictures = [_picture(part) for part in parts if _is_picture(part)]
    environments = (_extra(message).get(ENVIRONMENT) for message in messages)
    return {
        "additional_context": "\n".join(_added(parts)),
        "env_context": next((one for one in environments if one is not None), NO_ENVIRONMENT),
        "content": _content("\n\n".join(said) if said else None, messages, theirs),
        "timestamp": _time(words),
        "images": pictures or None,
    }


def _content(prompt: str | None, messages: Sequence[Message], theirs: Mapping[CallId, str]) -> dict[str, Any]:
    answers = [
        results.written(result, theirs.get(result.tool_call_id, result.tool_call_id))
        for message in messages
        for result in message.tool_results
    ]
    if not answers:
        return {"Prompt": {"prompt": prompt or ""}}
    if prompt is not None or any(_extra(message).get(CANCELLED) for message in messages):
        return {"CancelledToolUses": {"prompt": prompt, "tool_use_results": answers}}
    return {"ToolUseResults": {"tool_use_results": answers}}


def _time(words: Sequence[Message]) -> str | None:
    """Give the time of the user's words; the original notes none for what tools say."""
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
    """Give the user's own words, with a line for what the original has no form for; None for no words."""
    if isinstance(message.content, str):
        return message.content
    own = [part for part in message.parts if not _is_picture(part) and not _is_added(part)]
    return "\n".join(map(sent.described, own)) if own else None


def _added(parts: Sequence[Part]) -> Iterator[str]:
    return (sent.described(part) for part in parts if _is_added(part))


def _is_added(part: Part) -> bool:
    return isinstance(part.extra, Extra) and part.extra.get(PURPOSE) == ADDED


def _is_prompt(part: Part) -> bool:
    return isinstance(part, TextPart) and not _is_added(part)


def _is_picture(part: Part) -> bool:
    return isinstance(part, ImagePart) and part.data is not None and part.media_type in _FORMATS


def _picture(part: Part) -> dict[str, Any]:
    if not isinstance(part, ImagePart) or part.data is None or part.media_type is None:
        raise TypeError("only a picture with bytes of a known type is written as one")
    return {"format": _FORMATS[part.media_type], "source": {"Bytes": list(part.data)}}


def _extra(message: Message) -> dict[str, Any]:
    return message.extra if isinstance(message.extra, Extra) else {}
