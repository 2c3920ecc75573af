"""Models of your own for memory, as ONNX files: an embedder for any language, and a cross-encoder.

    onnx:FOLDER         ``model.onnx`` and ``tokenizer.json``, as Hugging Face has them for most models

The network is computed by onnxruntime in at most two threads, and texts are cut by tokenizers. Nothing is
downloaded: the folder is yours.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from tokenizers import Tokenizer

from .. import folder_gate
from ..errors import InputError

THREADS = 2
MAX_TOKENS = 512
AT_ONCE = 16
"""The most texts that are computed together."""

Array = NDArray[np.float32]


class _OnnxModel:
    """A network and its tokenizer, in a thread of their own."""

    outputs: tuple[str, ...]
    """Names of the output to use, the best first; if there is none of them, the first output."""

    def __init__(self, folder: str | Path) -> None:
        network, cutter = Path(folder) / "model.onnx", Path(folder) / "tokenizer.json"
        for file in (network, cutter):
            if not file.is_file():
                raise InputError(
                    f"{folder} has no {file.name}; name a folder with model.onnx and tokenizer.json"
                )
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = THREADS, 1
        try:
            self._network = onnxruntime.InferenceSession(network, options, ["CPUExecutionProvider"])
            self._tokenizer = Tokenizer.from_file(str(cutter))
        except Exception as error:  # both libraries raise exceptions of their own
            raise InputError(f"the model in {folder} cannot be loaded: {error}") from error
        self._tokenizer.enable_truncation(MAX_TOKENS)
        self._tokenizer.enable_padding()
        self._inputs = {one.name for one in self._network.get_inputs()}
        there = [one.name for one in self._network.get_outputs()]
        self._output = next((name for name in self.outputs if name in there), there[0])
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="turnstate-onnx")

    async def close(self) -> None:
        """Stop the thread."""
        self._pool.shutdown(wait=False)

    async def _computed(self, texts: Sequence[Any]) -> list[Any]:
        """Return a value for each text, or pair of texts; another request may come in between."""
        loop = asyncio.get_running_loop()
        return [
            one
            for start in range(0, len(texts), AT_ONCE)
            for one in await loop.run_in_executor(
                self._pool, self._batch, list(texts[start : start + AT_ONCE])
            )
        ]

    def _batch(self, texts: list[Any]) -> list[Any]:
        raise NotImplementedError

    def _run(self, texts: list[Any]) -> tuple[Array, Array]:
        """Return the output of the network, and which tokens are not padding."""
        cut = self._tokenizer.encode_batch(texts)
        mask = np.array([one.attention_mask for one in cut], np.int64)
        given = {
            "input_ids": np.array([one.ids for one in cut], np.int64),
            "attention_mask": mask,
            "token_type_ids": np.array([one.type_ids for one in cut], np.int64),
        }
        known = {name: given[name] for name in given if name in self._inputs}
        (found,) = self._network.run([self._output], known)
        return np.asarray(found, np.float32), mask.astype(np.float32)


class OnnxEmbedder(_OnnxModel):
    """Turns texts into vectors: what the network returns for a text, or the average over its tokens.

    A model whose ``1_Pooling/config.json`` says so takes the vector of the first token instead.
    """

    outputs = ("sentence_embedding", "last_hidden_state", "token_embeddings")

    def __init__(self, folder: str | Path) -> None:
        super().__init__(folder)
        content = folder_gate.read_bytes(Path(folder) / "model.onnx")
        self.name = f"onnx {hashlib.sha256(content).hexdigest()[:16]}"
        """Vectors of different weights are not compared, even if their folder is the same."""
        pooling = Path(folder) / "1_Pooling" / "config.json"
        known = json.loads(folder_gate.read_bytes(pooling)) if pooling.is_file() else {}
        self._takes_first = bool(known.get("pooling_mode_cls_token"))

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return a vector for each text, in order."""
        return await self._computed(texts)

    def _batch(self, texts: list[str]) -> list[list[float]]:
        found, mask = self._run(texts)
        if found.ndim == 3 and self._takes_first:
            found = found[:, 0]
        elif found.ndim == 3:
            weights = mask[:, :, None]
            found = (found * weights).sum(1) / np.maximum(weights.sum(1), 1)
        return [vector.tolist() for vector in found]


class OnnxReranker(_OnnxModel):
    """Reads a question together with each text, as a cross-encoder."""

    outputs = ("logits",)

    async def scores(self, question: str, texts: Sequence[str]) -> list[float]:
        """Return for each text how well it answers the question, from 0 to 1."""
        return await self._computed([(question, text) for text in texts])

    def _batch(self, texts: list[tuple[str, str]]) -> list[float]:
        found, _ = self._run(texts)
        logits = found.reshape(len(texts), -1)
        is_relevant = logits[:, -1] - (
            logits[:, 0] if logits.shape[1] > 1 else 0
        )  # of two classes, the second
        return [float(value) for value in 1 / (1 + np.exp(-is_relevant))]
