"""The policy: every number and text that decides how a window is made, in one value.

A recorded cut names the policy it was made under by its ``fingerprint``; under another policy it
is planned anew.
"""

from __future__ import annotations

import hashlib

import msgspec
from msgspec.structs import force_setattr

from ..errors import InputError
from ..value import Value
from .wording import TEMPLATES, Language

__all__ = ["Policy", "Reduction"]


class Reduction(Value, frozen=True, kw_only=True):
    """When a tool output is too long, and what is left of it."""

    head: int = 50
    tail: int = 50
    soft_tokens: int = 4_000  # together with more than head + tail lines
    hard_tokens: int = 16_000  # whatever the number of lines
    share: float = 0.25  # neither limit is more than this part of the budget

    def __post_init__(self) -> None:
        if self.head < 1 or self.tail < 1 or self.soft_tokens < 1 or self.hard_tokens < self.soft_tokens:
            raise InputError(
                "a reduction keeps at least a line at each end, and its hard limit is the higher one"
            )
        if not 0 < self.share <= 1:
            raise InputError("a reduction's share of the budget lies between 0 and 1")


class Policy(Value, frozen=True, kw_only=True):
    """How a window is made; the defaults suit an agent with tools."""

    lock_turns: int = 5  # the newest turns are kept whole …
    lock_turns_at_most: int = 10  # … and more of them where they fit
    hard_lock: int = 10  # the newest messages, when even these turns are too much
    warn: float = 0.85  # from this part of the budget on, the summary of the coming cut is prepared …
    compact: float = 0.95  # … and from here on it is put in, once a model has written it
    mask: float = 1.0  # from here on, old tool output is hidden where that is worth it
    low_water: float = 0.6  # a cut frees this much at once, so that the next one is far away
    mask_gain: float = 0.1  # masking old tool output must free this part of the budget to be worth a cache
    strict: bool = False  # raise instead of relaxing the turn lock
    reduction: Reduction = Reduction()
    language: Language = "en"  # of digests, and of the template where it is ours: en, ja or zh
    summary_template: str = TEMPLATES["en"]
    summary_tokens: int = 1_000
    summary_share: float = 0.1  # nor more than this part of the budget …
    summary_least: int = 40  # … but enough to say that something was cut

    def __post_init__(self) -> None:
        if not 0 < self.low_water <= 1 or not 0 <= self.mask_gain <= 1 or not 0 < self.summary_share < 1:
            raise InputError("low_water, mask_gain and summary_share are parts of the budget, from 0 to 1")
        if not 0 < self.warn <= self.compact <= 1 or not 0 < self.mask <= 1:
            raise InputError(
                "warn, compact and mask are parts of the budget, from 0 to 1, warn before compact"
            )
        if not 1 <= self.lock_turns <= self.lock_turns_at_most or self.hard_lock < 1:
            raise InputError("a lock keeps at least one turn and one message")
        if self.summary_template.count("{summary}") != 1:
            raise InputError("the summary template holds {summary} once")
        if self.summary_template in TEMPLATES.values():
            force_setattr(self, "summary_template", TEMPLATES[self.language])

    @property
    def fingerprint(self) -> str:
        """Name the policy by what it says."""
        return hashlib.blake2b(msgspec.json.encode(self), digest_size=8).hexdigest()

    def summary_cap(self, limit: int) -> int:
        """Give the most tokens that a summary may take of a budget."""
        return max(self.summary_least, min(self.summary_tokens, int(limit * self.summary_share)))
