"""The view: what the recorded decisions say of a conversation, as places in its tally.

The newest cut that was made under the same limit, policy and counter, or that the user asked for,
carries the whole view; masks that came after it add to it; a model's summary takes the place of its
digest. A cut made under other settings is not used and the view is planned anew, unless what it covers
is no longer there; what was hidden since then stays hidden. A mask that shortens the outputs of a group
holds while the group has exactly these messages, so what was decided while calls were open ends with them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

from msgspec import Struct, field

from ..entry import Cut, Decision, Mask, Summary
from .policy import Policy
from .reduction import step
from .summary import with_facts
from .tally import Tally

__all__ = ["View", "folded"]


class View(Struct, frozen=True):
    """What of the tally is shown: everything from `kept` on, and what is pinned before it.

    ``short`` holds the tokens for each output of the messages that ``shares`` shorten, by place.
    ``saving_places`` are the places where hiding and shortening save tokens, ``sums`` the running totals.
    """

    kept: int = 0
    pinned: tuple[int, ...] = ()
    hidden: frozenset[int] = frozenset()
    short: dict[int, int] = field(default_factory=dict)
    shares: tuple[Mask, ...] = ()
    saving_places: tuple[int, ...] = ()
    sums: tuple[int, ...] = (0,)
    summary: str | None = None
    words: str | None = None  # the summary without the facts that stand beside a model's words
    cut: Cut | None = None

    @property
    def saved(self) -> int:
        """The tokens that hiding and shortening save."""
        return self.sums[-1]

    def saving(self, start: int, end: int | None = None) -> int:
        """Return the tokens that are saved between two places, by default to the end."""
        upto = self.sums[-1] if end is None else self.sums[bisect_left(self.saving_places, end)]
        return upto - self.sums[bisect_left(self.saving_places, start)]


def folded(decisions: Sequence[Decision], tally: Tally, *, limit: int, policy: Policy) -> View:
    """Fold recorded decisions into the view that they leave."""
    settings = (limit, policy.fingerprint, tally.counter.name)
    cuts = [(place, one) for place, one in enumerate(decisions) if isinstance(one, Cut)]
    usable = [(place, cut) for place, cut in cuts if _is_usable(cut, tally, settings)]
    view = _of_cut(usable[-1][1], tally) if usable else View()
    later = decisions[(usable or cuts)[-1][0] + 1 :] if cuts else decisions
    masks = [one for one in later if isinstance(one, Mask)]
    ids = [id for mask in masks if not mask.each for id in mask.ids]
    texts = [one for one in later if isinstance(one, Summary) and view.cut and one.cut == view.cut.id]
    hidden = frozenset(place for place in view.hidden | _places(ids, tally) if place >= view.kept)
    shared = [(mask, places) for mask, places in _shares(view, masks, tally, limit) if places[0] >= view.kept]
    short = {place: mask.each for mask, places in shared for place in places if place not in hidden}
    saves = {place: tally.saved(place) for place in hidden}
    saves |= {place: tally.cost(place) - tally.shortened(place, each)[1] for place, each in short.items()}
    summary, words = view.summary, view.words
    if texts and view.cut:
        told = with_facts(texts[-1], view.cut, tally.counter, policy)
        summary, words = told.shown, told.text
    return View(
        kept=view.kept,
        pinned=view.pinned,
        hidden=hidden,
        short=short,
        shares=tuple(mask for mask, _ in shared),
        saving_places=(places := tuple(sorted(saves))),
        sums=tuple(accumulate((saves[place] for place in places), initial=0)),
        summary=summary,
        words=words,
        cut=view.cut,
    )


def _is_usable(cut: Cut, tally: Tally, settings: tuple[int, str, str]) -> bool:
    """Tell whether a cut holds: the user asked for it, or its settings are these, or there is no other way.

    What it covers may not be there to plan anew, if it was restored from elsewhere.
    """
    fits = (cut.limit, cut.policy, cut.counter) == settings
    return bool(cut.asked) or fits or tally.place(cut.covers[0]) is None


def _of_cut(cut: Cut, tally: Tally) -> View:
    kept = tally.place(cut.kept_from) if cut.kept_from is not None else _behind(cut.covers[1], tally)
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


def _shares(
    view: View, masks: Iterable[Mask], tally: Tally, limit: int
) -> Iterator[tuple[Mask, tuple[int, ...]]]:
    """Give the masks that shorten outputs and hold, the newest last, with the places of their messages."""
    for mask in (*(view.cut.shares if view.cut else ()), *masks):
        if not mask.each or step(mask.limit) < step(limit):
            continue
        places = tuple(place for id in mask.ids if (place := tally.place(id)) is not None)
        if places and len(places) == len(mask.ids) and list(places) == tally.outputs(places[0]):
            yield mask, places


def _behind(id: str, tally: Tally) -> int:
    """Give the place of the first group behind a message; the beginning, where the message is not there."""
    last = tally.place(id)
    if last is None:
        return 0
    groups = [*tally.groups, len(tally.items), tally.end]
    return groups[bisect_right(groups, last)]


def _places(ids: Sequence[str], tally: Tally) -> frozenset[int]:
    return frozenset(place for id in ids if (place := tally.place(id)) is not None)
