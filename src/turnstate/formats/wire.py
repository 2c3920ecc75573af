"""Untyped JSON: taking a value for what it ought to be, or saying where it is not."""

from __future__ import annotations

from typing import Any

import msgspec

from ..errors import InvalidPayload

__all__ = ["expect", "text_or_none"]


def expect(value: Any, shape: Any, path: str) -> Any:
    """Convert a wire value to its typed shape, or say where it is not of the format."""
    try:
        return msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        text, _, inner = str(error).partition(" - at `$")
        raise InvalidPayload(text, path=path + inner.rstrip("`")) from None


def text_or_none(value: Any) -> str | None:
    """Take text for itself and anything else for nothing."""
    return value if isinstance(value, str) else None
