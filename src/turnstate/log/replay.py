"""Replays the requests of a path: what each one contained, according to the decisions in its log.

Every assistant message answered a request. The request consisted of the messages before it, under the
decisions recorded by then, so it can be rebuilt without a model and without asking anyone. Its budget is the
one recorded with its usage; or else the budget of the newest decision before it, or of the first decision.
A replayed request lacks what the log does not record: tools, sticky files and recalled memory that the caller
passed along.

Most requests only extend the previous one, and their token count is a sum. A whole window is built only where
decisions or the prompt changed, and for the last requests if their prompt-cache reuse is wanted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct, structs

from ..context.live_window import LiveWindow, known_counts
from ..context.policy import Budget, Policy
from ..context.preface import Preface
from ..context.window import Window
from ..entry import Cut, Decision, Entry, Mask, ModelChange, Usage
from ..message import Message
from ..stores.values import Row
from ..tokens import Counter
from .fold import Fold
from .records import counter_of

PathEntry = tuple[Row, Entry | None]
"""A row of a path and its entry; None if it is damaged."""


class Request(Struct, frozen=True, kw_only=True):
    """A request: its reply, its tokens, and the leading tokens that it shares with the previous request.

    ``reused`` is None if it was not computed. ``decided`` holds the decisions recorded since the previous
    request. ``reported`` is the usage that the provider reported; the replay does not depend on it.
    """

    seq: int
    reply: str
    timestamp: str
    tokens: int
    reused: int | None
    limit: int | None
    decided: tuple[Decision, ...] = ()
    reported: Usage | None = None


def replayed(
    path: Sequence[PathEntry],
    counter: Counter,
    policy: Policy,
    *,
    limit: int | None = None,
    last: int | None = None,
) -> list[Request]:
    """Return the requests of a path in order, or the last ones with what a prompt cache could reuse.

    `limit` is the budget of requests before the first recorded decision, if it is known.
    """
    replies = _replies(path)
    compared = last is not None
    wanted = replies if last is None else replies[max(0, len(replies) - last) :]
    if not wanted:
        return []
    first = replies[max(0, len(replies) - len(wanted) - 1)]
    places = {place for place in replies if place >= first}  # one more, to compare the others with
    replay, requests = _Replay(counter, policy, _first_limit(path) or limit), list[Request]()
    for place, (row, entry) in enumerate(path):
        if place in places and isinstance(entry, Message):
            replay.use(_limit_sent(path, place))
            window = replay.window() if compared else None
            tokens = window.tokens if window else replay.tokens()
            request = Request(
                seq=row.seq,
                reply=entry.id,
                timestamp=entry.timestamp,
                tokens=tokens,
                reused=window.reused_prefix_tokens if window else None,
                limit=replay.limit,
                decided=replay.decided(),
            )
            requests.append(request)
        elif isinstance(entry, Usage) and entry.is_of_reply and requests:
            requests[-1] = structs.replace(requests[-1], reported=entry)
        if entry is not None:
            replay.add(row, entry)
    return requests[len(requests) - len(wanted) :]


def _replies(path: Sequence[PathEntry]) -> list[int]:
    """Return the indices of the assistant messages that answered a request; a run of them is one answer."""
    places, speaking = list[int](), False
    for place, (_, entry) in enumerate(path):
        if isinstance(entry, Message) and entry.role != "system":
            if entry.role == "assistant" and not speaking:
                places.append(place)
            speaking = entry.role == "assistant"
    return places


def _limit_of(entry: Entry | None) -> int:
    """Return the limit that a decision was made under; 0 if it had none."""
    limit = entry.limit if isinstance(entry, Cut | Mask) else 0
    return limit if limit < Budget.UNLIMITED.limit else 0


def _limit_sent(path: Sequence[PathEntry], place: int) -> int:
    """Return the limit recorded with the usage of the request that a reply answered, or 0."""
    after = path[place + 1][1] if place + 1 < len(path) else None
    return after.limit if isinstance(after, Usage) else 0


def _first_limit(path: Iterable[PathEntry]) -> int | None:
    """Return the limit that the first recorded decision was made under."""
    return next((found for _, entry in path if (found := _limit_of(entry))), None)


class _Replay:
    """The path up to some entry, and the window that would have been sent there."""

    def __init__(self, counter: Counter, policy: Policy, limit: int | None) -> None:
        self._counter, self.limit = counter, limit
        self._fold = Fold()
        self._sizes = list[tuple[int, int]]()  # stored tokens and bytes of each message
        self._counted_from = 0  # stored counts before this message come from another counter
        self._live = LiveWindow(counter, policy, stored=True)
        self._settled = False  # True if the live window has the current limit and decisions
        self._shown: Window | None = None  # under the current decisions and preface
        self._new = list[Decision]()

    def add(self, row: Row, entry: Entry) -> None:
        """Add the next entry of the path."""
        known = (len(self._fold.decisions), self._fold.prompt, self._fold.bootstrap)
        if self._fold.add(entry):
            self._sizes.append((row.tokens, len(row.body)))
        if isinstance(entry, ModelChange):
            self._recount()
        if known != (len(self._fold.decisions), self._fold.prompt, self._fold.bootstrap):
            self._shown, self._settled = None, False
            self._new += self._fold.decisions[known[0] :]
            self.limit = _limit_of(entry) or self.limit

    def use(self, limit: int) -> None:
        """Use this limit for the next request, unless it is 0."""
        if limit and limit != self.limit:
            self.limit, self._shown, self._settled = limit, None, False

    def decided(self) -> tuple[Decision, ...]:
        """Return the decisions since the last call."""
        found, self._new = tuple(self._new), []
        return found

    def tokens(self) -> int:
        """Return the tokens of a request made at this point."""
        self._grow()
        window = self._shown
        if window is None or window.view.shares:
            return self._show().tokens
        tally = window.tally
        tokens = window.lead.tokens + tally.total(window.view.kept) - window.view.saved
        if window.tokens <= window.limit < tokens:  # it has outgrown the cut; another one may serve
            return self._show().tokens
        return tokens

    def window(self) -> Window:
        """Return the request made at this point, compared with the earlier ones."""
        self._grow()
        window = self._show()
        self._live.sent(window)
        return window

    def _show(self) -> Window:
        preface = Preface(system=self._fold.prompt, bootstrap=self._fold.bootstrap)
        self._shown = self._live.shown(preface, self._fold.holding)
        return self._shown

    def _grow(self) -> None:
        if not self._settled:
            budget = Budget(self.limit) if self.limit else Budget.UNLIMITED
            self._live.under(budget, self._fold.holding)
            self._settled = True
        start = self._live.length
        messages = self._fold.messages[start:]
        if messages:
            others = max(0, self._counted_from - start)
            counts = known_counts(messages[others:], self._sizes[start + others :], self._live.limits)
            self._live.grow(messages, counts)

    def _recount(self) -> None:
        """Switch to the counter of the current model; earlier stored counts no longer hold."""
        counter = counter_of(self._fold.model) if self._fold.model else self._counter
        if counter.name != self._live.counter.name:
            self._live, self._shown, self._settled = self._live.restarted(counter), None, False
            self._counted_from = len(self._fold.messages)
