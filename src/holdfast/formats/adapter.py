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

from .. import reader, sent
from ..message import Message, Role
from ..native import Native
from ..part import FilePart, ImagePart, OpaquePart, Part, ReasoningPart, TextPart
from ..toolspec import ToolSpec
from .draft import Document, Draft, settled
from .edits import apply, difference
from .pairing import gathered, wire_ids
from .port import Format, Rendering
from .scope import Piece, Scope

__all__ = ["Adapter"]


class Adapter(Format):
    """A format made of its own steps: open, read, write, assemble, and blocks for each kind of part."""

    bare: ClassVar[bool] = False
    unique_ids: ClassVar[bool] = True
    system_anywhere: ClassVar[bool] = False

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
        return gathered(messages)

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
            scope.index, scope.leading = index, index < leading
            native = Native(
                format=self.name,
                edits=difference(self._write(message, scope), draft.piece),
                starts=draft.starts,
                envelope=self._kept(document.envelope) if index == 0 else UNSET,
            )
            messages[index] = msgspec.structs.replace(message, native=native)
        return messages

    def rendering(self, messages: Sequence[Message], *, tools: Iterable[ToolSpec] = ()) -> Rendering:
        """Render messages and list what had to be left out."""
        ordered = self._ordered(messages)
        scope, leading = self._scope(ordered), _leading(ordered)
        pieces: list[Piece] = []
        for scope.index, message in enumerate(ordered):
            scope.leading = scope.index < leading
            pieces.append(self._piece(message, scope))
        fields = self._assemble(pieces)
        envelope, definitions = self._envelope(ordered), self._write_tools(tuple(tools)) if tools else {}
        if envelope is None and not definitions and fields.keys() == {self.list_key}:
            return Rendering(fields[self.list_key], tuple(scope.left_out))
        required = {} if definitions else self._required(ordered)
        return Rendering({**fields, **required, **(envelope or {}), **definitions}, tuple(scope.left_out))

    def blocks(self, message: Message, scope: Scope) -> list[dict[str, Any]]:
        """Write the content of a message, part by part; what cannot be taken becomes text or is left out."""
        written = (self._block(part, message, scope) for part in message.parts)
        return [block for block in written if block is not None]

    def _block(self, part: Part, message: Message, scope: Scope) -> dict[str, Any] | None:
        role = message.role
        match part:
            case TextPart():
                notice = role == "system" and not scope.leading and not self.system_anywhere
                return self._text(sent.notice(part.text) if notice else part.text, role)
            case ReasoningPart():
                block = self._reasoning(part) if scope.is_native(message) else None
                if block is None:
                    scope.omit("reasoning of another provider")
                return block
            case OpaquePart() if part.format == self.name:
                return dict(part.body)
            case OpaquePart():
                scope.omit(f"a block of {part.format}")
                return self._text(part.text, role) if part.text else None
            case _:
                return self._media(part, role) or self._text(scope.describe(part), role)

    def result_blocks(
        self, parts: Iterable[TextPart | ImagePart | FilePart], scope: Scope
    ) -> list[dict[str, Any]]:
        """Write a result that is a list of content parts."""
        written = (
            self._text(part.text, "user")
            if isinstance(part, TextPart)
            else self._media(part, "user") or self._text(scope.describe(part), "user")
            for part in parts
        )
        return [block for block in written if block is not None]

    def _piece(self, message: Message, scope: Scope) -> Piece:
        body = self._write(message, scope)
        native = message.native
        if native is None or native.format != self.name:
            return Piece(message.role, body, leading=scope.leading)
        return Piece(message.role, apply(body, native.edits), native.starts, scope.leading)

    def _scope(self, messages: Sequence[Message]) -> Scope:
        names = {call.id: call.name for message in messages for call in message.tool_calls}
        return Scope(self.name, wire_ids(messages, self._accepts_id, unique=self.unique_ids), names)

    def _envelope(self, messages: Sequence[Message]) -> dict[str, Any] | None:
        for message in messages:
            if message.native and not isinstance(message.native.envelope, UnsetType):
                if message.native.format == self.name:
                    return message.native.envelope
                break
        return None if self.bare else {}

    def _kept(self, envelope: dict[str, Any] | None) -> dict[str, Any] | UnsetType | None:
        return UNSET if envelope == (None if self.bare else {}) else envelope


def _leading(messages: Sequence[Message]) -> int:
    """Count the leading run of system messages."""
    return next((i for i, message in enumerate(messages) if message.role != "system"), len(messages))
