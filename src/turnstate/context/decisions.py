"""Recorded decisions: which of them are in force, and which cut serves a limit.

A cut is used while its window fits, under any policy and counter, and for any limit that is not much larger
than its own (`Policy.serves`). So a budget that moves a little costs no cut and no byte of the prompt cache,
and two models that take turns have a cut each. For a limit, the cuts that were made near it are tried, the
widest first; then the nearest that was made for a larger limit; then everything, back to the root. The
window is planned again only if none of these fits. A cut that the user asked for is the floor: it holds
under every limit, and nothing before it is shown.

A new cut replaces those that did not fit: all that were made near its limit, and all for smaller limits that
start no later. The others it carries in ``beside``, with what was decided on top of them. So what is in force
is the newest cut, what it carries, and what came after it; nothing before it has to be read. Cuts for larger
limits start earlier, always.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from msgspec import structs

from ..entry import Cut, Decision, Mask, Summary, effective
from .policy import Policy
from .reduction import step

__all__ = ["beside", "floor_of", "in_force", "named_scale", "scale", "serving"]

MOST_CUTS = 8
"""Cuts that a new one carries: enough from 2,000 tokens to 128,000, each two thirds larger than the last."""

_LEAST, _MOST = 0.8, 2.5  # times a scale: the limits that it holds for; without a record, 1 to 2


def in_force(decisions: Iterable[Decision]) -> tuple[Decision, ...]:
    """Return the decisions that a view is made of: the newest cut, what it carries, what came after it."""
    holding = effective(decisions)
    for place in range(len(holding) - 1, -1, -1):
        if isinstance(cut := holding[place], Cut):
            return (*cut.beside, *holding[place:])
    return tuple(holding)


def serving(decisions: Sequence[Decision], limit: int, policy: Policy, *, whole: bool = True) -> list[Cut]:
    """Return the cuts to be tried for a limit, in this order; the last is the base of a new plan.

    None are to be tried if everything from the root is to be shown. Where the messages are not loaded from
    the root on (`whole` is False), the widest cut is as far as a window can go.
    """
    cuts = [one for one in decisions if isinstance(one, Cut)]
    floor = floor_of(cuts)
    later = cuts[cuts.index(floor) + 1 :] if floor else cuts
    tried = list(later)
    if floor and not any(policy.serves(cut.limit, floor.limit) for cut in later):
        tried.append(floor)
    near = [cut for cut in tried if policy.are_near(cut.limit, limit)]
    if near:
        return sorted(near, key=_limit, reverse=True)
    larger = [cut for cut in tried if not policy.serves(limit, cut.limit)]
    if larger:
        return [min(larger, key=_limit)]
    if floor:
        return [floor]
    return [] if whole or not cuts else [max(cuts, key=_limit)]


def beside(
    decisions: Sequence[Decision], new: Cut, policy: Policy, *, starts_later: Callable[[Cut], bool]
) -> tuple[Cut | Mask | Summary, ...]:
    """Return which of the decisions in force a new cut carries; `starts_later` compares a cut with it."""
    if new.asked:
        return ()
    cuts = [one for one in decisions if isinstance(one, Cut)]
    floor = floor_of(cuts)
    others = [cut for cut in cuts if cut is not floor]
    kept = [cut for cut in others if not policy.serves(new.limit, cut.limit) or starts_later(cut)]
    kept = sorted(kept, key=_limit, reverse=True)[: MOST_CUTS - 1]
    names = {cut.id for cut in kept} | ({floor.id} if floor else set())
    after = [*(cut for cut in cuts if cut.id in names), new]
    carried = list[Cut | Mask | Summary]()
    for place, one in enumerate(decisions):
        match one:
            case Cut() if one.id in names:
                carried.append(structs.replace(one, beside=()) if one.beside else one)
            case Summary(cut=id) if id in names:
                carried = [other for other in carried if not _is_of(other, id)]
                carried.append(one)
            case Mask(limit=limit):
                then, now = (
                    {cut.id for cut in serving(some, limit, policy)} for some in (decisions[:place], after)
                )
                if then == now or then & now:
                    carried.append(one)
    return tuple(carried)


def scale(decisions: Sequence[Decision], limit: int, policy: Policy) -> int:
    """Return what the shares of long outputs are taken of: a scale that a decision names, or the step."""
    return named_scale(decisions, limit, policy) or step(limit)


def named_scale(decisions: Sequence[Decision], limit: int, policy: Policy) -> int | None:
    """Return the scale of the decision that was made nearest to a limit, of those that hold for it."""
    named = [
        one
        for one in reversed(decisions)
        if isinstance(one, Cut | Mask)
        and _LEAST * one.scale <= limit <= _MOST * one.scale
        and policy.are_near(one.limit, limit)
    ]
    nearest = min(named, key=lambda one: max(limit / one.limit, one.limit / limit), default=None)
    return nearest.scale if nearest else None


def floor_of(decisions: Sequence[Decision]) -> Cut | None:
    """Return the newest cut that holds under every limit: asked for, or of messages that are in no log."""
    cuts = (one for one in reversed(decisions) if isinstance(one, Cut))
    return next((cut for cut in cuts if cut.asked or cut.imported), None)


def _is_of(decision: Decision, cut: str) -> bool:
    return isinstance(decision, Summary) and decision.cut == cut


def _limit(cut: Cut) -> int:
    return cut.limit
