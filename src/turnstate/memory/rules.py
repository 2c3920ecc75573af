"""Extraction by rules."""

from __future__ import annotations

from collections.abc import Sequence

from .facts import Claim, Said

__all__ = ["RuleExtractor"]


class RuleExtractor:
    """Finds claims without a model."""

    async def claims(self, messages: Sequence[Said]) -> list[Claim]:
        """Return what the messages say about their user."""
        return []
