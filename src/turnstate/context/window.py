"""The window: what is sent, what it costs, what was decided for it, and why.

A window has five parts: the head's system messages, the summary, the sticky context, the part of the
conversation that the view keeps, and the recalled memory before the newest user message. It knows how many of
its leading tokens are the same, byte for byte, as in the previous request: those a provider's prompt cache
can reuse.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from functools import cached_property
from typing import Any

from msgspec import Struct

from .. import formats, wire_text
from ..entry import Cut, Decision
from ..formats.port import Format
from ..ids import MessageId
from ..message import Message
from ..tokens import message_cost
from .head import OPENER, Preface
from .policy import Policy
from .tally import Shown, Tally
from .turns import Repair, elsewhere
from .view import View

# The report: what is in a window and what is not, and why.


class GroupReport(Struct, frozen=True):
    """The weight of one group: its messages, tokens, and tokens per character."""

    first: str
    messages: int
    tokens: int
    density: float
    kept: bool


class WindowReport:
    """What a window contains and what it leaves out."""

    def __init__(self, tally: Tally, view: View, usage: Mapping[str, int], events: tuple[str, ...]) -> None:
        self.usage = dict(usage)
        self.events = events
        self.dropped: tuple[
            str, ...
        ] = ()  # sticky files that are not sent, and why; set by the caller that read them
        self.evicted = view.kept - len(view.pinned)
        self._tally, self._view = tally, view
        self._end, self._repairs = len(tally.items), len(tally.repairs)

    @property
    def hidden(self) -> tuple[str, ...]:
        """The kept tool messages whose output is shown as a line."""
        return tuple(self._tally.items[index].id for index in sorted(self._view.hidden))

    @property
    def repairs(self) -> tuple[Repair, ...]:
        """What was repaired in the conversation so far, and in the kept messages themselves."""
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
        """The weight of every group before the round in progress."""
        return tuple(self._weighed())

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain JSON."""
        return {
            "usage": self.usage,
            "events": list(self.events),
            "evicted_messages": self.evicted,
            "hidden": list(self.hidden),
            "dropped": list(self.dropped),
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
    calls = sum(len(call.name) + len(wire_text.args_text(call)) for call in message.tool_calls)
    return (
        len(message.text)
        + calls
        + sum(len(wire_text.result_text(one.result)) for one in message.tool_results)
    )


class Lead:
    """The messages before the kept part: head, summary, context, and the question that stays.

    Recalled memory is part of it if the question is, or if there is no question.
    """

    def __init__(
        self, preface: Preface, summary: Shown | None, recall: Shown | None, tally: Tally, view: View
    ) -> None:
        rows = [(message, cost) for _, message, cost in preface.systems]
        rows += [summary] if summary else []
        rows += [(message, cost) for _, message, cost in preface.context]
        rows += [recall] if recall else []
        pinned = [(tally.at(index), tally.cost(index)) for index in view.pinned]
        opened = pinned or preface.context or recall
        first = tally.at(view.kept).role if view.kept < tally.end else "user"
        if not opened and first not in ("user", "tool"):  # results come first if the provider has their calls
            pinned = [(OPENER, preface.opener)]
        self.messages = [message for message, _ in rows + pinned]
        self.costs = [cost for _, cost in rows + pinned]
        self.summary = summary[1] if summary else 0
        self.recall = recall
        self.pinned = sum(cost for _, cost in pinned)
        self.tokens = sum(self.costs) + preface.fixed


class PendingCut(Struct, frozen=True):
    """A cut that may be made: the decision, the messages that leave, and the summary shown now."""

    cut: Cut
    evicted: tuple[Message, ...]
    previous_summary: str = ""


class Window:
    """An immutable request: messages in order, with their tokens.

    ``decisions`` holds the new decisions, which the caller writes to the log, ``pending_cut`` the cut among
    them; ``applied`` holds all decisions that the window was made under. ``shared`` is the number of leading
    messages shared with the ``previous`` window. ``reused_prefix_tokens`` is the number of leading tokens
    shared with it or with the ``latest`` window, whichever is more. ``recall`` is the recalled memory and its
    tokens.
    """

    def __init__(
        self,
        tally: Tally,
        view: View,
        preface: Preface,
        lead: Lead,
        *,
        limit: int,
        recall: Shown | None = None,
        previous: Window | None = None,
        latest: Window | None = None,
    ) -> None:
        self.tally, self.view, self.preface, self.lead, self.limit = tally, view, preface, lead, limit
        self.recall = recall
        self.recall_tokens = recall[1] if recall else 0
        inside = recall if recall and not lead.recall else None
        self._inserted = inside[0] if inside else None
        self._insert_at = len(lead.messages) + tally.turns[-1] - view.kept if inside else 0
        self.tokens = lead.tokens + tally.total(view.kept) - view.saved + (inside[1] if inside else 0)
        self.finished = len(lead.messages) + max(0, len(tally.items) - view.kept) + bool(inside)
        self.length = tally.length
        self.decisions: tuple[Decision, ...] = ()
        self.applied: tuple[Decision, ...] = ()
        self.pending_cut: PendingCut | None = None
        self.report: WindowReport
        known = previous.messages[: previous.stays_in(self)] if previous else ()
        self.messages: tuple[Message, ...] = self._messages(known)
        self.shared = len(known)
        if previous:
            self.shared += _shared(self.messages[len(known) :], previous.messages[len(known) :])
        self.reused_prefix_tokens = self._reused(previous, self.shared)
        if latest and latest is not previous:
            also = self._reused(latest, _shared(self.messages, latest.messages))
            self.reused_prefix_tokens = max(self.reused_prefix_tokens, also)

    def render(self, format: Format | str, *, request: bool = False) -> dict[str, Any]:
        """Render the window, with the tools of its head, as an object in a provider's format.

        Raise `InvalidConversation` if the provider would reject the result; `request` adds the rules
        about the last message.
        """
        target = formats.get(format) if isinstance(format, str) else format
        head = self.preface.head
        messages = elsewhere(self.messages, target.name)
        return formats.rendered(messages, target, tools=head.tools, request=request).payload

    def detached(self) -> Window:
        """Return the request without its conversation, to compare other requests with."""
        alone = copy(self)
        alone.tally, alone.view = Tally(self.tally.counter, self.tally.limits), View(cut=self.view.cut)
        alone.report = WindowReport(alone.tally, alone.view, {}, ())
        return alone

    def stays_in(self, other: Window) -> int:
        """Return how many leading messages another window with the same view of the tally has in common."""
        if not (self.tally is other.tally and self.view is other.view and self.lead is other.lead):
            return 0
        if (self._inserted, self._insert_at) == (other._inserted, other._insert_at):
            return self.finished
        places = [one._insert_at for one in (self, other) if one._inserted]
        return min(self.finished, *places)

    def leads_into(self, view: View, recall: Shown | None) -> bool:
        """Return True if the same lead precedes the kept part of that view."""
        mine = (self.view.kept, self.view.pinned, self.view.summary, self.lead.recall)
        theirs = (view.kept, view.pinned, view.summary, recall)
        return mine == theirs and len(self.messages) > len(self.lead.messages)

    def _messages(self, known: tuple[Message, ...]) -> tuple[Message, ...]:
        tally, view, lead = self.tally, self.view, self.lead
        before = known or tuple(lead.messages)
        is_known = bool(self._inserted) and self._insert_at < len(before)
        start = view.kept + len(before) - len(lead.messages) - is_known
        rest = tally.view(start, view.hidden, view.short)
        if self._inserted and not is_known:
            rest.insert(self._insert_at - len(before), self._inserted)
        return (*before, *rest)

    def _reused(self, before: Window | None, shared: int) -> int:
        """Count the leading tokens reused from an earlier request that begins with the same messages."""
        if before is None or not shared or before.preface.tools_sent != self.preface.tools_sent:
            return 0
        tally, view, lead = self.tally, self.view, self.lead
        if shared == len(self.messages):
            return self.tokens
        count = min(shared, len(lead.messages))
        is_shared = bool(self._inserted) and self._insert_at < shared
        end = view.kept + shared - count - is_shared
        leading = self.preface.tools + sum(lead.costs[:count]) + (self.recall_tokens if is_shared else 0)
        return leading + tally.total(view.kept) - tally.total(end) - view.saved + view.saving(end)

    def __repr__(self) -> str:
        return f"<Window of {len(self.messages)} messages, {self.tokens:,} of {self.limit:,} tokens>"


def _shared(messages: Sequence[Message], before: Sequence[Message]) -> int:
    """Count the leading messages that two requests share."""
    shared = 0
    for one, other in zip(messages, before, strict=False):
        if one is not other and one != other:
            break
        shared += 1
    return shared


# The three tiers: what is kept whole, what may slide out, what has left.


class Tiers(Struct, frozen=True):
    """Message ids by tier, and the tokens of every category, including free tokens."""

    immediate: tuple[MessageId, ...]
    short_term: tuple[MessageId, ...]
    archive: tuple[MessageId, ...]
    usage: dict[str, int]


def tiers(window: Window, policy: Policy) -> Tiers:
    """Sort the messages of a conversation into tiers."""
    tally, view = window.tally, window.view
    border = _border(tally, view, policy)
    ids = [message.id for message in tally.items + tally.tail]
    pinned = [ids[index] for index in view.pinned]
    archive = [id for index, id in enumerate(ids[: view.kept]) if index not in view.pinned]
    immediate = [message.id for message in tally.head] + ids[border:]
    return Tiers(
        tuple(immediate), tuple(pinned + ids[view.kept : border]), tuple(archive), window.report.usage
    )


def usage(window: Window, policy: Policy) -> dict[str, int]:
    """Return the tokens of every category: used ones add up to the window, the rest is free."""
    tally, view, lead = window.tally, window.view, window.lead
    border = _border(tally, view, policy)
    immediate = tally.total(border) - view.saving(border)
    short_term = tally.total(view.kept) - view.saved - immediate + lead.pinned
    used: dict[str, int] = {**window.preface.by_category(), "memory": window.recall_tokens}
    used |= {"summary": lead.summary, "immediate": immediate, "short_term": short_term}
    return {**used, "free": max(0, window.limit - sum(used.values()))}


def _border(tally: Tally, view: View, policy: Policy) -> int:
    """Return where the immediate buffer begins."""
    starts = tally.turns[-policy.lock_turns_at_most :]
    kept = [start for start in starts if start >= view.kept]
    return kept[0] if kept else view.kept
