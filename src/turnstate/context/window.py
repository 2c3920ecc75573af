"""The window: what is sent, what it costs, what was decided on the way, and why.

It is made of four runs: the head's system messages, the summary, the head's data, and what is kept
of the conversation. A window knows how many of its leading tokens stood in the previous request
byte for byte, which is what a provider's prompt cache can reuse.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import formats
from ..decision import Decision
from ..formats.port import Format
from ..message import Message
from .mend import rendered
from .preface import OPENER, Preface
from .report import Report
from .tally import Tally
from .view import View

__all__ = ["Lead", "Window"]


class Lead:
    """What stands before the kept part: head, summary, data, and the question that stays."""

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


class Window:
    """An immutable request: messages in order, with their tokens.

    ``decisions`` holds what was newly decided, for whoever keeps the log to write down; ``applied``
    is all that the window was made under. ``shared`` counts the leading messages that stood in the
    previous request.
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
        return rendered(self.messages, target, tools=self.preface.head.tools, request=request)

    def grows_into(self, other: Window) -> bool:
        """Tell whether the other window has the same view of the same tally, with more behind it."""
        return self.tally is other.tally and self.view is other.view and self.lead is other.lead

    def shows(self, tally: Tally, decisions: tuple[Decision, ...], limit: int) -> bool:
        """Tell whether the view of this window is that of the tally as it is now, under these decisions."""
        same = self.tally is tally and self.limit == limit and self.applied == decisions
        return same and (self._length == tally.length or not self.view.shares)

    def leads_into(self, view: View) -> bool:
        """Tell whether the same stands before the kept part of that view."""
        mine = (self.view.kept, self.view.pinned, self.view.summary)
        return mine == (view.kept, view.pinned, view.summary) and len(self.messages) > len(self.lead.messages)

    def _messages(self, known: tuple[Message, ...]) -> tuple[Message, ...]:
        tally, view, lead = self.tally, self.view, self.lead
        if not known:
            return (*lead.messages, *tally.view(view.kept, view.hidden, view.short))
        return (*known, *tally.view(view.kept + len(known) - len(lead.messages), view.hidden, view.short))

    def _leading_tokens(self) -> int:
        """Count what stood in the previous request, byte for byte."""
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
