"""What a counter's tokens are worth at a provider, learnt from the usage that it reports.

Counts are made once and stored, so calibration never touches them: it is a factor on the
*budget*. When the provider reports 1.2 tokens for each one that we counted, a window of 120,000
holds 100,000 of ours. Each report moves the factor by a share, large at first and small later;
a single absurd one (a cache reported as zero, a counter gone wrong) is bounded before it counts.
"""

from __future__ import annotations

from math import ceil

from msgspec import Struct

from ..errors import InputError
from ..value import TOKENS, check_number, check_whole
from .counter import Count

__all__ = ["Calibrated"]

_SLOWEST = 0.1
"""The least weight of a new report: the last twenty or so decide, so a model change is noticed."""

_STRIDE = 1.5
"""One report says at most this many times, or one over it, what the earlier ones said."""

_FACTORS = (0.25, 4.0)
"""No two tokenizers in use are further apart: beyond that, one of the numbers is not what it says."""


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


def _bounded(value: float, least: float, most: float) -> float:
    return min(max(value, least), most)
