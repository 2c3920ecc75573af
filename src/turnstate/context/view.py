"""The view: what recorded decisions leave of a conversation, as places in its tally.

A cut carries the whole view; masks that came after it and hold for the limit add to it; a model's summary
replaces its digest. Without a cut, everything is shown. A mask that shortens the outputs of a group holds
while the group has exactly these messages: what was decided while calls were open ends with them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

from msgspec import Struct, field

from ..entry import Cut, Decision, Mask, Summary
from .policy import Policy
from .summary import with_facts
from .tally import Tally

__all__ = ["View", "folded", "kept_place", "masks_on"]


class View(Struct, frozen=True):
    """What of the tally is shown: everything from `kept` on, and what is pinned before it.

    ``masks`` are those that were folded in. ``short`` holds the tokens for each output of the messages that
    ``shares`` shorten, by place. ``saving_places`` are the places where hiding and shortening save tokens,
    ``sums`` the running totals.
    """

    kept: int = 0
    pinned: tuple[int, ...] = ()
    hidden: frozenset[int] = frozenset()
    masks: tuple[Mask, ...] = ()
    short: dict[int, int] = field(default_factory=dict)
    shares: tuple[Mask, ...] = ()
    saving_places: tuple[int, ...] = ()
    sums: tuple[int, ...] = (0,)
    summary: str | None = None
    words: str | None = None  # the summary without the facts beside a model's words
    cut: Cut | None = None

    @property
    def saved(self) -> int:
        """The tokens that hiding and shortening save."""
        return self.sums[-1]

    def saving(self, start: int, end: int | None = None) -> int:
        """Return the tokens that are saved between two places, by default to the end."""
        upto = self.sums[-1] if end is None else self.sums[bisect_left(self.saving_places, end)]
        return upto - self.sums[bisect_left(self.saving_places, start)]


def masks_on(
    cut: Cut | None, decisions: Sequence[Decision], *, limit: int, policy: Policy
) -> tuple[Mask, ...]:
    """Return the masks that came after a cut and hold for a limit."""
    later = decisions[_after_cut(cut, decisions) :]
    return tuple(
        one
        for one in later
        if isinstance(one, Mask) and one.ids and (not one.limit or policy.serves(one.limit, limit))
    )


def folded(
    cut: Cut | None, masks: tuple[Mask, ...], decisions: Sequence[Decision], tally: Tally, policy: Policy
) -> View:
    """Fold a cut, masks on top of it, and a model's summary of it into the view that they leave."""
    view = _of_cut(cut, tally) if cut else View()
    ids = [id for mask in masks if not mask.each for id in mask.ids]
    hidden = frozenset(place for place in view.hidden | _places(ids, tally) if place >= view.kept)
    shared = [(mask, places) for mask, places in _shares(view, masks, tally) if places[0] >= view.kept]
    short = {place: mask.each for mask, places in shared for place in places if place not in hidden}
    saves = {place: tally.saved(place) for place in hidden}
    saves |= {place: tally.cost(place) - tally.shortened(place, each)[1] for place, each in short.items()}
    summary, words = view.summary, view.words
    if view.cut and (text := _model_summary(view.cut, decisions)):
        written = with_facts(text, view.cut, tally.counter, policy)
        summary, words = written.shown, written.text
    return View(
        kept=view.kept,
        pinned=view.pinned,
        hidden=hidden,
        masks=masks,
        short=short,
        shares=tuple(mask for mask, _ in shared),
        saving_places=(places := tuple(sorted(saves))),
        sums=tuple(accumulate((saves[place] for place in places), initial=0)),
        summary=summary,
        words=words,
        cut=view.cut,
    )


def kept_place(cut: Cut, tally: Tally) -> int:
    """Return the place from which on a cut keeps everything; 0 if that is before the tally begins."""
    return _of_cut(cut, tally).kept


def _after_cut(cut: Cut | None, decisions: Sequence[Decision]) -> int:
    places = enumerate(decisions, start=1)
    return next((place for place, one in places if cut and isinstance(one, Cut) and one.id == cut.id), 0)


def _model_summary(cut: Cut, decisions: Sequence[Decision]) -> Summary | None:
    texts = (one for one in reversed(decisions) if isinstance(one, Summary) and one.cut == cut.id)
    return next(texts, None)


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
    """Yield the masks that shorten outputs and hold, the newest last, with the places of their messages."""
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
