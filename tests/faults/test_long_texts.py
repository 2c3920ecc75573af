"""No call of the JSON library works on a whole long text, since it holds the lock of the interpreter."""

from __future__ import annotations

import subprocess
from pathlib import Path

import msgspec
import pytest

from tests.harness.programs import environment, program
from turnstate import long_json


@pytest.mark.req("B1")
@pytest.mark.parametrize(("store", "character"), [("memory:", "\\"), ("sqlite", "数")])
def test_no_call_of_the_json_library_works_on_a_whole_long_text(
    store: str, character: str, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path / 'store.db'}" if store == "sqlite" else store
    command = program("tests.faults.json_calls", url, ord(character), 2 * long_json.LONG)
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=True, timeout=240)
    largest = msgspec.json.decode(done.stdout)
    most = long_json.LONG * len(msgspec.json.encode(character).strip(b'"'))
    assert largest.keys() == {"encode", "decode", "format"}
    assert {kind: size for kind, size in largest.items() if not 0 < size < 1.2 * most} == {}
