"""The port of embedders, which turn texts into vectors: similar meanings have similar directions.

An embedder is optional. Without one, memory is found by its words and related words.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Embedder(Protocol):
    """Turns texts into vectors of the same dimension. It must not block the event loop."""

    @property
    def name(self) -> str:
        """The name of the model; vectors of different models are not compared."""
        ...

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return a vector for each text, in order."""
        ...

    async def close(self) -> None:
        """Close connections."""
        ...
