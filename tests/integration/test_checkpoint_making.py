"""Where checkpoints are made, what they are called, where they are kept, and how they go away."""

from __future__ import annotations

import asyncio
import os
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from tests.integration.checkpoint_talk import BUDGET, Desk, Talk, played
from turnstate import SessionManager
from turnstate.checkpoints import CheckpointManager, SnapshotLimits
from turnstate.conversation import ConversationState, fields, from_json, to_json
from turnstate.errors import GitMissing, InputError, UnknownCheckpoint
from turnstate.home import Home


@pytest.mark.req("O2")
@played
async def test_the_start_the_tools_and_the_turns_get_their_labels(desk: Desk) -> None:
    async with desk.started() as talk:
        assert await talk.labels() == ["0"]
        assert await talk.turn("look around") is None
        assert await talk.turn("add b and c", {"b": "1"}, {"c": "1"}) == "1"
        assert await talk.turn("again nothing", {}) is None
        assert await talk.turn("drop b", {"b": None}) == "2"
        turn = await talk.checkpoints.expand("1")
        assert [(one.label, one.tool, one.added) for one in turn.tools] == [
            ("1.1", "write", 1),
            ("1.2", "write", 1),
        ]
        assert [(one.label, one.deleted) for one in (await talk.checkpoints.expand("2")).tools] == [
            ("2.1", 1)
        ]
        await talk.check()
        with pytest.raises(UnknownCheckpoint, match=r"no turn 1\.1"):
            await talk.checkpoints.expand("1.1")


@pytest.mark.req("O2")
@played
async def test_a_turn_under_way_is_in_progress_and_is_called_by_its_number(desk: Desk) -> None:
    async with desk.started() as talk:
        await talk.say("go")
        assert await talk.tool(a="two\n") == "1.1"
        assert await talk.tool(a="three\n") == "1.2"
        *_, turn = await talk.checkpoints.turns()
        assert (turn.label, turn.description, turn.done, len(turn.tools)) == ("1", "in progress", False, 2)
        desk.write(a="the user's\n")
        await talk.checkpoints.restore("1", conversation=False)
        assert desk.files["a"] == "three\n"


@pytest.mark.req("O2", "O3")
@played
async def test_a_snapshot_that_a_dead_process_did_not_record_does_not_hide_the_change_of_a_tool(
    desk: Desk,
) -> None:
    async with desk.started() as talk:
        await talk.say("go")
        call = await talk.call()
        desk.write(a="two\n")
        await talk.answer(call)
        talk.checkpoints.repository.snapshot("c-lost", "taken, and then the process died")
    async with desk.started() as talk:
        assert await talk.tool() == "1.1"
        assert await talk.tool() is None
        await talk.checkpoints.restore("0", conversation=False)
        assert await talk.tool() is None
        await talk.checkpoints.restore("1.1")
        assert desk.files["a"] == "two\n"


@pytest.mark.req("O2")
@played
async def test_the_turn_after_an_interrupted_one_has_the_next_number(desk: Desk) -> None:
    async with desk.started() as talk:
        await talk.say("go")
        assert await talk.tool(a="two\n") == "1.1"
        await talk.say("stop, do this")  # instead of waiting for the answer
        assert (await talk.checkpoints.numbers()).next_tool == "2.1"
        assert await talk.tool(a="three\n") == "2.1"
    async with desk.started() as talk:  # the process died in the middle of the second turn
        assert await talk.tool(a="four\n") == "2.2"
        assert await talk.turn("and that", {"b": "1"}) == "3"
        assert [(turn.label, turn.description) for turn in await talk.checkpoints.turns()] == [
            ("0", "the start"),
            ("1", "interrupted"),
            ("2", "interrupted"),
            ("3", "and that"),
        ]
        await talk.checkpoints.restore("1")
        assert desk.files["a"] == "two\n"
        assert (await talk.session.messages(last=1))[0].tool_results
        assert await talk.tool(a="five\n") == "1.2"


@pytest.mark.req("O2", "I1")
@played
async def test_a_state_knows_its_checkpoints_from_the_log(desk: Desk) -> None:
    async with desk.started() as talk:
        await talk.turn("go", {"a": "2"})
        loaded = await talk.session.conversation()
        assert loaded.checkpoint_manager == (await talk.state()).checkpoint_manager
        assert loaded.checkpoint_manager is not None
        assert loaded.checkpoint_manager.work_tree == str(desk.tree.resolve())
        assert [one.label for one in loaded.checkpoint_manager.checkpoints] == ["0", "1.1", "1"]
        await talk.checkpoints.restore("0")
        loaded = await talk.session.conversation()
        assert loaded.checkpoint_manager is not None
        assert [one.label for one in loaded.checkpoint_manager.checkpoints] == ["0"]
        await talk.check()


@pytest.mark.req("O2")
@played
async def test_what_the_user_asks_to_keep_is_a_turn_of_its_own(desk: Desk) -> None:
    async with desk.started() as talk:
        kept = await talk.checkpoints.keep("before I try something")
        assert (kept.label, kept.description) == ("1", "before I try something")
        assert await talk.turn("go", {"a": "2"}) == "2"


@pytest.mark.req("O2")
@pytest.mark.parametrize("other", [None, "1"])
@played
async def test_a_diff_is_against_the_files_as_they_are_or_another_checkpoint(
    desk: Desk, other: str | None
) -> None:
    async with desk.started() as talk:
        await talk.turn("change a", {"a": "two\n"})
        if other is None:
            desk.write(a="one\n", late="x")
        found = (await talk.checkpoints.diff("0", other)).changes
    assert found.modified == (() if other is None else (b"a",))
    assert found.added == ((b"late",) if other is None else ())


@pytest.mark.req("O4")
@played
async def test_what_is_left_out_is_reported(desk: Desk) -> None:
    async with desk.started() as talk:
        desk.write(big="x" * 5_000)
        checkpoints = await CheckpointManager.open(
            talk.session, desk.tree, home=desk.home, limits=SnapshotLimits(file_bytes=1_000)
        )
        await checkpoints.keep("now")
        assert [one.path for one in checkpoints.left_out] == [b"big"]


def stored_bytes(folder: Path) -> int:
    """Return the bytes of all entries of the store."""
    with closing(apsw.Connection(f"{folder}/agent.db", flags=apsw.SQLITE_OPEN_READONLY)) as db:
        return int(db.execute("SELECT sum(length(body)) FROM entry").fetchone()[0])  # type: ignore[index]


@pytest.mark.req("O4")
@played
async def test_a_checkpoint_copies_nothing_of_the_conversation(desk: Desk) -> None:
    async with desk.started() as talk:
        for number in range(5):
            await talk.turn(f"say {number} " + "long " * 500)
        entries = len(await talk.session.entries())
        before = stored_bytes(desk.folder)
        for number in range(3):
            await talk.checkpoints.keep(f"{number}")
        assert len(await talk.session.entries()) == entries + 3
        assert stored_bytes(desk.folder) - before < 3 * 1_000  # three entries, and no second history


@pytest.mark.req("O2")
@played
async def test_cleaning_removes_the_snapshots_and_nothing_else(desk: Desk) -> None:
    async with desk.started() as talk:
        await talk.turn("one", {"a": "1\n"})
        seen = await talk.seen()
        folder = talk.checkpoints.repository.folder
        assert await talk.checkpoints.clean() > 1_000
        assert not folder.exists()
        assert (await talk.seen(), desk.files["a"]) == (seen, "1\n")
    async with desk.started() as talk:
        assert await talk.labels() == ["0"]  # a new start: what the old labels named is gone
        assert await talk.turn("two", {"a": "2\n"}) == "1"
        await talk.checkpoints.restore("0")
        assert desk.files["a"] == "1\n"
        assert [entry.user.prompt for entry in (await talk.state()).history] == ["one", None]


@pytest.mark.req("O1")
@played
async def test_checkpoints_are_on_in_a_repository_and_off_elsewhere(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with await SessionManager.open("memory:") as sessions:

        async def opened(tree: Path) -> CheckpointManager | None:
            return await CheckpointManager.open_in_git(await sessions.create(), tree, home=desk.home)

        assert await opened(desk.tree) is None
        assert not desk.home.path.exists()
        inside = desk.tree / "deep" / "er"
        inside.mkdir(parents=True)
        (desk.tree / ".git").mkdir()
        assert await opened(inside) is not None
        linked = desk.folder / "linked"
        linked.symlink_to(inside)
        assert await opened(linked) is not None
        monkeypatch.setenv("HOME", str(desk.tree))
        assert await opened(desk.tree) is None

        def no_git(*_: object, **__: object) -> None:
            raise GitMissing

        monkeypatch.setattr("turnstate.checkpoints.manager.ShadowRepository.open", no_git)
        assert await opened(inside) is None


@pytest.mark.req("O1")
@played
async def test_conversations_and_tenants_have_shadow_repositories_of_their_own(desk: Desk) -> None:
    folders = set()
    for tenant in ("default", "other"):
        desk.id = ""
        async with desk.started(tenant=tenant) as talk:
            folders.add(talk.checkpoints.repository.folder)
    assert len(folders) == 2
    assert all(desk.home.path in folder.parents for folder in folders)


@pytest.mark.req("O1")
@played
async def test_reopening_knows_the_work_tree_and_makes_nothing(desk: Desk) -> None:
    empty = Home(desk.folder / "elsewhere")
    async with desk.started() as talk:
        with pytest.raises(UnknownCheckpoint, match="no checkpoints of"):
            await CheckpointManager.reopen(talk.session, home=empty)
        assert not empty.path.exists()
        again = await CheckpointManager.reopen(talk.session, home=desk.home)
        assert again.repository.work_tree == desk.tree


@pytest.mark.req("O1")
@played
async def test_checkpoints_of_a_state_are_refused_and_nothing_is_made(desk: Desk) -> None:
    (desk.tree / ".git").mkdir()
    async with await SessionManager.open("memory:") as sessions:
        view = await (await sessions.create()).conversation()
        for state in (ConversationState("c"), view):
            for attempt in (CheckpointManager.open, CheckpointManager.open_in_git, CheckpointManager.reopen):
                with pytest.raises(InputError, match="open a session first"):
                    await attempt(state, desk.tree, home=desk.home)  # type: ignore[arg-type]
            for ask in (CheckpointManager.count, CheckpointManager.discard):
                with pytest.raises(InputError, match="open a session first"):
                    await ask(state, home=desk.home)  # type: ignore[arg-type]
    assert not desk.home.path.exists()


@pytest.mark.req("O3", "O4")
@played
async def test_on_a_store_in_memory_checkpoints_need_no_files_of_a_store(desk: Desk) -> None:
    async with await SessionManager.open("memory:") as sessions:
        session = await sessions.create()
        checkpoints = await CheckpointManager.open(session, desk.tree, home=desk.home)
        talk = Talk(desk, session, checkpoints)
        for number in range(2):
            await talk.turn(f"turn {number}", {"a": f"{number}\n"})
        seen, files = await talk.seen(), desk.files
        await checkpoints.restore("1")
        assert [entry.user.prompt for entry in (await talk.state()).history] == ["turn 0", None]
        assert desk.files["a"] == "0\n"
        await checkpoints.undo_restore()
        assert (await talk.seen(), desk.files) == (seen, files)
    assert not (desk.folder / "agent.db").exists()


@pytest.mark.req("O3")
@played
async def test_a_restored_conversation_as_json_has_its_checkpoints(desk: Desk) -> None:
    async with desk.started() as talk:
        for number in range(2):
            await talk.turn(f"turn {number}", {"a": f"{number}\n"})
        await talk.checkpoints.restore("1")
        again = from_json(to_json(await talk.state()))
        assert fields(again) == await talk.seen()
    assert again.checkpoint_manager is not None
    assert [one.label for one in again.checkpoint_manager.checkpoints] == ["0", "1.1", "1"]


@pytest.mark.req("O3")
@pytest.mark.parametrize("second", ["0", "1"])
@played
async def test_an_unfinished_restore_of_another_process_is_waited_for(desk: Desk, second: str) -> None:
    async with desk.started() as talk:
        await talk.turn("one", {"a": "1\n"})
        before = await talk.seen(), desk.files
        async with desk.started() as other:
            ends = await asyncio.gather(
                talk.checkpoints.restore("0"), other.checkpoints.restore(second), return_exceptions=True
            )
        refused = [one for one in ends if isinstance(one, BaseException)]
        assert refused == [] or ("changed since" in str(refused[0]) and second == "1")
        assert (await talk.labels(), desk.files["a"]) == (["0"], "one\n")
        assert not os.path.exists(talk.checkpoints.repository.folder / "intent.json")
        for _ in range(2 - len(refused)):
            await talk.checkpoints.undo_restore()
        assert (await talk.seen(), desk.files) == before
        await talk.check()


@pytest.mark.req("O2", "O3")
@played
async def test_a_long_conversation_is_not_read_to_take_a_checkpoint_and_all_of_it_can_be_restored(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with desk.started() as talk:
        await talk.turn("one", {"a": "1\n"})
        for number in range(3):
            await talk.turn(f"talk {number}")
    few = await rows_of_a_turn(desk, monkeypatch)
    async with desk.started() as talk:
        for number in range(40):
            await talk.turn(f"more talk {number}")
    assert await rows_of_a_turn(desk, monkeypatch) <= few
    async with desk.started() as talk:
        assert await talk.labels() == ["0", "1", "2", "3"]
        seen = await talk.seen()
        await talk.checkpoints.restore("1")
        assert desk.files["a"] == "1\n"
        assert len((await talk.state()).history) == 2
        await talk.checkpoints.undo_restore()
        assert (await talk.seen(), desk.files["b"]) == (seen, str(len(seen["history"])))


async def rows_of_a_turn(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return how many rows one turn that changes a file reads, the window of a request apart."""
    async with desk.started() as talk:
        said = len((await talk.state()).history) + 2
        await talk.session.preview(BUDGET)
        rows = list[int]()
        store = talk.session._writer.log
        for name in ("read", "newest", "find"):
            monkeypatch.setattr(store, name, counted(getattr(store, name), rows))
        await talk.turn("change", {"b": str(said)})
        monkeypatch.undo()
        return sum(rows)


def counted(read: Any, rows: list[int]) -> Any:
    async def reads(*arguments: Any, **options: Any) -> Any:
        found = await read(*arguments, **options)
        rows.append(len(found))
        return found

    return reads


@pytest.mark.req("O3", "O4")
@played
async def test_snapshots_of_the_session_in_the_work_tree_are_neither_kept_nor_touched(desk: Desk) -> None:
    async with desk.started() as talk:
        taken = desk.tree / ".openstarry" / "snapshots" / "s" / "1.json"
        taken.parent.mkdir(parents=True)
        taken.write_text("early")
        assert await talk.turn("write b", {"b": "1"}) == "1"
        taken.write_text("late")
        await talk.checkpoints.restore("0", hard=True)
        assert "b" not in desk.files
        assert taken.read_text() == "late"
