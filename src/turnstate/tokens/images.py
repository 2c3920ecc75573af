"""The cost of an image under the rule of each provider.

Each provider scales an image down and charges for its area; OpenAI charges by tiles, or by patches for its
small models, and Gemini by tiles. An
image whose size is unknown, or that is only a reference, costs as much as the largest ordinary image
under the rule: a window with a little room left is better than a rejected request. Rules differ
between models of one provider and change, so the result is an estimate with every counter.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from functools import partial

from msgspec import Struct

from ..part import ImagePart

# The size of an image is read from the first bytes of the file.


_START_OF_FRAME = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # tables and extensions share the range
_STANDALONE = frozenset({0x01, *range(0xD0, 0xD9)})  # JPEG markers that no length follows


class Size(Struct, frozen=True):
    """Width and height in pixels."""

    width: int
    height: int


def size_of(data: bytes) -> Size | None:
    """Read the size of an image file; return None if it cannot be determined."""
    try:
        found = _read(data)
    except (struct.error, IndexError):
        return None  # the file ends before its size
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


ImageRule = Callable[[ImagePart], int]
"""A function that returns the tokens of one image."""

# OpenAI: scale to fit a square of 2,048, then the short side to 768, and charge for tiles of 512.
_OPENAI_BASE, _OPENAI_TILE = 85, 170
_OPENAI_BOX, _OPENAI_SHORT, _OPENAI_SIDE = 2048, 768, 512
_OPENAI_TILES = 8  # two tiles by four, the maximum

# GPT-4o mini charges the same tiles at another price, so that an image costs as much as with GPT-4o.
_MINI_BASE, _MINI_TILE = 2833, 5667

# The small models of GPT-4.1 and GPT-5, and o4-mini: patches of 32 pixels, at most 1,536 of them, each as
# many tokens as OpenAI's guide to images says. Users measured fewer for GPT-5 mini and nano (1.2 and 1.5).
_PATCH, _MOST_PATCHES = 32, 1536

# Anthropic: scale the long side to 1,568, and charge a token for 750 pixels, at most 1,600. From Opus 4.7 on
# images keep up to 2,576 pixels on the long side, and 3.75 million in all.
_ANTHROPIC_LONG, _ANTHROPIC_PIXELS, _ANTHROPIC_MOST = 1568, 750, 1600
_LARGE_LONG, _LARGE_MOST = 2576, 5000

# Gemini: one price up to 384 by 384; beyond that, the same price for every tile of 768.
_GEMINI_TILE, _GEMINI_SMALL, _GEMINI_SIDE = 258, 384, 768
_GEMINI_UNKNOWN = 6 * _GEMINI_TILE  # a screen of 1,920 by 1,080


def tiles(image: ImagePart, base: int, tile: int) -> int:
    """Count an image by tiles of 512 pixels, as OpenAI's large models do."""
    if image.detail == "low":
        return base
    size = _size(image)
    if size is None:
        return base + _OPENAI_TILES * tile
    fitted = _shrunk(size, by=max(size.width, size.height), to=_OPENAI_BOX)
    fitted = _shrunk(fitted, by=min(fitted.width, fitted.height), to=_OPENAI_SHORT)
    return base + tile * _tiles(fitted, _OPENAI_SIDE)


def openai(image: ImagePart) -> int:
    """Count an image as most of OpenAI's models do."""
    return tiles(image, _OPENAI_BASE, _OPENAI_TILE)


def patches(image: ImagePart, each: float) -> int:
    """Count an image by patches of 32 pixels, as OpenAI's small models do; ``each`` is the price of one."""
    size = _size(image)
    if size is None:
        return math.ceil(_MOST_PATCHES * each)
    count = _tiles(size, _PATCH)
    if count > _MOST_PATCHES:  # scaled until a whole number of patches covers one side
        scale = math.sqrt(_PATCH * _PATCH * _MOST_PATCHES / (size.width * size.height))
        across, down = size.width * scale / _PATCH, size.height * scale / _PATCH
        scale *= min(max(1, math.floor(side)) / side for side in (across, down))
        fitted = Size(max(1, int(size.width * scale)), max(1, int(size.height * scale)))
        count = min(_MOST_PATCHES, _tiles(fitted, _PATCH))
    return math.ceil(count * each)


def anthropic(image: ImagePart) -> int:
    """Count an image as Claude did before Opus 4.7."""
    return _by_area(image, _ANTHROPIC_LONG, _ANTHROPIC_MOST)


def anthropic_large(image: ImagePart) -> int:
    """Count an image as Claude does since Opus 4.7."""
    return _by_area(image, _LARGE_LONG, _LARGE_MOST)


def _by_area(image: ImagePart, long: int, most: int) -> int:
    size = _size(image)
    if size is None:
        return most
    fitted = _shrunk(size, by=max(size.width, size.height), to=long)
    return min(most, -(-fitted.width * fitted.height // _ANTHROPIC_PIXELS))


def gemini(image: ImagePart) -> int:
    """Count an image as Gemini does."""
    size = _size(image)
    if size is None:
        return _GEMINI_UNKNOWN
    if max(size.width, size.height) <= _GEMINI_SMALL:
        return _GEMINI_TILE
    return _GEMINI_TILE * _tiles(size, _GEMINI_SIDE)


def cautious(image: ImagePart) -> int:
    """Count an image by the most expensive rule, for a provider that publishes none."""
    return max(rule(image) for rule in (openai, anthropic, gemini))  # not those of single models


OPENAI_RULES: dict[str, ImageRule] = {
    "o200k_base:patches-1.62": partial(patches, each=1.62),
    "o200k_base:patches-1.72": partial(patches, each=1.72),
    "o200k_base:patches-2.46": partial(patches, each=2.46),
    "o200k_base:tiles-5667": partial(tiles, base=_MINI_BASE, tile=_MINI_TILE),
}
"""The rules of OpenAI's models that count images in another way than the others, by counter."""

_RULES: dict[str, ImageRule] = OPENAI_RULES | {
    "cl100k_base": openai,
    "o200k_base": openai,
    "estimate:claude": anthropic,
    "estimate:claude-4.7": anthropic_large,
    "estimate:gemini": gemini,
}


def rule_for(counter_name: str) -> ImageRule:
    """Return the image rule of the provider that a counter is for."""
    return _RULES.get(counter_name, cautious)


def _size(image: ImagePart) -> Size | None:
    return None if image.data is None else size_of(image.data)


def _shrunk(size: Size, *, by: int, to: int) -> Size:
    """Scale down so that the side `by` becomes `to`; never scale up."""
    if by <= to:
        return size
    return Size(max(1, size.width * to // by), max(1, size.height * to // by))


def _tiles(size: Size, side: int) -> int:
    return -(-size.width // side) * -(-size.height // side)
