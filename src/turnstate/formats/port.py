"""The interface of all provider formats.

A format parses a provider's document into messages, renders messages as that provider's document,
and tells whether the provider would accept a document or answer 400. Parsing and rendering in one
format reproduces the document; rendering in *another* format lists what had to be left out.

A program that talks to the provider uses ``request`` for the arguments of the SDK's call, and ``reply`` for
the message in the response.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterable, Callable, Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, overload

from msgspec import Struct

from ..message import Message
from ..toolspec import ToolSpec
from .replies.reply import Collector, ReceivedMessage

if TYPE_CHECKING:
    from .parser import Parser


class Violation(Struct, frozen=True):
    """A reason for the provider to answer 400: the rule, the index of the message, the id in question."""

    rule: str
    index: int
    id: str | None
    text: str

    def __str__(self) -> str:
        return f"message {self.index}: {self.rule}: {self.text}"


class Omission(Struct, frozen=True):
    """Something in a message that cannot be sent to the provider."""

    index: int
    text: str

    def __str__(self) -> str:
        return f"message {self.index}: {self.text}"


class Rendering(Struct, frozen=True):
    """A provider's document, and what it leaves out of the messages that it renders.

    ``payload`` is always an object. ``document`` has the shape that the messages were parsed from: only the
    list if they came as a list (`list_key` then names it).
    """

    payload: dict[str, Any]
    left_out: tuple[Omission, ...] = ()
    list_key: str | None = None

    @property
    def document(self) -> Any:
        """The document in the shape that it was parsed from: a list or an object."""
        return self.payload if self.list_key is None else self.payload[self.list_key]


class Format(ABC):
    """One provider's document format.

    ``list_key`` is the field that holds the messages, ``keys`` are the fields of a request,
    ``response_keys`` are the fields that only a response has, and ``carried`` are the request fields that
    messages and tool definitions carry over to another provider. ``output_option`` is the request option that
    must set the maximum length of the answer, if there is one. With one of the ``continuing`` fields, the
    provider keeps the earlier messages itself, so that a document may answer calls that are not in it.
    """

    name: ClassVar[str]
    list_key: ClassVar[str]
    keys: ClassVar[frozenset[str]]
    response_keys: ClassVar[frozenset[str]]
    carried: ClassVar[frozenset[str]]
    output_option: ClassVar[str | None] = None
    continuing: ClassVar[frozenset[str]] = frozenset()

    @abstractmethod
    def parse(self, payload: Any) -> list[Message]:
        """Read a document: a list of the provider's messages, or an object that holds one."""

    @abstractmethod
    def parser(self) -> Parser:
        """Return a parser for a growing document, which reads only what is new."""

    @abstractmethod
    def rendering(self, messages: Sequence[Message], *, tools: Iterable[ToolSpec] = ()) -> Rendering:
        """Render messages and list what had to be left out."""

    def render(self, messages: Sequence[Message], *, tools: Iterable[ToolSpec] = ()) -> dict[str, Any]:
        """Render messages as the provider's document, an object that holds them under `list_key`."""
        return self.rendering(messages, tools=tools).payload

    @abstractmethod
    def request(
        self, messages: Sequence[Message], /, *, tools: Iterable[ToolSpec] = (), **options: Any
    ) -> dict[str, Any]:
        """Return the arguments of the SDK's call: the messages, the tools, and the options unchanged.

        Raise `InvalidConversation` if the provider would reject the request.
        """

    @abstractmethod
    def reply(self, response: Any) -> ReceivedMessage:
        """Return the message in a response (an SDK's object or its JSON), with new ids, time and usage.

        Raise `ModelFailed` if the response is an error, and `InvalidPayload` if it is not a response.
        """

    @abstractmethod
    def collector(self) -> Collector:
        """Return a collector for a streamed reply, fed chunk by chunk."""

    @overload
    def collect(
        self, chunks: AsyncIterable[Any], *, on_text: Callable[[str], object] | None = None
    ) -> Coroutine[Any, Any, ReceivedMessage]: ...
    @overload
    def collect(
        self, chunks: Iterable[Any], *, on_text: Callable[[str], object] | None = None
    ) -> ReceivedMessage: ...
    @abstractmethod
    def collect(self, chunks: Any, *, on_text: Callable[[str], object] | None = None) -> Any:
        """Collect a reply from the chunks of a stream; return an awaitable if the stream is asynchronous.

        `on_text` is called with each piece of text as it arrives. Raise `ModelFailed` if the stream ends
        before the reply is complete.
        """

    def unfolded(self, message: Message) -> tuple[Message, ...]:
        """Return the calls and results that a message keeps as the provider's own blocks as messages.

        They are calls that the provider ran itself, and some that older versions stored that way. Any other
        message is returned alone.
        """
        return (message,)

    def refers(self, message: Message) -> bool:
        """Return True if a message refers to calls that only the provider has."""
        return False

    @abstractmethod
    def mended(self, message: Message) -> tuple[Message, str | None]:
        """Return a message as a window may send it, and a note on the change if the provider rejects it."""

    @abstractmethod
    def validate(self, payload: Any, *, request: bool = False, strict: bool = False) -> list[Violation]:
        """List what the provider would reject.

        `request` adds the rules about the last message, `strict` adds the warnings.
        """

    @abstractmethod
    def warnings(self, payload: Any) -> list[Violation]:
        """List the fields that the provider does not declare; a compatible server may accept them."""

    @abstractmethod
    def tools(self, payload: Any) -> list[ToolSpec]:
        """Read the tool definitions that a document carries."""
