"""The live window: makes each request of a conversation at the cost of what is new in it.

It keeps the tally of the conversation and the window that was sent last. The limits of long outputs are
shares of a scale. Budgets that are far apart have different scales, so it keeps a tally for each of the last
few. The pure `StateManager.window` is a live window that is used once, so both produce the same bytes.

A window is made in four steps: the cut that serves the limit is chosen from the decisions in force and folded
into a view; if that view does not fit, the collector plans what leaves or is hidden; the new decisions are
folded in; and the result is checked. No window that a provider would reject leaves this module. The rules
that all providers share are: system messages first, then a user message; every call answered once and
immediately; no answer without its call; no duplicate ids. A window that obeys them renders validly in every
format. A window that grew is checked from where it grew.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import structs

from ..entry import Answer, Cut, Decision, Mask
from ..errors import InvalidConversation
from ..formats import refers
from ..message import Message
from ..tokens import Counter, message_cost
from .collector import Plan, Room, hiding, plan
from .cut import carried, decided
from .head import Head, Preface, incoming
from .policy import COUNTED_WHOLE, Budget, OutputLimits, Policy, check_budget
from .summary_text import shown_summary
from .tally import Shown, Tally
from .view import View, folded, in_force, masks_on, named_scale, scale, serving, since_cut
from .window import Lead, Window, WindowReport, usage

MOST_LANES = 4
"""The number of scales with a tally, and of cuts with a last window: two alternating models, and two more."""


class _Lane:
    """What is kept for one scale: the tally, and the last windows that were sent, newest last.

    A window extends the last one that was made from the same cut: two alternating models have a prompt cache
    each.
    """

    def __init__(self, sent: dict[str, Window] | None = None) -> None:
        self.tally: Tally | None = None
        self.sent = sent or {}

    def remember(self, window: Window) -> None:
        name = _name(window.view.cut)
        others = [item for item in self.sent.items() if item[0] != name][1 - MOST_LANES :]
        self.sent = {**dict(others), name: window}  # a new dict: a thread may be reading the old one

    def previous(self, cut: Cut | None) -> Window | None:
        """Return the last window made from a cut, or else the last window of all."""
        return self.sent.get(_name(cut), self.latest)

    @property
    def latest(self) -> Window | None:
        return next(reversed(self.sent.values()), None)


def _name(cut: Cut | None) -> str:
    return cut.id if cut else ""


class LiveWindow:
    """Makes the windows of one conversation. Call `under` first, `grow` for new messages, then `window`.

    Call `sent` with each window that was sent; the next ones extend it. Set ``stored`` if a store holds the
    whole outputs of tools, ``whole`` if the messages begin at the root.
    """

    def __init__(self, counter: Counter, policy: Policy, *, stored: bool = False, whole: bool = True) -> None:
        self.counter, self.policy, self.stored, self.whole = counter, policy, stored, whole
        self.limit = 0
        self.limits: OutputLimits
        self._lanes = dict[OutputLimits, _Lane]()
        self._lane = _Lane()
        self._latest: Window | None = None
        self._given: tuple[Decision, ...] = ()
        self._in_force: tuple[Decision, ...] = ()

    @property
    def tally(self) -> Tally | None:
        """The tally under the current limits."""
        return self._lane.tally

    @tally.setter
    def tally(self, tally: Tally | None) -> None:
        self._lane.tally = tally

    @property
    def length(self) -> int:
        """The number of messages that the tally holds."""
        return self.tally.length if self.tally is not None else 0

    def under(self, budget: Budget, decisions: Sequence[Decision] = ()) -> LiveWindow:
        """Use this budget from now on, with the limits of tool outputs that recorded decisions lead to."""
        check_budget(budget)
        self.limit = budget.limit
        self.limits = OutputLimits.of(
            self.policy.reduction, scale(self._holding(decisions), self.limit, self.policy)
        )
        self._lane = self._lanes.pop(self.limits, _Lane())
        self._lanes[self.limits] = self._lane
        if len(self._lanes) > MOST_LANES:
            del self._lanes[next(iter(self._lanes))]
        return self

    def sent(self, window: Window) -> None:
        """Record that a window was sent: the next one is compared with it and extends it."""
        self._lanes.get(window.tally.limits, self._lane).remember(window)
        self._latest = window

    def restarted(self, counter: Counter | None = None, *, whole: bool = True) -> LiveWindow:
        """Return a copy without a tally, for other messages, another counter, or while a thread uses it."""
        live = LiveWindow(counter or self.counter, self.policy, stored=self.stored, whole=whole)
        live._latest = self._latest.detached() if self._latest else None
        for limits, lane in self._lanes.items():
            live._lanes[limits] = _Lane({name: window.detached() for name, window in lane.sent.items()})
        return live

    def grow(self, messages: Iterable[Message], counts: Iterable[tuple[Message, int]] = ()) -> None:
        """Add messages; `counts` are those of messages that were counted before and need no reduction."""
        tally, self.tally = self.tally, None  # an error leaves no tally rather than half of one
        if tally is None:
            tally = Tally.of(messages, self.counter, self.limits, stored=self.stored, counts=counts)
        else:
            for message, tokens in counts:
                tally.foresee(message, tokens)
            for message in messages:
                tally.add(message)
        self.tally = tally

    def window(self, head: Head, decisions: Sequence[Decision] = ()) -> Window:
        """Make the window of the conversation; `Window.decisions` has the new decisions."""
        tally, limit = self._tally, self.limit
        preface, recall = self._preface(head), self._recall(head)
        standing = self._standing(decisions, preface)
        view, lead = self._served(standing, preface, recall)
        previous = self._lane.previous(view.cut)
        new, events, pending = _unrecorded(tally, view, decisions), tuple[str, ...](), None
        if found := self._plan(view, preface, lead, recall):
            made, pending = decided(tally, view, found, self.policy, limit, standing)
            new, events = [*new, *made], found.events
            standing = in_force((*standing, *new))
            view = self._view(pending.cut if pending else view.cut, standing)
            lead = self._lead(preface, view, recall)
        else:
            if self._is_scale_due(view, standing):
                new.append(Mask(ids=(), saved=0, limit=limit, scale=tally.limits.scale))
            standing = (*standing, *new) if new else standing
        window = Window(
            tally, view, preface, lead, limit=limit, recall=recall, previous=previous, latest=self._latest
        )
        check(window.messages, window.shared, continued=window.tally.is_continued)
        check_fit(window.tokens, limit)
        window.decisions, window.pending_cut = tuple(new), pending
        window.applied = standing
        window.report = WindowReport(tally, view, usage(window, self.policy), events)
        return window

    def shown(self, head: Head, decisions: Sequence[Decision] = ()) -> Window:
        """Make the window that recorded decisions lead to, whether it fits or not; decide nothing."""
        preface, recall = self._preface(head), self._recall(head)
        standing = self._standing(decisions, preface)
        view, lead = self._served(standing, preface, recall)
        window = Window(self._tally, view, preface, lead, limit=self.limit, recall=recall)
        window.applied = standing
        window.report = WindowReport(self._tally, view, usage(window, self.policy), ())
        return window

    @property
    def _tally(self) -> Tally:
        if self.tally is None:
            self.tally = Tally.of((), self.counter, self.limits, stored=self.stored)
        return self.tally

    def _holding(self, decisions: Sequence[Decision]) -> tuple[Decision, ...]:
        """Return the decisions in force; if that requires reading them all, do so only if they changed."""
        if (found := since_cut(decisions)) is not None:
            return found
        given = tuple(decisions)
        if given != self._given:
            self._given, self._in_force = given, in_force(given)
        return self._in_force

    def _standing(self, decisions: Sequence[Decision], preface: Preface) -> tuple[Decision, ...]:
        """Return the decisions in force, beginning with a summary found among the messages, if any."""
        _, later = incoming(self._tally.summaries, self.policy.summary_template)
        text = f"{preface.earlier} {later}".strip()
        return self._holding((carried(text), *decisions) if text else decisions)

    def _preface(self, head: Head) -> Preface:
        tally, previous = self._tally, self._lane.latest
        lasting = structs.replace(head, memory=None) if head.memory is not None else head
        if previous and previous.tally is tally and previous.preface.fits(lasting, tally.head):
            return previous.preface
        return Preface(lasting, tally.head, self.counter, self.policy.summary_template)

    def _recall(self, head: Head) -> Shown | None:
        message, previous = head.memory_message(), self._lane.latest
        if message is None:
            return None
        if previous and previous.recall and previous.recall[0] == message:
            return previous.recall
        return message, message_cost(message, self.counter).tokens

    def _served(
        self, standing: tuple[Decision, ...], preface: Preface, recall: Shown | None
    ) -> tuple[View, Lead]:
        """Return the view of the first cut that serves the limit and fits, or of the last one tried."""
        cuts = serving(standing, self.limit, self.policy, whole=self.whole)
        tried: list[Cut | None] = [*cuts] or [None]
        for cut in tried[:-1]:
            view = self._view(cut, standing)
            lead = self._lead(preface, view, recall)
            if not self._exceeds(view, lead, recall):
                return view, lead
        view = self._view(tried[-1], standing)
        return view, self._lead(preface, view, recall)

    def _view(self, cut: Cut | None, standing: tuple[Decision, ...]) -> View:
        tally, previous = self._tally, self._lane.previous(cut)
        masks = masks_on(cut, standing, limit=self.limit, policy=self.policy)
        if previous and previous.tally is tally and previous.applied == standing:
            same = (previous.view.cut, previous.view.masks) == (cut, masks)
            if same and (previous.length == tally.length or not previous.view.shares):
                return previous.view
        return folded(cut, masks, standing, tally, self.policy)

    def _lead(self, preface: Preface, view: View, recall: Shown | None) -> Lead:
        tally, previous = self._tally, self._lane.previous(view.cut)
        if tally.turns and tally.turns[-1] >= view.kept:
            recall = None  # it is among the messages
        same = previous and previous.preface is preface and previous.tally is tally
        if previous and same and previous.leads_into(view, recall):
            return previous.lead
        if not view.summary:
            return Lead(preface, None, recall, tally, view)
        summary = shown_summary(view.summary, self.policy.summary_template, self.counter)
        return Lead(preface, summary, recall, tally, view)

    def _exceeds(self, view: View, lead: Lead, recall: Shown | None, share: float = 1.0) -> bool:
        """Return True if a view has more tokens than a share of the limit."""
        inside = recall[1] if recall and not lead.recall else 0
        return self._tally.exceeds(view.kept, int(share * self.limit) - lead.tokens - inside + view.saved)

    def _plan(self, view: View, preface: Preface, lead: Lead, recall: Shown | None) -> Plan | None:
        """Return what leaves or is hidden: above the limit, or above the policy's share of it."""
        tally, policy = self._tally, self.policy
        over = self._exceeds(view, lead, recall)
        if not over and (policy.mask_at >= 1 or not self._exceeds(view, lead, recall, policy.mask_at)):
            return None
        opened = preface.context or (recall and not tally.turns)
        space = Room(
            limit=self.limit,
            head=preface.tokens + (recall[1] if recall else 0),
            cap=policy.summary_cap(self.limit),
            opener=0 if opened else preface.opener,
            summary=lead.summary,
        )
        return (plan if over else hiding)(tally, view, space, policy)

    def _is_scale_due(self, view: View, standing: tuple[Decision, ...]) -> bool:
        """Return True if the shown outputs depend on the scale, and no decision names the scale yet."""
        tally = self._tally
        if not tally.limits.scale or named_scale(standing, self.limit, self.policy):
            return False
        tally.total(view.kept)
        return tally.depends_on_scale(view.kept)


def known_counts(
    messages: Sequence[Message], sizes: Sequence[tuple[int, int]], limits: OutputLimits
) -> list[tuple[Message, int]]:
    """Return the messages whose stored count is valid: counted whole, and too short to be reduced.

    `sizes` are the stored tokens and bytes of each message. No output has more tokens than its message.
    """
    soft, pairs = limits.soft, zip(messages, sizes, strict=True)
    return [
        (one, tokens)
        for one, (tokens, size) in pairs
        if one.role != "tool" or (size <= COUNTED_WHOLE and (tokens <= soft or size <= soft))
    ]


def _unrecorded(tally: Tally, view: View, decisions: Sequence[Decision]) -> list[Decision]:
    """Return the answers for abandoned calls that are not in the log yet."""
    given: list[Answer] = []
    for place, answer in reversed(tally.answers):
        if place < view.kept:
            break
        given.append(answer)
    if not given:
        return []
    recorded = {decision.call for decision in decisions if isinstance(decision, Answer)}
    return [answer for answer in reversed(given) if answer.call not in recorded]


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
