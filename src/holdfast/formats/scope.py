"""One rendering under way: the pieces it makes, the ids in use, and what had to be left out."""

from __future__ import annotations

from typing import Any, NamedTuple

from .. import sent
from ..ids import CallId
from ..message import Message, Role
from ..part import Part
from .pairing import wire_name
from .port import Omission

__all__ = ["Piece", "Scope"]


class Piece(NamedTuple):
    """What a message contributes to a document; `starts` keeps it apart from its neighbour."""

    role: Role
    body: Any
    starts: bool | None = None
    leading: bool = False


class Scope:
    """One rendering under way: the ids in use, and what had to be left out so far."""

    def __init__(self, format: str, ids: dict[CallId, str], names: dict[CallId, str]) -> None:
        self.format = format
        self.names = names
        self._ids = ids
        self.index = 0
        self.leading = False
        self.left_out: list[Omission] = []
        self.silent: set[CallId] = set()

    def wire_id(self, call: CallId) -> str:
        """Give the id under which the provider knows a call."""
        return self._ids[call]

    def omit(self, text: str) -> None:
        """Note that something of the current message is left out."""
        self.left_out.append(Omission(self.index, text))

    def name(self, name: str, longest: int = 64) -> str:
        """Give a tool's name as the provider takes it."""
        wire = wire_name(name, longest)
        if wire != name:
            self.omit(f"the tool name {name!r:.80} is sent as {wire}")
        return wire

    def describe(self, part: Part) -> str:
        """Give the text that stands for a part which the provider cannot take."""
        self.omit(f"{type(part).__name__.removesuffix('Part').lower()} part sent as text")
        return sent.described(part)

    def is_native(self, message: Message) -> bool:
        """Tell whether this very provider's document held the message."""
        return message.native is not None and message.native.format == self.format
