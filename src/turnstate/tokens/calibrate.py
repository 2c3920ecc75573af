"""What a counter's tokens are worth at a provider, learnt from the usage that it reports.

Counts are made once and stored, so calibration never touches them: it is a factor on the
*budget*. When the provider reports 1.2 tokens for each one that we counted, a window of 120,000
holds 100,000 of ours. Each report moves the factor by a share, large at first and small later;
a single absurd one (a cache reported as zero, a counter gone wrong) is bounded before it counts.

A budget that followed every report would be another one for every request. `Calibration` learns from all of
them, but applies what it learned in steps: when a cut changes the request anyway, or when the error has
become too large to keep.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Any

from msgspec import Struct

from ..errors import InputError, InvalidSetting
from ..value import TOKENS, check_number, check_whole
from .counter import Count

__all__ = ["Calibrated", "Calibration"]

_SLOWEST = 0.1
"""The least weight of a new report: the last twenty or so decide, so a model change is noticed."""

_STRIDE = 1.5
"""One report says at most this many times, or one over it, what the earlier ones said."""

_FACTORS = (0.25, 4.0)
"""No two tokenizers in use are further apart: beyond that, one of the numbers is not what it says."""

BAND = 0.05
"""An error of the budget that is left alone until the next cut."""

TELLING = 0.1
"""Of its limit: what a smaller request costs beyond its words says little about one that is full."""

LEAST_APPLIED = 0.7
"""No counter of ours is a third too high; a provider that reports less leaves out what it had cached."""

ENOUGH = 3
"""Reports before a budget grows; it shrinks after the first, since a request must not be too long."""


class Calibrated(Struct, frozen=True):
    """Provider tokens for each counted one, and how many reports taught it."""

    factor: float = 1.0
    samples: int = 0

    def __post_init__(self) -> None:
        least, most = _FACTORS
        check_number("Calibrated.factor", self.factor, least=least, most=most)
        check_whole("Calibrated.samples", self.samples, most=TOKENS)

    def observe(self, counted: int, reported: int) -> Calibrated:
        """Learn from one request: what we counted for it, what the provider reported."""
        if counted <= 0 or reported <= 0:
            raise InputError(
                f"{reported} reported for {counted} counted tokens teaches nothing: both must be above 0"
            )
        ratio = reported / counted
        if self.samples:
            ratio = _bounded(ratio, self.factor / _STRIDE, self.factor * _STRIDE)
        weight = max(1 / (self.samples + 1), _SLOWEST)
        factor = self.factor + weight * (ratio - self.factor)
        return Calibrated(_bounded(factor, *_FACTORS), self.samples + 1)

    def budget(self, tokens: int) -> int:
        """Return the counted tokens that fit into this many of the provider's."""
        return max(0, int(tokens / self.factor))

    def reported(self, count: Count) -> Count:
        """Predict what the provider will report for a count; the count itself until something was learned."""
        if not self.samples and self.factor == 1.0:
            return count
        exactly = round(count.tokens * self.factor, 6)  # 10 x 1.1 is 11, not a hair more
        return Count(ceil(exactly), "estimated")


class Calibration(Struct, frozen=True):
    """What was learned of one model in one counter, and the factor that budgets are made with."""

    counter: str
    learned: Calibrated = Calibrated()
    applied: float = 1.0

    def observe(self, counted: int, reported: int, *, limit: int, is_cut: bool = False) -> Calibration:
        """Learn from a request that was counted under a limit; `is_cut` if a cut was made for it."""
        if reported <= 0 or counted < max(1, TELLING * limit):
            return self
        learned = self.learned.observe(counted, reported)
        learned = Calibrated(round(learned.factor, 4), learned.samples)
        wanted = max(learned.factor, LEAST_APPLIED)
        is_due = is_cut or abs(wanted / self.applied - 1) > BAND
        if not is_due or (wanted < self.applied and learned.samples < ENOUGH):
            wanted = self.applied
        return Calibration(self.counter, learned, wanted)

    def budget(self, tokens: int) -> int:
        """Return the counted tokens that fit into this many of the provider's."""
        return tokens if self.applied == 1.0 else max(1, min(TOKENS, int(tokens / self.applied)))

    def to_json(self) -> dict[str, Any]:
        """Return it as a log has it."""
        factor, samples = self.learned.factor, self.learned.samples
        return {"counter": self.counter, "factor": factor, "samples": samples, "applied": self.applied}

    @classmethod
    def of(cls, recorded: Mapping[str, Any] | None, counter: str) -> Calibration:
        """Return what a log has; a new one if that is of another counter, or nothing that can be used."""
        if not isinstance(recorded, Mapping) or recorded.get("counter") != counter:
            return cls(counter)
        try:
            applied = recorded["applied"]
            check_number("applied", applied, least=LEAST_APPLIED, most=_FACTORS[1])
            return cls(counter, Calibrated(recorded["factor"], recorded["samples"]), float(applied))
        except (InvalidSetting, KeyError):
            return cls(counter)


def _bounded(value: float, least: float, most: float) -> float:
    return min(max(value, least), most)
