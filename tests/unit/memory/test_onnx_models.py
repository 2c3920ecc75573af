"""Models in ONNX files: two networks of a few numbers each, and a tokenizer that knows six words."""

from __future__ import annotations

import asyncio
from base64 import b64decode
from pathlib import Path

import pytest

from turnstate.errors import InputError, UnknownName
from turnstate.memory.embedders import open_embedder
from turnstate.memory.reranker import open_reranker

pytest.importorskip("onnxruntime")
tokenizers = pytest.importorskip("tokenizers")

WORDS = ("[PAD]", "cat", "dog", "boat", "red", "old", "[UNK]")

# Gather(w, input_ids) with w = eye(8, 4): a token is the unit vector of its number; from 4 on, nothing.
ROWS = (
    "CAg6hwIKKQoBdwoJaW5wdXRfaWRzEhFsYXN0X2hpZGRlbl9zdGF0ZSIGR2F0aGVyEgFnKowBCAgIBBABQgF3SoABAACAPwAAAAAAAAAAAAAA"
    "AAAAAAAAAIA/AAAAAAAAAAAAAAAAAAAAAAAAgD8AAAAAAAAAAAAAAAAAAAAAAACAPwAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAABaHQoJaW5wdXRfaWRzEhAKDggHEgoKAxIBYgoDEgFuYikKEWxhc3RfaGlkZGVuX3N0"
    "YXRlEhQKEggBEg4KAxIBYgoDEgFuCgIIBEIECgAQDQ=="
)
# ReduceMean(Cast(input_ids)): the logit of a pair is the mean of its token numbers.
MEANS = (
    "CAg6lQEKHwoJaW5wdXRfaWRzEgFmIgRDYXN0KgkKAnRvGAGgAQIKNQoBZhIGbG9naXRzIgpSZWR1Y2VNZWFuKgsKBGF4ZXNAAaABByoPCghr"
    "ZWVwZGltcxgBoAECEgFnWh0KCWlucHV0X2lkcxIQCg4IBxIKCgMSAWIKAxIBbmIZCgZsb2dpdHMSDwoNCAESCQoDEgFiCgIIAUIECgAQDQ=="
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    model = tokenizers.models.WordLevel({word: n for n, word in enumerate(WORDS)}, unk_token="[UNK]")
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def test_a_vector_is_the_average_over_the_tokens_of_a_text_without_padding(folder: Path) -> None:
    (folder / "model.onnx").write_bytes(b64decode(ROWS))

    async def test() -> list[list[float]]:
        embedder = await open_embedder(f"onnx:{folder}")
        assert embedder.name.startswith("onnx ")
        found = await embedder.embed(["cat", "cat dog", *["boat"] * 40])
        await embedder.close()
        return found

    found = asyncio.run(test())
    assert found[:2] == [[0, 1, 0, 0], [0, 0.5, 0.5, 0]]
    assert found[2:] == [[0, 0, 0, 1]] * 40


def test_a_model_may_take_the_vector_of_the_first_token(folder: Path) -> None:
    (folder / "model.onnx").write_bytes(b64decode(ROWS))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')

    async def test() -> list[list[float]]:
        embedder = await open_embedder(f"onnx:{folder}")
        return await embedder.embed(["dog cat boat"])

    assert asyncio.run(test()) == [[0, 0, 1, 0]]


def test_a_score_is_between_0_and_1_and_sees_question_and_text(folder: Path) -> None:
    (folder / "model.onnx").write_bytes(b64decode(MEANS))

    async def test() -> list[float]:
        reranker = await open_reranker(f"onnx:{folder}")
        found = await reranker.scores("cat", ["dog", "old"])
        await reranker.close()
        return found

    low, high = asyncio.run(test())
    assert (low, high) == (pytest.approx(0.817, abs=1e-3), pytest.approx(0.953, abs=1e-3))


def test_a_folder_without_a_model_is_refused(folder: Path) -> None:
    with pytest.raises(InputError, match=r"has no model\.onnx"):
        asyncio.run(open_embedder(f"onnx:{folder}"))
    (folder / "model.onnx").write_bytes(b"no network")
    for opened in (open_embedder, open_reranker):
        with pytest.raises(InputError, match="cannot be loaded"):
            asyncio.run(opened(f"onnx:{folder}"))


def test_a_reranker_that_nobody_offers_is_refused() -> None:
    with pytest.raises(UnknownName, match="there is no reranker 'parrot'"):
        asyncio.run(open_reranker("parrot"))
