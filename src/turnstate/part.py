"""The parts of a message's content: words, media, reasoning, and a provider's own blocks."""

from __future__ import annotations

from typing import Any

from .errors import InvalidMessage
from .value import Value, settle, settle_object

__all__ = ["Content", "FilePart", "ImagePart", "OpaquePart", "Part", "ReasoningPart", "TextPart"]


class TextPart(Value, frozen=True, tag="text", tag_field="type"):
    """Words."""

    text: str

    def __post_init__(self) -> None:
        settle(self, "text")


class _Media(Value, frozen=True, kw_only=True):
    """Bytes, or a reference to bytes held elsewhere: exactly one of the three."""

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
    """A picture, as bytes or by reference."""

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
    """What the model thought; only the provider that signed it may get it back."""

    text: str = ""
    signature: str | None = None

    def __post_init__(self) -> None:
        settle(self, "text", optional=("signature",))


class OpaquePart(Value, frozen=True, kw_only=True, tag="opaque", tag_field="type"):
    """A provider's own block that Turnstate does not model, verbatim.

    ``text`` is what any other provider is told in its place; nothing, where it says nothing.
    """

    format: str
    body: dict[str, Any]
    text: str = ""

    def __post_init__(self) -> None:
        settle(self, "format", "text")
        settle_object(self, "body")


Part = TextPart | ImagePart | FilePart | ReasoningPart | OpaquePart
Content = str | tuple[Part, ...]
