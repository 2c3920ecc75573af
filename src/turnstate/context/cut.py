"""Cutting: a plan becomes a decision, with the digest of what leaves.

What was decided before is folded in: the digest of the previous cut, and a question that was
pinned by it and is not any more.
"""

from __future__ import annotations

from typing import Any

from ..decision import Cut, Decision, Mask
from ..ids import MessageId
from ..message import Message
from ..tokens import message_cost
from ..tokens.cost import MESSAGE_FRAME
from .collect import Plan
from .digest import Digest, carrying, digest, text
from .policy import Policy
from .rounds import derived
from .summary import rendered
from .tally import Tally
from .view import View

__all__ = ["cut_at", "decided", "evicted_by"]


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
