"""What is known of everything that was cut: the digest as a value, bounded whatever the history."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from ..errors import InputError
from .mentions import Mentions

__all__ = ["Digest"]


class Digest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How much was cut, what the user asked for, what the tools did, and what was known before.

    ``topics`` are the user's own words. ``tasks`` are those that were open at the end, in the order of
    the list that named them. ``carried`` is a summary that was written elsewhere, by a model or in a
    list from outside; it covers what came before everything else here.
    """

    messages: int = 0
    turns: int = 0
    topics: Mentions = Mentions()
    succeeded: Mentions = Mentions()
    failed: Mentions = Mentions()
    files: Mentions = Mentions()
    ids: Mentions = Mentions()
    decided: Mentions = Mentions()
    tasks: tuple[str, ...] = ()
    carried: str = ""

    def to_json(self) -> dict[str, Any]:
        """Give a digest as plain JSON values, to be kept beside the cut that it belongs to."""
        plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self))
        return plain

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> Digest:
        """Take a digest from plain JSON values; fields that a newer version added are left out."""
        try:
            return msgspec.convert(plain, cls)
        except msgspec.ValidationError as error:
            raise InputError(f"not a digest: {error}; make it anew from the log") from None
