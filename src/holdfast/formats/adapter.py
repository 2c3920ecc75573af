"""What all formats share: reading a document piece by piece, and putting pieces together.

A *piece* is what one message contributes to a document. A format says how to read a document into
drafts (each with the piece it came from) and how to write the piece of a message; this module does
the rest: ids, pairing, the edits that keep what we do not model, the envelope, what was left out.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import force_setattr, replace

from .. import reader, sent
from ..message import Message, Role
from ..native import Native
from ..part import FilePart, ImagePart, OpaquePart, Part, ReasoningPart, TextPart
from ..toolspec import ToolSpec
from . import media
from .draft import Document, Draft, settled
from .edits import apply, difference
from .pairing import LONGEST_NAME, gathered, is_native, wire_ids, wire_name
from .port import Format, Rendering
from .same import says_something
from .scope import Piece, Scope

__all__ = ["Adapter"]


class Adapter(Format):
    """A format made of its own steps: open, read, write, assemble, and blocks for each kind of part."""

    bare: ClassVar[bool] = False
    unique_ids: ClassVar[bool] = True
    system_anywhere: ClassVar[bool] = False
    longest_name: ClassVar[int] = LONGEST_NAME

    @abstractmethod
    def _accepts_id(self, id: str) -> object:
        """Tell whether the provider takes this call id."""

    @abstractmethod
    def _open(self, payload: Any) -> Document:
        """Take a payload apart."""

    @abstractmethod
    def _read(self, document: Document) -> Iterator[Draft]:
        """Read a document into drafts, in order."""

    @abstractmethod
    def _write(self, message: Message, scope: Scope) -> Any:
        """Write the piece of one message as we would."""

    @abstractmethod
    def _fits(self, body: Any, *, leading: bool) -> bool:
        """Tell whether a piece has a shape that `_assemble` can work with."""

    @abstractmethod
    def _assemble(self, pieces: Sequence[Piece]) -> dict[str, Any]:
        """Put pieces together into the fields of a document."""

    @abstractmethod
    def _write_tools(self, tools: Sequence[ToolSpec]) -> dict[str, Any]:
        """Write tool definitions as fields of a document."""

    @abstractmethod
    def _text(self, text: str, role: Role) -> dict[str, Any] | None:
        """Write a text block, or None for text that the provider takes for nothing."""

    @abstractmethod
    def _media(self, part: ImagePart | FilePart, role: Role) -> dict[str, Any] | None:
        """Write a block of media, or None where the provider cannot take it."""

    @abstractmethod
    def _reasoning(self, part: ReasoningPart) -> dict[str, Any] | None:
        """Write the provider's own reasoning back, or None where it takes none."""

    def _ordered(self, messages: Sequence[Message]) -> list[Message]:
        """Put answers where the provider wants them."""
        return gathered(messages, format=self.name)

    def _required(self, messages: Sequence[Message]) -> dict[str, Any]:
        """Give the fields that a document of these messages cannot do without."""
        return {}

    def parse(self, payload: Any) -> list[Message]:
        """Read a document: a list of the provider's messages, or an object that holds one."""
        reader.check(payload)
        document = self._open(payload)
        drafts = list(self._read(document))
        messages = settled(drafts, Native(format=self.name))
        scope, leading = self._scope(messages), _leading(messages)
        for index, (message, draft) in enumerate(zip(messages, drafts, strict=True)):
            scope.enter(message, index, leading=index < leading)
            native = Native(
                format=self.name,
                edits=difference(self._write(message, scope), draft.piece),
                starts=draft.starts,
                envelope=self._kept(document, messages) if index == 0 else UNSET,
            )
            force_setattr(message, "native", native)  # nobody else has seen the message yet
        return messages

    def rendering(self, messages: Sequence[Message], *, tools: Iterable[ToolSpec] = ()) -> Rendering:
        """Render messages and list what had to be left out."""
        ordered = self._ordered(messages)
        scope = self._scope(ordered)
        fields = self._assemble(self._pieces(ordered, messages, scope))
        envelope, definitions = self._envelope(messages), self._defined(tools)
        payload: Any = fields[self.list_key]
        if envelope is not None or definitions or fields.keys() != {self.list_key}:
            required = {} if definitions or self._is_whole(messages) else self._required(ordered)
            payload = {**required, **(envelope or {}), **fields, **definitions}
        own = msgspec.to_builtins(payload)  # a copy: whoever changes it does not change the messages
        return Rendering(own, tuple(scope.left_out))

    def blocks(self, message: Message, scope: Scope) -> list[dict[str, Any]]:
        """Write the content of a message, part by part; what cannot be taken becomes text or is left out."""
        written = (self._block(part, message.role, scope) for part in message.parts)
        return [block for block in written if block is not None]

    def result_blocks(
        self, parts: Iterable[TextPart | ImagePart | FilePart], scope: Scope
    ) -> list[dict[str, Any]]:
        """Write a result that is a list of content parts."""
        written = (self._block(part, "user", scope) for part in parts)
        return [block for block in written if block is not None]

    def _said(self, text: str, role: Role, scope: Scope) -> str:
        """Give text as this provider is told it: as a notice, where it takes no system message there."""
        notice = role == "system" and not scope.leading and not self.system_anywhere
        return sent.notice(text) if notice and says_something(text) else text

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

    def _pieces(self, ordered: list[Message], messages: Sequence[Message], scope: Scope) -> list[Piece]:
        places = {message.id: index for index, message in enumerate(messages)}
        leading = _leading(ordered)
        pieces: list[Piece] = []
        for index, message in enumerate(ordered):
            scope.enter(message, places[message.id], leading=index < leading)
            pieces.append(self._piece(message, scope))
        return pieces

    def _piece(self, message: Message, scope: Scope) -> Piece:
        left_out = len(scope.left_out)
        body, native = self._write(message, scope), message.native
        if native is None or not scope.native:
            return Piece(message.role, body, leading=scope.leading)
        moved = message.role == "system" and not scope.leading and not self.system_anywhere
        if native.edits and not moved:
            edited = apply(body, native.edits)
            if self._fits(edited, leading=scope.leading):
                body = edited
                del scope.left_out[left_out:]  # the edits put it back
        return Piece(message.role, body, native.starts, scope.leading, native=True)

    def _scope(self, messages: Sequence[Message]) -> Scope:
        names = {call.id: call.name for message in messages for call in message.tool_calls}
        ids = wire_ids(messages, self._accepts_id, unique=self.unique_ids, format=self.name)
        return Scope(self.name, ids, names, self.longest_name)

    def _defined(self, tools: Iterable[ToolSpec]) -> dict[str, Any]:
        """Write definitions under the names by which calls go."""
        named = {wire_name(tool.name, self.longest_name): tool for tool in tools}
        return self._write_tools([replace(tool, name=name) for name, tool in named.items()]) if named else {}

    def _envelope(self, messages: Sequence[Message]) -> dict[str, Any] | None:
        for message in messages:
            native = message.native
            if native and native.format == self.name and not isinstance(native.envelope, UnsetType):
                return native.envelope
        return None if self.bare else {}

    def _kept(self, document: Document, messages: Sequence[Message]) -> dict[str, Any] | UnsetType | None:
        """Give an envelope that says something: that it lacks what is required says something, too."""
        usual = document.envelope == (None if self.bare else {})
        return UNSET if usual and not self._required(messages) else document.envelope

    def _is_whole(self, messages: Sequence[Message]) -> bool:
        """Tell whether messages are a document of this provider from its beginning, and nothing else."""
        begun = bool(messages) and messages[0].native is not None and messages[0].native.envelope is not UNSET
        return begun and all(is_native(message, self.name) for message in messages)


def _leading(messages: Sequence[Message]) -> int:
    """Count the leading run of system messages."""
    return next((i for i, message in enumerate(messages) if message.role != "system"), len(messages))
