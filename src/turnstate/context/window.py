"""The window: what is sent, what it costs, what was decided on the way, and why.

A *view* is what the recorded decisions leave of a conversation, as places in its tally. The newest cut that
was made under the same limit, policy and counter, or that the user asked for, carries the whole view; masks
that came after it add to it; a model's summary replaces its digest. A cut made under other settings is not
used, unless what it covers is missing; what was hidden since then stays hidden. A mask that shortens the
outputs of a group holds while the group has exactly these messages: what was decided while calls were open
ends with them.

A *window* has four parts: the head's system messages, the summary, the head's data, and what the view keeps
of the conversation. It knows how many of its leading tokens were in the previous request byte for byte,
which is what a provider's prompt cache can reuse.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from typing import Any

from msgspec import Struct, field

from .. import formats, wire_text
from ..entry import Cut, Decision, Mask, Summary
from ..formats.port import Format
from ..ids import MessageId
from ..message import Message
from ..tokens import message_cost
from .head import OPENER, Preface
from .policy import Policy
from .reduction import step
from .summary import with_facts
from .tally import Tally
from .turns import Repair

__all__ = [
    "GroupReport",
    "Lead",
    "PendingCut",
    "Report",
    "Tiers",
    "View",
    "Window",
    "folded",
    "tiers",
    "usage",
]


class View(Struct, frozen=True):
    """What of the tally is shown: everything from `kept` on, and what is pinned before it.

    ``short`` holds the tokens for each output of the messages that ``shares`` shorten, by place.
    ``saving_places`` are the places where hiding and shortening save tokens, ``sums`` the running totals.
    """

    kept: int = 0
    pinned: tuple[int, ...] = ()
    hidden: frozenset[int] = frozenset()
    short: dict[int, int] = field(default_factory=dict)
    shares: tuple[Mask, ...] = ()
    saving_places: tuple[int, ...] = ()
    sums: tuple[int, ...] = (0,)
    summary: str | None = None
    words: str | None = None  # the summary without the facts beside a model's words
    cut: Cut | None = None

    @property
    def saved(self) -> int:
        """The tokens that hiding and shortening save."""
        return self.sums[-1]

    def saving(self, start: int, end: int | None = None) -> int:
        """Return the tokens that are saved between two places, by default to the end."""
        upto = self.sums[-1] if end is None else self.sums[bisect_left(self.saving_places, end)]
        return upto - self.sums[bisect_left(self.saving_places, start)]


def folded(decisions: Sequence[Decision], tally: Tally, *, limit: int, policy: Policy) -> View:
    """Fold recorded decisions into the view that they leave."""
    settings = (limit, policy.fingerprint, tally.counter.name)
    cuts = [(place, one) for place, one in enumerate(decisions) if isinstance(one, Cut)]
    usable = [(place, cut) for place, cut in cuts if _is_usable(cut, tally, settings)]
    view = _of_cut(usable[-1][1], tally) if usable else View()
    later = decisions[(usable or cuts)[-1][0] + 1 :] if cuts else decisions
    masks = [one for one in later if isinstance(one, Mask)]
    ids = [id for mask in masks if not mask.each for id in mask.ids]
    texts = [one for one in later if isinstance(one, Summary) and view.cut and one.cut == view.cut.id]
    hidden = frozenset(place for place in view.hidden | _places(ids, tally) if place >= view.kept)
    shared = [(mask, places) for mask, places in _shares(view, masks, tally, limit) if places[0] >= view.kept]
    short = {place: mask.each for mask, places in shared for place in places if place not in hidden}
    saves = {place: tally.saved(place) for place in hidden}
    saves |= {place: tally.cost(place) - tally.shortened(place, each)[1] for place, each in short.items()}
    summary, words = view.summary, view.words
    if texts and view.cut:
        written = with_facts(texts[-1], view.cut, tally.counter, policy)
        summary, words = written.shown, written.text
    return View(
        kept=view.kept,
        pinned=view.pinned,
        hidden=hidden,
        short=short,
        shares=tuple(mask for mask, _ in shared),
        saving_places=(places := tuple(sorted(saves))),
        sums=tuple(accumulate((saves[place] for place in places), initial=0)),
        summary=summary,
        words=words,
        cut=view.cut,
    )


def _is_usable(cut: Cut, tally: Tally, settings: tuple[int, str, str]) -> bool:
    """Return True if a cut holds: the user asked for it, its settings are these, or there is no other way.

    What it covers may be missing, if the session was restored from elsewhere, and cannot be planned again.
    """
    fits = (cut.limit, cut.policy, cut.counter) == settings
    return bool(cut.asked) or fits or tally.place(cut.covers[0]) is None


def _of_cut(cut: Cut, tally: Tally) -> View:
    kept = tally.place(cut.kept_from) if cut.kept_from is not None else _after(cut.covers[1], tally)
    if kept is None and any(tally.place(id) is not None for id in cut.covers):
        return View()
    pinned = tuple(sorted(_places(cut.pinned, tally)))
    return View(
        kept=kept or 0,
        pinned=pinned,
        hidden=_places(cut.masked, tally),
        summary=cut.summary,
        words=cut.summary,
        cut=cut,
    )


def _shares(
    view: View, masks: Iterable[Mask], tally: Tally, limit: int
) -> Iterator[tuple[Mask, tuple[int, ...]]]:
    """Yield the masks that shorten outputs and hold, the newest last, with the places of their messages."""
    for mask in (*(view.cut.shares if view.cut else ()), *masks):
        if not mask.each or step(mask.limit) < step(limit):
            continue
        places = tuple(place for id in mask.ids if (place := tally.place(id)) is not None)
        if places and len(places) == len(mask.ids) and list(places) == tally.outputs(places[0]):
            yield mask, places


def _after(id: str, tally: Tally) -> int:
    """Return the place of the first group after a message; 0 if the message is missing."""
    last = tally.place(id)
    if last is None:
        return 0
    groups = [*tally.groups, len(tally.items), tally.end]
    return groups[bisect_right(groups, last)]


def _places(ids: Sequence[str], tally: Tally) -> frozenset[int]:
    return frozenset(place for id in ids if (place := tally.place(id)) is not None)


# The report: what is in a window and what is not, and why.


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
        self.dropped: tuple[
            str, ...
        ] = ()  # sticky files that are not sent, and why; whoever read them says it
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
    """What is before the kept part: head, summary, data, and the question that stays."""

    def __init__(
        self, preface: Preface, summary: tuple[Message, int] | None, tally: Tally, view: View
    ) -> None:
        rows = [(message, cost) for _, message, cost in preface.systems]
        rows += [summary] if summary else []
        rows += [(message, cost) for _, message, cost in preface.data]
        pinned = [(tally.at(index), tally.cost(index)) for index in view.pinned]
        if not pinned and not preface.data and view.kept < tally.end and tally.at(view.kept).role != "user":
            pinned = [(OPENER, preface.opener)]
        self.messages = [message for message, _ in rows + pinned]
        self.costs = [cost for _, cost in rows + pinned]
        self.summary = summary[1] if summary else 0
        self.pinned = sum(cost for _, cost in pinned)
        self.tokens = sum(self.costs) + preface.fixed


class PendingCut(Struct, frozen=True):
    """A cut that may be made: the decision, what leaves with it, and the summary that is shown now."""

    cut: Cut
    evicted: tuple[Message, ...]
    previous_summary: str = ""


class Window:
    """An immutable request: messages in order, with their tokens.

    ``decisions`` holds what was newly decided, to be written to the log by the caller, ``pending_cut`` the
    cut among them; ``applied`` is all that the window was made under. ``shared`` counts the leading
    messages that were in the previous request.
    """

    def __init__(
        self, tally: Tally, view: View, preface: Preface, lead: Lead, *, limit: int, previous: Window | None
    ) -> None:
        self.tally, self.view, self.preface, self.lead, self.limit = tally, view, preface, lead, limit
        self.tokens = lead.tokens + tally.total(view.kept) - view.saved
        self.finished = len(lead.messages) + max(0, len(tally.items) - view.kept)
        self._length = tally.length
        self.decisions: tuple[Decision, ...] = ()
        self.applied: tuple[Decision, ...] = ()
        self.pending_cut: PendingCut | None = None
        self.report: Report
        known = previous.messages[: previous.finished] if previous and previous.grows_into(self) else ()
        self.messages: tuple[Message, ...] = self._messages(known)
        self.shared = len(known)
        if previous:
            self.shared += _shared(self.messages[len(known) :], previous.messages[len(known) :])
        reusable = previous is not None and previous.preface.tools_sent == preface.tools_sent
        self.reused_prefix_tokens = self._leading_tokens() if reusable and self.shared else 0

    def render(self, format: Format | str, *, request: bool = False) -> Any:
        """Render the window with the tools of its head, for a provider's format or the name of one.

        Raise `InvalidConversation` if the provider would reject the result; `request` adds the rules
        about the last message.
        """
        target = formats.get(format) if isinstance(format, str) else format
        return formats.rendered(self.messages, target, tools=self.preface.head.tools, request=request)

    def grows_into(self, other: Window) -> bool:
        """Return True if the other window has the same view of the same tally, with more after it."""
        return self.tally is other.tally and self.view is other.view and self.lead is other.lead

    def shows(self, tally: Tally, decisions: tuple[Decision, ...], limit: int) -> bool:
        """Return True if the view of this window is that of the tally as it is now, under these decisions."""
        same = self.tally is tally and self.limit == limit and self.applied == decisions
        return same and (self._length == tally.length or not self.view.shares)

    def leads_into(self, view: View) -> bool:
        """Return True if the same lead is before the kept part of that view."""
        mine = (self.view.kept, self.view.pinned, self.view.summary)
        return mine == (view.kept, view.pinned, view.summary) and len(self.messages) > len(self.lead.messages)

    def _messages(self, known: tuple[Message, ...]) -> tuple[Message, ...]:
        tally, view, lead = self.tally, self.view, self.lead
        if not known:
            return (*lead.messages, *tally.view(view.kept, view.hidden, view.short))
        return (*known, *tally.view(view.kept + len(known) - len(lead.messages), view.hidden, view.short))

    def _leading_tokens(self) -> int:
        """Count the leading tokens that were in the previous request, byte for byte."""
        tally, view, lead = self.tally, self.view, self.lead
        if self.shared == len(self.messages):
            return self.tokens
        count = min(self.shared, len(lead.messages))
        end = view.kept + self.shared - count
        leading = self.preface.tools + sum(lead.costs[:count])
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


# The three tiers: what is kept whole, what slides, what has left.


class Tiers(Struct, frozen=True):
    """Message ids by tier, and the tokens of every category, what is free included."""

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


def usage(
    tally: Tally, view: View, preface: Preface, lead: Lead, policy: Policy, limit: int
) -> dict[str, int]:
    """Return the tokens of every category: what is used adds up to the window, the rest is free."""
    border = _border(tally, view, policy)
    immediate = tally.total(border) - view.saving(border)
    short_term = tally.total(view.kept) - view.saved - immediate + lead.pinned
    used: dict[str, int] = {**preface.by_category(), "summary": lead.summary}
    used |= {"immediate": immediate, "short_term": short_term}
    return {**used, "free": max(0, limit - sum(used.values()))}


def _border(tally: Tally, view: View, policy: Policy) -> int:
    """Return where the immediate buffer begins."""
    starts = tally.turns[-policy.lock_turns_at_most :]
    kept = [start for start in starts if start >= view.kept]
    return kept[0] if kept else view.kept
