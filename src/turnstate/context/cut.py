"""Cutting: a plan becomes a decision, with the digest of what leaves.

What was decided before is folded in: the digest of the previous cut, and a question that was
pinned by it and is not any more.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from ..entry import Cut, Decision, Mask
from ..errors import ContextOverflow
from ..ids import MessageId
from ..message import Message
from ..tokens import message_cost
from ..tokens.cost import MESSAGE_FRAME
from ..value import Value, check_kind, check_whole
from .collector import Plan, Room, plan
from .digest import Digest, carrying, digest, text
from .policy import Policy
from .rounds import derived
from .summary import rendered
from .summary_prompt import MOST_CHARS
from .tally import Tally
from .view import View
from .window import Window

__all__ = [
    "Foreseen",
    "Planned",
    "Strategy",
    "carried",
    "cleared",
    "cut_at",
    "decided",
    "evicted_by",
    "foreseen",
    "planned",
]


def decided(tally: Tally, view: View, plan: Plan, policy: Policy, limit: int) -> tuple[Decision, ...]:
    """Write a plan down as decisions: nothing may have to leave for it."""
    new = plan.hidden - view.hidden
    if new and (plan.kept, plan.pinned) == (view.kept, view.pinned):
        saved = sum(tally.saved(index) for index in new)
        return (Mask(ids=tuple(tally.at(index).id for index in sorted(new)), saved=saved),)
    shares = (_share(tally, plan.each, limit),) if plan.each else ()
    return (cut_at(tally, view, plan, policy, limit), *shares) if plan.cuts else shares


def _share(tally: Tally, each: int, limit: int) -> Mask:
    """Write down that the outputs of the round under way have so many tokens each."""
    places = tally.outputs(len(tally.items))
    saved = sum(tally.cost(place) - tally.shortened(place, each)[1] for place in places)
    return Mask(ids=tuple(tally.at(place).id for place in places), saved=saved, each=each, limit=limit)


def cut_at(
    tally: Tally, view: View, plan: Plan, policy: Policy, limit: int, *, asked: dict[str, Any] | None = None
) -> Cut:
    """Write a plan down as a cut, the collector's or one that the user asked for."""
    hidden = sorted(index for index in plan.hidden | view.hidden if index >= plan.kept)
    ids = tuple(tally.at(index).id for index in hidden)
    evicted = evicted_by(tally, view, plan)
    known = digest(evicted, _known(view))
    summary = text(
        known, plan.cap - MESSAGE_FRAME, tally.counter, policy.summary_template, language=policy.language
    )
    if message_cost(rendered(summary, policy.summary_template), tally.counter).tokens > plan.cap:
        summary = ""
    kept_from = tally.at(plan.kept).id if plan.kept < tally.end else None
    pinned, settings = tuple(tally.at(index).id for index in plan.pinned), (policy.fingerprint, str(limit))
    return Cut(
        id=derived("cut", kept_from or "", *pinned, *ids, summary, *settings, tally.counter.name),
        kept_from=kept_from,
        pinned=pinned,
        masked=ids,
        summary=summary,
        digest=known.to_json(),
        covers=_covers(view, evicted),
        limit=limit,
        policy=policy.fingerprint,
        counter=tally.counter.name,
        cap=plan.cap,
        asked=asked or {},
        shares=tuple(mask for mask in view.shares if (tally.place(mask.ids[0]) or 0) >= plan.kept),
    )


def _known(view: View) -> Digest | None:
    """Give what is known of earlier cuts; a model's text goes along with the facts."""
    if view.cut is None:
        return None
    facts = Digest.from_json(view.cut.digest) if view.cut.digest else None
    return carrying(view.words, facts) if view.words and view.words != view.cut.summary else facts


def evicted_by(tally: Tally, view: View, plan: Plan) -> list[Message]:
    """Give what leaves with this cut, in order, as it stands in the log."""
    released = [tally.items[index] for index in view.pinned if index not in plan.pinned]
    leaving = tally.items[view.kept : plan.kept]
    for index in sorted(plan.pinned, reverse=True):
        if index >= view.kept:
            del leaving[index - view.kept]
    return released + leaving


def _covers(view: View, evicted: list[Message]) -> tuple[MessageId, MessageId]:
    if not evicted and view.cut:
        return view.cut.covers
    first = view.cut.covers[0] if view.cut else evicted[0].id
    return first, evicted[-1].id


# Compaction: a cut that the user asks for, before the budget does.


class Strategy(Value, frozen=True, kw_only=True):
    """What a compaction keeps, and how much of a message it shows to the model that summarises.

    ``keep`` counts the newest exchanges. With ``truncate``, a message is shown to the model with its two
    ends only where it has more than ``longest`` characters; without, as whole as there is room.
    """

    keep: int = 2
    truncate: bool = True
    longest: int = MOST_CHARS

    def __post_init__(self) -> None:
        check_whole("Strategy.keep", self.keep)
        check_kind("Strategy.truncate", self.truncate, bool)
        check_whole("Strategy.longest", self.longest, least=1)


class Planned(Struct, frozen=True):
    """A compaction that can be made: its cut, what leaves with it, and the summary that stands now."""

    cut: Cut
    evicted: tuple[Message, ...]
    previous: str
    before: int


def planned(
    window: Window, policy: Policy, strategy: Strategy | None = None, *, asked: dict[str, Any] | None = None
) -> Planned | None:
    """Plan a compaction of what a window shows; None where there is nothing that could leave."""
    strategy = strategy or Strategy()
    tally, view, limit = window.tally, window.view, window.limit
    kept = _kept(tally, strategy.keep)
    if kept <= view.kept:
        return None
    question = tally.question(kept) if kept < tally.end else None
    pinned = () if question is None or question == kept else (question,)
    plan = Plan(kept, pinned, view.hidden, policy.summary_cap(limit), ("compacted on request",))
    evicted = evicted_by(tally, view, plan)
    if not evicted:
        return None
    wanted = {"operation": "compact", "keep": strategy.keep, **(asked or {})}
    cut = cut_at(tally, view, plan, policy, limit, asked=wanted)
    return Planned(cut, tuple(evicted), view.summary or "", window.tokens)


def cleared(first: MessageId, last: MessageId, number: int) -> Cut:
    """Give the cut that empties a conversation: nothing is kept, and nothing stands for what left.

    The number of entries before it tells it from an earlier one.
    """
    return Cut(
        id=derived("clear", first, last, str(number)),
        kept_from=None,
        summary="",
        covers=(first, last),
        limit=0,
        policy="",
        counter="",
        asked={"operation": "clear"},
    )


def carried(summary: str, asked: dict[str, Any] | None = None) -> Cut:
    """Give the cut for a summary from elsewhere: what it covers is in no log, and what follows is kept."""
    gone = MessageId("")
    return Cut(
        id=derived("carried", summary),
        kept_from=None,
        summary=summary,
        digest=carrying(summary).to_json(),
        covers=(gone, gone),
        limit=0,
        policy="",
        counter="",
        asked={"operation": "compact", **(asked or {})},
    )


def _kept(tally: Tally, keep: int) -> int:
    """Give the place where the newest exchanges begin, and what is not answered yet."""
    place = _unanswered(tally)
    starts = [start for start in tally.groups if start < place]
    answers = [start for start in starts if tally.items[start].role == "assistant"]
    if keep and answers:
        place = answers[-min(keep, len(answers))]
    while starts and starts[-1] >= place:
        starts.pop()
    while keep and starts and tally.items[starts[-1]].role == "user":
        place = starts.pop()
    return place


def _unanswered(tally: Tally) -> int:
    """Give the place behind the last answer: calls under way and words without an answer stay."""
    place = len(tally.items)
    for start in reversed(tally.groups):
        if tally.items[start].role != "user":
            break
        place = start
    return place


# Foresight: the cut that comes when the window is full, planned before it is.


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
