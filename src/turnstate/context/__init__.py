"""The context engine: from a log of messages and a budget to a window that fits, validates and lasts.

Pure: values in, values out. It returns what it decides; the caller writes it to the log.
"""

from __future__ import annotations

from .cut import Compaction, Strategy
from .head import Head
from .manager import StateManager
from .policy import Budget, Policy, Reduction
from .snapshot import ContextSnapshot
from .tally import Tally
from .window import Tiers, Window

__all__ = [
    "Budget",
    "Compaction",
    "ContextSnapshot",
    "Head",
    "Policy",
    "Reduction",
    "StateManager",
    "Strategy",
    "Tally",
    "Tiers",
    "Window",
]
