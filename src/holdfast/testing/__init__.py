"""What Holdfast's own tests use, shipped so that yours can use it too.

``conversations`` writes agent conversations from a seed: valid ones, broken ones, long ones.
Nothing here needs a package that Holdfast itself does not need, and nothing reads a clock.
"""

from __future__ import annotations

from . import conversations

__all__ = ["conversations"]
