"""How much of a request the provider's prompt cache can reuse, turn after turn.

A simulated agent sends a request after every question and after every batch of results. The measure is the
share of a request's tokens in the prefix that it has in common with the previous request, byte for byte,
averaged over all requests from the first one for which the conversation did not fit. It is compared with a
sliding window: at every request, the oldest turns are dropped until the rest fits.

Then the budget moves: by a twentieth up and down, or between two models, one with half the window of the
other. Each of them makes no more cuts than it does alone. A model has its own cache, so its requests are
compared with its own last one. Finally, something else is recalled for each question.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from random import Random
from typing import NamedTuple

from turnstate import codec
from turnstate.context.live_window import LiveWindow
from turnstate.context.manager import StateManager
from turnstate.context.policy import Budget
from turnstate.context.preface import Preface
from turnstate.context.window import Window
from turnstate.entry import Cut, Decision
from turnstate.ids import UNKNOWN_TIME
from turnstate.message import Message
from turnstate.tokens import message_cost
from turnstate.tokens.cost import REPLY_START

from .window_agent import MESSAGES_A_TURN, PROMPT, turns
from .window_print import goal, table

TURNS = 1_000
WINDOWS = (128_000, 16_000)
GOAL, GOAL_WINDOW = 0.95, 128_000
MOVED = 0.05  # of a budget, up and down
LOST = 0.5  # of a request: if less is reused, the cache counts as lost
RECALLED = "It is known that the {} job was repaired twice this year, on day {} and on day {}. "

_HEAD = ("window", "full requests", "Turnstate", "as it reports", "caches lost", "sliding", "caches lost")
_MOVING_HEAD = ("window", "budget", "full requests", "reused", "caches lost", "cuts")

Request = Sequence[Message]
Limits = Callable[[int], int]
"""The limit of each request, by its number."""


class Moving(NamedTuple):
    """A constant or moving budget, and how many requests ago its cache was last used."""

    name: str
    limits: Limits
    back: int = 1
    recalls: bool = False


def report(count: int = TURNS, windows: Sequence[int] = WINDOWS) -> None:
    """Print what a cache can reuse of our requests, of a sliding window's, and with moving budgets."""
    play = Play([Message.system(PROMPT, id="prompt", timestamp=UNKNOWN_TIME), *turns(count)])
    rows, goals = [], []
    for limit in windows:
        ours = list(play.ours(lambda _, limit=limit: limit))  # type: ignore[misc]
        seen = play.shares((window.messages for window in ours), limit)
        told = [window.reused_prefix_tokens / window.tokens for window in ours[len(ours) - len(seen) :]]
        slid = play.shares(play.sliding(limit), limit)
        rows.append(
            [f"{limit:,}", f"{len(seen):,}", _mean(seen), _mean(told), _lost(seen), _mean(slid), _lost(slid)]
        )
        goals += [statistics.mean(seen)] if seen and limit == GOAL_WINDOW else []
    print(f"\nThe share of a request that a cache can reuse: {count:,} turns of {play.size // count} tokens.")
    table(_HEAD, rows)
    for share in goals:
        goal(f"at {GOAL_WINDOW:,}, at least {GOAL:.0%}", f"{share:.2%}", share >= GOAL)
    _report_moving(play, windows)


def _report_moving(play: Play, windows: Sequence[int]) -> None:
    """Print what a cache can reuse when the budget moves, and with a recall in each turn."""
    rows, goals = [], []
    for limit in windows:
        for moving in _moving(limit):
            ours = list(play.ours(moving.limits, recalls=moving.recalls))
            seen = play.shares((window.messages for window in ours), limit, back=moving.back)
            cuts = sum(isinstance(one, Cut) for window in ours for one in window.decisions)
            rows.append([f"{limit:,}", moving.name, f"{len(seen):,}", _mean(seen), _lost(seen), f"{cuts:,}"])
            if seen and limit == GOAL_WINDOW and moving.back == 1:
                goals.append((moving.name, statistics.mean(seen)))
    print("\nThe same with a budget that moves, and with something recalled for each question.")
    table(_MOVING_HEAD, rows)
    for name, share in goals:
        goal(f"at {GOAL_WINDOW:,}, {name}, at least {GOAL:.0%}", f"{share:.2%}", share >= GOAL)


def _moving(limit: int) -> Iterator[Moving]:
    rng = Random(limit)
    moved = [rng.uniform(1 - MOVED, 1 + MOVED) for _ in range(997)]
    yield Moving("constant", lambda _: limit)
    yield Moving(f"moving by {MOVED:.0%}", lambda number: int(moved[number % len(moved)] * limit))
    yield Moving("one token more or less", lambda number: limit + number % 2)
    yield Moving("half of it", lambda _: limit // 2)
    yield Moving("both, taking turns", lambda number: limit // (1 + number % 2), back=2)
    yield Moving("constant, with recall", lambda _: limit, recalls=True)


class Play:
    """A conversation, sent request by request."""

    def __init__(self, messages: Request) -> None:
        self.messages, self.manager = messages, StateManager()
        self._known: dict[int, tuple[Message, bytes, int]] = {}
        self._totals = list(accumulate(map(self._tokens, messages), initial=REPLY_START))
        self._ends = [
            end for end, message in enumerate(messages, start=1) if message.role in ("user", "tool")
        ]

    @property
    def size(self) -> int:
        """The tokens of the whole conversation."""
        return self._totals[-1]

    def ours(self, limits: Limits, *, recalls: bool = False) -> Iterator[Window]:
        """Build our windows as an agent would: record decisions, and base each window on the last."""
        live, preface = LiveWindow(self.manager.counter, self.manager.policy), Preface()
        decisions: list[Decision] = []
        number = turn = 0
        for end, message in enumerate(self.messages, start=1):
            if message.role not in ("user", "tool"):
                continue
            if recalls and message.role == "user":
                turn += 1
                preface = Preface(memory=RECALLED.format(turn, turn % 7, turn % 11) * 5)
            live.under(Budget(limits(number)), decisions)
            live.grow(self.messages[live.length : end])
            window = live.window(preface, decisions)
            live.sent(window)
            decisions += window.decisions
            number += 1
            yield window

    def sliding(self, limit: int) -> Iterator[Request]:
        """Build windows of the prompt and the newest turns that fit completely."""
        first = 1
        for end in self._ends:
            while self._totals[end] - self._totals[first] + self._totals[1] > limit:
                first += MESSAGES_A_TURN
            yield [self.messages[0], *self.messages[first:end]]

    def shares(self, requests: Iterable[Request], limit: int, *, back: int = 1) -> list[float]:
        """Return the share of each request that it has in common with an earlier one, once they are full."""
        found: list[float] = []
        before: list[Request] = [()] * back
        for end, request in zip(self._ends, requests, strict=True):
            if self._totals[end] > limit:
                found.append(self._shared(before[-back], request) / sum(map(self._tokens, request)))
            before = [*before[1 - back :], request] if back > 1 else [request]
        return found

    def _shared(self, before: Request, request: Request) -> int:
        tokens = 0
        for one, other in zip(before, request, strict=False):
            if one is not other and self._wire(one) != self._wire(other):
                break
            tokens += self._tokens(other)
        return tokens

    def _wire(self, message: Message) -> bytes:
        return self._block(message)[1]

    def _tokens(self, message: Message) -> int:
        return self._block(message)[2]

    def _block(self, message: Message) -> tuple[Message, bytes, int]:
        """Encode and count a message once; keep a reference to it, so that its `id()` is not reused."""
        if id(message) not in self._known:
            tokens = message_cost(message, self.manager.counter).tokens
            self._known[id(message)] = (message, codec.encode(message), tokens)
        return self._known[id(message)]


def _mean(shares: Sequence[float]) -> str:
    return f"{statistics.mean(shares):.2%}" if shares else "–"


def _lost(shares: Sequence[float]) -> str:
    return f"{sum(share < LOST for share in shares):,}"
