"""The view: what the recorded decisions say of a conversation, as places in its tally.

The newest cut that was made under the same limit, policy and counter, or that the user asked for,
carries the whole view; masks that came after it add to it; a model's summary takes the place of its
digest. A cut made under other settings is not used and the view is planned anew, unless what it covers
is no longer there; what was hidden since then stays hidden.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from msgspec import Struct

from ..decision import Cut, Decision, Mask, Summary
from .tally import Tally

__all__ = ["View", "folded"]


class View(Struct, frozen=True):
    """What of the tally is shown: everything from `kept` on, and what is pinned before it."""

    kept: int = 0
    pinned: tuple[int, ...] = ()
    hidden: frozenset[int] = frozenset()
    saved: int = 0
    summary: str | None = None
    cut: Cut | None = None
    last_hidden: int = -1


def folded(decisions: Sequence[Decision], tally: Tally, *, limit: int, policy: str) -> View:
    """Fold recorded decisions into the view that they leave."""
    settings = (limit, policy, tally.counter.name)
    cuts = [(place, one) for place, one in enumerate(decisions) if isinstance(one, Cut)]
    usable = [(place, cut) for place, cut in cuts if _is_usable(cut, tally, settings)]
    view = _of_cut(usable[-1][1], tally) if usable else View()
    later = decisions[(usable or cuts)[-1][0] + 1 :] if cuts else decisions
    masks = [id for decision in later if isinstance(decision, Mask) for id in decision.ids]
    texts = [one.text for one in later if isinstance(one, Summary) and view.cut and one.cut == view.cut.id]
    hidden = frozenset(place for place in view.hidden | _places(masks, tally) if place >= view.kept)
    saved = sum(tally.saved(place) for place in hidden)
    summary, last = texts[-1] if texts else view.summary, max(hidden, default=-1)
    return View(view.kept, view.pinned, hidden, saved, summary, view.cut, last)


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
    return View(kept or 0, pinned, _places(cut.masked, tally), summary=cut.summary, cut=cut)


def _behind(id: str, tally: Tally) -> int:
    """Give the place of the first group behind a message; the beginning, where the message is not there."""
    last = tally.place(id)
    if last is None:
        return 0
    groups = [*tally.groups, len(tally.items), tally.end]
    return groups[bisect_right(groups, last)]


def _places(ids: Sequence[str], tally: Tally) -> frozenset[int]:
    return frozenset(place for id in ids if (place := tally.place(id)) is not None)
