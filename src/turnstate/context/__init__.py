"""The context engine: turns a log of messages and a budget into a window that fits, validates and lasts.

It is pure: values in, values out. It returns its decisions, and the caller writes them to the log.
"""

from __future__ import annotations

from .cut import Compaction, Strategy
from .manager import StateManager
from .policy import Budget, Policy, Reduction
from .preface import Preface
from .snapshot import ContextSnapshot
from .tally import Tally
from .window import Tiers, Window

__all__ = [
    "Budget",
    "Compaction",
    "ContextSnapshot",
    "Policy",
    "Preface",
    "Reduction",
    "StateManager",
    "Strategy",
    "Tally",
    "Tiers",
    "Window",
]
