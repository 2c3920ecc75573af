"""The port of rerankers, which take a second look at the best results of a search, and how one is opened.

A reranker reads a question together with each text, as a cross-encoder does, and so sees more than ranking,
which compares words and vectors. It is optional and slower, so it gets the best results only.

    onnx:FOLDER         a cross-encoder on this machine, see `onnx_models`

A package offers one in the entry point group ``turnstate.rerankers``: its object is called with the text
after the colon and awaited.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from importlib.metadata import entry_points
from typing import Protocol

from ..errors import UnknownName
from .embedders import onnx_models

GROUP = "turnstate.rerankers"


class Reranker(Protocol):
    """Says how well texts answer a question. It must not block the event loop."""

    async def scores(self, question: str, texts: Sequence[str]) -> list[float]:
        """Return for each text how well it answers the question, from 0 to 1."""
        ...

    async def close(self) -> None:
        """Close connections."""
        ...


async def open_reranker(name: str) -> Reranker:
    """Open a reranker by name."""
    kind, _, address = name.partition(":")
    if kind == "onnx":
        made: Reranker = await asyncio.to_thread(onnx_models().OnnxReranker, address)
        return made
    found = next(iter(entry_points(group=GROUP, name=kind)), None)
    if found is None:
        raise UnknownName(f"there is no reranker {kind!r:.60}; known rerankers: onnx:FOLDER")
    reranker: Reranker = await found.load()(address)
    return reranker
