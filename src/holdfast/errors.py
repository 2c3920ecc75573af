"""Every error Holdfast raises, and what each means to a shell.

An error says what happened, to which id or path, and what to do about it.
Catch ``HoldfastError`` for all of them; the leaves for what you can act on.

    HoldfastError
    ├── InputError                what came from outside cannot be used (also a ValueError)
    │   ├── MalformedJSON         not JSON at all, or not UTF-8
    │   ├── ForbiddenJSON         JSON, but with a duplicate key, NaN, a lone surrogate, a foreign type
    │   ├── TooLarge              more bytes, or deeper nesting, than a reader accepts
    │   ├── InvalidMessage        a message whose fields contradict its role
    │   ├── InvalidPayload        a document that is not of the provider's format
    │   ├── UnknownName           no format, counter or model goes by that name
    │   └── NewerFormat           written by a newer Holdfast than this one
    ├── InvalidConversation       well-formed, but a provider would answer 400
    ├── ContextOverflow           even the least that must be sent exceeds the budget
    └── ModelFailed               the model gave no complete answer
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .message import Message

__all__ = [
    "ContextOverflow",
    "ForbiddenJSON",
    "HoldfastError",
    "InputError",
    "InvalidConversation",
    "InvalidMessage",
    "InvalidPayload",
    "MalformedJSON",
    "ModelFailed",
    "NewerFormat",
    "TooLarge",
    "UnknownName",
    "exit_code",
]


class HoldfastError(Exception):
    """Something went wrong in Holdfast."""

    def __init__(self, text: str = "") -> None:
        super().__init__(text or self.__doc__ or type(self).__name__)

    @property
    def text(self) -> str:
        """The message without any position in a document."""
        return str(self.args[0])


class InputError(HoldfastError, ValueError):
    """The input cannot be used; ``path`` says where in the document the fault stands."""

    def __init__(self, text: str = "", *, path: str = "") -> None:
        super().__init__(text)
        self.path = path

    def __str__(self) -> str:
        return f"{self.text} (at {self.path})" if self.path else self.text


class MalformedJSON(InputError):
    """The text is not JSON."""


class ForbiddenJSON(InputError):
    """The JSON holds something that cannot be kept faithfully on every store."""


class TooLarge(InputError):
    """The document is larger or deeper than the reader accepts."""


class InvalidMessage(InputError):
    """The fields of a message contradict its role."""


class InvalidPayload(InputError):
    """The document is not of the provider's format."""


class UnknownName(InputError):
    """Nothing goes by that name."""


class NewerFormat(InputError):
    """The document was written by a newer Holdfast; update this one to read it."""


class InvalidConversation(HoldfastError):
    """A provider would reject the conversation."""


class ContextOverflow(HoldfastError):
    """What must be sent exceeds the budget; nothing was deleted, and the conversation stays usable."""

    def __init__(
        self, text: str = "", *, limit: int = 0, head: int = 0, question: int = 0, last: int = 0
    ) -> None:
        super().__init__(text)
        self.limit, self.head, self.question, self.last = limit, head, question, last

    def __str__(self) -> str:
        return (
            f"{self.text}: head {self.head:,} + question {self.question:,} + kept {self.last:,} tokens "
            f"in a budget of {self.limit:,}; raise the budget, or shorten prompt, tools or message"
        )


class ModelFailed(HoldfastError):
    """The model gave no complete answer; ``partial`` is what it had said until then."""

    def __init__(self, text: str = "", *, partial: Message | None = None) -> None:
        super().__init__(text)
        self.partial = partial


EXIT_CODES: dict[type[HoldfastError], int] = {
    HoldfastError: 1,
    InvalidConversation: 1,
    ContextOverflow: 1,
    InputError: 2,
}


def exit_code(error: HoldfastError) -> int:
    """Tell a shell what happened: 1 for an invalid conversation, 2 for bad usage or input."""
    return next(EXIT_CODES[kind] for kind in type(error).__mro__ if kind in EXIT_CODES)
