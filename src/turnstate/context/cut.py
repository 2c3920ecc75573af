"""Cuts: the decision that messages leave the window, with the digest of what leaves.

A cut is due when the window is full (`decided`), is foreseen before that (`foreseen`), or is requested by
the user (`compaction`). All three produce a `PendingCut`. A cut folds in what was decided before: the digest
of the previous cut, and a question that the previous cut pinned and this one does not.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Literal

from msgspec import Struct, structs

from ..entry import CAP, Cut, Decision, Mask, Summary
from ..errors import ContextOverflow
from ..ids import MessageId, derived
from ..message import Message
from ..tokens import Counter
from ..tokens.cost import MESSAGE_FRAME
from ..value import Value, check_kind, check_whole
from .collector import Plan, Room, plan
from .digest import Digest, carrying, digest
from .digest_text import text
from .evidence import Evidence
from .policy import Budget, OutputLimits, Policy, step
from .summary_prompt import MOST_CHARS
from .summary_text import shown_summary
from .tally import Tally
from .view import View, beside, floor_of, folded, in_force, kept_place, model_summary, pinned
from .window import PendingCut, Window

__all__ = [
    "DEFAULT_STRATEGY",
    "KEPT_AT_CAP",
    "MAX_CONVERSATION_STATE_HISTORY_LEN",
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

MAX_CONVERSATION_STATE_HISTORY_LEN = 10_000
"""The most exchanges that the live history holds and a window may show; older ones are in the log."""

KEPT_AT_CAP = 0.9
"""The share of them that the cut at the cap keeps: one such cut lasts for a thousand exchanges."""

CAP_BUDGET = Budget(200_000)
"""The budget that sets the length of that cut's summary: the same for all, whatever their own budgets."""


def decided(
    tally: Tally, view: View, plan: Plan, policy: Policy, limit: int, standing: Sequence[Decision]
) -> tuple[tuple[Decision, ...], PendingCut | None]:
    """Return a plan as decisions, and the cut among them; None if it only hides or shortens outputs.

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
    """Return the decision to show each output of the round in progress in at most `each` tokens."""
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
    known = digest(_evidence(tally, view, plan), _known(view))
    summary = text(
        known, plan.cap - MESSAGE_FRAME, tally.counter, policy.summary_template, language=policy.language
    )
    if shown_summary(summary, policy.summary_template, tally.counter)[1] > plan.cap:
        summary = ""  # the cap is smaller than the template: the last group needs the room
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


def _evidence(tally: Tally, view: View, plan: Plan) -> Evidence:
    """Return the evidence in the messages that leave with this cut."""
    found = Evidence().read([tally.items[index] for index in view.pinned if index not in plan.pinned])
    start = view.kept
    for index in sorted(index for index in plan.pinned if index >= view.kept):
        found, start = _joined(found, tally.evidence(start, index)), index + 1
    return _joined(found, tally.evidence(start, plan.kept))


def _joined(earlier: Evidence, later: Evidence) -> Evidence:
    if not earlier.messages:
        return later
    return earlier + later if later.messages else earlier


def _covers(view: View, evicted: list[Message]) -> tuple[MessageId, MessageId]:
    if not evicted and view.cut:
        return view.cut.covers
    first = view.cut.covers[0] if view.cut else evicted[0].id
    return first, evicted[-1].id


# Compaction: a cut that the user requests before the budget requires one.


class Strategy(Value, frozen=True, kw_only=True):
    """What a compaction keeps, and how much of a message it shows to the model that summarizes.

    ``keep`` is the number of newest exchanges to keep. With ``truncate``, only the two ends of a message with
    more than ``longest`` characters are shown to the model; without it, as much as there is room for.
    """

    keep: int = 2
    truncate: bool = True
    longest: int = MOST_CHARS

    def __post_init__(self) -> None:
        check_whole("Strategy.keep", self.keep)
        check_kind("Strategy.truncate", self.truncate, bool)
        check_whole("Strategy.longest", self.longest, least=1)


DEFAULT_STRATEGY = Strategy()


def compaction(
    window: Window, policy: Policy, strategy: Strategy | None = None, *, focus: str | None = None
) -> PendingCut | None:
    """Return the cut that compacts what a window shows; None if nothing could leave.

    ``Cut.asked`` records the request and the tokens before it.
    """
    strategy = strategy or DEFAULT_STRATEGY
    tally, view, limit = window.tally, window.view, window.limit
    kept = _kept(tally, strategy.keep)
    if kept <= view.kept:
        return None
    questions = pinned(tally, view, kept) if kept < tally.end else ()
    plan = Plan(kept, questions, view.hidden, policy.summary_cap(limit), ("compacted on request",))
    if not _evicted(tally, view, plan):
        return None
    asked: dict[str, Any] = {"operation": "compact", "keep": strategy.keep}
    asked |= {"focus": focus} if focus else {}
    asked |= {"before": window.tokens}
    return _pending_cut(tally, view, plan, policy, limit, (), asked=asked)  # it replaces all earlier cuts


def capped(
    messages: Iterable[Message],
    decisions: Sequence[Decision],
    policy: Policy,
    counter: Counter,
    *,
    stored: bool,
) -> Cut | None:
    """Return the cut that is due if a window shows more exchanges than a history holds, or None.

    It replaces the root: nothing before it is shown under any budget, and cuts that start after it serve as
    before. It is made at the edge of a turn. Within a turn that is longer than what it keeps, it is made
    between two groups, and the question stays. The cut is the same under whatever budget it becomes due.
    """
    most, limit = MAX_CONVERSATION_STATE_HISTORY_LEN, CAP_BUDGET.limit
    tally = Tally.of(messages, counter, OutputLimits.of(policy.reduction, step(limit)), stored=stored)
    standing = in_force(decisions)
    floor = floor_of(standing)
    first = kept_place(floor, tally) if floor else 0
    if tally.exchanges(first) <= most:
        return None
    cuts = [one for one in standing if isinstance(one, Cut) and _is_in(tally, one)]
    starts = {one.id: kept_place(one, tally) for one in cuts}
    serving = [start for start in starts.values() if tally.exchanges(start) <= most]
    kept = min([_kept_at_cap(tally, int(KEPT_AT_CAP * most)), *serving])
    earlier = [one for one in cuts if starts[one.id] <= kept]
    base = max(earlier, key=lambda one: starts[one.id], default=None)  # so that the least is read again
    if kept <= first:
        return None
    view = folded(base, (), model_summary(base, standing) if base else None, tally, policy)
    plan = Plan(kept, pinned(tally, view, kept), view.hidden, policy.summary_cap(limit), ())
    cut = _pending_cut(tally, view, plan, policy, limit, (), asked={"operation": CAP}).cut
    cut = structs.replace(cut, limit=0, scale=0)  # it is not tied to a limit
    carried = beside(standing, cut, policy, starts_later=lambda one: starts.get(one.id, 0) >= kept)
    return structs.replace(cut, beside=carried)


def _is_in(tally: Tally, cut: Cut) -> bool:
    """Return True if a tally contains the first message that a cut keeps."""
    return cut.kept_from is None or tally.place(cut.kept_from) is not None


def _kept_at_cap(tally: Tally, keep: int) -> int:
    """Return where the newest exchanges begin: at a turn, if one begins in the first half of them."""
    place = _kept(tally, max(1, keep))
    turn = bisect_left(tally.turns, place)
    if turn < len(tally.turns) and 2 * tally.exchanges(tally.turns[turn]) >= keep:
        return tally.turns[turn]
    return place


class Compaction(Struct, frozen=True, kw_only=True):
    """The outcome of a compaction, actual or previewed.

    ``refused`` says why a model's summary was rejected; the digest is used instead.
    """

    cut: Cut
    summary: str
    source: Literal["model", "digest"]
    tokens_before: int
    tokens_after: int
    messages: int
    refused: str = ""
    time: datetime | None = None  # when it was written; None if it was not


def compacted(
    pending: PendingCut, summary: Summary | None, tokens_after: int, *, refused: str = ""
) -> tuple[Compaction, tuple[Decision, ...]]:
    """Return the outcome of a compaction, and the decisions to write for it.

    `summary` is a model's summary of the pending cut; `tokens_after` is the size of the window with both.
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
    """Return the cut that empties a conversation: nothing is kept, and nothing replaces what leaves.

    `number`, the number of entries before it, makes its id differ from those of earlier clearings.
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
    """Return the cut for an imported summary: what it covers is in no log; what follows is kept."""
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
    """Return the place where the newest exchanges begin, including what is not answered yet."""
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
    """Return the place after the last answer: open calls and unanswered user messages stay."""
    place = len(tally.items)
    for start in reversed(tally.groups):
        if tally.items[start].role != "user":
            break
        place = start
    return place


# Foresight: the cut that is due when the window is full, planned before it is.


def foreseen(window: Window, policy: Policy) -> PendingCut | None:
    """Return the cut that a nearly full window leads to; None if there is none to make."""
    tally, view, limit = window.tally, window.view, window.limit
    growth = limit - window.tokens  # as if the preface grew by what the conversation may still grow by
    room = Room(
        limit=limit,
        preface=window.preface.tokens + window.lead.memory + growth,
        cap=policy.summary_cap(limit),
        opener=0 if window.preface.context else window.preface.opener,
        summary=window.lead.summary,
    )
    try:
        found = plan(tally, view, room, policy)
    except ContextOverflow:
        return None
    if found.kept == view.kept or not _evicted(tally, view, found):
        return None  # with a question that stays, the kept part may begin later although nothing leaves
    return decided(tally, view, found, policy, limit, window.applied)[1]
