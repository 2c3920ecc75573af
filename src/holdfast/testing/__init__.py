"""What Holdfast's own tests use, shipped so that yours can use it too.

``conversations`` writes agent conversations from a seed: valid ones, broken ones, long ones.
``ScriptedModel`` is a model that says what a test wrote for it.
Nothing here needs a package that Holdfast itself does not need, and nothing reads a clock.
"""

from __future__ import annotations

from . import conversations
from .scripted import ScriptedModel

__all__ = ["ScriptedModel", "conversations"]
