"""Search by meaning, in addition to words: the embedder of an engine, and its vectors.

An embedder may fail; memory may not. A turn that could not be embedded is stored without a vector and gets
one with a later delivery of its user, and a question that cannot be embedded is answered by its words.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Sequence
from importlib import import_module
from itertools import islice
from math import ceil
from typing import TYPE_CHECKING, Any

from ...errors import InputError
from ..embedder import Embedder
from ..port import User
from .database import Database, Operation, asked
from .documents import DocumentOwner, put_vectors

if TYPE_CHECKING:
    from .vectors import Similarities, Vectors

_log = logging.getLogger(__name__)

PAGE = 2_000
"""Vectors to read from the database at a time."""

FILLED = 500
"""The most turns without a vector that one delivery fills in."""

AT_ONCE = 32
"""The most passages that an embedder gets at a time."""

PATIENCE = 2.0
"""Seconds to wait for the vector of a question; after that, the search uses words alone."""

SHORT = 16
"""Characters; a shorter sentence is joined with its neighbor into one passage."""

MOST = 12
"""The most passages of a turn; in a longer turn, each passage has several sentences."""

_ENDS = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n+|\s(?=\[)")


def passages(text: str) -> list[str]:
    """Return the passages of a text; none if there is only one."""
    found = list[str]()
    for part in filter(None, (part.strip() for part in _ENDS.split(text))):
        if found and min(len(part), len(found[-1])) < SHORT:
            found[-1] += " " + part
        else:
            found.append(part)
    step = ceil(len(found) / MOST)
    return [" ".join(found[n : n + step]) for n in range(0, len(found), step)] if len(found) > 1 else []


class Meaning:
    """Computes the vectors of turns, and compares them with the vector of a question."""

    def __init__(self, database: Database, embedder: Embedder) -> None:
        self._database, self._embedder = database, embedder
        try:
            self._vectors: Any = import_module(".vectors", __package__)
        except ModuleNotFoundError as missing:
            if missing.name != "numpy":
                raise
            raise InputError("an embedder needs numpy: pip install 'turnstate[embed]'") from None
        self._cache = self._vectors.VectorCache()
        self._filled = dict[int, int]()
        """For each user, the number below which all turns have vectors; a delivery does not check these."""

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
        """Return the vectors of texts and their passages as bytes; None for all if the embedder fails."""
        if not texts:
            return []
        parts = [[text, *passages(text)] for text in texts]
        try:
            found = iter(await self._embedded([part for some in parts for part in some]))
            return [self._vectors.packed(*islice(found, len(some))) for some in parts]
        except Exception as error:  # foreign code may raise anything
            _log.warning("%d turns are stored without vectors: %s", len(texts), error)
            return [None] * len(texts)

    async def _embedded(self, texts: list[str]) -> list[list[float]]:
        """Return the vectors of texts, a few at a time: a question need not wait for all of them."""
        return [
            vector
            for start in range(0, len(texts), AT_ONCE)
            for vector in await self._embedder.embed(texts[start : start + AT_ONCE])
        ]

    async def fill(self, user: User) -> None:
        """Compute vectors for turns of a user that have none from this model."""
        rows = await self._database.rows("owner", tenant=user.tenant, name=user.id)
        if not rows:
            return
        owner = DocumentOwner(*rows[0])
        missing = await self._database.rows(
            "without_vector",
            owner=owner.id,
            embedder=self.name,
            first=self._filled.get(owner.id, 0),
            limit=FILLED,
        )
        made = await self.vectors([text for _, text in missing])
        new = {number: data for (number, _), data in zip(missing, made, strict=True) if data is not None}
        if new:
            await self._database.write(lambda: put_vectors(user, self.name, new))
        if len(new) == len(missing) < FILLED:
            self._filled[owner.id] = owner.next

    async def similarities(self, owner: DocumentOwner, question: str) -> Similarities | None:
        """Return how similar each turn of a user is to a question; None if the embedder fails."""
        try:
            async with asyncio.timeout(PATIENCE):
                (vector,) = await self._embedder.embed([question])
        except Exception as error:  # foreign code may raise anything
            _log.warning("a question is answered by its words alone: %s", error or type(error).__name__)
            return None
        vectors = await self._loaded(owner, 2 * len(vector))
        return await asyncio.to_thread(vectors.similarities, vector)

    def of(
        self, owner: DocumentOwner, similar: Similarities, numbers: list[int]
    ) -> Operation[dict[int, float]]:
        """Return how similar the given turns are to a question, by their nearest passages."""
        return similar.of(
            (yield from asked("vectors_of", owner=owner.id, embedder=self.name, numbers=numbers))
        )

    async def _loaded(self, owner: DocumentOwner, width: int) -> Vectors:
        """Return the current vectors of a user; if turns were only added, read just the new ones."""
        kept: Vectors | None = self._cache.get(owner.id)
        if kept is not None and kept.version == owner.version:
            return kept
        removed = owner.next - owner.size
        grown = kept is not None and kept.removed == removed and kept.next < owner.next
        vectors: Vectors = kept if kept is not None and grown else self._vectors.Vectors(0, 0, removed)
        first = vectors.next
        while True:
            rows = await self._database.rows(
                "vectors", owner=owner.id, embedder=self.name, width=width, first=first, limit=PAGE
            )
            await asyncio.to_thread(vectors.extend, rows)
            if len(rows) < PAGE:
                break
            first = rows[-1][0] + 1
        vectors.version, vectors.next = owner.version, owner.next
        self._cache.put(owner.id, vectors)
        return vectors
