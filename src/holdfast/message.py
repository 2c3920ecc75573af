"""Messages: the values that everything else is about.

A message is what one party said: a user, the assistant (perhaps with tool calls), the tools
(with the results of calls), or the core itself as ``system``. Calls and results find each other
by id, never by order. Values are frozen; field names are the names on the wire; fields that a
newer or foreign writer added are kept in ``extra``. What a provider's document said beyond the
message stands in ``native``, so that the same provider gets the same document back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, get_args

import msgspec
from msgspec import UNSET
from msgspec.structs import force_setattr

from . import ids, reader
from .errors import InvalidMessage
from .ids import CallId, MessageId
from .native import Native
from .part import Content, Part, TextPart
from .value import Value, settle, settle_extra, settle_object

__all__ = ["Message", "Role", "SystemKind", "ToolCallRequest", "ToolCallResult"]

Role = Literal["system", "user", "assistant", "tool"]
SystemKind = Literal["prompt", "bootstrap", "summary", "foreign"]

_ROLES = get_args(Role)
_KINDS = get_args(SystemKind)


class ToolCallRequest(Value, frozen=True, kw_only=True):
    """A call that the assistant asks for; ``provider_id`` is the provider's own id of it."""

    id: CallId = msgspec.field(default_factory=ids.call_id)
    name: str
    args: dict[str, Any]
    provider_id: str | None = None

    def __post_init__(self) -> None:
        settle(self, "id", "name", optional=("provider_id",))
        if not self.id or not self.name:
            raise InvalidMessage("a tool call needs an id and a name")
        settle_object(self, "args")


class ToolCallResult(Value, frozen=True, kw_only=True, omit_defaults=False):
    """What a call gave: any JSON value, ``0``, ``false``, ``""``, ``null`` and ``[]`` included."""

    tool_call_id: CallId
    result: Any
    is_error: bool = False

    def __post_init__(self) -> None:
        settle(self, "tool_call_id")
        if not self.tool_call_id:
            raise InvalidMessage("a tool result needs the id of its call")
        if type(self.is_error) is not bool:
            raise InvalidMessage(f"is_error is true or false, not {type(self.is_error).__name__}")
        force_setattr(self, "result", reader.plain(self.result, at="result"))


class Message(Value, frozen=True, kw_only=True):
    """One immutable message. Use the constructors `user`, `assistant`, `tool` and `system`."""

    id: MessageId
    timestamp: str
    role: Role
    content: str | tuple[Part, ...] | None = None
    tool_calls: tuple[ToolCallRequest, ...] = ()
    tool_results: tuple[ToolCallResult, ...] = ()
    kind: SystemKind | None = None
    native: Native | None = None

    def __post_init__(self) -> None:
        if self.extra is not UNSET:
            settle_extra(self)
        if not (type(self.id) is type(self.timestamp) is type(self.role) is str and self.id.isascii()):
            settle(self, "id", "timestamp", "role")
        if not (type(self.content) is str and self.content.isascii()):
            _settle_content(self)
        if type(self.tool_calls) is not tuple:
            _settle_sequence(self, "tool_calls")
        if type(self.tool_results) is not tuple:
            _settle_sequence(self, "tool_results")
        if fault := _field_fault(self) or _role_fault(self):
            raise InvalidMessage(f"message {self.id or '(no id)'!s:.80}: {fault}")

    @classmethod
    def user(
        cls, content: str | Iterable[Part], *, id: str | None = None, timestamp: str | None = None
    ) -> Message:
        """Say something as the user."""
        return cls(**_stamp(id, timestamp), role="user", content=_content(content))

    @classmethod
    def assistant(
        cls,
        content: str | Iterable[Part] | None = None,
        *,
        tool_calls: Iterable[ToolCallRequest] = (),
        id: str | None = None,
        timestamp: str | None = None,
    ) -> Message:
        """Answer as the assistant, with text, tool calls or both."""
        said = None if content is None else _content(content)
        return cls(**_stamp(id, timestamp), role="assistant", content=said, tool_calls=tuple(tool_calls))

    @classmethod
    def tool(
        cls, tool_results: Iterable[ToolCallResult], *, id: str | None = None, timestamp: str | None = None
    ) -> Message:
        """Answer one or more tool calls."""
        return cls(**_stamp(id, timestamp), role="tool", tool_results=tuple(tool_results))

    @classmethod
    def system(
        cls,
        content: str | Iterable[Part],
        *,
        kind: SystemKind = "foreign",
        id: str | None = None,
        timestamp: str | None = None,
    ) -> Message:
        """Write a system message: for lists from outside; sessions write their own."""
        return cls(**_stamp(id, timestamp), role="system", content=_content(content), kind=kind)

    @property
    def parts(self) -> tuple[Part, ...]:
        """The content as parts; a plain string is one text part."""
        if isinstance(self.content, str):
            return (TextPart(text=self.content),)
        return self.content or ()

    @property
    def text(self) -> str:
        """The words of the content, reasoning left out."""
        if isinstance(self.content, str):
            return self.content
        return "\n".join(part.text for part in self.content or () if isinstance(part, TextPart))

    def replace(self, **changes: Any) -> Message:
        """Copy with changes; a message that says something else drops what its document added."""
        if self.native and changes.keys() & {"role", "content", "tool_calls", "tool_results"}:
            kept = Native(format=self.native.format, envelope=self.native.envelope)
            changes.setdefault("native", kept)
        return msgspec.structs.replace(self, **changes)


def _stamp(id: str | None, timestamp: str | None) -> dict[str, Any]:
    return {
        "id": ids.message_id() if id is None else id,
        "timestamp": ids.now() if timestamp is None else timestamp,
    }


def _sequence(items: Any, of: str) -> tuple[Any, ...]:
    if isinstance(items, str | Mapping) or not isinstance(items, Iterable):
        raise InvalidMessage(f"{of}, not {type(items).__name__}")
    return tuple(items)


def _content(content: str | Iterable[Part]) -> Content:
    return content if isinstance(content, str) else _sequence(content, "content is text or parts")


def _calls(calls: Iterable[ToolCallRequest]) -> tuple[ToolCallRequest, ...]:
    return _sequence(calls, "tool_calls is a sequence of ToolCallRequest")

def _settle_content(message: Message) -> None:
    """Make text plain, a list of parts a tuple, and an empty one absent."""
    if isinstance(message.content, str):
        settle(message, "content")
    elif message.content is not None:
        _settle_sequence(message, "content")
        if not message.content:
            force_setattr(message, "content", None)


def _settle_sequence(message: Message, field: str) -> None:
    """Take a list for a tuple, and nothing for an empty one."""
    items = getattr(message, field)
    if not (items is None or isinstance(items, list | tuple)):
        raise InvalidMessage(f"expected a list or tuple, got {type(items).__name__}", path=field)
    force_setattr(message, field, tuple(items or ()))


def _field_fault(message: Message) -> str | None:
    """Name what is wrong with the fields of a message, whatever its role."""
    if not message.id:
        return "it needs an id"
    if not ids.is_timestamp(message.timestamp):
        return f"timestamp {message.timestamp!r:.40} is not ISO-8601 in UTC with a final Z"
    if type(message.content) is tuple and not _all(message.content, Part):
        return "content is text or a sequence of parts"
    if message.tool_calls and not _all(message.tool_calls, ToolCallRequest):
        return "tool_calls is a sequence of ToolCallRequest"
    if message.tool_results and not _all(message.tool_results, ToolCallResult):
        return "tool_results is a sequence of ToolCallResult"
    if message.native is not None and type(message.native) is not Native:
        return f"native is a Native, not {type(message.native).__name__}"
    return None


def _all(items: tuple[Any, ...], kind: Any) -> bool:
    return all(isinstance(item, kind) for item in items)


def _role_fault(message: Message) -> str | None:
    """Name what a message has that its role does not allow, or lacks that its role needs."""
    role, content, kind = message.role, message.content, message.kind
    if role not in _ROLES:
        return f"no role is called {role!r:.40}"
    if message.tool_calls and role != "assistant":
        return f"only the assistant makes tool calls, not {role}"
    if message.tool_results and role != "tool":
        return f"only a tool message holds tool_results, not {role}"
    if kind is None if role == "system" else kind is not None:
        return "a system message needs a kind, and only a system message has one"
    if kind is not None and kind not in _KINDS:
        return f"no kind of system message is called {kind!r:.40}"
    if role == "tool":
        alone = message.tool_results and content is None
        return None if alone else "a tool message has tool_results, nothing else"
    if content is not None or (role == "assistant" and message.tool_calls):
        return None
    return f"{role} message needs content"
