"""Who erases a session erases the copies of its files."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from checkpoint_talk import Desk, played

from holdfast import SessionManager
from holdfast.checkpoints.keeping import locked
from holdfast.errors import (
    CheckpointsBusy,
)


@pytest.mark.req("G9")
@pytest.mark.parametrize("how", ["erase", "destroy"])
@played
async def test_erasing_a_session_leaves_no_copy_of_its_files(desk: Desk, how: str) -> None:
    async with desk.started(home=desk.home) as talk:
        await talk.turn("one", {"a": "1\n"})
        folder, kept = talk.checkpoints.repository.folder, desk.id
    (folder.parent / f".{folder.name}.0123456789abcdef.tmp").mkdir()  # a removal that was killed
    desk.id = ""
    async with desk.started(home=desk.home) as other, other_sessions(desk) as sessions:
        if how == "erase":
            receipt = await sessions.erase(session=kept)
            assert (receipt.checkpoints, list(receipt.sessions)) == (1, [kept])
        else:
            await sessions.destroy(kept)
        others = other.checkpoints.repository.folder
        assert list(folder.parent.iterdir()) == [others]
        assert (await other.checkpoints.keep("still there")).label == "1"
        receipt = await sessions.erase(session=other.session.id)
        assert (receipt.checkpoints, list(folder.parent.iterdir())) == (1, [])
    assert desk.files["a"] == "1\n"


@asynccontextmanager
async def other_sessions(desk: Desk) -> AsyncIterator[SessionManager]:
    async with await SessionManager.open(desk.url, home=desk.home) as sessions:
        yield sessions


@pytest.mark.req("G9")
@played
async def test_the_home_of_the_environment_is_where_erasing_looks(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_HOME", str(desk.home.path))
    async with desk.started() as talk:
        folder = talk.checkpoints.repository.folder
        async with await SessionManager.open(desk.url) as sessions:
            assert (await sessions.erase(session=desk.id)).checkpoints == 1
        assert not folder.exists()


@pytest.mark.req("G9")
@played
async def test_while_somebody_is_at_work_on_the_files_nothing_is_erased(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.checkpoints.keeping._PATIENCE", 0.05)
    async with desk.started(home=desk.home) as talk, other_sessions(desk) as sessions:
        with locked(talk.checkpoints.repository.folder), pytest.raises(CheckpointsBusy):
            await sessions.erase(session=desk.id)
        assert (await sessions.open(desk.id)).id == desk.id
        assert (await sessions.erase(session=desk.id)).checkpoints == 1


@pytest.mark.req("G9")
@played
async def test_damaged_checkpoints_are_erased_all_the_same(desk: Desk) -> None:
    async with desk.started(home=desk.home) as talk, other_sessions(desk) as sessions:
        (talk.checkpoints.repository.folder / "lock").unlink()
        assert (await sessions.erase(session=desk.id)).checkpoints == 1
        assert list(talk.checkpoints.repository.folder.parent.iterdir()) == []
