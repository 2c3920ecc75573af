"""Helpers from Turnstate's own tests, shipped so that you can use them, too.

``conversations`` generates agent conversations from a seed: valid, broken and long ones.
``ScriptedModel`` is a model that returns the replies that a test wrote for it.
``FixedClock`` is a clock that a test moves.
``StoreContract`` tests what every store promises: subclass it, define ``connect``, and run pytest.
``MemoryContract`` does the same for memory engines.
Nothing here needs a package that Turnstate itself does not need. The generators and doubles read no clock.
"""

from __future__ import annotations

from . import conversations
from .contract import MemoryContract, StoreContract
from .doubles import FixedClock, ScriptedModel

__all__ = ["FixedClock", "MemoryContract", "ScriptedModel", "StoreContract", "conversations"]
