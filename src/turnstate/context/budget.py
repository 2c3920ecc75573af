"""The budget: how many tokens a request may have, and who uses them.

``limit = model window − output reserve − tool schemas`` (the schemas are counted with the head).
The collector runs when a request would be strictly above the limit; equal is within.
"""

from __future__ import annotations

from typing import ClassVar

from ..catalog import ModelInfo
from ..value import TOKENS, Value, check_kind, check_whole, refuse

__all__ = ["Budget"]


class Budget(Value, frozen=True):
    """A model's window, and the part of it that is kept for the answer."""

    UNLIMITED: ClassVar[Budget]
    window: int
    output: int = 0

    def __post_init__(self) -> None:
        check_whole("Budget.window", self.window, least=1, most=TOKENS)
        check_whole("Budget.output", self.output, most=TOKENS)
        if self.output >= self.window:
            allowed = f"fewer than the window's {self.window:,} tokens; this leaves nothing for the request"
            refuse("Budget.output", self.output, allowed)

    @classmethod
    def of(cls, model: ModelInfo) -> Budget:
        """Give the budget of a model, its whole output limit reserved (at most half of the window)."""
        check_kind("Budget.of(model)", model, ModelInfo)
        return cls(model.context_window, min(model.output_limit, model.context_window // 2))

    @property
    def limit(self) -> int:
        """The tokens that a request may have, tools included."""
        return self.window - self.output


Budget.UNLIMITED = Budget(TOKENS)
