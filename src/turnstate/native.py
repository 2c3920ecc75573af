"""What a provider's document said beyond the message, kept so that it gets the same document back."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, UnsetType
from msgspec.structs import force_setattr

from . import reader
from .errors import InvalidMessage
from .value import Value, settle, settle_object

__all__ = ["Edit", "Native"]


class Edit(Value, frozen=True):
    """One difference between two JSON values: at this path stands ``to``, or nothing."""

    at: tuple[str | int, ...]
    to: Any = UNSET

    def __post_init__(self) -> None:
        settle(self)
        if type(self.at) is not tuple or not all(map(_is_step, self.at)):
            raise InvalidMessage("the path of an edit is a tuple of keys and positions", path="at")
        force_setattr(self, "at", tuple(reader.plain(self.at, at="at")))
        if self.to is not UNSET:
            force_setattr(self, "to", reader.plain(self.to, at="to"))


def _is_step(step: object) -> bool:
    return isinstance(step, str | int) and not isinstance(step, bool)


class Native(Value, frozen=True, kw_only=True):
    """What one provider's document said that the message does not.

    ``edits`` turn our rendering of the message into the original. ``starts`` says whether the
    original began a new wire message here where we would have joined it to its neighbour, or the
    other way round. ``envelope`` (on the first message) holds the document's own fields: model,
    tools, settings; None means that the document was a bare list. ``mended`` says that a window holds
    the message: it is then written as the provider takes it, even where the original was not.
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
