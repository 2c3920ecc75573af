"""The size of an image, read from the first bytes of the file.

PNG, JPEG, GIF and WebP say their width and height near the start. Reading them needs no imaging
library and never fails: whatever is not such a file, or is cut off before it says, has no size.
"""

from __future__ import annotations

import struct

from msgspec import Struct

__all__ = ["Size", "size_of"]

_START_OF_FRAME = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # tables and extensions share the range
_STANDALONE = frozenset({0x01, *range(0xD0, 0xD9)})  # JPEG markers that no length follows


class Size(Struct, frozen=True):
    """Width and height in pixels."""

    width: int
    height: int


def size_of(data: bytes) -> Size | None:
    """Read the size of an image file, or None where it does not tell."""
    try:
        found = _read(data)
    except (struct.error, IndexError):
        return None  # the file ends before it says
    return found if found and found.width > 0 and found.height > 0 else None


def _read(data: bytes) -> Size | None:
    if data.startswith(b"\x89PNG\r\n\x1a\n") and data[12:16] == b"IHDR":
        return Size(*struct.unpack_from(">II", data, 16))
    if data.startswith((b"GIF87a", b"GIF89a")):
        return Size(*struct.unpack_from("<HH", data, 6))
    if data.startswith(b"\xff\xd8"):
        return _jpeg(data)
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return _webp(data)
    return None


def _jpeg(data: bytes) -> Size | None:
    """Walk the segments up to the first frame."""
    at = 2
    while data[at] == 0xFF:
        marker = data[at + 1]
        if marker == 0xFF:  # fill byte
            at += 1
        elif marker in _STANDALONE:
            at += 2
        elif marker in _START_OF_FRAME:
            height, width = struct.unpack_from(">HH", data, at + 5)
            return Size(width, height)
        else:
            at += 2 + max(2, struct.unpack_from(">H", data, at + 2)[0])
    return None


def _webp(data: bytes) -> Size | None:
    kind = data[12:16]
    if kind == b"VP8X":
        bits = int.from_bytes(_exactly(data[24:30], 6), "little")
        return Size((bits & 0xFFFFFF) + 1, (bits >> 24) + 1)
    if kind == b"VP8L" and data[20] == 0x2F:
        bits = int.from_bytes(_exactly(data[21:25], 4), "little")
        return Size((bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1)
    if kind == b"VP8 " and data[23:26] == b"\x9d\x01\x2a":
        width, height = struct.unpack_from("<HH", data, 26)
        return Size(width & 0x3FFF, height & 0x3FFF)
    return None


def _exactly(data: bytes, length: int) -> bytes:
    if len(data) != length:
        raise IndexError(length)
    return data
