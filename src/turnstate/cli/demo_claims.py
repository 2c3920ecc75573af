"""What the demo claims: each sentence comes with the comparison that bears it out.

A sentence whose comparison fails is shown as such, and the demo ends with 1. So nobody has to take a
tick for granted, and a test can plant a falsehood to see it caught.
"""

from __future__ import annotations

from . import demo_screen

__all__ = ["Claims"]


class Claims:
    """The sentences so far, and those of them that were not so."""

    def __init__(self) -> None:
        self.made = 0
        self.false = list[str]()

    def make(self, text: str, *, holds: bool) -> None:
        """Show a sentence, and whether it is so."""
        self.made += 1
        if not holds:
            self.false.append(text)
        demo_screen.ticked(text, good=holds)

    def conclude(self) -> bool:
        """Say how many held; tell whether all did."""
        if self.false:
            demo_screen.heading(f"{len(self.false)} of {self.made} claims do not hold.")
        else:
            demo_screen.heading(f"{self.made} claims, each compared just now: all hold.")
        return not self.false
