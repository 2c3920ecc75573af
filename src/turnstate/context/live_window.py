"""How a window is made, and all that is kept from one to the next.

A window is made in five steps (`Making`): the conversation is tallied; the cut that serves the limit is
chosen from the decisions in force and folded into a view; if that view does not fit, the collector plans what
leaves or is hidden, and the new decisions are folded in; the window is put together; and it is checked, so
that no window that a provider would reject leaves this module. A making reads values and returns a value.

`LiveWindow` makes the windows of one conversation at the cost of what is new in it. It is the only object
that keeps anything between two windows: a tally for each of the last scales, since the limits of long outputs
are shares of a scale, and the last requests that were sent. One rule says when that is stale: a tally belongs
to one list of messages that only grows, and to one counter. If either changes, `restarted` drops all tallies
and keeps the bare requests, which are what a provider's prompt cache knows. A view or a counted preface of an
earlier window is used again only if it would be made of the same values on the same tally, so the pure
`StateManager.window`, which keeps nothing, returns the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import takewhile

import msgspec
from msgspec import Struct

from ..entry import Answer, Cut, Decision, Mask
from ..message import Message
from ..tokens import Counter, message_cost
from .collector import Plan, Room, hiding, plan
from .cut import carried, decided
from .policy import COUNTED_WHOLE, Budget, OutputLimits, Policy, check_budget
from .preface import CountedPreface, Preface, incoming
from .tally import Tally
from .view import View, folded, in_force, masks_on, model_summary, named_scale, serving
from .window import Lead, PendingCut, Window, WindowReport, check, check_fit, shared_length, usage

MOST_TALLIES = 4
"""The number of scales with a tally: of two alternating models, and two more.

With one less than what alternates, each window would count from the start: 20 ms for 10,000 messages.
"""

MOST_SENT = 8
"""The number of requests that are kept, one for each scale and cut: about as many as there may be cuts."""


class Sent(Struct, frozen=True, eq=False):
    """A request that was sent: what a prompt cache knows of it, and what its window was made of, if kept."""

    messages: tuple[Message, ...]
    tools: bytes
    window: Window | None = None

    @property
    def bare(self) -> Sent:
        """The request alone: a window holds its tally, and with it all messages of the conversation."""
        return Sent(self.messages, self.tools)


class LiveWindow:
    """Makes the windows of one conversation. Call `under` first, `grow` for new messages, then `window`.

    Call `sent` with each window that was sent; the next ones are compared with it. Set ``stored`` if a store
    holds the whole outputs of tools, ``whole`` if the messages begin at the root.

    It exists because a request must not cost more the longer the conversation is: one message added and its
    window take 0.1 ms at any length, and counting 10,000 messages takes 20 (`python -m bench windows`).
    """

    def __init__(self, counter: Counter, policy: Policy, *, stored: bool = False, whole: bool = True) -> None:
        self.counter, self.policy, self.stored, self.whole = counter, policy, stored, whole
        self.limit = 0
        self.limits: OutputLimits
        self._tallies = dict[OutputLimits, Tally]()  # the one used last is the last
        self._sent = dict[tuple[OutputLimits, str], Sent]()  # by limits and cut, the newest last

    @property
    def length(self) -> int:
        """The number of messages that the tally under the current limits holds."""
        tally = self._tallies.get(self.limits)
        return tally.length if tally else 0

    def under(self, budget: Budget, decisions: Sequence[Decision] = ()) -> LiveWindow:
        """Use this budget from now on, with the limits of tool outputs that recorded decisions lead to."""
        check_budget(budget)
        self.limit = budget.limit
        self.limits = output_limits(self.limit, decisions, self.policy)
        return self

    def grow(self, messages: Iterable[Message], counts: Iterable[tuple[Message, int]] = ()) -> Tally:
        """Add messages; `counts` are those of messages that were counted before and need no reduction."""
        tally = self._tallies.pop(self.limits, None)  # an error leaves no tally rather than half of one
        if tally is None:
            tally = Tally.of(messages, self.counter, self.limits, stored=self.stored, counts=counts)
        else:
            known = {id(message): tokens for message, tokens in counts}  # ids of messages may come twice
            for message in messages:
                tally.add(message, known.get(id(message)))
        self._tallies[self.limits] = tally
        if len(self._tallies) > MOST_TALLIES:
            del self._tallies[next(iter(self._tallies))]
        return tally

    def window(
        self,
        preface: Preface,
        decisions: Sequence[Decision] = (),
        *,
        ahead: Sequence[Decision] = (),
        dropped: tuple[str, ...] = (),
    ) -> Window:
        """Make the next window; `ahead` are decisions that are recorded with it, `dropped` is for its report.

        `Window.decisions` has the new decisions, which begin with those made ahead.
        """
        return self._making(preface, (*decisions, *ahead)).window(ahead, dropped)

    def shown(self, preface: Preface, decisions: Sequence[Decision] = ()) -> Window:
        """Make the window that recorded decisions lead to, whether it fits or not; decide nothing."""
        return self._making(preface, decisions).shown()

    def sent(self, window: Window) -> None:
        """Record that a window was sent: the next ones are compared with it."""
        cut = window.view.cut
        key = (window.tally.limits, cut.id if cut else "")
        held = self._tallies
        others = {at: one if at[0] in held else one.bare for at, one in self._sent.items() if at != key}
        while len(others) >= MOST_SENT:
            del others[next(iter(others))]
        now = Sent(window.messages, window.preface.tools_sent, window)
        self._sent = {**others, key: now}  # a new dict: a thread may be reading the old one

    def restarted(self, counter: Counter | None = None, *, whole: bool = True) -> LiveWindow:
        """Return a live window for other messages, another counter, or while a thread uses this one."""
        live = LiveWindow(counter or self.counter, self.policy, stored=self.stored, whole=whole)
        live._sent = {key: one.bare for key, one in self._sent.items()}
        return live

    def _making(self, preface: Preface, decisions: Sequence[Decision]) -> Making:
        tally = self._tallies.get(self.limits) or self.grow(())
        return Making(
            tally,
            self.limit,
            self.policy,
            preface,
            decisions,
            whole=self.whole,
            sent=tuple(self._sent.values()),
        )


def output_limits(limit: int, decisions: Sequence[Decision], policy: Policy) -> OutputLimits:
    """Return the limits of tool outputs: shares of the scale that a decision names, or of the step."""
    return OutputLimits.of(policy.reduction, named_scale(in_force(decisions), limit, policy) or limit)


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


class Making:
    """One window being made of a tally, a preface and the decisions so far; it changes none of them.

    `sent` are earlier requests of this conversation: the window is compared with all of them.
    """

    def __init__(
        self,
        tally: Tally,
        limit: int,
        policy: Policy,
        preface: Preface,
        decisions: Sequence[Decision],
        *,
        whole: bool = True,
        sent: Sequence[Sent] = (),
    ) -> None:
        self.tally, self.limit, self.policy, self.whole, self.sent = tally, limit, policy, whole, sent
        self.recorded = decisions
        template = policy.summary_template
        made_of = (preface, msgspec.json.encode(preface.tools), tally.leading, tally.counter, template)
        earlier = (one.window.preface for one in reversed(sent) if one.window)
        self.preface = next((one for one in earlier if one.is_of(*made_of)), None) or CountedPreface(*made_of)
        memory = preface.memory_message()
        self.recall = (memory, message_cost(memory, tally.counter).tokens) if memory else None
        summary = self.preface.earlier
        if tally.summaries:
            summary = f"{summary} {incoming(tally.summaries, template)[1]}".strip()
        self.standing = in_force((carried(summary), *decisions) if summary else decisions)

    def window(self, ahead: Sequence[Decision] = (), dropped: tuple[str, ...] = ()) -> Window:
        """Make the window that fits, and the decisions that it takes."""
        tally, limit, events, pending = self.tally, self.limit, tuple[str, ...](), None
        view, lead = self._served()
        new = self._unrecorded_answers(view) if tally.answers else []
        if found := self._plan(view, lead):
            made, pending = decided(tally, view, found, self.policy, limit, self.standing)
            new, events = [*new, *made], found.events
            self.standing = in_force((*self.standing, *new))
            view, lead = self._shape(pending.cut if pending else view.cut)
        else:
            if self._is_scale_due(view):
                new.append(Mask(ids=(), saved=0, limit=limit, scale=tally.limits.scale))
            self.standing = (*self.standing, *new)
        window = self._put_together(view, lead, (*ahead, *new), pending, events, dropped)
        check(window.messages, window.shared, continued=tally.is_continued)
        check_fit(window.tokens, limit)
        return window

    def shown(self) -> Window:
        """Make the window that the decisions lead to, whether it fits or not; decide nothing."""
        return self._put_together(*self._served())

    def _served(self) -> tuple[View, Lead]:
        """Return the view of the first cut that serves the limit and fits, or of the last one tried."""
        cuts = serving(self.standing, self.limit, self.policy, whole=self.whole)
        for cut in cuts[:-1]:
            view, lead = self._shape(cut)
            if not self._exceeds(view, lead):
                return view, lead
        return self._shape(cuts[-1] if cuts else None)

    def _shape(self, cut: Cut | None) -> tuple[View, Lead]:
        """Return the view of a cut and what is sent before it.

        Folding in 300 hidden outputs takes 0.8 ms, so the view of an earlier window is used again if it was
        made of the same values on this tally. What a round in progress may still change, the shares of its
        outputs, is folded in every time.
        """
        tally, policy = self.tally, self.policy
        masks = masks_on(cut, self.standing, limit=self.limit, policy=policy)
        made_of = (cut, masks, model_summary(cut, self.standing) if cut else None)
        earlier = (one.window.view for one in reversed(self.sent) if one.window and one.window.tally is tally)
        view = next((one for one in earlier if one.made_of == made_of and not one.shares), None)
        if view is None:
            view = folded(*made_of, tally, policy)
        return view, Lead(self.preface, self.recall, tally, view, policy.summary_template)

    def _exceeds(self, view: View, lead: Lead, share: float = 1.0) -> bool:
        """Return True if a view has more tokens than a share of the limit, counting no more than needed."""
        return self.tally.exceeds(view.kept, int(share * self.limit) - lead.tokens + view.saved)

    def _plan(self, view: View, lead: Lead) -> Plan | None:
        """Return what leaves or is hidden: above the limit, or above the policy's share of it."""
        tally, policy, preface = self.tally, self.policy, self.preface
        over = self._exceeds(view, lead)
        if not over and (policy.mask_at >= 1 or not self._exceeds(view, lead, policy.mask_at)):
            return None
        opened = preface.context or (self.recall and not tally.turns)
        space = Room(
            limit=self.limit,
            preface=preface.tokens + lead.memory,
            cap=policy.summary_cap(self.limit),
            opener=0 if opened else preface.opener,
            summary=lead.summary,
        )
        return (plan if over else hiding)(tally, view, space, policy)

    def _unrecorded_answers(self, view: View) -> list[Decision]:
        """Return the answers for abandoned calls that are shown and not in the log yet."""
        shown = takewhile(lambda given: given[0] >= view.kept, reversed(self.tally.answers))
        answers = [answer for _, answer in shown]
        recorded = {one.call for one in self.recorded if isinstance(one, Answer)} if answers else set()
        return [answer for answer in reversed(answers) if answer.call not in recorded]

    def _is_scale_due(self, view: View) -> bool:
        """Return True if the shown outputs depend on the scale, and no decision names the scale yet."""
        tally = self.tally
        if not tally.limits.scale or named_scale(self.standing, self.limit, self.policy):
            return False
        tally.total(view.kept)  # what is not counted does not say whether it depends on the scale
        return tally.depends_on_scale(view.kept)

    def _put_together(
        self,
        view: View,
        lead: Lead,
        decisions: tuple[Decision, ...] = (),
        pending: PendingCut | None = None,
        events: tuple[str, ...] = (),
        dropped: tuple[str, ...] = (),
    ) -> Window:
        tally, preface = self.tally, self.preface
        messages = lead.messages_with(tally.view(view.kept, view.hidden, view.short))
        tokens = lead.tokens + tally.total(view.kept) - view.saved
        shared = reusable = 0
        for one in self.sent:
            length = shared_length(messages, one.messages)
            shared = max(shared, length)
            if one.tools == preface.tools_sent:
                reusable = max(reusable, length)
        reused = 0
        if reusable:
            reused = preface.tools + lead.tokens_of(reusable, tally, view)
            reused = tokens if reusable == len(messages) else reused
        used = usage(tally, view, preface, lead, limit=self.limit, policy=self.policy)
        seen = (len(tally.items), tally.end, len(tally.repairs))
        report = WindowReport(used, events, dropped, tally, view, *seen)
        return Window(
            messages=messages,
            tokens=tokens,
            limit=self.limit,
            tally=tally,
            view=view,
            preface=preface,
            lead=lead,
            report=report,
            decisions=decisions,
            applied=self.standing,
            pending_cut=pending,
            shared=shared,
            reused_prefix_tokens=reused,
        )
