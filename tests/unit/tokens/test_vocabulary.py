from __future__ import annotations

import lzma
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from turnstate.errors import TurnstateError, UnknownName
from turnstate.tokens import vocabulary

TOOL = Path(__file__).parents[3] / "tools" / "pack_vocabularies.py"
DATA = Path(vocabulary.__file__).parent / "data"

pytestmark = pytest.mark.req("B2")


def tool(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(TOOL), *arguments], capture_output=True, text=True, check=False
    )


def packed(*tokens: bytes) -> bytes:
    plain = bytes(map(len, tokens)) + b"".join(tokens)
    return lzma.compress(plain, format=lzma.FORMAT_XZ, check=lzma.CHECK_SHA256, preset=0)


def test_the_shipped_vocabularies_are_the_published_ones() -> None:
    done = tool("--check")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_planted_wrong_token_is_caught(tmp_path: Path) -> None:
    for name, size in vocabulary.SIZES.items():
        tokens = vocabulary.unpacked((DATA / f"{name}.ranks.xz").read_bytes(), size=size)
        tokens[300], tokens[301] = tokens[301], tokens[300]
        (tmp_path / f"{name}.ranks.xz").write_bytes(packed(*tokens))
    done = tool("--check", "--folder", str(tmp_path))
    assert done.returncode == 1
    assert [line.partition(":")[0] for line in done.stderr.splitlines()] == sorted(vocabulary.SIZES)


def test_the_tool_explains_itself() -> None:
    assert "--check" in tool("--help").stdout


def test_tokens_come_out_in_the_order_of_rank() -> None:
    assert vocabulary.unpacked(packed(b"a", b"", b"\x00bc"), size=3) == [b"a", b"", b"\x00bc"]


def test_every_vocabulary_has_all_single_bytes() -> None:
    for name in vocabulary.SIZES:
        table = vocabulary.ranks(name)
        assert len(table) == vocabulary.SIZES[name]
        assert {bytes([byte]) for byte in range(256)} <= table.keys()


@pytest.mark.parametrize("damage", [b"", b"not an xz file", packed(b"a", b"b")[:-9], packed(b"a")])
def test_a_damaged_file_is_named_as_such(damage: bytes) -> None:
    with pytest.raises(TurnstateError, match="reinstall Turnstate"):
        vocabulary.unpacked(damage, size=2)


def test_a_flipped_bit_is_noticed() -> None:
    whole = bytearray(packed(b"some", b"tokens"))
    whole[len(whole) // 2] ^= 1
    with pytest.raises(TurnstateError, match="reinstall Turnstate"):
        vocabulary.unpacked(bytes(whole), size=2)


def test_an_unknown_vocabulary_is_refused_with_those_there_are() -> None:
    with pytest.raises(UnknownName, match="cl100k_base, o200k_base"):
        vocabulary.ranks("p50k_base")


def test_many_threads_get_one_vocabulary(monkeypatch: pytest.MonkeyPatch) -> None:
    built = []
    monkeypatch.setattr(vocabulary, "_loaded", {})
    monkeypatch.setattr(vocabulary, "_built", lambda name: built.append(name) or object())
    with ThreadPoolExecutor(16) as pool:
        found = set(pool.map(vocabulary.encoding, ["o200k_base"] * 200))
    assert len(found) == 1
    assert built == ["o200k_base"]
    assert vocabulary.is_loaded("o200k_base")
    assert not vocabulary.is_loaded("cl100k_base")


def test_importing_the_package_loads_no_tokenizer() -> None:
    late = {"tiktoken", "lzma", "asyncio", "tomllib"}
    code = f"import sys, turnstate.tokens as t; t.counter('o200k_base'); print({late} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
