"""Recorded decisions and the resulting view: which are in force, which cut serves, what is shown.

A cut is used while its window fits, under any policy and counter, and for any limit that is not much larger
than its own (`Policy.serves`). So a budget that moves a little costs no cut and no byte of the prompt cache,
and two alternating models have a cut each. For a limit, the cuts that were made near it are tried, widest
first; then the nearest cut for a larger limit; then everything, back to the root. The window is planned again
only if none of these fits. A requested cut is the floor: it holds under every limit, and nothing before it is
shown. The cut at the cap on exchanges is not tied to a limit: it replaces the root, and carries the cuts that
start after it.

A new cut replaces those that did not fit: all that were made near its limit, and all for smaller limits that
start no later. It carries the others in ``beside``, with the decisions made on top of them. So the newest
cut, what it carries, and what follows it are in force; nothing before it has to be read. Cuts for larger
limits always start earlier.

The view is what these decisions leave of a conversation, as places in its tally. A cut carries the whole
view; later masks that hold for the limit add to it; a model's summary replaces its digest. Without a cut,
everything is shown. A mask that shortens the outputs of a group holds while the group has exactly these
messages: what was decided while calls were open ends when they are answered.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate

from msgspec import Struct, field, structs

from ..entry import CAP, Cut, Decision, Mask, Revert, Summary, effective
from .policy import Policy
from .summary import with_facts
from .tally import Tally

MOST_CUTS = 8
"""The most cuts besides the floor: enough for 2,000 to 128,000 tokens, each two thirds above the last."""

_LEAST, _MOST = 0.8, 2.5  # times a scale: the limits that it holds for; 1 to 2 if none is recorded


def in_force(decisions: Iterable[Decision]) -> tuple[Decision, ...]:
    """Return the decisions that a view is made of: the newest cut, what it carries, and what follows it.

    The search goes from the end back to that cut only, unless something was reverted after it: a long
    conversation has thousands of decisions.
    """
    given = decisions if isinstance(decisions, list | tuple) else tuple(decisions)
    for place in range(len(given) - 1, -1, -1):
        match given[place]:
            case Cut(beside=carried):
                return (*carried, *given[place:])
            case Revert():
                return in_force(effective(given))  # which leaves no revert
    return tuple(given)


def serving(decisions: Sequence[Decision], limit: int, policy: Policy, *, whole: bool = True) -> list[Cut]:
    """Return the cuts to try for a limit, in this order; the last is the base of a new plan.

    The list is empty if everything from the root is to be shown. If the messages are not loaded from the root
    (`whole` is False), a window can go back no further than the widest cut.
    """
    cuts = [one for one in decisions if isinstance(one, Cut)]
    if not cuts:
        return []
    floor = floor_of(cuts)
    first = cuts.index(floor) + 1 if floor and floor.asked.get("operation") != CAP else 0
    tried = [cut for cut in cuts[first:] if cut is not floor]
    if floor and not any(policy.serves(cut.limit, floor.limit) for cut in tried):
        tried.append(floor)
    near = [cut for cut in tried if policy.are_near(cut.limit, limit)]
    if near:
        return sorted(near, key=_limit, reverse=True)
    larger = [cut for cut in tried if not policy.serves(limit, cut.limit)]
    if larger:
        return [min(larger, key=_limit)]
    if floor:
        return [floor]
    return [] if whole else [max(cuts, key=_limit)]


def beside(
    decisions: Sequence[Decision], new: Cut, policy: Policy, *, starts_later: Callable[[Cut], bool]
) -> tuple[Cut | Mask | Summary, ...]:
    """Return the decisions in force that a new cut carries; `starts_later` compares a cut with it."""
    cuts = [one for one in decisions if isinstance(one, Cut)]
    floor = floor_of(cuts)
    others = [cut for cut in cuts if cut is not floor]
    kept = [
        cut for cut in others if starts_later(cut) or not (new.asked or policy.serves(new.limit, cut.limit))
    ]
    kept = sorted(kept, key=_limit, reverse=True)[: MOST_CUTS - 1]
    names = {cut.id for cut in kept} | ({floor.id} if floor and not new.asked else set())
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


def named_scale(decisions: Sequence[Decision], limit: int, policy: Policy) -> int | None:
    """Return the scale of the decision made nearest to a limit, among those that hold for it."""
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
    """Return the newest cut that holds under every limit: a requested cut, or one of imported messages."""
    cuts = (one for one in reversed(decisions) if isinstance(one, Cut))
    return next((cut for cut in cuts if cut.asked or not cut.covers[1]), None)


def _is_of(decision: Decision, cut: str) -> bool:
    return isinstance(decision, Summary) and decision.cut == cut


def _limit(cut: Cut) -> int:
    return cut.limit


# The view.


class View(Struct, frozen=True):
    """The part of the tally that is shown: everything from `kept` on, and what is pinned before it.

    Decisions name messages by id; every step that follows counts and copies ranges. So they are resolved to
    places once, with running totals of what they save.

    ``made_of`` are the values that were folded in, to tell whether another view would be the same: the cut,
    the masks on top of it, and a model's summary of it. ``short`` maps the places of the messages that
    ``shares`` shorten to the tokens of each output. ``saving_places`` are the places where hiding and
    shortening save tokens, ``sums`` the running totals.
    """

    kept: int = 0
    pinned: tuple[int, ...] = ()
    hidden: frozenset[int] = frozenset()
    short: dict[int, int] = field(default_factory=dict)
    shares: tuple[Mask, ...] = ()
    saving_places: tuple[int, ...] = ()
    sums: tuple[int, ...] = (0,)
    saved: int = 0  # the last of them: what hiding and shortening save in all
    summary: str | None = None
    words: str | None = None  # the summary without the facts that follow a model's words
    cut: Cut | None = None
    made_of: tuple[Cut | None, tuple[Mask, ...], Summary | None] = (None, (), None)

    def saving(self, start: int, end: int | None = None) -> int:
        """Return the tokens saved between two places, by default up to the end."""
        upto = self.saved if end is None else self.sums[bisect_left(self.saving_places, end)]
        return upto - self.sums[bisect_left(self.saving_places, start)]


def masks_on(
    cut: Cut | None, decisions: Sequence[Decision], *, limit: int, policy: Policy
) -> tuple[Mask, ...]:
    """Return the masks that came after a cut and hold for a limit."""
    places = enumerate(decisions, start=1)
    start = next((place for place, one in places if cut and isinstance(one, Cut) and one.id == cut.id), 0)
    return tuple(
        one
        for one in decisions[start:]
        if isinstance(one, Mask) and one.ids and (not one.limit or policy.serves(one.limit, limit))
    )


def model_summary(cut: Cut, decisions: Sequence[Decision]) -> Summary | None:
    """Return the newest summary that a model wrote for a cut."""
    texts = (one for one in reversed(decisions) if isinstance(one, Summary) and one.cut == cut.id)
    return next(texts, None)


def folded(
    cut: Cut | None, masks: tuple[Mask, ...], written: Summary | None, tally: Tally, policy: Policy
) -> View:
    """Fold a cut, the masks on top of it, and a model's summary of it into a view."""
    view = _of_cut(cut, tally) if cut else View()
    ids = [id for mask in masks if not mask.each for id in mask.ids]
    hidden = frozenset(place for place in view.hidden | _places(ids, tally) if place >= view.kept)
    shared = [(mask, places) for mask, places in _shares(view, masks, tally) if places[0] >= view.kept]
    short = {place: mask.each for mask, places in shared for place in places if place not in hidden}
    saves = {place: tally.saved(place) for place in hidden}
    saves |= {place: tally.cost(place) - tally.shortened(place, each)[1] for place, each in short.items()}
    summary, words = view.summary, view.words
    if view.cut and written:
        summary, words = with_facts(written, view.cut, tally.counter, policy).shown, written.text
    return View(
        kept=view.kept,
        pinned=view.pinned,
        hidden=hidden,
        short=short,
        shares=tuple(mask for mask, _ in shared),
        saving_places=(places := tuple(sorted(saves))),
        sums=tuple(accumulate((saves[place] for place in places), initial=0)),
        saved=sum(saves.values()),
        summary=summary,
        words=words,
        cut=view.cut,
        made_of=(cut, masks, written),
    )


def kept_place(cut: Cut, tally: Tally) -> int:
    """Return the place from which a cut keeps everything; 0 if that is before the tally begins."""
    return _of_cut(cut, tally).kept


def pinned(tally: Tally, view: View, kept: int) -> tuple[int, ...]:
    """Return what stays before a cut at `kept`: the question of the turn it splits, if still shown."""
    question = tally.question(kept)
    if question is None or question == kept:
        return ()
    return (question,) if question >= view.kept or question in view.pinned else ()


def _of_cut(cut: Cut, tally: Tally) -> View:
    kept = tally.place(cut.kept_from) if cut.kept_from is not None else _after(cut.covers[1], tally)
    if kept is None and any(tally.place(id) is not None for id in cut.covers):
        return View()
    pinned = tuple(sorted(_places(cut.pinned, tally)))
    return View(
        kept=kept or 0,
        pinned=pinned,
        hidden=_places(cut.masked, tally),
        summary=cut.summary,
        words=cut.summary,
        cut=cut,
    )


def _shares(view: View, masks: Iterable[Mask], tally: Tally) -> Iterator[tuple[Mask, tuple[int, ...]]]:
    """Yield the valid masks that shorten outputs, newest last, with the places of their messages."""
    for mask in (*(view.cut.shares if view.cut else ()), *masks):
        if not mask.each:
            continue
        places = tuple(place for id in mask.ids if (place := tally.place(id)) is not None)
        if places and len(places) == len(mask.ids) and list(places) == tally.outputs(places[0]):
            yield mask, places


def _after(id: str, tally: Tally) -> int:
    """Return the place of the first group after a message; 0 if the message is missing."""
    last = tally.place(id)
    if last is None:
        return 0
    groups = [*tally.groups, len(tally.items), tally.end]
    return groups[bisect_right(groups, last)]


def _places(ids: Sequence[str], tally: Tally) -> frozenset[int]:
    return frozenset(place for id in ids if (place := tally.place(id)) is not None)
