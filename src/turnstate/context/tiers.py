"""The three tiers: what is kept whole, what slides, what has left.

The immediate buffer is the system prompt and the newest five to ten turns; short-term memory is
what is kept before them; the long-term archive is what left the window and waits in the log.
"""

from __future__ import annotations

from msgspec import Struct

from ..ids import MessageId
from .policy import Policy
from .preface import Preface
from .tally import Tally
from .view import View
from .window import Lead, Window

__all__ = ["Tiers", "tiers", "usage"]


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
    """Give where the immediate buffer begins."""
    starts = tally.turns[-policy.lock_turns_at_most :]
    kept = [start for start in starts if start >= view.kept]
    return kept[0] if kept else view.kept
