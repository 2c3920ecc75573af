"""Going forth again after a restore, whatever came since; and restores that fail, which change nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.integration.checkpoint_talk import Desk, played
from turnstate import Message
from turnstate.context.cut import Strategy
from turnstate.errors import Conflict, RestoreFailed, UnknownCheckpoint
from turnstate.shadow import restore


@pytest.mark.req("O3")
@pytest.mark.parametrize("anew", [False, True])
@pytest.mark.parametrize("hard", [False, True])
@played
async def test_undoing_restores_byte_for_byte_one_after_the_other(desk: Desk, anew: bool, hard: bool) -> None:
    moments = []
    async with desk.started() as talk:
        for number in range(3):
            await talk.turn(f"turn {number}", {"a": f"{number}\n", f"new{number}": "x"})
        desk.write(mine="edited since the last checkpoint", late="made by the user")
        moments.append((await talk.seen(), desk.files))
        await talk.checkpoints.restore("2", hard=hard)
        desk.write(mine="edited again")
        moments.append((await talk.seen(), desk.files))
        await talk.checkpoints.restore("1.1", hard=hard)
        if not anew:
            for _ in range(2):
                await talk.checkpoints.undo_restore()
                assert (await talk.seen(), desk.files) == moments.pop()
                await talk.check()
    while moments:
        async with desk.started() as talk:
            await talk.checkpoints.undo_restore()
            assert (await talk.seen(), desk.files) == moments.pop()
            await talk.check()
    async with desk.started() as talk:
        with pytest.raises(UnknownCheckpoint, match="no restore on this path"):
            await talk.checkpoints.undo_restore()
        assert await talk.labels() == ["0", "1", "2", "3"]


@pytest.mark.req("O3")
@played
async def test_restores_of_files_are_undone_one_after_the_other(desk: Desk) -> None:
    async with desk.started() as talk:
        for number in range(3):
            await talk.turn(f"turn {number}", {"a": f"{number}\n"})
        for label in ("2", "1"):
            await talk.checkpoints.restore(label, conversation=False)
        for expected in ("1\n", "2\n"):
            await talk.checkpoints.undo_restore()
            assert desk.files["a"] == expected
        with pytest.raises(UnknownCheckpoint):
            await talk.checkpoints.undo_restore()


@pytest.mark.req("O3")
@pytest.mark.parametrize("since", ["words", "a compaction", "a tangent", "a clearing"])
@played
async def test_a_restore_is_undone_whatever_came_since(desk: Desk, since: str) -> None:
    async with desk.started() as talk:
        await talk.turn("one", {"a": "1\n"})
        await talk.turn("two", {"a": "2\n"})
        seen, files = await talk.seen(), desk.files
        await talk.checkpoints.restore("1")
        await talk.turn("other", {"a": "other\n"})
        if since == "a compaction":
            await talk.session.compact(strategy=Strategy(keep=1))
        if since == "a clearing":
            await talk.session.clear()
        if since == "a tangent":
            await talk.checkpoints.enter_tangent()
            await talk.turn("aside")
        await talk.checkpoints.undo_restore()
        assert (await talk.seen(), desk.files) == (seen, files)
        await talk.check()


@pytest.mark.req("O3")
@played
async def test_what_an_undo_replaced_is_within_reach(desk: Desk) -> None:
    async with desk.started() as talk:
        await talk.turn("one", {"a": "1\n"})
        await talk.checkpoints.restore("0")
        desk.write(a="written since")
        went = await talk.checkpoints.undo_restore()
        assert desk.files["a"] == "1\n"
        assert went.files is not None
        await talk.checkpoints.restore(went.files.undo, conversation=False)
        assert desk.files["a"] == "written since"


@pytest.mark.req("O2")
@played
async def test_soft_keeps_newer_files_and_hard_removes_those_that_a_checkpoint_holds(desk: Desk) -> None:
    async with desk.started() as talk:
        await talk.turn("one", {"agents": "1"})
        desk.write(users="in no checkpoint")
        await talk.checkpoints.restore("0")
        assert set(desk.files) == {"a", "agents", "mine", "users"}
        await talk.checkpoints.undo_restore()
        (desk.tree / "users").unlink()
        await talk.checkpoints.keep("without it")
        desk.write(users="in no checkpoint but the undo's")
        await talk.checkpoints.restore("0", hard=True)
        assert "agents" not in desk.files


@pytest.mark.req("O3")
@played
async def test_a_restore_that_fails_changes_neither(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    async with desk.started() as talk:
        await talk.turn("one", {"a": "1\n"})
        seen, files = await talk.seen(), desk.files

        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(restore._RestoreRun, "_write", full)
            with pytest.raises(RestoreFailed):
                await talk.checkpoints.restore("0")
        assert (await talk.seen(), desk.files) == (seen, files)
        await talk.check()
    async with desk.started() as talk:
        assert talk.checkpoints.recovered is None
        assert (await talk.seen(), desk.files) == (seen, files)
        await talk.checkpoints.restore("0")
        assert desk.files["a"] == "one\n"


@pytest.mark.req("O3")
@played
async def test_where_the_log_refuses_the_files_are_put_back(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with desk.started() as talk:
        await talk.turn("one", {"a": "1\n"})
        files = desk.files
        really = talk.checkpoints.repository.restore

        def meanwhile(*arguments: Any, **options: Any) -> Any:
            asyncio.run_coroutine_threadsafe(overtake(), loop).result()
            return really(*arguments, **options)

        async def overtake() -> None:
            if not overtaken:
                overtaken.append(True)
                await talk.session.append(Message.user("somebody else"))

        overtaken, loop = list[bool](), asyncio.get_running_loop()
        monkeypatch.setattr(talk.checkpoints.repository, "restore", meanwhile)
        with pytest.raises(Conflict) as refused:
            await talk.checkpoints.restore("0")
        assert refused.value.__notes__ == ["the files were put back"]
        assert (await talk.labels(), desk.files) == (["0", "1"], files)
        await talk.check()
    async with desk.started() as talk:
        assert talk.checkpoints.recovered is None
        assert (await talk.session.messages(last=1))[0].text == "somebody else"
