"""The common base of all formats: read a document piece by piece, and assemble one from pieces.

A *piece* is what one message contributes to a document. A format defines how to read a document into
drafts (each with the piece it came from) and how to write the piece of a message. This module does
the rest: ids, pairing, the edits that keep what we do not model, the envelope, and the omissions.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from .. import wire_text
from ..ids import UNKNOWN_TIME, MessageId
from ..message import Message, Role, ToolCallRequest, ToolCallResult
from ..part import Edit, FilePart, ImagePart, Native, OpaquePart, Part, ReasoningPart, TextPart
from ..toolspec import ToolSpec
from ..value import refuse
from . import media, unfolded
from .draft import Document, Draft
from .edits import apply, put
from .equality import says_something
from .pairing import LONGEST_NAME, gathered, is_native, wire_ids, wire_name
from .parser import Parser, leading
from .port import Format, Omission, Rendering, Violation
from .rules.fields import Fields, stripped
from .rules.report import Report
from .scope import Piece, Scope, Slot

T = TypeVar("T")

UNKNOWN_TOOL = "unknown"
"""The name of a tool whose call is missing."""

_MOST_EDITS = 100  # each is tried by itself, so any further edits of a message are dropped
_REWRITTEN = "rewritten without what the provider rejects"
_QUESTION = Message.user("?", id="question", timestamp=UNKNOWN_TIME)


class Adapter(Format):
    """A format made of steps that subclasses implement: open, read, write, assemble, and blocks for parts."""

    fields: ClassVar[Fields]
    bare: ClassVar[bool] = False
    in_runs: ClassVar[bool] = False
    unique_ids: ClassVar[bool] = True
    system_anywhere: ClassVar[bool] = False
    longest_name: ClassVar[int] = LONGEST_NAME

    @abstractmethod
    def _accepts_id(self, id: str) -> object:
        """Return a true value if the provider accepts this call id."""

    @abstractmethod
    def _violations(self, payload: Any, *, request: bool) -> list[Violation]:
        """List the violations of the provider's rules, except those about fields."""

    @abstractmethod
    def _slots(self, body: Any) -> Iterator[Slot]:
        """Yield where a piece names its calls, then where it names the calls that it answers, in order."""

    @abstractmethod
    def _open(self, payload: Any) -> Document:
        """Split a payload into envelope, system prompt and items."""

    @abstractmethod
    def _read(self, items: Sequence[Any], start: int = 0, before: Role | None = None) -> Iterator[Draft]:
        """Read the items of a document in order from `start` on; the message before has the role `before`."""

    def _read_system(self, given: Any) -> Iterator[Draft]:
        """Read the system prompt that a document holds outside its items."""
        return iter(())

    @abstractmethod
    def _write(self, message: Message, scope: Scope) -> Any:
        """Write the piece of one message in our own form."""

    @abstractmethod
    def _fits(self, body: Any, *, leading: bool) -> bool:
        """Return True if a piece has a shape that `_assemble` can work with."""

    @abstractmethod
    def _assemble(self, pieces: Sequence[Piece]) -> dict[str, Any]:
        """Assemble pieces into the fields of a document."""

    @abstractmethod
    def _write_tools(self, tools: Sequence[ToolSpec]) -> dict[str, Any]:
        """Write tool definitions as fields of a document."""

    @abstractmethod
    def _text(self, text: str, role: Role) -> dict[str, Any] | None:
        """Write a text block; return None for text that counts as empty for the provider."""

    @abstractmethod
    def _media(self, part: ImagePart | FilePart, role: Role) -> dict[str, Any] | None:
        """Write a media block; return None if the provider does not accept the media."""

    @abstractmethod
    def _reasoning(self, part: ReasoningPart) -> dict[str, Any] | None:
        """Write the provider's own reasoning back; return None if it accepts none."""

    def _ordered(self, messages: Sequence[Message]) -> list[Message]:
        """Move answers to where the provider requires them."""
        return gathered(messages, format=self.name)

    def _required(self, messages: Sequence[Message], envelope: dict[str, Any]) -> dict[str, Any]:
        """Return the fields that a document with these messages needs but its envelope lacks."""
        return {}

    def _may_start(self, message: Message) -> bool:
        """Return True if a message may be separate from a neighbor of the same role."""
        return True

    def _without_blanks(self, body: Any, *, leading: bool) -> Any:
        """Return a piece without the text blocks that the provider rejects because they say nothing."""
        return body

    def _is_placed(self, body: Any) -> bool:
        """Return True if a piece is a system message that its document has among the other messages."""
        return False

    def validate(self, payload: Any, *, request: bool = False, strict: bool = False) -> list[Violation]:
        """List what the provider would reject.

        `request` adds the rules about the last message, `strict` adds the warnings.
        """
        found = self._violations(payload, request=request) + self._departures(payload, unknown=False)
        found += self.warnings(payload) if strict else []
        return sorted(found, key=lambda violation: violation.index)

    def warnings(self, payload: Any) -> list[Violation]:
        """List the fields that the provider does not declare; a compatible server may accept them."""
        return self._departures(payload, unknown=True)

    def _departures(self, payload: Any, *, unknown: bool) -> list[Violation]:
        report = Report()
        report.fields(payload, self.fields, self.list_key, unknown=unknown)
        return report.violations

    def parse(self, payload: Any) -> list[Message]:
        """Read a document: a list of the provider's messages, or an object that holds one."""
        return Parser(self).parse(payload)

    def parser(self) -> Parser:
        """Return a parser for a growing document, which reads only what is new."""
        return Parser(self)

    def rendering(self, messages: Sequence[Message], *, tools: Iterable[ToolSpec] = ()) -> Rendering:
        """Render messages and list what had to be left out."""
        messages, tools = _members(messages, "messages", Message), _members(tools, "tools", ToolSpec)
        known = [self._known(message) for message in messages]
        places = {one.id: place for place, several in enumerate(known) for one in several}
        ordered = self._ordered([one for several in known for one in several])
        scope = self._scope(ordered)
        fields = self._assemble(self._pieces(ordered, places, scope))
        envelope, definitions = self._envelope(messages, scope), self._defined(tools)
        is_list = envelope is None and not definitions and fields.keys() == {self.list_key}
        whole = envelope is not None and self._is_whole(messages)
        required = {} if definitions or whole else self._required(ordered, envelope or {})
        payload = {**(envelope or {}), **required, **fields, **definitions}
        own = msgspec.to_builtins(payload)  # a copy: changing it does not change the messages
        return Rendering(own, tuple(scope.left_out), self.list_key if is_list else None)

    def mended(self, message: Message) -> tuple[Message, str | None]:
        """Return a message as a window may send it, and a note on the change if the provider rejects it.

        As little as possible is left out: a field that the provider rejects, not the whole message. The
        result depends only on the message, so it is the same in every window.
        """
        native = message.native
        if native is None or native.format != self.name or native.mended:
            return message, None
        named = self._takes_names(message)
        if not native.edits and named and not native.starts and _is_plain(message):
            return message, None
        starts = None if native.starts and not self._may_start(message) else native.starts
        sent = replace(message, native=replace(native, mended=True, starts=starts))
        if not self._takes(sent):
            return self._plainer(sent), _REWRITTEN
        changed = starts != native.starts or self._has_blanks(message)
        if changed or message.tool_calls or message.tool_results or message.role == "system":
            return sent, _REWRITTEN if changed or not named else None
        return message, None if named else _REWRITTEN

    def _has_blanks(self, message: Message) -> bool:
        """Return True if the document of a message holds text blocks that are left out of a request."""
        edits = message.native.edits if message.native else ()
        if not edits:
            return False
        scope = self._scope([message])
        scope.enter(message, 0, leading=message.role == "system")
        body = apply(self._write(message, scope), edits)
        return self._without_blanks(body, leading=scope.leading) is not body

    def _takes_names(self, message: Message) -> bool:
        """Return True if the provider accepts the ids and names of the calls as they are in its document."""
        ids = [call.provider_id for call in message.tool_calls if call.provider_id]
        names = [call.name for call in message.tool_calls]
        taken = all(map(self._accepts_id, ids)) and len(set(ids)) == len(ids)
        return taken and all(wire_name(name, self.longest_name) == name for name in names)

    def _takes(self, message: Message) -> bool:
        """Return True if the provider accepts a message within the shortest conversation that can hold it."""
        return not self._violations(self.render(_in_setting(message)), request=False)

    def _plainer(self, message: Message) -> Message:
        """Drop the edits that the provider rejects; if that is not enough, its own kinds of blocks too."""
        native = message.native or Native(format=self.name)
        kept: tuple[Edit, ...] = ()
        for edit in native.edits[:_MOST_EDITS]:
            tried = replace(message, native=replace(native, edits=(*kept, edit)))
            kept = (*kept, edit) if self._takes(tried) else kept
        plain = replace(message, native=replace(native, edits=kept))
        if kept or self._takes(plain):
            return plain
        said = tuple(part for part in map(_in_plain_words, message.parts) if part is not None)
        return replace(plain, content=said or ("" if message.content is not None else None))

    def blocks(self, message: Message, scope: Scope) -> list[dict[str, Any]]:
        """Write the content of a message part by part; unsupported parts become text or are left out."""
        written = (self._block(part, message.role, scope) for part in message.parts)
        return [block for block in written if block is not None]

    def result_blocks(
        self, parts: Iterable[TextPart | ImagePart | FilePart], scope: Scope
    ) -> list[dict[str, Any]]:
        """Write a result that is a list of content parts."""
        written = (self._block(part, "user", scope) for part in parts)
        return [block for block in written if block is not None]

    def _said(self, text: str, role: Role, scope: Scope) -> str:
        """Return text as this provider gets it: a notice if it accepts no system message at this place."""
        notice = role == "system" and not scope.leading and not self.system_anywhere
        return wire_text.notice(text) if notice and says_something(text) else text

    def _block(self, part: Part, role: Role, scope: Scope) -> dict[str, Any] | None:
        match part:
            case TextPart():
                return self._text(self._said(part.text, role, scope), role)
            case ReasoningPart():
                block = self._reasoning(part) if scope.native else None
                if block is None:
                    scope.omit("reasoning that this provider did not sign")
                return block
            case OpaquePart() if part.format == self.name:
                return dict(part.body)
            case OpaquePart():
                scope.omit(f"a block of {part.format}")
                return self._text(self._said(part.text, role, scope), role) if part.text else None
            case _:
                medium = media.by_type(part)
                block = self._media(medium, role) if scope.knows(medium) else None
                return block or self._text(self._said(scope.describe(medium), role, scope), role)

    def _known(self, message: Message) -> tuple[Message, ...]:
        """Return a message with what another provider keeps folded in it as calls and results."""
        return (message,) if is_native(message, self.name) else unfolded(message)

    def _pieces(self, ordered: list[Message], places: Mapping[MessageId, int], scope: Scope) -> list[Piece]:
        first = leading(ordered)
        pieces: list[Piece] = []
        for index, message in enumerate(ordered):
            scope.enter(message, places[message.id], leading=index < first)
            pieces.append(self._piece(message, scope))
        return pieces

    def _piece(self, message: Message, scope: Scope) -> Piece:
        left_out = len(scope.left_out)
        body, native = self._write(message, scope), message.native
        if native is None or not scope.native:
            return Piece(message.role, self._sendable(body, message, scope), leading=scope.leading)
        moved = message.role == "system" and not scope.leading and not self.system_anywhere
        if native.edits:
            edited: Any = apply(body, native.edits)
            if native.mended:
                edited = self._renamed(edited, message, scope)
                edited = self._without_blanks(edited, leading=scope.leading)
            if self._fits(edited, leading=scope.leading) and (not moved or self._is_placed(edited)):
                body = edited
                del scope.left_out[left_out:]  # the edits put it back
        body = self._sendable(body, message, scope)
        return Piece(message.role, body, native.starts, scope.leading, native=True, mended=native.mended)

    def _sendable(self, body: Any, message: Message, scope: Scope) -> Any:
        """Remove the fields that only responses have from a piece; pieces of our own have none."""
        edited = scope.native and message.native is not None and message.native.edits
        if not edited and not any(isinstance(part, OpaquePart) for part in message.parts):
            return body
        leads = scope.leading and not self._is_placed(body)
        key = self.list_key if self.system_anywhere or not leads else "system"
        whole = body if isinstance(body, dict) and leads else {key: body}
        rest, found = stripped(whole, self.fields)
        for one in found:
            scope.omit(f"the response's field `{one.name}`")
        return rest if whole is body else rest[key]

    def _renamed(self, body: Any, message: Message, scope: Scope) -> Any:
        """Put the ids and names of this rendering into an edited piece; return None if they do not fit."""
        slots = self._named_slots(body, message)
        asked = [call.id for call in message.tool_calls]
        answered = [result.tool_call_id for result in message.tool_results]
        if [slot.answers for slot in slots] != [False] * len(asked) + [True] * len(answered):
            return None
        changes: list[tuple[tuple[str | int, ...], Any]] = []
        for slot, call in zip(slots, asked + answered, strict=True):
            if slot.id and call not in scope.silent:
                changes.append((slot.id, scope.wire_id(call)))
            elif slot.id and not slot.answers:
                changes.append((slot.id, UNSET))  # the provider's own call has no id
            if slot.name:
                changes.append((slot.name, scope.name(scope.names.get(call, UNKNOWN_TOOL))))
        return put(body, changes) if changes else body

    def _named_slots(self, body: Any, message: Message) -> list[Slot]:
        """Return where a piece names the calls and results of its message."""
        return list(self._slots(body))

    def _scope(self, messages: Sequence[Message]) -> Scope:
        calls = [call for message in messages for call in message.tool_calls]
        names = {call.id: call.name for call in calls}
        natives = {call.id: call for call in calls if call.kind}
        ids = wire_ids(messages, self._accepts_id, unique=self.unique_ids, format=self.name)
        return Scope(self.name, ids, names, self.longest_name, natives=natives)

    def _defined(self, tools: Iterable[ToolSpec]) -> dict[str, Any]:
        """Write tool definitions under the same names as their calls."""
        named = {wire_name(tool.name, self.longest_name): tool for tool in tools}
        return self._write_tools([replace(tool, name=name) for name, tool in named.items()]) if named else {}

    def _envelope(self, messages: Sequence[Message], scope: Scope) -> dict[str, Any] | None:
        for message in messages:
            native = message.native
            if native and native.format == self.name and not isinstance(native.envelope, UnsetType):
                for key in sorted((native.envelope or {}).keys() & self.response_keys):
                    scope.left_out.append(Omission(0, f"the response's field `{key}`"))
                return native.envelope and {
                    key: value for key, value in native.envelope.items() if key not in self.response_keys
                }
        return None if self.bare else {}

    def _kept(self, document: Document, messages: Sequence[Message]) -> dict[str, Any] | UnsetType | None:
        """Return the envelope, or UNSET if it is the default one and no required field is missing."""
        usual = document.envelope == (None if self.bare else {})
        return UNSET if usual and not self._required(messages, {}) else document.envelope

    def _is_whole(self, messages: Sequence[Message]) -> bool:
        """Return True if the messages are an unchanged document of this provider from its start."""
        first = messages[0].native if messages else None
        begun = first is not None and first.envelope is not UNSET and not first.mended
        return begun and all(is_native(message, self.name) for message in messages)


def _members(given: Iterable[T], what: str, kind: type[T]) -> Sequence[T]:
    """Return the values to render as a sequence; raise `InvalidSetting` for any value of another type."""
    if isinstance(given, str | dict) or not isinstance(given, Iterable):
        refuse(what, given, f"a list of {kind.__name__} values; `parse` and `tools` read a provider's dicts")
    members = given if isinstance(given, list | tuple) else list(given)
    for number, one in enumerate(members):
        if not isinstance(one, kind):
            refuse(
                f"{what}[{number}]", one, f"a {kind.__name__}; `parse` and `tools` read a provider's dicts"
            )
    return members


def _is_plain(message: Message) -> bool:
    return not any(isinstance(part, OpaquePart | ReasoningPart) for part in message.parts)


def _in_setting(message: Message) -> list[Message]:
    """Return the shortest conversation that can hold a message."""
    native = message.native and replace(message.native, envelope=UNSET, starts=None)
    alone = replace(message, native=native)
    match message.role:
        case "user":
            return [alone]
        case "system":
            return [alone, _QUESTION]
        case "assistant":
            results = [
                ToolCallResult(tool_call_id=call.id, result=wire_text.SILENCE) for call in message.tool_calls
            ]
            answers = [Message.tool(results, id="answers", timestamp=UNKNOWN_TIME)] if results else []
            return [_QUESTION, alone, *answers]
        case _:
            calls = [
                ToolCallRequest(id=one.tool_call_id, name=UNKNOWN_TOOL, args={}, kind=one.kind or None)
                for one in message.tool_results
            ]
            asked = Message.assistant(tool_calls=calls, id="calls", timestamp=UNKNOWN_TIME)
            return [_QUESTION, asked, alone]


def _in_plain_words(part: Part) -> Part | None:
    """Return a part in a form that any provider accepts; None if it means nothing to others."""
    if isinstance(part, OpaquePart):
        return TextPart(part.text) if part.text else None
    return None if isinstance(part, ReasoningPart) else part
