"""The State Manager: pure functions of the messages and settings it is given.

It holds a counter's name and a policy, and nothing between calls. ``window`` takes a list, or the
tally of one that grows; both give the same bytes, since the one is made from the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..entry import Answer, Cut, Decision, effective
from ..errors import InputError
from ..message import Message
from ..tokens import Count, Counter, conversation_cost, counter_names, message_cost
from ..tokens import counter as counter_named
from ..toolspec import ToolSpec
from ..value import check_kind, refuse
from .check import check, check_fit
from .collector import Plan, Room, hiding, plan
from .cut import decided
from .head import Head, Preface
from .policy import Budget, Policy
from .reduction import Limits
from .rounds import appended
from .snapshot import ContextSnapshot, snapshot
from .summary import rendered
from .tally import Tally
from .view import View, folded
from .window import Lead, Report, Tiers, Window, tiers, usage

__all__ = ["StateManager"]


class StateManager:
    """Makes windows that fit, validate, and keep the prompt cache; keeps nothing itself."""

    def __init__(self, counter: str | Counter = "o200k_base", policy: Policy | None = None) -> None:
        check_kind("StateManager(policy)", policy, Policy, optional=True)
        self.policy = policy or Policy()
        self.counter: Counter = counter_named(counter) if isinstance(counter, str) else counter
        if not (isinstance(getattr(self.counter, "name", None), str) and hasattr(self.counter, "count")):
            refuse("StateManager(counter)", counter, f"a counter, or one of {', '.join(counter_names())}")

    def count(self, messages: Iterable[Message], tools: Iterable[ToolSpec] = ()) -> Count:
        """Count what messages would cost if they were sent as they are."""
        return conversation_cost(messages, self.counter, tools)

    def append(self, messages: Sequence[Message], message: Message) -> list[Message]:
        """Add a message, or refuse a result that no call awaits."""
        return appended(messages, message)

    def tally(
        self,
        messages: Iterable[Message],
        budget: Budget,
        *,
        stored: bool = False,
        counts: Iterable[tuple[Message, int]] = (),
    ) -> Tally:
        """Build the tally of a conversation, to be grown with `add` and given to `window`.

        `stored` says that a store holds the whole outputs; `counts` are those of messages that were
        counted before and need no reduction.
        """
        return Tally.of(messages, self.counter, self.limits(budget), stored=stored, counts=counts)

    def limits(self, budget: Budget) -> Limits:
        """Give the limits beyond which a tool output is reduced under a budget."""
        if not isinstance(budget, Budget):
            refuse("budget", budget, "a Budget")
        return Limits.of(self.policy.reduction, budget.limit)

    def window(
        self,
        messages: Sequence[Message] | Tally,
        budget: Budget,
        *,
        head: Head | None = None,
        decisions: Sequence[Decision] = (),
        previous: Window | None = None,
    ) -> Window:
        """Make the window of a conversation, and say what had to be decided for it."""
        tally = self._tallied(messages, budget)
        preface = self._preface(head or Head(), tally, previous)
        view = self._view(live := _live(decisions), tally, budget.limit, previous)
        lead = self._lead(preface, tally, view, previous)
        new, events, pending = _unrecorded(tally, view, decisions), tuple[str, ...](), None
        if found := self._plan(tally, view, preface, lead, budget.limit):
            decisions_made, pending = decided(tally, view, found, self.policy, budget.limit)
            new, events = [*new, *decisions_made], found.events
            view = self._view((*live, *decisions_made), tally, budget.limit, None)
            lead = self._lead(preface, tally, view, None)
        window = Window(tally, view, preface, lead, limit=budget.limit, previous=previous)
        check(window.messages, window.shared)
        check_fit(window.tokens, budget.limit)
        window.decisions, window.applied, window.pending_cut = tuple(new), _live((*live, *new)), pending
        window.report = Report(
            tally, view, usage(tally, view, preface, lead, self.policy, budget.limit), events
        )
        return window

    def shown(
        self,
        messages: Sequence[Message] | Tally,
        budget: Budget,
        *,
        head: Head | None = None,
        decisions: Sequence[Decision] = (),
    ) -> Window:
        """Make the window that recorded decisions lead to, whether it fits or not; nothing is decided."""
        tally = self._tallied(messages, budget)
        preface = self._preface(head or Head(), tally, None)
        live = _live(decisions)
        view = self._view(live, tally, budget.limit, None)
        lead = self._lead(preface, tally, view, None)
        window = Window(tally, view, preface, lead, limit=budget.limit, previous=None)
        costs = usage(tally, view, preface, lead, self.policy, budget.limit)
        window.applied, window.report = live, Report(tally, view, costs, ())
        return window

    def classify(
        self,
        messages: Sequence[Message] | Tally,
        budget: Budget = Budget.UNLIMITED,
        *,
        head: Head | None = None,
        decisions: Sequence[Decision] = (),
    ) -> Tiers:
        """Say which message belongs to which tier, and what every category costs."""
        window = self.window(messages, budget, head=head, decisions=decisions)
        return tiers(window, self.policy)

    def snapshot(self, messages: Sequence[Message], *, timestamp: int = 0) -> ContextSnapshot:
        """Take a snapshot of a conversation as it would be sent if nothing were cut."""
        return snapshot(messages, tokens=self.count(messages).tokens, timestamp=timestamp)

    def _tallied(self, messages: Sequence[Message] | Tally, budget: Budget) -> Tally:
        if not isinstance(messages, Tally):
            return Tally.of(messages, self.counter, self.limits(budget), shared=True)
        if messages.limits != self.limits(budget):
            raise InputError(
                "the tally was made for another budget or policy; build it anew from the messages"
            )
        return messages

    def _preface(self, head: Head, tally: Tally, previous: Window | None) -> Preface:
        if previous and previous.tally is tally and previous.preface.fits(head, tally.head):
            return previous.preface
        return Preface(head, tally.head, self.counter)

    def _view(
        self, decisions: tuple[Decision, ...], tally: Tally, limit: int, previous: Window | None
    ) -> View:
        if previous and previous.shows(tally, decisions, limit):
            return previous.view
        return folded(decisions, tally, limit=limit, policy=self.policy)

    def _lead(self, preface: Preface, tally: Tally, view: View, previous: Window | None) -> Lead:
        if previous and previous.preface is preface and previous.leads_into(view):
            return previous.lead
        if not view.summary:
            return Lead(preface, None, tally, view)
        summary = rendered(view.summary, self.policy.summary_template)
        return Lead(preface, (summary, message_cost(summary, self.counter).tokens), tally, view)

    def _plan(self, tally: Tally, view: View, preface: Preface, lead: Lead, limit: int) -> Plan | None:
        """Decide what leaves, or is hidden: strictly above the limit, or from where the policy says."""
        if _over(tally, view, lead, limit):
            return plan(tally, view, self._room(preface, lead, limit), self.policy)
        if self.policy.mask < 1 and _over(tally, view, lead, int(self.policy.mask * limit)):
            return hiding(tally, view, self._room(preface, lead, limit), self.policy)
        return None

    def _room(self, preface: Preface, lead: Lead, limit: int) -> Room:
        return Room(
            limit=limit,
            head=preface.tokens,
            cap=self.policy.summary_cap(limit),
            opener=preface.opener,
            summary=lead.summary,
        )


def _over(tally: Tally, view: View, lead: Lead, limit: int) -> bool:
    return tally.exceeds(view.kept, limit - lead.tokens + view.saved)


def _unrecorded(tally: Tally, view: View, decisions: Sequence[Decision]) -> list[Decision]:
    """Give the answers for calls left behind that nobody has written down yet."""
    given: list[Answer] = []
    for place, answer in reversed(tally.answers):
        if place < view.kept:
            break
        given.append(answer)
    if not given:
        return []
    recorded = {decision.call for decision in decisions if isinstance(decision, Answer)}
    return [answer for answer in reversed(given) if answer.call not in recorded]


def _live(decisions: Sequence[Decision]) -> tuple[Decision, ...]:
    """Give the newest cut and what came after it, since a cut carries the whole view.

    One that the user asked for stays as well: it holds where the newest does not.
    """
    holding = effective(decisions)
    cuts = [place for place, one in enumerate(holding) if isinstance(one, Cut)]
    asked = [place for place in cuts if isinstance(one := holding[place], Cut) and one.asked]
    return tuple(holding[(asked or cuts or [0])[-1] :])
