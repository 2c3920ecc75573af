"""Bytes in documents: data URLs, base64, and the names that providers use for media types."""

from __future__ import annotations

import base64
import binascii
import re

from ..part import FilePart, ImagePart

UNTYPED = "application/octet-stream"
"""The media type of bytes of unknown type."""

_DATA_URL = re.compile(r"data:([^,]*);base64,(.*)", re.DOTALL)

_EXTENSIONS = {
    "png": "image/png",
    "jpeg": "image/jpeg",
    "gif": "image/gif",
    "webp": "image/webp",
    "pdf": "application/pdf",
    "csv": "text/csv",
    "doc": "application/msword",
    "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "xls": "application/vnd.ms-excel",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "html": "text/html",
    "txt": "text/plain",
    "md": "text/markdown",
    "wav": "audio/wav",
    "mp3": "audio/mpeg",
}
_MEDIA_TYPES = {kind: name for name, kind in _EXTENSIONS.items()}


def extension(media_type: str | None) -> str | None:
    """Return the short name of a media type, such as `png` for `image/png`."""
    return _MEDIA_TYPES.get(media_type or "")


def media_type(extension: str) -> str | None:
    """Return the media type of a short name."""
    return _EXTENSIONS.get(extension)


def type_of_url(url: str) -> str | None:
    """Guess the media type of a URL from its extension."""
    ending = url.partition("?")[0].partition("#")[0].rpartition(".")[2].lower()
    return _EXTENSIONS.get({"jpg": "jpeg"}.get(ending, ending))


def is_web(url: str | None) -> bool:
    """Return True for a web URL, which any provider can fetch."""
    return (url or "").startswith(("https://", "http://"))


def by_type(part: ImagePart | FilePart) -> ImagePart | FilePart:
    """Return an image as `ImagePart` and any other file as `FilePart`, if its media type or URL is known."""
    picture = (part.media_type or type_of_url(part.url or "") or "").startswith("image/")
    known = picture or part.media_type not in (None, "", UNTYPED)
    proper = ImagePart if picture else FilePart
    if not known or isinstance(part, proper):
        return part
    return proper(data=part.data, url=part.url, file_id=part.file_id, media_type=part.media_type)


def encoded(data: bytes) -> str:
    """Write bytes as base64."""
    return base64.b64encode(data).decode()


def decoded(text: str) -> bytes | None:
    """Decode base64; return None if the text is not base64."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None


def as_text(data: bytes) -> str | None:
    """Decode UTF-8; return None if the bytes are not UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def image(url: str, detail: str | None = None) -> ImagePart:
    """Return the image that a URL refers to or contains."""
    if source := from_data_url(url):
        return ImagePart(data=source[0], media_type=source[1], detail=detail)
    return ImagePart(url=url, detail=detail)


def data_url(data: bytes, media_type: str | None) -> str:
    """Write bytes as a data URL."""
    return f"data:{media_type or UNTYPED};base64,{encoded(data)}"


def from_data_url(url: str) -> tuple[bytes, str] | None:
    """Read bytes and media type from a data URL; return None for any other URL."""
    if (match := _DATA_URL.fullmatch(url)) and (data := decoded(match[2])) is not None:
        return data, match[1]
    return None
