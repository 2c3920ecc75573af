"""Search by meaning: the embedder of an engine, and the vectors it made, beside the words.

An embedder may fail; memory may not. A turn that could not be embedded is stored without a vector and gets
one with a later delivery of its user, and a question that cannot be embedded is answered by its words.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ...errors import InputError
from ..embedder import Embedder
from ..port import User
from .database import Database
from .documents import Owner, put_vectors
from .ranking import CANDIDATES

if TYPE_CHECKING:
    from .vectors import Vectors

__all__ = ["Meaning"]

_log = logging.getLogger(__name__)

PAGE = 2_000
"""Vectors that are read from the database at a time."""

FILLED = 500
"""Turns without a vector that one delivery takes care of."""

PATIENCE = 2.0
"""Seconds for the vector of a question; then the words have to do."""


class Meaning:
    """Makes vectors, and compares them with those of a question."""

    def __init__(self, database: Database, embedder: Embedder) -> None:
        self._database, self._embedder = database, embedder
        try:
            self._vectors: Any = import_module(".vectors", __package__)
        except ModuleNotFoundError as missing:
            if missing.name != "numpy":
                raise
            raise InputError("an embedder needs numpy: pip install 'turnstate[embed]'") from None
        self._cache = self._vectors.VectorCache()

    @property
    def name(self) -> str:
        """The name of the model."""
        return self._embedder.name

    async def close(self) -> None:
        """Close the embedder."""
        await self._embedder.close()

    def clear(self) -> None:
        """Drop the vectors in memory."""
        self._cache.clear()

    async def vectors(self, texts: Sequence[str]) -> list[bytes | None]:
        """Return the vectors of texts as bytes; None for all of them if the embedder fails."""
        if not texts:
            return []
        try:
            found = await self._embedder.embed(texts)
        except Exception as error:  # foreign code may raise anything
            _log.warning("%d turns are stored without vectors: %s", len(texts), error)
            return [None] * len(texts)
        return [self._vectors.packed(vector) for vector in found]

    async def fill(self, user: User) -> None:
        """Make vectors for turns of a user that have none of this model."""
        rows = await self._database.rows("owner", tenant=user.tenant, name=user.id)
        missing = rows and await self._database.rows(
            "without_vector", owner=rows[0][0], embedder=self.name, limit=FILLED
        )
        if not missing:
            return
        made = await self.vectors([text for _, text in missing])
        new = {number: data for (number, _), data in zip(missing, made, strict=True) if data is not None}
        await self._database.write(lambda: put_vectors(user, self.name, new))

    async def found(
        self, owner: Owner, question: str, numbers: list[int]
    ) -> tuple[list[int], dict[int, float] | None]:
        """Return the turns found by words and by meaning, and how similar each is to the question."""
        try:
            async with asyncio.timeout(PATIENCE):
                (asked,) = await self._embedder.embed([question])
        except Exception as error:  # foreign code may raise anything
            _log.warning("a question is answered by its words alone: %s", error or type(error).__name__)
            return numbers, None
        vectors = await self._loaded(owner)
        return await asyncio.to_thread(_compared, vectors, asked, numbers)

    async def _loaded(self, owner: Owner) -> Vectors:
        """Return the vectors of a user as they are now, and read only those that are new."""
        kept: Vectors | None = self._cache.get(owner.id)
        if kept is not None and kept.version == owner.version:
            return kept
        removed = owner.next - owner.size
        grown = kept is not None and kept.removed == removed and kept.next < owner.next
        vectors: Vectors = kept if kept is not None and grown else self._vectors.Vectors(0, 0, removed)
        first = vectors.next
        while True:
            rows = await self._database.rows(
                "vectors", owner=owner.id, embedder=self.name, first=first, limit=PAGE
            )
            await asyncio.to_thread(vectors.extend, rows)
            if len(rows) < PAGE:
                break
            first = rows[-1][0] + 1
        vectors.version, vectors.next = owner.version, owner.next
        self._cache.put(owner.id, vectors)
        return vectors


def _compared(
    vectors: Vectors, asked: Sequence[float], numbers: list[int]
) -> tuple[list[int], dict[int, float]]:
    scores = vectors.similarities(asked)
    both = list(dict.fromkeys([*numbers, *vectors.best(scores, CANDIDATES)]))
    return both, vectors.of(both, scores)
