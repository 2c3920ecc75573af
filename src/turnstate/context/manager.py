"""The State Manager: pure functions of the messages and settings passed to it.

It holds a counter and a policy, and keeps nothing between calls. ``window`` takes a list, or the tally of a
list that grows; both produce the same bytes, since a list is turned into a tally first. The work is done in
`live_window`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import UnionType
from typing import Never, TypeVar

from ..entry import Decision
from ..errors import InputError, InvalidMessage
from ..message import Message, not_a_message
from ..tokens import Count, Counter, conversation_cost, counter_names
from ..tokens import counter as counter_named
from ..toolspec import ToolSpec
from ..value import check_kind, refuse
from .calls import appended
from .cut import Strategy, compaction
from .live_window import Making, Sent, output_limits
from .policy import Budget, OutputLimits, Policy, check_budget
from .preface import Preface
from .snapshot import ContextSnapshot, snapshot
from .tally import Tally
from .window import PendingCut, Tiers, Window, tiers

T = TypeVar("T")


class StateManager:
    """Makes windows that fit, validate, and preserve the prompt cache; holds no state of its own."""

    def __init__(self, counter: str | Counter = "o200k_base", policy: Policy | None = None) -> None:
        check_kind("StateManager(policy)", policy, Policy, optional=True)
        self.policy = policy or Policy()
        self.counter: Counter = counter_named(counter) if isinstance(counter, str) else counter
        if not (isinstance(getattr(self.counter, "name", None), str) and hasattr(self.counter, "count")):
            refuse("StateManager(counter)", counter, f"a counter, or one of {', '.join(counter_names())}")

    def count(self, messages: Iterable[Message], tools: Iterable[ToolSpec] = ()) -> Count:
        """Count what messages would cost if they were sent as they are."""
        return conversation_cost(_checked(messages), self.counter, _all_of(ToolSpec, "tools", tools))

    def append(self, messages: Sequence[Message], message: Message) -> list[Message]:
        """Return the list with the message added; raise `InvalidMessage` for a result that no call awaits."""
        return appended(_checked(messages), *_checked([message]))

    def tally(
        self,
        messages: Iterable[Message],
        budget: Budget,
        *,
        stored: bool = False,
        counts: Iterable[tuple[Message, int]] = (),
        decisions: Sequence[Decision] = (),
    ) -> Tally:
        """Build the tally of a conversation, to grow with `add` and to pass to `window`.

        Set `stored` if a store holds the whole outputs. `counts` are the tokens of messages that were counted
        before and need no reduction; `decisions` are those recorded so far.
        """
        counts = _all_of(tuple, "counts", counts)
        for pair in counts:
            if list(map(type, pair)) != [Message, int]:
                refuse("counts", pair, "pairs of a message and its tokens")
        limits = self._limits(budget, decisions)
        return Tally.of(_checked(messages), self.counter, limits, stored=stored, counts=counts)

    def window(
        self,
        messages: Sequence[Message] | Tally,
        budget: Budget,
        *,
        preface: Preface | None = None,
        decisions: Sequence[Decision] = (),
        previous: Window | None = None,
        dropped: tuple[str, ...] = (),
        **unknown: Never,
    ) -> Window:
        """Make the window of a conversation; `Window.decisions` has the new decisions.

        It is compared with the `previous` one. `dropped` are sticky files that the preface leaves out.
        """
        _refuse_unknown(unknown)
        check_kind("previous", previous, Window, optional=True)
        return self._making(messages, budget, preface, decisions, previous).window(dropped=dropped)

    def shown(
        self,
        messages: Sequence[Message] | Tally,
        budget: Budget,
        *,
        preface: Preface | None = None,
        decisions: Sequence[Decision] = (),
        **unknown: Never,
    ) -> Window:
        """Make the window that recorded decisions lead to, whether it fits or not; decide nothing."""
        _refuse_unknown(unknown)
        return self._making(messages, budget, preface, decisions).shown()

    def compaction(
        self,
        messages: Sequence[Message] | Tally,
        budget: Budget,
        *,
        preface: Preface | None = None,
        decisions: Sequence[Decision] = (),
        strategy: Strategy | None = None,
        focus: str | None = None,
    ) -> PendingCut | None:
        """Return the cut that compacts what is shown now; None if nothing could leave."""
        check_kind("strategy", strategy, Strategy, optional=True)
        check_kind("focus", focus, str, optional=True)
        shown = self.shown(messages, budget, preface=preface, decisions=decisions)
        return compaction(shown, self.policy, strategy, focus=focus)

    def classify(
        self,
        messages: Sequence[Message] | Tally,
        budget: Budget = Budget.UNLIMITED,
        *,
        preface: Preface | None = None,
        decisions: Sequence[Decision] = (),
        **unknown: Never,
    ) -> Tiers:
        """Return the tier of each message, and the tokens of every category."""
        window = self.window(messages, budget, preface=preface, decisions=decisions, **unknown)
        return tiers(window, self.policy)

    def snapshot(self, messages: Sequence[Message], *, timestamp: int = 0) -> ContextSnapshot:
        """Take a snapshot of a conversation as it would be sent if nothing were cut."""
        messages = _checked(messages)
        return snapshot(messages, tokens=self.count(messages).tokens, timestamp=timestamp)

    def _limits(self, budget: Budget, decisions: Sequence[Decision]) -> OutputLimits:
        """Return the limits of outputs; only if that fails, check the types of all decisions."""
        check_budget(budget)
        try:
            return output_limits(budget.limit, decisions, self.policy)
        except (AttributeError, KeyError, TypeError):
            _all_of(Decision, "decisions", decisions)
            raise

    def _making(
        self,
        messages: Sequence[Message] | Tally,
        budget: Budget,
        preface: Preface | None,
        decisions: Sequence[Decision],
        previous: Window | None = None,
    ) -> Making:
        check_kind("preface", preface, Preface, optional=True)
        limits = self._limits(budget, decisions)
        if not isinstance(messages, Tally):
            messages = Tally.of(_checked(messages), self.counter, limits, shared=True)
        elif messages.limits != limits:
            raise InputError(
                "the tally was made for another budget or policy; build it again from the messages"
            )
        sent = [Sent(previous.messages, previous.preface.tools_sent, previous)] if previous else []
        return Making(messages, budget.limit, self.policy, preface or Preface(), decisions, sent=sent)


def _refuse_unknown(arguments: Mapping[str, object]) -> None:
    """Raise `TypeError` for an argument that does not exist, and name the new word for `head`."""
    for name in arguments:
        renamed = "; it is called preface now: preface=Preface(…)" if name == "head" else ""
        raise TypeError(f"there is no argument {name!r}{renamed}")


def _checked(messages: Iterable[Message]) -> Sequence[Message]:
    """Return messages as a sequence; raise `InvalidMessage` for anything else."""
    if not isinstance(messages, Iterable) or isinstance(messages, str | bytes | dict):
        raise InvalidMessage(not_a_message("the State Manager", messages))
    listed = messages if isinstance(messages, Sequence) else list(messages)
    for kind in set(map(type, listed)):
        if not issubclass(kind, Message):
            wrong = next(one for one in listed if type(one) is kind)
            raise InvalidMessage(not_a_message("the State Manager", wrong))
    return listed


def _all_of(kind: type[T] | UnionType, setting: str, given: Iterable[T]) -> Sequence[T]:
    """Return values as a sequence; raise `InvalidSetting` unless all of them have the given type."""
    if not isinstance(given, Iterable):
        refuse(setting, given, "a sequence")
    listed = given if isinstance(given, Sequence) else list(given)
    for one in listed:
        if not isinstance(one, kind):
            refuse(setting, one, f"a sequence of values of type {getattr(kind, '__name__', kind)}")
    return listed
