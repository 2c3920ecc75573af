"""The collector: locks, evaluates and removes until the request fits.

It decides where the kept part of a conversation begins. From the gentlest step to the last, it
hides old tool output; evicts the oldest turns down to a low-water mark, so that the next cut is far
away; relaxes the turn lock to the newest messages; shrinks those group by group down to the opening
question and the last group; shortens the outputs of the last group; raises ``ContextOverflow``. A cut
is made at the edge of a group. If it falls inside a turn, the question that opened the turn is pinned.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import takewhile

from msgspec import Struct

from ..errors import ContextOverflow
from .policy import Policy
from .tally import Tally
from .view import View, pinned

WORTH_HIDING = 50
"""The fewest tokens that hiding an output must save: the line that replaces it has to be read, too."""


class Room(Struct, frozen=True):
    """The limit in tokens, and what the preface, the cap of a summary and a missing question take of it.

    ``summary`` is the tokens of the current summary.
    """

    limit: int
    preface: int
    cap: int
    opener: int
    summary: int = 0

    def within(self, share: float) -> int:
        """Return the tokens left for messages besides preface and summary, within a share of the limit."""
        return int(self.limit * share) - self.preface - self.cap


class Plan(Struct, frozen=True):
    """Where the kept part begins, what stays before it, what is hidden in it, and the steps that led there.

    With ``each``, every output of the last group has at most that many tokens; without ``cuts``, nothing
    leaves.
    """

    kept: int
    pinned: tuple[int, ...]
    hidden: frozenset[int]
    cap: int
    events: tuple[str, ...]
    each: int = 0
    cuts: bool = True


def plan(tally: Tally, view: View, room: Room, policy: Policy) -> Plan:
    """Find where the kept part must begin for the request to fit."""
    locks = _Locks(tally, room, policy, view.kept)
    if found := _hide(tally, view, room, policy, locks):
        return found
    if _cost(tally, view, locks.turns, room) <= room.within(1):
        return _evict(tally, view, room, policy, locks)
    if policy.strict:
        why = "the newest turns alone exceed the budget, and the policy is strict"
        raise _overflow(tally, view, room, locks.turns, tally.total(locks.turns), why)
    return _relax(tally, view, room, policy, locks) or _shrink(tally, view, room, policy, locks)


def hiding(tally: Tally, view: View, room: Room, policy: Policy) -> Plan | None:
    """Find old tool output to hide while everything still fits; None if that is not worth it."""
    return _hide(tally, view, room, policy, _Locks(tally, room, policy, view.kept))


class _Locks:
    """The places where the locks begin: the newest turns, within them the newest messages, the last group."""

    def __init__(self, tally: Tally, room: Room, policy: Policy, kept: int) -> None:
        self.last = next(tally.group_starts(), 0)
        self.hard = next(
            (start for start in tally.group_starts() if tally.end - start >= policy.hard_lock), 0
        )
        self.turns = max(kept, min(self.hard, self._turns(tally, room, policy, kept)))

    def _turns(self, tally: Tally, room: Room, policy: Policy, kept: int) -> int:
        starts = [start for start in tally.turns[-policy.lock_turns_at_most :] if start >= kept]
        if len(starts) < policy.lock_turns:
            return kept
        locked = starts[-policy.lock_turns]
        for start in reversed(starts[: -policy.lock_turns]):
            if tally.exceeds(start, room.within(policy.low_water)):
                break
            locked = start
        return locked


def _hide(tally: Tally, view: View, room: Room, policy: Policy, locks: _Locks) -> Plan | None:
    """Hide old tool output if that alone frees a worthwhile part of the budget."""
    if _mostly_out_of_reach(tally, view, room):
        return None  # it would count all of them, to free a part of what is then cut anyway
    new = _worth_hiding(tally, view.kept, locks.turns) - view.hidden
    gain = sum(tally.saved(index) for index in new)
    shown = _cost(tally, view, view.kept, room) - gain
    summary = max(room.cap, room.summary) if view.cut else 0  # a cut for a larger limit may have a longer one
    # The first byte that is hidden costs the prompt cache, so the next request must not be over again.
    most = room.limit * (1 - policy.mask_gain) - room.preface - summary
    if gain < policy.mask_gain * room.limit or shown > most:
        return None
    text = f"hid the output of {len(new)} old tool messages, {gain:,} tokens"
    return Plan(view.kept, view.pinned, view.hidden | new, room.cap, (text,))


def _mostly_out_of_reach(tally: Tally, view: View, room: Room) -> bool:
    """Return True if more messages are out of the limit's reach than within it, without counting them."""
    reach = tally.reach(room.limit)
    return reach - view.kept > tally.end - reach


def _worth_hiding(tally: Tally, start: int, end: int) -> frozenset[int]:
    end = min(end, len(tally.items))
    tools = (index for index in range(start, end) if tally.items[index].role == "tool")
    return frozenset(index for index in tools if tally.saved(index) >= WORTH_HIDING)


def _evict(tally: Tally, view: View, room: Room, policy: Policy, locks: _Locks) -> Plan:
    """Keep the newest turns that fit below the low-water mark."""
    left = room.within(policy.low_water) - _cost(tally, view, locks.turns, room)
    kept = locks.turns
    for start, cost in _turns_before(tally, view, locks.turns):
        left -= cost
        if left < 0:
            break
        kept = start
    return Plan(kept, pinned(tally, view, kept), view.hidden, room.cap, ("evicted the oldest turns",))


def _turns_before(tally: Tally, view: View, end: int) -> Iterator[tuple[int, int]]:
    """Yield the turns before a place, newest first, with the tokens that they show."""
    for turn in range(bisect_left(tally.turns, end) - 1, -1, -1):
        start = tally.turns[turn]
        if start < view.kept:
            return
        yield start, tally.between(start, end) - view.saving(start, end)
        end = start


def _relax(tally: Tally, view: View, room: Room, policy: Policy, locks: _Locks) -> Plan | None:
    """Keep the newest messages, and before them whatever fits: whole turns, or the rest of one turn."""
    if _cost(tally, view, locks.hard, room) > room.within(1):
        return None
    inside = tally.question(locks.hard)
    kept = locks.hard
    for start in tally.group_starts():
        if start >= locks.hard:
            continue
        if start < max(view.kept, locks.turns):
            break
        if _cost(tally, view, start, room) > room.within(policy.low_water):
            break
        # Whole turns, or groups of the turn that the lock splits: half an older turn has no question.
        if tally.question(start) == start or (inside is not None and start > inside):
            kept = start
    return Plan(
        kept, pinned(tally, view, kept), frozenset(), room.cap, ("relaxed the lock to the newest messages",)
    )


def _shrink(tally: Tally, view: View, room: Room, policy: Policy, locks: _Locks) -> Plan:
    """Release locked groups, oldest first, down to the opening question and the last group."""
    first = max(locks.hard, view.kept)
    starts = list(takewhile(lambda start: start >= first, tally.group_starts()))
    fitting = [start for start in starts if _cost(tally, view, start, room) <= room.within(1)]
    kept = min(
        fitting, default=locks.last
    )  # the summary gives way before the last group does: its cap shrinks
    left = room.limit - room.preface - _cost(tally, view, kept, room)
    given_up = sum(start < kept for start in starts)
    events = (
        "relaxed the lock to the newest messages",
        f"gave up {given_up} locked {'group' if given_up == 1 else 'groups'}",
    )
    if left >= 0:
        return Plan(kept, pinned(tally, view, kept), frozenset(), min(room.cap, left), events)
    if found := _shorten(tally, view, room, policy, kept, events):
        return found
    why = "the prompt, the opening question and the last group exceed the budget"
    raise _overflow(tally, view, room, kept, tally.least(kept), why)


def _shorten(
    tally: Tally, view: View, room: Room, policy: Policy, kept: int, events: tuple[str, ...]
) -> Plan | None:
    """Let the outputs of the last group share what is left, down to bare frames.

    They get the low-water share of it, so that an answer fits after them; all of it, if they need it; and
    the room of the summary as a last resort.
    """
    questions = pinned(tally, view, kept)
    # A cut from which nothing but questions that stay would leave is none: then outputs are only shortened.
    leaves = kept - view.kept > sum(place >= view.kept for place in questions)
    leaves = leaves or not set(view.pinned) <= set(questions)
    cap = room.cap if leaves or view.cut else 0
    left = room.limit - room.preface - _question(tally, view, kept, room) - cap
    for within, most in ((int(left * policy.low_water), cap), (left, cap), (left + cap, 0)):
        if each := tally.share(kept, within):
            event = f"shortened the outputs of the last calls to {each:,} tokens each"
            if leaves or room.summary > most:
                return Plan(kept, questions, frozenset(), most, (*events, event), each)
            return Plan(view.kept, view.pinned, view.hidden, most, (event,), each, cuts=False)
    return None


def _cost(tally: Tally, view: View, start: int, room: Room) -> int:
    """Count what is shown if a cut is made here, including the question that must stay."""
    return tally.total(start) - view.saving(start) + _question(tally, view, start, room)


def _question(tally: Tally, view: View, start: int, room: Room) -> int:
    """Count the question that is shown before a place, or the text that replaces a missing one."""
    if tally.question(start) == start:
        return 0
    questions = pinned(tally, view, start)
    return sum(tally.cost(index) for index in questions) if questions else room.opener


def _overflow(tally: Tally, view: View, room: Room, start: int, last: int, why: str) -> ContextOverflow:
    question = _question(tally, view, start, room)
    return ContextOverflow(why, limit=room.limit, preface=room.preface, question=question, last=last)
