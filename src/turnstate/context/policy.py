"""The policy: every number and text that determines how a window is made, in one value.

A recorded cut names the policy it was made under by its ``fingerprint``, for people who wonder why it was
made. The cut is used under any policy while its window fits.
"""

from __future__ import annotations

import hashlib
from typing import ClassVar

import msgspec
from msgspec.structs import force_setattr

from ..catalog import ModelInfo
from ..errors import InputError
from ..value import TOKENS, Value, check_kind, check_number, check_string, check_whole, refuse
from .summary_text import LANGUAGES, SLOT, TEMPLATES, Language

__all__ = ["COUNTED_WHOLE", "Budget", "OutputLimits", "Policy", "Reduction", "check_budget", "step"]

NEAREST = 0.8
"""The share of a limit above which decisions for smaller limits still hold: a budget may move by a tenth."""

LONGEST_TEMPLATE = 1_000
"""In characters; a longer template would take the room of the summary itself."""

COUNTED_WHOLE = 4_000
"""The most bytes of a tool message counted without reduction, which depends on the reader's budget."""

_BATCH = 3  # times the share of one output: the rest of the budget is for the preface and the question


class Reduction(Value, frozen=True, kw_only=True):
    """When a tool output is too long, and what is left of it."""

    head: int = 50
    tail: int = 50
    soft_tokens: int = 4_000  # together with more than head + tail lines
    hard_tokens: int = 16_000  # whatever the number of lines
    share: float = 0.25  # neither limit is more than this share of the budget

    def __post_init__(self) -> None:
        check_whole("Reduction.head", self.head, least=1)
        check_whole("Reduction.tail", self.tail, least=1)
        check_whole("Reduction.soft_tokens", self.soft_tokens, least=1, most=TOKENS)
        check_whole("Reduction.hard_tokens", self.hard_tokens, least=self.soft_tokens, most=TOKENS)
        check_number("Reduction.share", self.share, least=0, most=1, above=True)


def step(budget_limit: int) -> int:
    """Return the largest power of two within a limit: the scale if no decision names one."""
    return 1 << max(0, budget_limit.bit_length() - 1)


class OutputLimits(Value, frozen=True):
    """The limits of an output (lines at each end, and tokens) and of a batch of outputs.

    ``scale`` is the amount that shares refer to, a power of two; 0 if nothing is reduced.
    """

    head: int
    tail: int
    soft: int
    hard: int
    batch: int = TOKENS
    scale: int = 0

    def __post_init__(self) -> None:
        if self.head < 1 or self.tail < 1 or not 1 <= self.soft <= self.hard or self.batch < 1:
            raise InputError(
                "limits must keep at least one line at each end and one token, "
                "and hard must not be below soft"
            )

    @classmethod
    def of(cls, reduction: Reduction, budget_limit: int) -> OutputLimits:
        """Return the limits for a budget or a scale; they depend only on its step."""
        whole = step(budget_limit)
        most = max(1, int(whole * reduction.share))
        soft, hard = min(reduction.soft_tokens, most), min(reduction.hard_tokens, most)
        return cls(reduction.head, reduction.tail, soft, hard, min(whole, _BATCH * most), whole)

    @classmethod
    def unlimited(cls) -> OutputLimits:
        """Return the limits under which no output is reduced."""
        return cls(1, 1, TOKENS, TOKENS)


class Policy(Value, frozen=True, kw_only=True):
    """How a window is made; the defaults suit an agent with tools."""

    lock_turns: int = 5  # the newest turns are kept whole …
    lock_turns_at_most: int = 10  # … and up to this many if they fit
    hard_lock: int = 10  # the newest messages that are kept if even these turns are too much
    warn_at: float = 0.85  # from this share of the budget on, the summary of the next cut is prepared …
    compact_at: float = 0.95  # … and from this share on it is used, once a model has written it
    mask_at: float = 1.0  # from this share on, old tool output is hidden if that is worth it
    low_water: float = 0.6  # a cut shrinks the window to this share, so that the next cut is far away
    mask_gain: float = 0.1  # masking must free this share of the budget to be worth a cache miss
    strict: bool = False  # raise instead of relaxing the turn lock
    reduction: Reduction = Reduction()
    language: Language = "en"  # of digests, and of the template if it is ours: en, ja or zh
    summary_template: str = TEMPLATES["en"]
    summary_tokens: int = 1_000
    summary_share: float = 0.1  # and at most this share of the budget …
    summary_least: int = 40  # … but enough to say that something was cut

    def __post_init__(self) -> None:
        for field in ("lock_turns", "lock_turns_at_most", "hard_lock", "summary_tokens", "summary_least"):
            check_whole(f"Policy.{field}", getattr(self, field), least=1)
        check_whole("Policy.lock_turns_at_most", self.lock_turns_at_most, least=self.lock_turns)
        check_whole("Policy.summary_least", self.summary_least, least=1, most=self.summary_tokens)
        for field in ("compact_at", "mask_at", "low_water"):
            check_number(f"Policy.{field}", getattr(self, field), least=0, most=1, above=True)
        check_number("Policy.warn_at", self.warn_at, least=0, most=self.compact_at, above=True)
        check_number("Policy.mask_gain", self.mask_gain, least=0, most=1)
        check_number("Policy.summary_share", self.summary_share, least=0, most=1, above=True, below=True)
        check_kind("Policy.strict", self.strict, bool)
        check_kind("Policy.reduction", self.reduction, Reduction)
        if self.language not in LANGUAGES:
            refuse("Policy.language", self.language, f"one of {', '.join(LANGUAGES)}")
        self._settle_template()

    def _settle_template(self) -> None:
        template = self.summary_template
        check_string("Policy.summary_template", template)
        if template.count(SLOT) != 1 or len(template) > LONGEST_TEMPLATE:
            refuse(
                "Policy.summary_template",
                template,
                f"at most {LONGEST_TEMPLATE:,} characters that hold {SLOT} once",
            )
        if template in TEMPLATES.values():
            force_setattr(self, "summary_template", TEMPLATES[self.language])

    @property
    def fingerprint(self) -> str:
        """A hash that identifies the policy by its content."""
        return hashlib.blake2b(msgspec.json.encode(self), digest_size=8).hexdigest()

    def serves(self, made_for: int, limit: int) -> bool:
        """Return True if decisions for one limit hold under another, which must not be much larger.

        A new cut fills its limit up to the low-water mark. If that is more than an earlier cut could ever
        show, the earlier cut hides history that there is room for.
        """
        return made_for > min(self.low_water, NEAREST) * limit

    def are_near(self, one: int, other: int) -> bool:
        """Return True if decisions for either limit hold under the other."""
        return self.serves(one, other) and self.serves(other, one)

    def summary_cap(self, limit: int) -> int:
        """Return the most tokens that a summary may take of a budget."""
        return max(self.summary_least, min(self.summary_tokens, int(limit * self.summary_share)))


# The budget: how many tokens a request may have, and who uses them.


class _ModelWindow(Value, frozen=True):
    window: int  # a separate class, since msgspec makes all fields of a class keyword-only or none


class Budget(_ModelWindow, frozen=True, kw_only=True):
    """A model's window, and the part of it that is reserved for the answer.

    Requests ask for at most `output` tokens. With ``capped=False`` they name no limit, since the reserve is
    only an assumption: a provider rejects a limit that is too high, and cuts the answer off at one that is
    too low.
    """

    UNLIMITED: ClassVar[Budget]
    output: int = 0
    capped: bool = True

    def __post_init__(self) -> None:
        check_whole("Budget.window", self.window, least=1, most=TOKENS)
        check_whole("Budget.output", self.output, most=TOKENS)
        check_kind("Budget.capped", self.capped, bool)
        if self.output >= self.window:
            allowed = f"fewer than the window's {self.window:,} tokens; this leaves nothing for the request"
            refuse("Budget.output", self.output, allowed)

    @classmethod
    def of(cls, model: ModelInfo) -> Budget:
        """Return the budget of a model, reserving its whole output limit (at most half of the window)."""
        check_kind("Budget.of(model)", model, ModelInfo)
        output = min(model.output_limit, model.context_window // 2)
        return cls(model.context_window, output=output, capped=model.output_is_known)

    @property
    def limit(self) -> int:
        """The tokens that a request may have, tools included."""
        return self.window - self.output

    @property
    def max_output(self) -> int | None:
        """The limit of the answer that a request names, if any."""
        return self.output or None if self.capped else None


Budget.UNLIMITED = Budget(TOKENS)


def check_budget(budget: object, *, optional: bool = False) -> None:
    """Raise `InvalidSetting` unless this is a budget; for a number, suggest a budget with that window."""
    if not (isinstance(budget, Budget) or (optional and budget is None)):
        is_window = type(budget) is int and 0 < budget <= TOKENS
        example = f"Budget({budget})" if is_window else "Budget(window=128_000, output=8_000)"
        refuse("budget", budget, f"a Budget, such as {example}")
