"""Messages: the values at the center of everything else.

A message is what one party said: a user, the assistant (perhaps with tool calls), the tools
(with the results of calls), or the core itself as ``system``. Calls and results are matched by id,
never by order. Values are frozen, and their field names are the names on the wire. Fields that a
newer or foreign writer added are kept in ``extra``. What a provider's document contained beyond
the message is in ``native``, so that the same provider gets the same document back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any, Literal, TypeVar, get_args

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import force_setattr

from . import ids, long_json, strict_json
from .errors import InputError, InvalidMessage
from .ids import CallId, MessageId
from .part import Content, Edit, Native, OpaquePart, Part, TextPart
from .value import Extra, Value, settle, settle_extra, settle_object

__all__ = [
    "UNPARSED",
    "Message",
    "Role",
    "SystemKind",
    "ToolCallRequest",
    "ToolCallResult",
    "is_timestamp",
    "minted",
    "not_a_message",
]

Role = Literal["system", "user", "assistant", "tool"]
SystemKind = Literal["prompt", "bootstrap", "summary", "foreign"]

V = TypeVar("V", bound=Value)

_JSON_NAMES = {
    dict: "an object",
    list: "an array",
    str: "a string",
    int: "a number",
    float: "a number",
    bool: "a boolean",
    type(None): "null",
}

_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\dT(?!24)\d\d:\d\d:\d\d(?:\.\d{1,9})?Z", re.ASCII)
_is_usual_time = re.compile(  # on a day that every month has, so no calendar is needed
    r"[12]\d{3}-(?:0[1-9]|1[0-2])-(?:0[1-9]|1\d|2[0-8])"
    r"T(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,9})?Z",
    re.ASCII,
).fullmatch
_KINDS = get_args(SystemKind)

_RULES = {
    "user": "a user message has content, nothing else",
    "assistant": "an assistant message has content, tool_calls or both, nothing else",
    "tool": "a tool message has tool_results, nothing else",
    "system": "a system message has content and a kind, nothing else",
}
_SHAPES = frozenset(
    [
        # role, content, tool_calls, tool_results, kind
        ("user", True, False, False, None),
        ("assistant", True, False, False, None),
        ("assistant", True, True, False, None),
        ("assistant", False, True, False, None),
        ("tool", False, False, True, None),
        *(("system", True, False, False, kind) for kind in _KINDS),
    ]
)


_QUOTED = 300
"""Characters that are quoted of the beginning and of the end of unusable arguments."""

UNPARSED = "_unparsed"
"""The key under which arguments that are not a JSON object are wrapped as the only argument."""


class ToolCallRequest(Value, frozen=True, kw_only=True):
    """A tool call that the assistant requests.

    ``provider_id`` is the provider's own id of the call; ``parsed_id`` is the id that was derived when a
    document was parsed, before the call got a new one. Arguments that are not a JSON object are in ``raw``,
    as the model wrote them; ``args`` is then empty, and ``error`` says what is wrong with them. ``kind`` is
    the provider's kind of call if it is not a function, such as ``custom`` or ``shell``: the provider gets
    the call and its result in the form of that kind, any other provider as those of a function.
    """

    id: CallId = msgspec.field(default_factory=ids.call_id)
    name: str
    args: dict[str, Any]
    provider_id: str | None = None
    parsed_id: CallId | None = None
    raw: str | None = None
    kind: str | None = None

    def __post_init__(self) -> None:
        if not (
            self.extra is UNSET
            and self.parsed_id is self.raw is self.kind is None
            and type(self.id) is type(self.name) is str
            and (self.provider_id is None or (type(self.provider_id) is str and self.provider_id.isascii()))
            and self.id.isascii()
            and self.name.isascii()
        ):
            settle(self, "id", "name", optional=("provider_id", "parsed_id", "raw", "kind"))
        if not self.id or not self.name:
            raise InvalidMessage("a tool call needs an id and a name")
        settle_object(self, "args")
        if self.raw is not None and self.args:
            raise InvalidMessage("a tool call has args or raw, not both", path="raw")

    @property
    def error(self) -> str | None:
        """Why the arguments are unusable, as a text for the model; None if they are a JSON object."""
        if (raw := self.unparsed) is None:
            return None
        try:
            value = strict_json.read(raw, max_depth=strict_json.MAX_VALUE_DEPTH)
        except InputError as fault:
            wrong = f"valid JSON: {fault!s:.{_QUOTED}}"
        else:
            wrong = f"a JSON object but {_JSON_NAMES[type(value)]}"
        return f"the arguments of {self.name} are not {wrong}; they are: {_quoted(raw)}"

    @property
    def unparsed(self) -> str | None:
        """The arguments as the model wrote them, if they are not a JSON object."""
        if self.raw is None and self.args.keys() == {UNPARSED}:  # how they were stored before `raw` existed
            text = self.args[UNPARSED]
            return text if isinstance(text, str) else None
        return self.raw

    @property
    def as_object(self) -> dict[str, Any]:
        """The arguments as an object, for providers that accept nothing else."""
        return self.args if self.raw is None else {UNPARSED: self.raw}


def _quoted(text: str) -> str:
    """Return a text, of a long one only the beginning and the end: where it breaks off, it is cut."""
    left_out = len(text) - 2 * _QUOTED
    if left_out <= 0:
        return text
    return f"{text[:_QUOTED]} [… {left_out:,} characters …] {text[-_QUOTED:]}"


class ToolCallResult(Value, frozen=True, kw_only=True, omit_defaults=False):
    """The result of a call: any JSON value, including ``0``, ``false``, ``""``, ``null`` and ``[]``.

    ``kind`` is the kind of the call in the document that the result was read from, if it is not a function's:
    the call itself may be elsewhere. For a known call, the kind of the call counts.
    """

    tool_call_id: CallId
    result: Any
    is_error: bool = False
    kind: str | UnsetType = UNSET

    def __post_init__(self) -> None:
        if not (self.extra is UNSET and type(self.tool_call_id) is str and self.tool_call_id.isascii()):
            settle(self, "tool_call_id")
        if self.kind is not UNSET:
            settle(self, "kind")
        if not self.tool_call_id:
            raise InvalidMessage("a tool result needs the id of its call")
        if type(self.is_error) is not bool:
            raise InvalidMessage(
                f"expected true or false, got {type(self.is_error).__name__}", path="is_error"
            )
        if not (type(self.result) is str and self.result.isascii()):
            force_setattr(self, "result", strict_json.plain(self.result, at="result"))

    @classmethod
    def of(cls, tool_call_id: str, output: Any, *, is_error: bool = False) -> ToolCallResult:
        """Build a result from any tool output; the tool has run, so what JSON cannot hold becomes text."""
        return cls(tool_call_id=CallId(tool_call_id), result=strict_json.clean(output), is_error=is_error)

    def says_same(self, other: ToolCallResult) -> bool:
        """Return True if two results are the same JSON; unlike in Python, 0 and False differ."""
        if self.is_error is not other.is_error or self.result != other.result:
            return False
        return type(self.result) is str or _canonical(self.result) == _canonical(other.result)


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
        if not (type(self.id) is str and self.id.isascii()):
            settle(self, "id")
        if not (type(self.timestamp) is str and type(self.role) is str):
            settle(self, "timestamp", "role")
        if self.content is not None and not (type(self.content) is str and self.content.isascii()):
            _settle_content(self)
        if self.tool_calls != ():
            _settle_items(self, "tool_calls", ToolCallRequest)
        if self.tool_results != ():
            _settle_items(self, "tool_results", ToolCallResult)
        if not (self.kind is None or type(self.kind) is str):
            settle(self, "kind")
        if fault := _fault(self):
            raise InvalidMessage(f"message {self.id or '(no id)':.80}: {fault}")

    @classmethod
    def user(
        cls, content: str | Iterable[Part], *, id: str | None = None, timestamp: str | None = None
    ) -> Message:
        """Create a user message."""
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
        """Create an assistant message with text, tool calls or both."""
        said = None if content is None else _content(content)
        return cls(
            **_stamp(id, timestamp),
            role="assistant",
            content=said,
            tool_calls=_items(tool_calls, "tool_calls"),
        )

    @classmethod
    def tool(
        cls, tool_results: Iterable[ToolCallResult], *, id: str | None = None, timestamp: str | None = None
    ) -> Message:
        """Create a tool message with the results of one or more calls."""
        return cls(**_stamp(id, timestamp), role="tool", tool_results=_items(tool_results, "tool_results"))

    @classmethod
    def system(
        cls,
        content: str | Iterable[Part],
        *,
        kind: SystemKind = "foreign",
        id: str | None = None,
        timestamp: str | None = None,
    ) -> Message:
        """Create a system message, for lists from outside; sessions write their own."""
        return cls(**_stamp(id, timestamp), role="system", content=_content(content), kind=kind)

    @property
    def parts(self) -> tuple[Part, ...]:
        """The content as parts; a plain string is one text part."""
        if isinstance(self.content, str):
            return (TextPart(text=self.content),)
        return self.content or ()

    @property
    def text(self) -> str:
        """The text of the content, without reasoning."""
        if isinstance(self.content, str):
            return self.content
        return "\n".join(part.text for part in self.content or () if isinstance(part, TextPart))

    def replace(self, **changes: Any) -> Message:
        """Return a changed copy; a change of role, content, calls or results drops the document's edits."""
        if self.native and changes.keys() & {"role", "content", "tool_calls", "tool_results"}:
            native = self.native
            kept = Native(format=native.format, envelope=native.envelope, mended=native.mended)
            changes.setdefault("native", kept)
        return msgspec.structs.replace(self, **changes)

    def with_results(self, kept: Sequence[tuple[int, ToolCallResult]]) -> Message:
        """Return a tool message with some of its results, given with their places, under any call ids.

        What the document said of each result stays, since the result itself says the same.
        """
        results = tuple(result for _, result in kept)
        if self.native is None or len(kept) == len(self.tool_results):
            return msgspec.structs.replace(self, tool_results=results)
        places = {place: new for new, (place, _) in enumerate(kept)}
        moved = (_moved(edit, places) for edit in self.native.edits)
        native = msgspec.structs.replace(self.native, edits=tuple(edit for edit in moved if edit))
        return msgspec.structs.replace(self, tool_results=results, native=native)

    def owned(self) -> Message:
        """Return a copy that shares no dict or list with this message, so that no one else can change it.

        A message that holds no dict or list is returned as it is. Anything added to a dict or list since
        the message was created is checked again.
        """
        if (
            not self.tool_calls
            and self.native is None
            and self.extra is UNSET
            and all(map(_is_fixed, self.tool_results))
            and (type(self.content) is not tuple or all(map(_is_fixed, self.content)))
        ):
            return self
        message = _copy(self)
        if self.tool_calls:
            force_setattr(message, "tool_calls", tuple(_copy(call, "args") for call in self.tool_calls))
        if self.tool_results:
            force_setattr(message, "tool_results", tuple(_copy(one, "result") for one in self.tool_results))
        if type(self.content) is tuple:
            parts = (_copy(one, "body") if type(one) is OpaquePart else _copy(one) for one in self.content)
            force_setattr(message, "content", tuple(parts))
        if self.native is not None:
            native = _copy(self.native, "envelope")
            force_setattr(native, "edits", tuple(_copy(edit, "to") for edit in self.native.edits))
            force_setattr(message, "native", native)
        return message


def _moved(edit: Edit, places: Mapping[int, int]) -> Edit | None:
    """Return an edit of a tool message for the new place of its result; None if its result is gone.

    The first position in a path is that of the result. An edit that replaces the whole list is gone, too;
    only broken documents and those of older logs have one.
    """
    step = next((step for step, at in enumerate(edit.at) if isinstance(at, int)), None)
    if step is None:
        return edit if len(edit.at) == 1 and not isinstance(edit.to, list) else None
    new = places.get(int(edit.at[step]))
    return None if new is None else Edit((*edit.at[:step], new, *edit.at[step + 1 :]), edit.to)


def _is_fixed(value: Part | ToolCallResult) -> bool:
    """Return True if a part or a result holds nothing mutable."""
    if value.extra is not UNSET or type(value) is OpaquePart:
        return False
    return type(value) is not ToolCallResult or type(value.result) not in (dict, list)


def _copy(value: V, field: str | None = None) -> V:
    """Copy a value, its unknown fields, and the JSON in one of its fields."""
    copy: V = value.__copy__()  # type: ignore[attr-defined]
    if value.extra is not UNSET:
        force_setattr(copy, "extra", Extra(strict_json.copied(dict(value.extra), at="extra")))
    if field is not None and (json := getattr(value, field)) is not UNSET:
        force_setattr(copy, field, strict_json.copied(json, at=field))
    return copy


_canonical = partial(long_json.encode, encoder=msgspec.json.Encoder(order="sorted"))


def _stamp(id: str | None, timestamp: str | None) -> dict[str, Any]:
    return {
        "id": ids.message_id() if id is None else id,
        "timestamp": ids.now() if timestamp is None else timestamp,
    }


def _content(content: str | Iterable[Part]) -> Content:
    return content if isinstance(content, str) else _items(content, "content")


def _items(items: Iterable[Any], field: str) -> tuple[Any, ...]:
    if isinstance(items, str | Mapping) or not isinstance(items, Iterable):
        raise InvalidMessage(f"expected a sequence, got {type(items).__name__}", path=field)
    return tuple(items)


def _settle_content(message: Message) -> None:
    if isinstance(message.content, str):
        with suppress(UnicodeEncodeError):
            if type(message.content) is str and message.content.encode():
                return
        settle(message, "content")  # makes it a plain str, or raises
        return
    _settle_items(message, "content", Part)
    if not message.content:
        force_setattr(message, "content", None)


def _settle_items(message: Message, field: str, kind: Any) -> None:
    """Make a field a tuple and check the type of its items; accept a list, and None as empty."""
    items = getattr(message, field)
    if type(items) is not tuple:
        items = () if items is None else _items(items, field)
        force_setattr(message, field, items)
    for index, item in enumerate(items):
        if not isinstance(item, kind):
            raise InvalidMessage(
                f"a value of type {type(item).__name__} is not allowed here", path=f"{field}[{index}]"
            )


def _fault(message: Message) -> str | None:
    """Return what is wrong with a message, or None."""
    if not message.id:
        return "it needs an id"
    if not is_timestamp(message.timestamp):
        return f"timestamp {message.timestamp!r:.40} is not ISO-8601 in UTC with a final Z"
    if not (message.native is None or type(message.native) is Native):
        return f"native is a Native, not a {type(message.native).__name__}"
    calls = message.tool_calls
    if len(calls) > 1 and len({call.id for call in calls}) < len(calls):
        return "two of its tool calls have the same id"
    shape = (
        message.role,
        message.content is not None,
        message.tool_calls != (),
        message.tool_results != (),
        message.kind,
    )
    return None if shape in _SHAPES else _contradiction(message)


def not_a_message(what: str, given: object) -> str:
    """Return the error text for a value that is not a message."""
    kind = type(given).__name__
    how = {"dict": "formats.get(…).parse([…]) reads a provider's dicts", "str": "write Message.user(…)"}
    return f"{what} takes messages, not {kind}; {how.get(kind, 'write Message.user(…)')}"


def is_timestamp(text: str) -> bool:
    """Return True if a text is an ISO-8601 time in UTC with a final ``Z``."""
    if _is_usual_time(text):
        return True
    if not _TIMESTAMP.fullmatch(text):
        return False
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _contradiction(message: Message) -> str:
    if message.role not in _RULES:
        return f"unknown role {message.role!r:.40}"
    if message.kind not in (None, *_KINDS):
        return f"unknown kind of system message {message.kind!r:.40}"
    fields = ("content", "tool_calls", "tool_results", "kind")
    held = [name for name in fields if getattr(message, name) not in (None, ())]
    return f"{_RULES[message.role]}; this one has {' and '.join(held) or 'nothing'}"


# Ids that were derived from a document are unique within it, and replaced when it joins a conversation.


def minted(messages: Iterable[Message]) -> list[Message]:
    """Return messages with new ids in place of those that were derived from a document.

    A call and its results in these messages change together; a call keeps its old id in ``parsed_id``. A
    message whose document has no time gets the current time.
    """
    new = dict[str, str]()
    return [_minted(message, new) for message in messages]


def _minted(message: Message, new: dict[str, str]) -> Message:
    changes = dict[str, Any]()
    if ids.is_derived(message.id):
        changes["id"] = new[message.id] = ids.message_id()
        changes["timestamp"] = ids.now() if message.timestamp == ids.UNKNOWN_TIME else message.timestamp
    if message.tool_calls and any(ids.is_derived(call.id) for call in message.tool_calls):
        derived = [call for call in message.tool_calls if ids.is_derived(call.id)]
        new.update((call.id, ids.call_id()) for call in derived)
        changes["tool_calls"] = tuple(
            msgspec.structs.replace(call, id=new[call.id], parsed_id=call.id) if call.id in new else call
            for call in message.tool_calls
        )
    if new and any(result.tool_call_id in new for result in message.tool_results):
        changes["tool_results"] = tuple(
            msgspec.structs.replace(result, tool_call_id=new.get(result.tool_call_id, result.tool_call_id))
            for result in message.tool_results
        )
    return msgspec.structs.replace(message, **changes) if changes else message
