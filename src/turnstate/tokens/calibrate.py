"""The ratio of a provider's tokens to ours, learned from the usage that it reports.

Counts are made once and stored, so calibration never changes them: it is a factor on the *budget*.
If the provider reports 1.2 tokens for each one that we counted, a window of 120,000 tokens holds
100,000 of ours. Each report moves the factor, by much at first and by little later. A single absurd
report (a cache reported as zero, a broken counter) is bounded before it is used.

A budget that followed every report would change with every request. `Calibration` learns from all reports
but applies what it learned in steps: when a cut changes the request anyway, or when the error has become
too large to ignore.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Any

from msgspec import Struct

from ..errors import InputError, InvalidSetting
from ..value import TOKENS, check_number, check_whole
from .counter import Count

_SLOWEST = 0.1
"""The minimum weight of a new report: about the last twenty dominate, so a change of model is noticed."""

_STRIDE = 1.5
"""The largest factor, up or down, by which one report may differ from what the earlier ones showed."""

_FACTORS = (0.25, 4.0)
"""The range of factors: no two tokenizers in use differ by more, so beyond it a number must be wrong."""

BAND = 0.05
"""The relative error of the budget that is tolerated until the next cut."""

TELLING = 0.1
"""The share of its limit that a request must fill: the overhead of small ones says little about full ones."""

LEAST_APPLIED = 0.7
"""The minimum factor: none of our counters is a third too high; a lower report omits cached tokens."""

ENOUGH = 3
"""Reports before a budget may grow; it shrinks after the first, since a request must not be too long."""


class Calibrated(Struct, frozen=True):
    """The provider's tokens for each one that we count, and the number of reports behind this factor."""

    factor: float = 1.0
    samples: int = 0

    def __post_init__(self) -> None:
        least, most = _FACTORS
        check_number("Calibrated.factor", self.factor, least=least, most=most)
        check_whole("Calibrated.samples", self.samples, most=TOKENS)

    def observe(self, counted: int, reported: int) -> Calibrated:
        """Learn from one request: the tokens we counted and the tokens the provider reported."""
        if counted <= 0 or reported <= 0:
            raise InputError(
                f"cannot calibrate from {reported} reported and {counted} counted tokens: "
                "both must be above 0"
            )
        ratio = reported / counted
        if self.samples:
            ratio = _bounded(ratio, self.factor / _STRIDE, self.factor * _STRIDE)
        weight = max(1 / (self.samples + 1), _SLOWEST)
        factor = self.factor + weight * (ratio - self.factor)
        return Calibrated(_bounded(factor, *_FACTORS), self.samples + 1)

    def budget(self, tokens: int) -> int:
        """Return how many of our tokens fit into `tokens` of the provider's."""
        return max(0, int(tokens / self.factor))

    def reported(self, count: Count) -> Count:
        """Predict what the provider will report for a count; before any report, the count itself."""
        if not self.samples and self.factor == 1.0:
            return count
        exactly = round(count.tokens * self.factor, 6)  # 10 x 1.1 is 11, not a hair more
        return Count(ceil(exactly), "estimated")


class Calibration(Struct, frozen=True):
    """What was learned about one model with one counter, and the factor that is applied to budgets."""

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
        """Return how many of our tokens fit into `tokens` of the provider's."""
        return tokens if self.applied == 1.0 else max(1, min(TOKENS, int(tokens / self.applied)))

    def to_json(self) -> dict[str, Any]:
        """Return it as stored in a log."""
        factor, samples = self.learned.factor, self.learned.samples
        return {"counter": self.counter, "factor": factor, "samples": samples, "applied": self.applied}

    @classmethod
    def of(cls, recorded: Mapping[str, Any] | None, counter: str) -> Calibration:
        """Restore it from a log; start over if the record is for another counter or unusable."""
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
