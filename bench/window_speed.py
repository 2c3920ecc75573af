"""How long a window takes: from plain messages, with counts known, and when one message is added.

All conversations are the newest part of one long one, so all sizes end alike. *Cold* is one call on a plain
list, with a policy for a single use, compared with the bare tokenizing of what the window contains. *First
plan* has only the counts that a store keeps: it makes the tally, plans the cut and reads everything that is
cut for its digest. *Planned* plans the cut again with the same tally, which already knows what messages show;
*recorded* also has the cut, as after opening a session. *Added* is one more message and its window, in a
conversation that grew message by message with every decision recorded: the same messages for all sizes, in
turns. Times are processor times, since the machine is shared.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Sequence

import toktok
from msgspec import Struct

from turnstate.codec import encode
from turnstate.context.live_window import known_counts
from turnstate.context.manager import StateManager
from turnstate.context.policy import Budget, OutputLimits, Policy
from turnstate.context.window import Window
from turnstate.entry import Decision
from turnstate.message import Message
from turnstate.tokens import counter, message_cost

from . import window_peer
from .offline_tiktoken import encoding

SIZES = {8_000: (100, 1_000, 10_000, 100_000), 128_000: (10_000, 100_000)}
"""For each budget, the lengths of conversations that fill it."""

ROUNDS, MOST_ROUNDS = 5, 101
ENOUGH = 0.5  # seconds of rounds that give a stable median
ADDED = 400  # messages added and timed at each size: a dozen cuts of the smaller window

ONCE = Policy(low_water=1.0)
"""For a window that will not be extended: as full as possible, as `turnstate fit` makes it."""


class Times(Struct):
    """The times for one size and one limit, in seconds; the peer's are None if it is missing."""

    size: int
    limit: int
    cold: float
    raw_sent: float
    raw_whole: float
    own_whole: float
    first: float
    planned: float
    recorded: float
    added: list[float] = []
    peer_exact: float | None = None
    peer_known: float | None = None


def measured(
    history: Sequence[Message], sizes: dict[int, tuple[int, ...]], peer: window_peer.Peer | None
) -> list[Times]:
    """Measure every size at every limit; the peer runs right after Turnstate."""
    found = []
    for limit, lengths in sizes.items():
        added = grown(history, limit, lengths)
        for size in lengths:
            one = single(history[-size:], limit)
            one.added = added[size]
            if peer:
                spent = peer.times(size, limit, ROUNDS)
                one.peer_exact, one.peer_known = spent["exact"], spent["known"]
            found.append(one)
    return found


def single(messages: Sequence[Message], limit: int) -> Times:
    """Measure everything that does not need a conversation that grew message by message."""
    budget, once, manager = Budget(limit), StateManager(policy=ONCE), StateManager()
    window = once.window(messages, budget)
    if not window.decisions:
        raise ValueError(f"{len(messages):,} messages do not fill {limit:,} tokens")
    held = {message.id for message in window.messages}
    whole, theirs = (
        [message for message in messages if message.id in held],
        encoding("o200k_base").encode_ordinary,
    )
    tally = manager.tally(messages, budget)
    decided = manager.window(tally, budget).decisions
    counts = _stored_counts(messages, tally.limits)
    return Times(
        len(messages),
        limit,
        cold=median(lambda: once.window(messages, budget)),
        raw_sent=_tokenizing(window.messages, theirs),
        raw_whole=_tokenizing(whole, theirs),
        own_whole=_tokenizing(whole, lambda text: toktok.truncate(text, 0, "o200k_base")[1]),
        first=median(
            lambda: manager.window(manager.tally(messages, budget, stored=True, counts=counts), budget)
        ),
        planned=median(lambda: manager.window(tally, budget)),
        recorded=median(lambda: manager.window(tally, budget, decisions=decided)),
    )


class Growth:
    """A conversation that grows as in an agent: decisions are recorded, the previous window is passed on."""

    def __init__(self, messages: Sequence[Message], limit: int) -> None:
        self._manager, self._budget = StateManager(), Budget(limit)
        self._tally = self._manager.tally([], self._budget)
        self._decisions: list[Decision] = []
        self._previous: Window | None = None
        for message in messages:
            self.add(message)

    def add(self, message: Message) -> float:
        """Add a message and build the window; return the total time."""
        start = time.process_time()
        self._tally.add(message)
        window = self._manager.window(
            self._tally, self._budget, decisions=self._decisions, previous=self._previous
        )
        spent = time.process_time() - start
        self._decisions += window.decisions
        self._previous = window
        return spent


def grown(history: Sequence[Message], limit: int, sizes: Sequence[int]) -> dict[int, list[float]]:
    """Let conversations grow to these sizes, then add the same messages to all of them, in turns."""
    growths = {size: Growth(history[-size - ADDED : -ADDED], limit) for size in sizes}
    spent: dict[int, list[float]] = {size: [] for size in sizes}
    for message in history[-ADDED:]:
        for size, growth in growths.items():
            spent[size].append(growth.add(message))
    return spent


def median(run: Callable[[], object]) -> float:
    """Return the median time of a call, after one call to warm up, over enough rounds to be stable."""
    run()
    gc.collect()
    spent: list[float] = []
    while len(spent) < ROUNDS or (sum(spent) < ENOUGH and len(spent) < MOST_ROUNDS):
        start = time.process_time()
        run()
        spent.append(time.process_time() - start)
    return statistics.median(spent)


def _stored_counts(messages: Sequence[Message], limits: OutputLimits) -> list[tuple[Message, int]]:
    """Return the counts that an opened session has for its messages."""
    exact = counter("o200k_base")
    sizes = [(message_cost(message, exact).tokens, len(encode(message))) for message in messages]
    return known_counts(messages, sizes, limits)


def _tokenizing(messages: Sequence[Message], tokenize: Callable[[str], object]) -> float:
    """Time the bare tokenizing of the texts of some messages."""
    texts = window_peer.texts(messages)
    return median(lambda: [tokenize(text) for text in texts])
