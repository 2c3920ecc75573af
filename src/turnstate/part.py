"""The parts of a message's content: text, media, reasoning, and a provider's own blocks."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, UnsetType
from msgspec.structs import force_setattr

from . import strict_json
from .errors import InvalidMessage
from .value import Value, settle, settle_object

__all__ = [
    "Content",
    "Edit",
    "FilePart",
    "ImagePart",
    "Native",
    "OpaquePart",
    "Part",
    "ReasoningPart",
    "TextPart",
]


class TextPart(Value, frozen=True, tag="text", tag_field="type"):
    """Text."""

    text: str

    def __post_init__(self) -> None:
        if not (type(self.text) is str and self.text.isascii() and self.extra is UNSET):
            settle(self, "text")


class _Media(Value, frozen=True, kw_only=True):
    """Bytes, or a reference to bytes stored elsewhere: exactly one of data, url and file_id."""

    data: bytes | None = None
    url: str | None = None
    file_id: str | None = None
    media_type: str | None = None

    def __post_init__(self) -> None:
        if sum(source is not None for source in (self.data, self.url, self.file_id)) != 1:
            raise InvalidMessage("give exactly one of data, url and file_id")
        if not (self.data is None or type(self.data) is bytes):
            raise InvalidMessage(f"data is bytes, not {type(self.data).__name__}", path="data")
        settle(self, optional=("url", "file_id", "media_type"))


class ImagePart(_Media, frozen=True, kw_only=True, tag="image", tag_field="type"):
    """An image, as bytes or by reference."""

    detail: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        settle(self, optional=("detail",))


class FilePart(_Media, frozen=True, kw_only=True, tag="file", tag_field="type"):
    """A document, a recording or any other file, as bytes or by reference."""

    name: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        settle(self, optional=("name",))


class ReasoningPart(Value, frozen=True, tag="reasoning", tag_field="type"):
    """The model's reasoning; only the provider that signed it may get it back."""

    text: str = ""
    signature: str | None = None

    def __post_init__(self) -> None:
        settle(self, "text", optional=("signature",))


class OpaquePart(Value, frozen=True, kw_only=True, tag="opaque", tag_field="type"):
    """A provider's own block that Turnstate does not model, kept verbatim.

    ``text`` is what other providers get in its place; empty if they get nothing.
    """

    format: str
    body: dict[str, Any]
    text: str = ""

    def __post_init__(self) -> None:
        settle(self, "format", "text")
        settle_object(self, "body")


Part = TextPart | ImagePart | FilePart | ReasoningPart | OpaquePart
Content = str | tuple[Part, ...]


# What a provider's document contained beyond the message, kept so that it gets the same document back.


class Edit(Value, frozen=True):
    """One difference between two JSON values: the value at path ``at`` becomes ``to``, or is removed."""

    at: tuple[str | int, ...]
    to: Any = UNSET

    def __post_init__(self) -> None:
        settle(self)
        if type(self.at) is not tuple or not all(map(_is_step, self.at)):
            raise InvalidMessage("the path of an edit is a tuple of keys and positions", path="at")
        force_setattr(self, "at", tuple(strict_json.plain(self.at, at="at")))
        if self.to is not UNSET:
            force_setattr(self, "to", strict_json.plain(self.to, at="to"))


def _is_step(step: object) -> bool:
    return isinstance(step, str | int) and not isinstance(step, bool)


class Native(Value, frozen=True, kw_only=True):
    """What one provider's document contained that the message does not.

    ``edits`` turn our rendering of the message into the original. ``starts`` is True if the original
    began a new wire message where we would join it to its neighbor, and False for the reverse.
    ``envelope`` (on the first message) holds the document's own fields, such as model, tools and settings;
    None means that the document was a bare list. ``mended`` is True for a message in a window: it is
    rendered in a form that the provider accepts, even if the original was not.
    """

    format: str
    edits: tuple[Edit, ...] = ()
    starts: bool | None = None
    envelope: dict[str, Any] | UnsetType | None = UNSET
    mended: bool = False

    def __post_init__(self) -> None:
        settle(self, "format")
        if type(self.edits) is not tuple or not all(isinstance(edit, Edit) for edit in self.edits):
            raise InvalidMessage("edits is a tuple of Edit", path="edits")
        if not (self.starts is None or isinstance(self.starts, bool)):
            raise InvalidMessage(f"expected true or false, got {type(self.starts).__name__}", path="starts")
        if not isinstance(self.mended, bool):
            raise InvalidMessage(f"expected true or false, got {type(self.mended).__name__}", path="mended")
        if not (self.envelope is UNSET or self.envelope is None):
            settle_object(self, "envelope")
