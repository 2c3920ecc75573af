"""The budget: how many tokens a request may have, and who uses them.

``limit = model window − output reserve − tool schemas`` (the schemas are counted with the head).
The collector runs when a request would be strictly above the limit; equal is within.
"""

from __future__ import annotations

from typing import ClassVar

from ..catalog import ModelInfo
from ..errors import InputError
from ..value import Value

__all__ = ["Budget"]


class Budget(Value, frozen=True):
    """A model's window, and the part of it that is kept for the answer."""

    UNLIMITED: ClassVar[Budget]
    window: int
    output: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.window, int) or not isinstance(self.output, int):
            raise InputError("a budget is counted in whole tokens")
        if self.output < 0 or self.window <= self.output:
            raise InputError(
                f"a window of {self.window} tokens leaves nothing beside {self.output} for the output"
            )

    @classmethod
    def of(cls, model: ModelInfo) -> Budget:
        """Give the budget of a model, its whole output limit reserved (at most half of the window)."""
        return cls(model.context_window, min(model.output_limit, model.context_window // 2))

    @property
    def limit(self) -> int:
        """The tokens that a request may have, tools included."""
        return self.window - self.output


Budget.UNLIMITED = Budget(2**62)
