"""Embedders by name: ``local``, ``onnx`` and ``openai`` are here, others are found by entry point.

    local                                       all-MiniLM-L6-v2 on this machine, see `minilm`
    local:FOLDER                                the weights of another MiniLM
    onnx:FOLDER                                 a model of your own, for any language, see `onnx_models`
    openai:MODEL                                OpenAI's service; the key is in OPENAI_API_KEY
    openai:MODEL@http://localhost:8080/v1       any endpoint that speaks its protocol

A package offers one in the entry point group ``turnstate.embedders``: its object is called with the text
after the colon and awaited.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from ..errors import InputError, ModelFailed, UnknownName
from .embedder import Embedder

GROUP = "turnstate.embedders"
BATCH = 100
"""The most texts in one request."""

NEEDS = "pip install 'turnstate[{extra}]'"


async def open_embedder(name: str) -> Embedder:
    """Open an embedder by name."""
    kind, _, address = name.partition(":")
    if kind == "local":
        return await asyncio.to_thread(_local, address)
    if kind == "onnx":
        made: Embedder = await asyncio.to_thread(onnx_models().OnnxEmbedder, address)
        return made
    if kind == "openai":
        model, _, url = address.partition("@")
        return OpenAiEmbedder(model, url=url or None)
    found = next(iter(entry_points(group=GROUP, name=kind)), None)
    if found is None:
        raise UnknownName(
            f"there is no embedder {kind!r:.60}; known embedders: local, onnx:FOLDER, openai:MODEL"
        )
    embedder: Embedder = await found.load()(address)
    return embedder


def _local(folder: str) -> Embedder:
    try:
        minilm: Any = import_module(".minilm", __package__)
    except ModuleNotFoundError as missing:
        if missing.name != "numpy":
            raise
        raise InputError(f"the local embedder needs numpy: {NEEDS.format(extra='embed')}") from None
    embedder: Embedder = minilm.MiniLmEmbedder(folder or None)
    return embedder


def onnx_models() -> Any:
    """Return the module of models in ONNX files."""
    try:
        return import_module(".onnx_models", __package__)
    except ModuleNotFoundError as missing:
        if missing.name not in ("numpy", "onnxruntime", "tokenizers"):
            raise
        raise InputError(f"a model in ONNX needs {missing.name}: {NEEDS.format(extra='onnx')}") from None


class OpenAiEmbedder:
    """Gets vectors from an endpoint that speaks OpenAI's protocol."""

    def __init__(
        self, model: str, *, url: str | None = None, key: str | None = None, timeout: float = 30.0
    ) -> None:
        if not model:
            raise InputError("an embedder needs the name of a model: openai:text-embedding-3-small")
        try:
            import openai
        except ModuleNotFoundError:
            raise InputError(
                f"an OpenAI endpoint needs its package: {NEEDS.format(extra='openai')}"
            ) from None
        self.name = model
        self._failures = openai.OpenAIError
        self._client = openai.AsyncOpenAI(
            base_url=url, api_key=key or ("none" if url else None), timeout=timeout, max_retries=2
        )

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return a vector for each text, in order."""
        found = list[list[float]]()
        for start in range(0, len(texts), BATCH):
            part = [text or " " for text in texts[start : start + BATCH]]
            try:
                reply = await self._client.embeddings.create(
                    model=self.name, input=part, encoding_format="float"
                )
            except self._failures as error:
                raise ModelFailed(f"the embedder {self.name} failed: {error}") from error
            if len(reply.data) != len(part):
                raise ModelFailed(
                    f"the embedder {self.name} returned {len(reply.data)} vectors for {len(part)} texts"
                )
            found += [one.embedding for one in sorted(reply.data, key=lambda one: one.index)]
        return found

    async def close(self) -> None:
        """Close connections."""
        await self._client.close()
