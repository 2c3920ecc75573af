"""Foresight: the cut that comes when the window is full, planned before it is.

A model needs seconds for a summary and a cut cannot wait for it; swapping the summary in afterwards
breaks the prompt cache a second time. So the cut is planned while there is still room, as if the room
that is left were taken already, and its summary is written meanwhile.
"""

from __future__ import annotations

from msgspec import Struct

from ..decision import Cut
from ..errors import ContextOverflow
from ..message import Message
from .collect import Room, plan
from .cut import decided, evicted_by
from .policy import Policy
from .window import Window

__all__ = ["Foreseen", "foreseen"]


class Foreseen(Struct, frozen=True):
    """A cut to come, what it will evict, and the summary that stands now."""

    cut: Cut
    evicted: tuple[Message, ...]
    previous: str


def foreseen(window: Window, policy: Policy) -> Foreseen | None:
    """Plan the cut that a window which is nearly full leads to; nothing where there is none to be made."""
    tally, view, limit = window.tally, window.view, window.limit
    growth = limit - window.tokens
    room = Room(
        limit=limit,
        head=window.preface.tokens + growth,
        cap=policy.summary_cap(limit),
        opener=window.preface.opener,
        summary=window.lead.summary,
    )
    try:
        found = plan(tally, view, room, policy)
    except ContextOverflow:
        return None
    if found.kept == view.kept:
        return None
    cut = next((one for one in decided(tally, view, found, policy, limit) if isinstance(one, Cut)), None)
    if cut is None:
        return None
    return Foreseen(cut, tuple(evicted_by(tally, view, found)), view.summary or "")
