"""Limits of a run: when it ends although the model would go on, and what it has used until then.

Tokens are those that the provider reports, or else those that we counted for the request. Cost is what the
provider reports, or else follows from the prices that you give: prices change, so none are built in. If
neither is known, a limit of cost ends the run, since nobody could say whether it is reached.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from ..context.window import Window
from ..entry import Usage
from ..message import ToolCallRequest, ToolCallResult
from ..value import check_number, check_whole
from .events import EndReason

__all__ = ["Limits", "Prices", "Spending"]

MILLION = 1_000_000


class Prices(Struct, frozen=True, kw_only=True):
    """What a million tokens cost; ``cached`` is for the part of the input that was cached."""

    input: float
    output: float
    cached: float | None = None

    def __post_init__(self) -> None:
        for name in ("input", "output", "cached"):
            if getattr(self, name) is not None:
                check_number(f"Prices.{name}", getattr(self, name), least=0, most=MILLION)

    def cost(self, usage: Usage) -> float:
        """Return the cost of a request and its reply."""
        cached = min(usage.cached, usage.input)
        whole = (usage.input - cached) * self.input + usage.output * self.output
        return (whole + cached * (self.input if self.cached is None else self.cached)) / MILLION


class Limits(Struct, frozen=True, kw_only=True):
    """When a run ends although the model would go on."""

    rounds: int = 100
    """Requests of one run."""
    repeats: int = 3
    """Rounds in a row that make exactly the same calls and get exactly the same results."""
    tokens: int | None = None
    """Tokens of one run, requests and replies, as the provider reports them or else as we count them."""
    cost: float | None = None
    """Cost of one run, as the provider reports it or else by the ``prices``."""
    prices: Prices | None = None

    def __post_init__(self) -> None:
        check_whole("Limits.rounds", self.rounds, least=1)
        check_whole("Limits.repeats", self.repeats, least=2)
        if self.tokens is not None:
            check_whole("Limits.tokens", self.tokens, least=1)
        if self.cost is not None:
            check_number("Limits.cost", self.cost, least=0, most=MILLION, above=True)


class Spending:
    """What one run has used."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._tokens, self._cost = 0, 0.0
        self._priced = True
        self._rounds = list[tuple[object, ...]]()

    def replied(self, usage: Usage | None, window: Window) -> None:
        """Add a request and its reply."""
        known = usage or Usage(input=window.tokens)
        self._tokens += known.input + known.output
        told = known.details.get("cost")
        if isinstance(told, int | float) and told >= 0:
            self._cost += told
        elif self._limits.prices is not None:
            self._cost += self._limits.prices.cost(known)
        else:
            self._priced = False

    def exhausted(self) -> tuple[EndReason, str] | None:
        """Return which limit was reached, and in words; None if the run may go on."""
        tokens, cost = self._limits.tokens, self._limits.cost
        if tokens is not None and self._tokens >= tokens:
            return "tokens", f"{self._tokens:,} of {tokens:,} tokens are spent"
        if cost is not None and not self._priced:
            return "cost", "the provider reports no cost; set Limits(prices=…) to limit it"
        if cost is not None and self._cost >= cost:
            return "cost", f"{self._cost:.4f} of {cost:g} is spent"
        return None

    def repeats(self, calls: Sequence[ToolCallRequest], results: Sequence[ToolCallResult]) -> bool:
        """Add a round, and return True if the last ones made the same calls and got the same results."""
        asked = tuple((call.name, repr(call.args)) for call in calls)
        said = tuple(sorted((repr(one.result), one.is_error) for one in results))
        self._rounds.append((asked, said))
        last = self._rounds[-self._limits.repeats :]
        return bool(calls) and len(last) == self._limits.repeats and len(set(last)) == 1
