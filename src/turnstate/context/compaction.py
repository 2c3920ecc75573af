"""Compaction: a cut that the user asks for, before the budget does.

It keeps the newest exchanges, and what has not been answered yet; everything before is covered by a
summary. Nothing is asked of a model here: the cut carries the digest, so it can be made, shown and
taken back without one, and a model's words take the digest's place if they are any good.

An exchange is an answer of the assistant, with the results of its calls and the words before it; the
question that opened its turn stays with it.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from ..decision import Cut
from ..ids import MessageId
from ..message import Message
from ..value import Value, check_kind, check_whole
from .collect import Plan
from .cut import cut_at, evicted_by
from .digest import carrying
from .excerpt import MOST_CHARS
from .policy import Policy
from .rounds import derived
from .tally import Tally
from .window import Window

__all__ = ["Planned", "Strategy", "carried", "cleared", "planned"]


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
