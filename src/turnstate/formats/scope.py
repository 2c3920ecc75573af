"""The state of one rendering: its pieces, the ids in use, and what had to be left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from .. import wire_text
from ..ids import CallId
from ..message import Message, Role, ToolCallRequest
from ..part import FilePart, ImagePart, TextPart
from . import media
from .pairing import wire_name
from .port import Omission


class Piece(NamedTuple):
    """What a message contributes to a document.

    `starts` keeps it separate from its neighbor; `native` means that it is from the provider's own document,
    and `mended` that it may be sent in another form than there.
    """

    role: Role
    body: Any
    starts: bool | None = None
    leading: bool = False
    native: bool = False
    mended: bool = False


class Slot(NamedTuple):
    """Where a piece names a call, or the call that it answers: the paths to the id and the name."""

    answers: bool
    id: tuple[str | int, ...] | None
    name: tuple[str | int, ...] | None = None


class Scope:
    """The state of one rendering: the current message, the ids in use, and what was left out so far."""

    def __init__(
        self,
        format: str,
        ids: dict[CallId, str],
        names: dict[CallId, str],
        longest_name: int,
        *,
        natives: Mapping[CallId, ToolCallRequest],
    ) -> None:
        self.names = names
        self.natives = natives  # the calls that are not a function's
        self.leading = False
        self.left_out: list[Omission] = []
        self.silent: set[CallId] = set()
        self._format = format
        self.ids = ids
        self._longest_name = longest_name
        self._index = 0
        self._origin: str | None = None

    def enter(self, message: Message, index: int, *, leading: bool) -> None:
        """Make the message at `index` of the rendered list the current one."""
        self.leading = leading
        self._index = index
        self._origin = message.native.format if message.native else None

    @property
    def native(self) -> bool:
        """True if the current message comes from a document of this provider."""
        return self._origin == self._format

    def wire_id(self, call: CallId) -> str:
        """Return the id under which the provider knows a call."""
        return self.ids[call]

    def omit(self, text: str) -> None:
        """Record that something in the current message is left out."""
        self.left_out.append(Omission(self._index, text))

    def name(self, name: str) -> str:
        """Return a tool's name in the form that the provider accepts."""
        wire = wire_name(name, self._longest_name)
        if wire != name:
            self.omit(f"the tool name {name!r:.80} is sent as {wire}")
        return wire

    def knows(self, part: ImagePart | FilePart) -> bool:
        """Return True if a file's id is valid here; files belong to a company, not to a format."""
        return (
            part.file_id is None or self._origin is None or _company(self._origin) == _company(self._format)
        )

    def describe(self, part: ImagePart | FilePart) -> str:
        """Return the text that replaces a part that the provider does not accept."""
        medium = media.by_type(part)
        self.omit(f"{'image' if isinstance(medium, ImagePart) else 'file'} part sent as text")
        return wire_text.described(medium)

    def in_words(self, part: TextPart | ImagePart | FilePart) -> str:
        """Return a part as text, where nothing else is accepted."""
        return part.text if isinstance(part, TextPart) else self.describe(part)


def _company(format: str) -> str:
    return format.partition("-")[0]
