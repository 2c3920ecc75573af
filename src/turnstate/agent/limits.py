"""Limits of a run: when it ends although the model would go on, and how much it has used so far.

Tokens are counted as the provider reports them; if it reports none, the tokens of the request are counted
locally. Cost is what the provider reports, or else is computed from the prices that you give, or else from
those of the catalog. If none is known, a cost limit ends the run, since no one could say whether it has been
reached.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from .. import catalog
from ..catalog import MILLION, Prices
from ..context.window import Window
from ..entry import Usage
from ..message import ToolCallRequest, ToolCallResult
from ..value import check_number, check_whole
from .events import EndReason


class Limits(Struct, frozen=True, kw_only=True):
    """Limits that end a run although the model would go on."""

    rounds: int = 100
    """Maximum number of requests in one run."""
    repeats: int = 3
    """Consecutive rounds with exactly the same calls and the same results after which the run ends."""
    tokens: int | None = None
    """Maximum tokens of one run, requests and replies, as reported by the provider or else counted here."""
    cost: float | None = None
    """Maximum cost of one run in US dollars: as the provider reports it, or else computed from prices."""
    prices: Prices | None = None
    """Prices of the model, if they are not those of the catalog."""

    def __post_init__(self) -> None:
        check_whole("Limits.rounds", self.rounds, least=1)
        check_whole("Limits.repeats", self.repeats, least=2)
        if self.tokens is not None:
            check_whole("Limits.tokens", self.tokens, least=1)
        if self.cost is not None:
            check_number("Limits.cost", self.cost, least=0, most=MILLION, above=True)


class Spending:
    """The tokens and the cost of one run so far."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._tokens, self._cost = 0, 0.0
        self._priced = True
        self._rounds = list[tuple[object, ...]]()

    def replied(self, usage: Usage | None, window: Window) -> None:
        """Add a request and its reply."""
        known = usage or Usage(input=window.tokens)
        self._tokens += known.input + known.output
        cost = catalog.cost(known)
        if self._limits.prices is not None and not (cost and cost.is_reported):
            self._cost += self._limits.prices.cost(known)
        elif cost is not None:
            self._cost += cost.amount
        else:
            self._priced = False

    def exhausted(self) -> tuple[EndReason, str] | None:
        """Return the limit that was reached and a message about it; None if the run may go on."""
        tokens, cost = self._limits.tokens, self._limits.cost
        if tokens is not None and self._tokens >= tokens:
            return "tokens", f"{self._tokens:,} of {tokens:,} tokens are spent"
        if cost is not None and not self._priced:
            return (
                "cost",
                "neither the cost nor the model's prices are known; set Limits(prices=…) to limit it",
            )
        if cost is not None and self._cost >= cost:
            return "cost", f"{self._cost:.4f} of {cost:g} is spent"
        return None

    def repeats(self, calls: Sequence[ToolCallRequest], results: Sequence[ToolCallResult]) -> bool:
        """Add a round; return True if the last `Limits.repeats` rounds had the same calls and results."""
        asked = tuple((call.name, repr(call.args)) for call in calls)
        said = tuple(sorted((repr(one.result), one.is_error) for one in results))
        self._rounds.append((asked, said))
        last = self._rounds[-self._limits.repeats :]
        return bool(calls) and len(last) == self._limits.repeats and len(set(last)) == 1
