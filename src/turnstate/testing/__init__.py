"""What Turnstate's own tests use, shipped so that yours can use it too.

``conversations`` writes agent conversations from a seed: valid ones, broken ones, long ones.
``ScriptedModel`` is a model that says what a test wrote for it.
``FixedClock`` is a clock that a test moves.
``StoreContract`` holds a store to what all stores promise: give it a ``connect`` and let pytest run it.
Nothing here needs a package that Turnstate itself does not need, and nothing reads a clock.
"""

from __future__ import annotations

from . import conversations
from .contract import StoreContract
from .doubles import FixedClock, ScriptedModel

__all__ = ["FixedClock", "ScriptedModel", "StoreContract", "conversations"]
