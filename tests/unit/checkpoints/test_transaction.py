"""The intent: on the disk as a whole, alone, and gone when it is forgotten."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from turnstate.checkpoints import transaction as intents
from turnstate.checkpoints.operations import LeaveTangent, RestoreOperation, Undo
from turnstate.checkpoints.transaction import Intent
from turnstate.errors import CheckpointError, CheckpointsBusy, CheckpointsDamaged

pytestmark = pytest.mark.req("O3")

ACTS = [
    RestoreOperation(label="1.1", commit="c" * 40, number=7, files=True, conversation=False),
    Undo(label="1", number=9, undoes="c-x", files=True, conversation=True),
    LeaveTangent(tangent="t", bring="summary", summary="found\n", kept="2", at=5),
]


@pytest.mark.parametrize("act", ACTS)
def test_an_intent_comes_back_as_it_was_written(act: object, tmp_path: Path) -> None:
    intent = Intent(name="c-1", operation=act, files="c-0", hard=True, head=(1, 7), placed=True)  # type: ignore[arg-type]
    assert intents.read(tmp_path) is None
    intents.write(intent, tmp_path)
    assert intents.read(tmp_path) == intent
    intents.forget(tmp_path)
    assert intents.read(tmp_path) is None
    assert list(tmp_path.iterdir()) == []


def test_a_draft_that_a_process_left_is_in_nobodys_way(tmp_path: Path) -> None:
    (tmp_path / "intent.json.draft").write_text("{")
    assert intents.read(tmp_path) is None
    intents.write(Intent(name="c-1", operation=ACTS[0]), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["intent.json"]


@pytest.mark.parametrize(
    "text", ["", "{", '{"name": "x"}', '{"name":"x","operation":{"operation":"fly"}}', "\xff"]
)
def test_an_intent_that_cannot_be_read_is_told(text: str, tmp_path: Path) -> None:
    (tmp_path / "intent.json").write_text(text, encoding="latin-1")
    with pytest.raises(CheckpointsDamaged, match="remove it to continue"):
        intents.read(tmp_path)


def test_a_folder_that_went_away_is_told(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    with pytest.raises(CheckpointError, match="nothing was restored"):
        intents.write(Intent(name="c-1", operation=ACTS[0]), gone)

    async def enter() -> None:
        async with intents.locked(gone):
            pass

    with pytest.raises(CheckpointsDamaged, match="cannot be locked"):
        asyncio.run(enter())


def test_one_waits_for_the_other(tmp_path: Path) -> None:
    order = list[str]()

    async def enter(name: str) -> None:
        async with intents.locked(tmp_path):
            order.append(f"{name} in")
            await asyncio.sleep(0)
            order.append(f"{name} out")

    async def both() -> None:
        await asyncio.gather(enter("a"), enter("b"))

    asyncio.run(both())
    assert order == ["a in", "a out", "b in", "b out"]


def test_whoever_waits_too_long_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intents, "_LOCK_SECONDS", 0.0)

    async def twice() -> None:
        async with intents.locked(tmp_path), intents.locked(tmp_path):
            pass

    with pytest.raises(CheckpointsBusy, match="another process"):
        asyncio.run(twice())


def test_a_link_in_the_place_of_the_lock_is_not_followed(tmp_path: Path) -> None:
    os.symlink("/etc/passwd", tmp_path / "intent.lock")

    async def enter() -> None:
        async with intents.locked(tmp_path):
            pass

    with pytest.raises(CheckpointsDamaged):
        asyncio.run(enter())
