"""Cuts: the decision that messages leave the window, with the digest of what leaves.

A cut is due when the window is full (`decided`), is foreseen before that (`foreseen`), or is asked for by
the user (`compaction`). All three give a `PendingCut`. What was decided before is folded in: the digest of
the previous cut, and a question that was pinned by it and is not any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal

from msgspec import Struct, structs

from ..entry import CAP, Cut, Decision, Mask, Summary
from ..errors import ContextOverflow
from ..ids import MessageId, derived
from ..message import Message
from ..tokens import message_cost
from ..tokens.cost import MESSAGE_FRAME
from ..value import Value, check_kind, check_whole
from .collector import Plan, Room, plan
from .decisions import beside, floor_of, in_force
from .digest import Digest, carrying, digest, text
from .policy import Policy
from .summary_prompt import MOST_CHARS
from .tally import Tally
from .view import View, folded, kept_place, masks_on
from .window import PendingCut, Window
from .wording import rendered

__all__ = [
    "Compaction",
    "PendingCut",
    "Strategy",
    "capped",
    "carried",
    "cleared",
    "compacted",
    "compaction",
    "decided",
    "foreseen",
]


def decided(
    tally: Tally, view: View, plan: Plan, policy: Policy, limit: int, standing: Sequence[Decision]
) -> tuple[tuple[Decision, ...], PendingCut | None]:
    """Return a plan as decisions, and the cut among them; a plan may only hide or shorten outputs.

    `standing` are the decisions in force, some of which the cut carries.
    """
    new = plan.hidden - view.hidden
    if new and (plan.kept, plan.pinned) == (view.kept, view.pinned):
        saved = sum(tally.saved(index) for index in new)
        ids = tuple(tally.at(index).id for index in sorted(new))
        return (Mask(ids=ids, saved=saved, limit=limit, scale=tally.limits.scale),), None
    shares = (_share(tally, plan.each, limit),) if plan.each else ()
    if not plan.cuts:
        return shares, None
    pending = _pending_cut(tally, view, plan, policy, limit, standing)
    return (pending.cut, *shares), pending


def _share(tally: Tally, each: int, limit: int) -> Mask:
    """Return the decision that each output of the round under way has so many tokens."""
    places = tally.outputs(len(tally.items))
    saved = sum(tally.cost(place) - tally.shortened(place, each)[1] for place in places)
    ids = tuple(tally.at(place).id for place in places)
    return Mask(ids=ids, saved=saved, each=each, limit=limit, scale=tally.limits.scale)


def _pending_cut(
    tally: Tally,
    view: View,
    plan: Plan,
    policy: Policy,
    limit: int,
    standing: Sequence[Decision],
    *,
    asked: dict[str, Any] | None = None,
) -> PendingCut:
    """Return the cut that a plan leads to; `asked` says what the user asked for."""
    hidden = sorted(index for index in plan.hidden | view.hidden if index >= plan.kept)
    ids = tuple(tally.at(index).id for index in hidden)
    evicted = _evicted(tally, view, plan)
    known = digest(evicted, _known(view))
    summary = text(
        known, plan.cap - MESSAGE_FRAME, tally.counter, policy.summary_template, language=policy.language
    )
    if message_cost(rendered(summary, policy.summary_template), tally.counter).tokens > plan.cap:
        summary = ""
    kept_from = tally.at(plan.kept).id if plan.kept < tally.end else None
    pinned, settings = tuple(tally.at(index).id for index in plan.pinned), (policy.fingerprint, str(limit))
    cut = Cut(
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
        scale=tally.limits.scale,
    )
    earlier = beside(standing, cut, policy, starts_later=lambda one: kept_place(one, tally) > plan.kept)
    return PendingCut(structs.replace(cut, beside=earlier), tuple(evicted), view.summary or "")


def _known(view: View) -> Digest | None:
    """Return the digest of earlier cuts, with a model's text if there is one."""
    if view.cut is None:
        return None
    facts = Digest.from_json(view.cut.digest) if view.cut.digest else None
    return carrying(view.words, facts) if view.words and view.words != view.cut.summary else facts


def _evicted(tally: Tally, view: View, plan: Plan) -> list[Message]:
    """Return the messages that leave with this cut, in order."""
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
    """What a compaction keeps, and how much of a message it shows to the model that summarizes.

    ``keep`` counts the newest exchanges. With ``truncate``, a message is shown to the model with its two
    ends only if it has more than ``longest`` characters; without, as whole as there is room.
    """

    keep: int = 2
    truncate: bool = True
    longest: int = MOST_CHARS

    def __post_init__(self) -> None:
        check_whole("Strategy.keep", self.keep)
        check_kind("Strategy.truncate", self.truncate, bool)
        check_whole("Strategy.longest", self.longest, least=1)


def compaction(
    window: Window, policy: Policy, strategy: Strategy | None = None, *, focus: str | None = None
) -> PendingCut | None:
    """Return the cut that compacts what a window shows; None if nothing could leave.

    ``Cut.asked`` says what was asked for, and the tokens before.
    """
    strategy = strategy or Strategy()
    tally, view, limit = window.tally, window.view, window.limit
    kept = _kept(tally, strategy.keep)
    if kept <= view.kept:
        return None
    question = tally.question(kept) if kept < tally.end else None
    pinned = () if question is None or question == kept else (question,)
    plan = Plan(kept, pinned, view.hidden, policy.summary_cap(limit), ("compacted on request",))
    if not _evicted(tally, view, plan):
        return None
    asked: dict[str, Any] = {"operation": "compact", "keep": strategy.keep}
    asked |= {"focus": focus} if focus else {}
    asked |= {"before": window.tokens}
    return _pending_cut(tally, view, plan, policy, limit, window.applied, asked=asked)


def capped(
    tally: Tally, decisions: Sequence[Decision], policy: Policy, *, keep: int, limit: int
) -> Cut | None:
    """Return the cut that keeps the newest exchanges, from the edge of a turn on; None if all are kept.

    Whatever the budget, nothing before it is shown again, so cuts that hold under one budget only are not
    built upon. Within a turn that is longer than what is kept, it is made between two groups.
    """
    standing = in_force(decisions)
    floor = floor_of(standing)
    masks = masks_on(floor, standing, limit=limit, policy=policy)
    view = folded(floor, masks, standing, tally, policy)
    place = _kept(tally, keep)
    kept = next((turn for turn in tally.turns if turn >= place), place)
    if kept <= view.kept:
        return None
    plan = Plan(kept, (), view.hidden, policy.summary_cap(limit), ())
    return _pending_cut(tally, view, plan, policy, limit, standing, asked={"operation": CAP}).cut


class Compaction(Struct, frozen=True, kw_only=True):
    """What a compaction came to, or would come to.

    ``refused`` says why a model's summary is not used; the digest is used then.
    """

    cut: Cut
    summary: str
    source: Literal["model", "digest"]
    tokens_before: int
    tokens_after: int
    messages: int
    refused: str = ""
    time: datetime | None = None  # at which it was written; None if it was not


def compacted(
    pending: PendingCut, summary: Summary | None, tokens_after: int, *, refused: str = ""
) -> tuple[Compaction, tuple[Decision, ...]]:
    """Return what a compaction comes to, and the decisions to be written for it.

    `summary` is a model's summary of the pending cut, `tokens_after` what the window has with both.
    """
    cut = structs.replace(pending.cut, asked={**pending.cut.asked, "after": tokens_after})
    outcome = Compaction(
        cut=cut,
        summary=summary.shown if summary else cut.summary,
        source="model" if summary else "digest",
        tokens_before=cut.asked["before"],
        tokens_after=tokens_after,
        messages=len(pending.evicted),
        refused=refused,
    )
    return outcome, (cut, summary) if summary else (cut,)


def cleared(first: MessageId, last: MessageId, number: int) -> Cut:
    """Return the cut that empties a conversation: nothing is kept, and nothing replaces what left.

    The number of entries before it makes its id differ from an earlier one.
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
    """Return the cut for a summary from elsewhere: what it covers is in no log, what follows is kept."""
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
    """Return the place where the newest exchanges begin, with what is not answered yet."""
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
    """Return the place after the last answer: calls under way and unanswered words stay."""
    place = len(tally.items)
    for start in reversed(tally.groups):
        if tally.items[start].role != "user":
            break
        place = start
    return place


# Foresight: the cut that comes when the window is full, planned before it is.


def foreseen(window: Window, policy: Policy) -> PendingCut | None:
    """Return the cut that a nearly full window leads to; None if there is none to be made."""
    tally, view, limit = window.tally, window.view, window.limit
    growth = limit - window.tokens
    room = Room(
        limit=limit,
        head=window.preface.tokens + window.recall_tokens + growth,
        cap=policy.summary_cap(limit),
        opener=0 if window.preface.context else window.preface.opener,
        summary=window.lead.summary,
    )
    try:
        found = plan(tally, view, room, policy)
    except ContextOverflow:
        return None
    if found.kept == view.kept:
        return None
    return decided(tally, view, found, policy, limit, window.applied)[1]
