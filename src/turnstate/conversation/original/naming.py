"""Naming: ids for messages and calls that have none of ours, the same whenever a document is read.

An id follows from the conversation, the place and the words. Behind the place where a tangent leaves the
main conversation the same words at the same place are another message, and get another id.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from ... import ids
from ...ids import CallId, MessageId

__all__ = ["Naming"]

ASIDE = b"tangent"

_encode = msgspec.json.Encoder(order="deterministic").encode


class Naming:
    """Names the messages of one path in their order, and knows the calls that were made last."""

    def __init__(self, conversation: str, *, aside_from: int | None = None) -> None:
        self._conversation, self._aside_from = conversation.encode(), aside_from
        self._place = 0
        self._awaited = dict[str, list[CallId]]()
        self.theirs = dict[CallId, str]()

    def message(self, said: Any) -> MessageId:
        """Name the next message."""
        self._place += 1
        return ids.derived_id(self._place, *self._salt, _encode(said))

    def calls(self, theirs: Iterable[str]) -> list[CallId]:
        """Name the calls of the message that was named last; results of earlier ones come too late now."""
        self._awaited = {}
        found = list[CallId]()
        for number, id in enumerate(theirs):
            call = ids.derived_call_id(self._place, *self._salt, str(number).encode(), id.encode())
            self._awaited.setdefault(id, []).append(call)
            self.theirs[call] = id
            found.append(call)
        return found

    def answered(self, theirs: str) -> CallId:
        """Give the call that a result answers; where there is none, its id as it came."""
        if waiting := self._awaited.get(theirs):
            return waiting.pop(0)
        return CallId(theirs) if theirs else ids.derived_call_id(self._place, *self._salt)

    @property
    def _salt(self) -> tuple[bytes, ...]:
        aside = self._aside_from is not None and self._place > self._aside_from
        return (self._conversation, ASIDE) if aside else (self._conversation,)
