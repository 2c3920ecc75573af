"""How much of a request the provider's prompt cache can reuse, turn after turn.

A simulated agent sends a request after every question and after every batch of results. What
counts is the share of a request's tokens that stand at its head as they stood at the head of the
previous request, byte for byte: on average over all requests from the first that did not fit whole.
Beside it stands a window that slides: the oldest turns go until the rest fits, at every request.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

from turnstate import codec
from turnstate.context.manager import StateManager
from turnstate.context.policy import Budget
from turnstate.context.window import Window
from turnstate.entry import Decision
from turnstate.ids import UNKNOWN_TIME
from turnstate.message import Message
from turnstate.tokens import message_cost
from turnstate.tokens.cost import REPLY_START

from .window_agent import MESSAGES_A_TURN, PROMPT, turns
from .window_print import goal, table

TURNS = 1_000
WINDOWS = (128_000, 16_000)
GOAL, GOAL_WINDOW = 0.95, 128_000
LOST = 0.5  # of a request: a cache of which less is reused was thrown away

_HEAD = ("window", "full requests", "Turnstate", "as it reports", "caches lost", "sliding", "caches lost")

Request = Sequence[Message]


def report(count: int = TURNS, windows: Sequence[int] = WINDOWS) -> None:
    """Print what a cache can reuse of our requests and of a sliding window's."""
    play = Play([Message.system(PROMPT, id="prompt", timestamp=UNKNOWN_TIME), *turns(count)])
    rows, goals = [], []
    for limit in windows:
        ours = list(play.ours(limit))
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
        """The tokens of everything."""
        return self._totals[-1]

    def ours(self, limit: int) -> Iterator[Window]:
        """Make our windows as an agent would: decisions recorded, the previous window given along."""
        tally = self.manager.tally([], Budget(limit))
        decisions: list[Decision] = []
        previous: Window | None = None
        for message in self.messages:
            tally.add(message)
            if message.role in ("user", "tool"):
                previous = self.manager.window(tally, Budget(limit), decisions=decisions, previous=previous)
                decisions += previous.decisions
                yield previous

    def sliding(self, limit: int) -> Iterator[Request]:
        """Make windows of the prompt and the newest turns that fit whole."""
        first = 1
        for end in self._ends:
            while self._totals[end] - self._totals[first] + self._totals[1] > limit:
                first += MESSAGES_A_TURN
            yield [self.messages[0], *self.messages[first:end]]

    def shares(self, requests: Iterable[Request], limit: int) -> list[float]:
        """Return the share that each request has in common with the one before, once they are full."""
        found: list[float] = []
        before: Request = ()
        for end, request in zip(self._ends, requests, strict=True):
            if self._totals[end] > limit:
                found.append(self._shared(before, request) / sum(map(self._tokens, request)))
            before = request
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
        """Write and count a message once; it is held, so that no other takes its identity."""
        if id(message) not in self._known:
            tokens = message_cost(message, self.manager.counter).tokens
            self._known[id(message)] = (message, codec.encode(message), tokens)
        return self._known[id(message)]


def _mean(shares: Sequence[float]) -> str:
    return f"{statistics.mean(shares):.2%}" if shares else "–"


def _lost(shares: Sequence[float]) -> str:
    return f"{sum(share < LOST for share in shares):,}"
