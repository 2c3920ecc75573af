"""The window: what is sent, what it costs, what was decided for it, and why.

A window has five parts: the system messages of the preface, the summary, the sticky context, the part of the
conversation that the view keeps, and the recalled memory before the newest user message. It knows how many of
its leading tokens are the same, byte for byte, as in an earlier request: those a provider's prompt cache can
reuse. The rules that all providers share are checked here: system messages first, then a user message; every
call answered once and immediately; no answer without its call; no duplicate ids. A window that obeys them
renders validly in every format.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec import Struct

from .. import formats, wire_text
from ..entry import Cut, Decision
from ..errors import InvalidConversation
from ..formats import refers
from ..formats.port import Format
from ..ids import MessageId
from ..message import Message
from ..tokens import message_cost
from .policy import Policy
from .preface import OPENER, CountedPreface
from .summary_text import shown_summary
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


class WindowReport(Struct, frozen=True, eq=False):
    """What a window contains and what it leaves out; `dropped` are sticky files that are not sent, and why.

    What few programs ask for is computed when it is asked for, from the tally. The tally may have grown by
    then, so the report remembers how much of it the window was made from.
    """

    usage: dict[str, int]
    events: tuple[str, ...]
    dropped: tuple[str, ...]
    _tally: Tally
    _view: View
    _end: int  # the messages that were there, without those of the round in progress …
    _shown: int  # … and with them
    _repaired: int

    @property
    def evicted(self) -> int:
        """The number of messages before the kept part that are not shown."""
        return self._view.kept - len(self._view.pinned)

    @property
    def hidden(self) -> tuple[str, ...]:
        """The kept tool messages whose output is shown as a line."""
        return tuple(self._tally.items[index].id for index in sorted(self._view.hidden))

    @property
    def repairs(self) -> tuple[Repair, ...]:
        """What was repaired in the conversation so far, and in the kept messages themselves."""
        rewritten = self._tally.mended_ids
        places = self._kept_places(rewritten)
        return (
            *self._tally.repairs[: self._repaired],
            *(Repair(id, rewritten[id]) for _, id in sorted(places)),
        )

    @property
    def reduced(self) -> tuple[str, ...]:
        """The kept tool messages whose output was reduced."""
        places = {place for place, _ in self._kept_places(self._tally.whole)}
        places |= {place for place in self._view.short if place >= self._view.kept}
        return tuple(self._tally.at(place).id for place in sorted(places))

    @property
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

    def _kept_places(self, ids: Iterable[str]) -> list[tuple[int, str]]:
        """Return the places of messages in the kept part, as far as the window was made from them."""
        places = [(place, id) for id in ids if (place := self._tally.place(id)) is not None]
        return [(place, id) for place, id in places if self._view.kept <= place < self._shown]

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


# The messages of a window.


class Lead:
    """What is sent besides the kept part: preface, summary, context and question before it, memory within it.

    Recalled memory is sent directly before the newest user message. If that is not in the kept part, the
    memory is the last message before the question that is pinned, or that stands in for a missing one.
    """

    def __init__(
        self, preface: CountedPreface, recall: Shown | None, tally: Tally, view: View, template: str
    ) -> None:
        summary = shown_summary(view.summary, template, tally.counter) if view.summary else None
        is_inside = recall is not None and bool(tally.turns) and tally.turns[-1] >= view.kept
        rows = [(message, cost) for _, message, cost in preface.systems]
        rows += [summary] if summary else []
        rows += [(message, cost) for _, message, cost in preface.context]
        rows += [recall] if recall and not is_inside else []
        pinned = [(tally.at(index), tally.cost(index)) for index in view.pinned]
        opened = pinned or preface.context or (recall and not is_inside)
        first = tally.at(view.kept).role if view.kept < tally.end else "user"
        if not opened and first not in ("user", "tool"):  # results come first if the provider has their calls
            pinned = [(OPENER, preface.opener)]
        self.messages = [message for message, _ in rows + pinned]
        self.costs = [cost for _, cost in rows + pinned]
        self.summary = summary[1] if summary else 0
        self.pinned = sum(cost for _, cost in pinned)
        self.memory = recall[1] if recall else 0
        self.inside = recall[0] if recall and is_inside else None
        self.inside_at = len(self.messages) + tally.turns[-1] - view.kept if is_inside else 0
        self.tokens = sum(self.costs) + preface.fixed + (self.memory if is_inside else 0)

    def messages_with(self, kept: Sequence[Message]) -> tuple[Message, ...]:
        """Return all messages of a request, given those of the kept part."""
        messages = [*self.messages, *kept]
        if self.inside:
            messages.insert(self.inside_at, self.inside)
        return tuple(messages)

    def tokens_of(self, count: int, tally: Tally, view: View) -> int:
        """Return the tokens of the first messages of such a request."""
        before = min(count, len(self.messages))
        is_past_memory = self.inside is not None and self.inside_at < count
        end = view.kept + count - before - is_past_memory
        kept = tally.total(view.kept) - view.saved - (tally.total(end) - view.saving(end))
        return sum(self.costs[:before]) + kept + (self.memory if is_past_memory else 0)


class PendingCut(Struct, frozen=True):
    """A cut that may be made: the decision, the messages that leave, and the summary shown now."""

    cut: Cut
    evicted: tuple[Message, ...]
    previous_summary: str = ""


class Window(Struct, frozen=True, kw_only=True, eq=False):
    """An immutable request: messages in order, with their tokens.

    ``decisions`` holds the new decisions, which the caller writes to the log, ``pending_cut`` the cut among
    them; ``applied`` holds all decisions that the window was made under. ``shared`` is the number of leading
    messages that an earlier window had, too, and ``reused_prefix_tokens`` the number of leading tokens that a
    prompt cache has of an earlier request with the same tools.
    """

    messages: tuple[Message, ...]
    tokens: int
    limit: int
    tally: Tally
    view: View
    preface: CountedPreface
    lead: Lead
    report: WindowReport
    decisions: tuple[Decision, ...] = ()
    applied: tuple[Decision, ...] = ()
    pending_cut: PendingCut | None = None
    shared: int = 0
    reused_prefix_tokens: int = 0

    def render(self, format: Format | str, *, request: bool = False) -> dict[str, Any]:
        """Render the window, with the tools of its preface, as an object in a provider's format.

        Raise `InvalidConversation` if the provider would reject the result; `request` adds the rules
        about the last message.
        """
        target = formats.get(format) if isinstance(format, str) else format
        messages = elsewhere(self.messages, target.name)
        return formats.rendered(messages, target, tools=self.preface.given.tools, request=request).payload

    def __repr__(self) -> str:
        return f"<Window of {len(self.messages)} messages, {self.tokens:,} of {self.limit:,} tokens>"


def shared_length(messages: tuple[Message, ...], before: tuple[Message, ...]) -> int:
    """Return the number of leading messages that two requests have in common.

    Whole slices are compared, half as long after each difference, since tuples of the same objects are
    compared without calling Python: 1,500 messages take 6 µs instead of 110, of the 0.2 ms that a window
    with one more message may take (`python -m bench windows`).
    """
    shared, end = 0, min(len(messages), len(before))
    block = end
    while shared < end and block:
        block = min(block, end - shared)
        if messages[shared : shared + block] == before[shared : shared + block]:
            shared += block
        else:
            block //= 2
    return shared


# The check: what every provider requires, in terms of messages.


def check(messages: Sequence[Message], known: int = 0, *, continued: bool = False) -> None:
    """Raise `InvalidConversation` if a window breaks a rule; its first `known` messages are valid.

    A `continued` conversation may answer calls that only the provider has, as may one that refers to them.
    """
    start = min(known, len(messages))
    while start > 0 and messages[start - 1].role == "tool":  # back to the last calls: nothing is open before
        start -= 1
    if start > 0 and (messages[start - 1].tool_calls or refers(messages[start - 1])):
        start -= 1
    awaited: dict[str, None] = {}
    referring = False
    for message in messages[start:]:
        if message.role == "tool":
            for result in message.tool_results:
                if result.tool_call_id not in awaited and (referring or (continued and not awaited)):
                    continue
                if result.tool_call_id not in awaited:
                    raise InvalidConversation(
                        f"message {message.id} has a result for {result.tool_call_id}, "
                        "but no such call is open"
                    )
                del awaited[result.tool_call_id]
        elif awaited:
            raise InvalidConversation(
                f"the call {next(iter(awaited))} is left without an answer before {message.id}"
            )
        if message.role != "tool":
            referring = refers(message)
        for call in message.tool_calls:
            awaited[call.id] = None
    if awaited:
        raise InvalidConversation(f"the call {next(iter(awaited))} is left without an answer at the end")
    if start == 0:
        _check_whole(messages, ("user", "tool") if continued else ("user",))


def check_fit(tokens: int, limit: int) -> None:
    """Raise `InvalidConversation` if a window has more tokens than its limit."""
    if tokens > limit:
        raise InvalidConversation(f"the window has {tokens:,} tokens; its limit is {limit:,}")


def _check_whole(messages: Sequence[Message], opening: tuple[str, ...]) -> None:
    first = next((message for message in messages if message.role != "system"), None)
    if first is not None and first.role not in opening:
        raise InvalidConversation(f"the first message is the user's, not {first.role} {first.id}")
    calls = [call.id for message in messages for call in message.tool_calls]
    if len(set(calls)) < len(calls):
        twice = next(id for id in calls if calls.count(id) > 1)
        raise InvalidConversation(f"the call id {twice} is not unique")


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
    immediate = [message.id for message in tally.leading] + ids[border:]
    return Tiers(
        tuple(immediate), tuple(pinned + ids[view.kept : border]), tuple(archive), window.report.usage
    )


def usage(
    tally: Tally, view: View, preface: CountedPreface, lead: Lead, *, limit: int, policy: Policy
) -> dict[str, int]:
    """Return the tokens of every category: used ones add up to the window, the rest is free."""
    border = _border(tally, view, policy)
    immediate = tally.total(border) - view.saving(border)
    short_term = tally.total(view.kept) - view.saved - immediate + lead.pinned
    used = {"system": 0, "bootstrap": 0, "context": 0, "memory": lead.memory, "tools": preface.fixed}
    for category, _, cost in preface.systems + preface.context:
        used[category] += cost
    used |= {"summary": lead.summary, "immediate": immediate, "short_term": short_term}
    return {**used, "free": max(0, limit - sum(used.values()))}


def _border(tally: Tally, view: View, policy: Policy) -> int:
    """Return where the immediate buffer begins."""
    starts = tally.turns[-policy.lock_turns_at_most :]
    kept = [start for start in starts if start >= view.kept]
    return kept[0] if kept else view.kept
