"""The port of every provider format.

A format reads a provider's document into messages, renders messages as that provider's document,
and says whether the provider would take a document or answer 400. Parsing and rendering in one
format gives the same document; what rendering in *another* format had to leave out is listed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from msgspec import Struct

from ..message import Message
from ..toolspec import ToolSpec

__all__ = ["Format", "Omission", "Rendering", "Violation"]


class Violation(Struct, frozen=True):
    """A reason for the provider to answer 400: the rule, the message's index, the id concerned."""

    rule: str
    index: int
    id: str | None
    text: str

    def __str__(self) -> str:
        return f"message {self.index}: {self.rule}: {self.text}"


class Omission(Struct, frozen=True):
    """Something of a message that the provider cannot be given."""

    index: int
    text: str

    def __str__(self) -> str:
        return f"message {self.index}: {self.text}"


class Rendering(Struct, frozen=True):
    """A provider's document, and what it does not say of the messages it was made from."""

    payload: Any
    left_out: tuple[Omission, ...]


class Format(ABC):
    """One provider's document format.

    ``list_key`` is the field that holds the messages, ``keys`` are the fields of a request,
    ``response_keys`` those that only a response has, and ``carried`` the fields of a request that
    messages and tool definitions tell another provider.
    """

    name: ClassVar[str]
    list_key: ClassVar[str]
    keys: ClassVar[frozenset[str]]
    response_keys: ClassVar[frozenset[str]]
    carried: ClassVar[frozenset[str]]

    @abstractmethod
    def parse(self, payload: Any) -> list[Message]:
        """Read a document: a list of the provider's messages, or an object that holds one."""

    @abstractmethod
    def rendering(self, messages: Sequence[Message], *, tools: Iterable[ToolSpec] = ()) -> Rendering:
        """Render messages and list what had to be left out."""

    def render(self, messages: Sequence[Message], *, tools: Iterable[ToolSpec] = ()) -> Any:
        """Render messages as the provider's document."""
        return self.rendering(messages, tools=tools).payload

    @abstractmethod
    def mended(self, message: Message) -> tuple[Message, str | None]:
        """Return a message as a window may send it, and what was done to it if the provider rejects it."""

    @abstractmethod
    def validate(self, payload: Any, *, request: bool = False, strict: bool = False) -> list[Violation]:
        """List what the provider would reject.

        `request` adds the rules about the last message, `strict` adds the warnings.
        """

    @abstractmethod
    def warnings(self, payload: Any) -> list[Violation]:
        """List the fields that the provider does not declare; a compatible server may take them."""

    @abstractmethod
    def tools(self, payload: Any) -> list[ToolSpec]:
        """Read the tool definitions that a document carries."""
