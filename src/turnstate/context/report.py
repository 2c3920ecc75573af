"""The report: what is in a window and what is not, and why.

Everything that a window did to a conversation is said here: what was evicted, hidden, reduced,
mended, and how the tokens are spent. What costs time to find out is found out when asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

from msgspec import Struct

from .. import sent
from ..message import Message
from ..tokens import message_cost
from .rounds import Repair
from .tally import Tally
from .view import View

__all__ = ["GroupReport", "Report"]


class GroupReport(Struct, frozen=True):
    """One group, weighed: its messages, tokens, and tokens per character."""

    first: str
    messages: int
    tokens: int
    density: float
    kept: bool


class Report:
    """What a window holds and what it left out."""

    def __init__(self, tally: Tally, view: View, usage: Mapping[str, int], events: tuple[str, ...]) -> None:
        self.usage = dict(usage)
        self.events = events
        self.evicted = view.kept - len(view.pinned)
        self._tally, self._view = tally, view
        self._end, self._repairs = len(tally.items), len(tally.repairs)

    @property
    def hidden(self) -> tuple[str, ...]:
        """The kept tool messages whose output is shown as a line."""
        return tuple(self._tally.items[index].id for index in sorted(self._view.hidden))

    @property
    def repairs(self) -> tuple[Repair, ...]:
        """What was mended in the conversation so far, and in the kept messages themselves."""
        return (*self._tally.repairs[: self._repairs], *self._rewritten)

    @cached_property
    def _rewritten(self) -> tuple[Repair, ...]:
        rewritten = self._tally.mended_ids
        places = sorted((self._tally.place(id) or 0, id) for id in rewritten)
        return tuple(Repair(id, rewritten[id]) for at, id in places if at >= self._view.kept)

    @cached_property
    def reduced(self) -> tuple[str, ...]:
        """The kept tool messages whose output was reduced."""
        tally, view = self._tally, self._view
        places = {place for id in tally.whole if (place := tally.place(id)) is not None}
        return tuple(tally.at(place).id for place in sorted(places | view.short.keys()) if place >= view.kept)

    @cached_property
    def groups(self) -> tuple[GroupReport, ...]:
        """Every group before the round under way, weighed."""
        return tuple(self._weighed())

    def to_json(self) -> dict[str, Any]:
        """Give the report as plain JSON."""
        return {
            "usage": self.usage,
            "events": list(self.events),
            "evicted_messages": self.evicted,
            "hidden": list(self.hidden),
            "reduced": list(self.reduced),
            "repairs": [{"id": repair.id, "text": repair.text} for repair in self.repairs],
        }

    def _weighed(self) -> Iterator[GroupReport]:
        starts = [start for start in self._tally.groups if start < self._end]
        for start, end in zip(starts, [*starts[1:], self._end], strict=True):
            items = self._tally.items[start:end]
            tokens = sum(message_cost(item, self._tally.counter).tokens for item in items)
            characters = sum(map(_characters, items))
            kept = start >= self._view.kept or start in self._view.pinned
            yield GroupReport(items[0].id, len(items), tokens, tokens / max(1, characters), kept)


def _characters(message: Message) -> int:
    calls = sum(len(call.name) + len(sent.args_text(call.args)) for call in message.tool_calls)
    return len(message.text) + calls + sum(len(sent.result_text(one.result)) for one in message.tool_results)
