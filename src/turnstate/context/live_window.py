"""The live window: makes each request of a conversation at the cost of what is new in it.

It keeps the tally of the conversation and the window that was sent last, under one budget. The pure
`StateManager.window` is a live window that is used once, so both give the same bytes.

A window is made in four steps: the decisions that hold are folded into a view; if that view does not fit,
the collector plans what leaves or is hidden; the new decisions are folded in; and the result is checked.
No window leaves here that a provider would reject. The rules that all providers share are: system messages
first, then a user, every call answered once and at once, no answer without its call, no id twice. What
holds here renders validly in every format. A window that grew is checked from where it grew.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..entry import Answer, Cut, Decision, effective
from ..errors import InvalidConversation
from ..message import Message
from ..tokens import Counter, message_cost
from ..value import refuse
from .collector import Plan, Room, hiding, plan
from .cut import decided
from .head import Head, Preface
from .policy import Budget, Policy
from .reduction import Limits
from .tally import Tally
from .window import Lead, Report, View, Window, folded, usage
from .wording import rendered

__all__ = ["LiveWindow", "check", "check_fit"]


class LiveWindow:
    """Makes the windows of one conversation. Call `under` first, `grow` for new messages, then `window`.

    ``previous`` is the window that was sent last; the caller sets it. ``stored`` says that a store holds
    the whole outputs of tools.
    """

    def __init__(self, counter: Counter, policy: Policy, *, stored: bool = False) -> None:
        self.counter, self.policy, self.stored = counter, policy, stored
        self.tally: Tally | None = None
        self.previous: Window | None = None
        self.budget: Budget | None = None
        self.limit = 0
        self.limits: Limits
        self._given: tuple[Decision, ...] = ()
        self._in_force: tuple[Decision, ...] = ()

    @property
    def length(self) -> int:
        """The number of messages that the tally holds."""
        return self.tally.length if self.tally is not None else 0

    def under(self, budget: Budget) -> LiveWindow:
        """Use this budget from now on; the tally is kept if the limits of tool outputs stay the same."""
        if not isinstance(budget, Budget):
            refuse("budget", budget, "a Budget")
        if budget != self.budget:
            self.budget, self.limit = budget, budget.limit
            self.limits = Limits.of(self.policy.reduction, self.limit)
            if self.tally is not None and self.tally.limits != self.limits:
                self.tally = None
        return self

    def restarted(self, counter: Counter | None = None) -> LiveWindow:
        """Return one without a tally: other messages, another counter, or a thread still uses it."""
        live = LiveWindow(counter or self.counter, self.policy, stored=self.stored)
        live.previous = self.previous
        return live

    def grow(self, messages: Iterable[Message], counts: Iterable[tuple[Message, int]] = ()) -> None:
        """Add messages; `counts` has the tokens of those that were counted before and need no reduction."""
        tally, self.tally = self.tally, None  # an error leaves none rather than half of one
        if tally is None:
            tally = Tally.of(messages, self.counter, self.limits, stored=self.stored, counts=counts)
        else:
            for message, tokens in counts:
                tally.foresee(message, tokens)
            for message in messages:
                tally.add(message)
        self.tally = tally

    def window(self, head: Head, decisions: Sequence[Decision] = ()) -> Window:
        """Make the window of the conversation; `Window.decisions` has what had to be decided for it."""
        tally, limit, previous = self._tally, self.limit, self.previous
        preface, in_force = self._preface(head), self._holding(decisions)
        if previous and previous.shows(tally, in_force, limit):
            view = previous.view
        else:
            view = folded(in_force, tally, limit=limit, policy=self.policy)
        lead = self._lead(preface, view)
        new, events, pending = _unrecorded(tally, view, decisions), tuple[str, ...](), None
        if found := self._plan(view, preface, lead):
            made, pending = decided(tally, view, found, self.policy, limit)
            new, events = [*new, *made], found.events
            view = folded((*in_force, *made), tally, limit=limit, policy=self.policy)
            lead = self._lead(preface, view, reuse=False)
        window = Window(tally, view, preface, lead, limit=limit, previous=previous)
        check(window.messages, window.shared)
        check_fit(window.tokens, limit)
        window.decisions, window.pending_cut = tuple(new), pending
        window.applied = _newest((*in_force, *new)) if new else in_force
        costs = usage(tally, view, preface, lead, self.policy, limit)
        window.report = Report(tally, view, costs, events)
        return window

    def shown(self, head: Head, decisions: Sequence[Decision] = ()) -> Window:
        """Make the window that recorded decisions lead to, whether it fits or not; decide nothing."""
        tally, limit = self._tally, self.limit
        preface, in_force = Preface(head, tally.head, self.counter), self._holding(decisions)
        view = folded(in_force, tally, limit=limit, policy=self.policy)
        lead = self._lead(preface, view, reuse=False)
        window = Window(tally, view, preface, lead, limit=limit, previous=None)
        costs = usage(tally, view, preface, lead, self.policy, limit)
        window.applied, window.report = in_force, Report(tally, view, costs, ())
        return window

    @property
    def _tally(self) -> Tally:
        if self.tally is None:
            self.tally = Tally.of((), self.counter, self.limits, stored=self.stored)
        return self.tally

    def _holding(self, decisions: Sequence[Decision]) -> tuple[Decision, ...]:
        """Return the decisions that hold, worked out again only if there are others than last time."""
        given = tuple(decisions)
        if given != self._given:
            self._given, self._in_force = given, _newest(given)
        return self._in_force

    def _preface(self, head: Head) -> Preface:
        tally, previous = self._tally, self.previous
        if previous and previous.tally is tally and previous.preface.fits(head, tally.head):
            return previous.preface
        return Preface(head, tally.head, self.counter)

    def _lead(self, preface: Preface, view: View, *, reuse: bool = True) -> Lead:
        previous = self.previous if reuse else None
        if previous and previous.preface is preface and previous.leads_into(view):
            return previous.lead
        if not view.summary:
            return Lead(preface, None, self._tally, view)
        summary = rendered(view.summary, self.policy.summary_template)
        cost = message_cost(summary, self.counter).tokens
        return Lead(preface, (summary, cost), self._tally, view)

    def _plan(self, view: View, preface: Preface, lead: Lead) -> Plan | None:
        """Return what leaves or is hidden: above the limit, or from the share of it that the policy says."""
        tally, room = self._tally, self.limit - lead.tokens + view.saved
        over = tally.exceeds(view.kept, room)
        if not over:
            if self.policy.mask_at >= 1:
                return None
            if not tally.exceeds(view.kept, room - self.limit + int(self.policy.mask_at * self.limit)):
                return None
        space = Room(
            limit=self.limit,
            head=preface.tokens,
            cap=self.policy.summary_cap(self.limit),
            opener=preface.opener,
            summary=lead.summary,
        )
        return (plan if over else hiding)(tally, view, space, self.policy)


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


def _newest(decisions: Sequence[Decision]) -> tuple[Decision, ...]:
    """Return the newest cut and what came after it, since a cut carries the whole view.

    One that the user asked for stays as well: it holds where the newest does not.
    """
    holding = effective(decisions)
    cuts = [place for place, one in enumerate(holding) if isinstance(one, Cut)]
    asked = [place for place in cuts if isinstance(one := holding[place], Cut) and one.asked]
    return tuple(holding[(asked or cuts or [0])[-1] :])


# The check: what every provider demands, in terms of messages.


def check(messages: Sequence[Message], known: int = 0) -> None:
    """Raise `InvalidConversation` if a window breaks a rule; its first `known` messages are sound."""
    start = min(known, len(messages))
    while start > 0 and messages[start - 1].role == "tool":  # back to the last calls: nothing is open before
        start -= 1
    if start > 0 and messages[start - 1].tool_calls:
        start -= 1
    awaited: dict[str, None] = {}
    for message in messages[start:]:
        if message.role == "tool":
            for result in message.tool_results:
                if result.tool_call_id not in awaited:
                    raise InvalidConversation(
                        f"message {message.id} answers {result.tool_call_id}, which awaits no answer"
                    )
                del awaited[result.tool_call_id]
        elif awaited:
            raise InvalidConversation(
                f"the call {next(iter(awaited))} is left without an answer before {message.id}"
            )
        for call in message.tool_calls:
            awaited[call.id] = None
    if awaited:
        raise InvalidConversation(f"the call {next(iter(awaited))} is left without an answer at the end")
    if start == 0:
        _check_whole(messages)


def check_fit(tokens: int, limit: int) -> None:
    """Raise `InvalidConversation` if a window has more tokens than it may."""
    if tokens > limit:
        raise InvalidConversation(f"the window came out too long: {tokens:,} tokens of {limit:,}")


def _check_whole(messages: Sequence[Message]) -> None:
    first = next((message for message in messages if message.role != "system"), None)
    if first is not None and first.role != "user":
        raise InvalidConversation(f"the first message is the user's, not {first.role} {first.id}")
    calls = [call.id for message in messages for call in message.tool_calls]
    if len(set(calls)) < len(calls):
        twice = next(id for id in calls if calls.count(id) > 1)
        raise InvalidConversation(f"the call id {twice} is not unique")
