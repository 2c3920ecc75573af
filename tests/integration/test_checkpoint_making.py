"""Where checkpoints are made, what they are called, where they are kept, and how they go away."""

from __future__ import annotations

import asyncio
import os
import shutil
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from tests.harness.state_cap import state_cap
from tests.integration.checkpoint_talk import Desk, played
from turnstate import Message, SessionManager
from turnstate.checkpoints import CheckpointManager, SnapshotLimits
from turnstate.conversation import ConversationState, fields, from_json, to_json
from turnstate.errors import Conflict, GitMissing, UnknownCheckpoint
from turnstate.home import Home


@pytest.mark.req("O2")
@played
async def test_the_start_the_tools_and_the_turns_get_their_labels(desk: Desk) -> None:
    async with desk.started() as talk:
        assert talk.labels == ["0"]
        assert await talk.turn("look around") is None
        assert await talk.turn("add b and c", {"b": "1"}, {"c": "1"}) == "1"
        assert await talk.turn("again nothing", {}) is None
        assert await talk.turn("drop b", {"b": None}) == "2"
        turn = talk.checkpoints.expand("1")
        assert [(one.label, one.tool, one.added) for one in turn.tools] == [
            ("1.1", "write", 1),
            ("1.2", "write", 1),
        ]
        assert [(one.label, one.deleted) for one in talk.checkpoints.expand("2").tools] == [("2.1", 1)]
        await talk.check()
        with pytest.raises(UnknownCheckpoint, match=r"no turn 1\.1"):
            talk.checkpoints.expand("1.1")


@pytest.mark.req("O2")
@played
async def test_a_turn_under_way_is_in_progress_and_is_called_by_its_number(desk: Desk) -> None:
    async with desk.started() as talk:
        talk.state.set_next_user_message("go")
        assert await talk.tool(a="two\n") == "1.1"
        assert await talk.tool(a="three\n") == "1.2"
        *_, turn = talk.checkpoints.turns()
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
        talk.state.set_next_user_message("go")
        call = talk.call()
        desk.write(a="two\n")
        talk.answer(call)
        await talk.session.commit(talk.state)
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
        talk.state.set_next_user_message("go")
        assert await talk.tool(a="two\n") == "1.1"
        talk.state.set_next_user_message("stop, do this")  # instead of waiting for the answer
        assert talk.checkpoints.numbers.next_tool == "2.1"
        assert await talk.tool(a="three\n") == "2.1"
        await talk.session.commit(talk.state)
    async with desk.started() as talk:  # the process died in the middle of the second turn
        assert await talk.tool(a="four\n") == "2.2"
        assert await talk.turn("and that", {"b": "1"}) == "3"
        assert [(turn.label, turn.description) for turn in talk.checkpoints.turns()] == [
            ("0", "the start"),
            ("1", "interrupted"),
            ("2", "interrupted"),
            ("3", "and that"),
        ]
        await talk.checkpoints.restore("1")
        assert desk.files["a"] == "two\n"
        assert talk.state.messages[-1].tool_results
        assert await talk.tool(a="five\n") == "1.2"


@pytest.mark.req("O2", "I1")
@played
async def test_a_state_knows_its_checkpoints_from_the_log_and_the_live_manager_is_attached(
    desk: Desk,
) -> None:
    async with desk.started() as talk:
        assert talk.state.checkpoints is talk.checkpoints
        await talk.turn("go", {"a": "2"})
        loaded = await talk.session.conversation()
        assert loaded.checkpoints is None
        assert loaded.checkpoint_manager == talk.state.checkpoint_manager
        assert loaded.checkpoint_manager is not None
        assert loaded.checkpoint_manager.work_tree == str(desk.tree.resolve())
        assert [one.label for one in loaded.checkpoint_manager.checkpoints] == ["0", "1.1", "1"]
        await talk.checkpoints.restore("0")
        assert talk.state.checkpoint_manager is not None
        assert [one.label for one in talk.state.checkpoint_manager.checkpoints] == ["0"]
        assert talk.state.checkpoints is talk.checkpoints
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
            talk.state,
            desk.tree,
            session=talk.session,
            home=desk.home,
            limits=SnapshotLimits(file_bytes=1_000),
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
        entries = len(talk.state.head.entries)
        before = stored_bytes(desk.folder)
        for number in range(3):
            await talk.checkpoints.keep(f"{number}")
        assert len(talk.state.head.entries) == entries + 3
        assert stored_bytes(desk.folder) - before < 3 * 1_000  # three entries, and no second history


@pytest.mark.req("O2")
@played
async def test_cleaning_removes_the_snapshots_and_nothing_else(desk: Desk) -> None:
    async with desk.started() as talk:
        await talk.turn("one", {"a": "1\n"})
        seen = talk.seen
        folder = talk.checkpoints.repository.folder
        assert await talk.checkpoints.clean() > 1_000
        assert not folder.exists()
        assert (talk.seen, desk.files["a"]) == (seen, "1\n")
    async with desk.started() as talk:
        assert talk.labels == ["0"]  # a new start: what the old labels named is gone
        assert await talk.turn("two", {"a": "2\n"}) == "1"
        await talk.checkpoints.restore("0")
        assert desk.files["a"] == "1\n"
        assert [entry.user.prompt for entry in talk.state.history] == ["one", None]


@pytest.mark.req("O1")
@played
async def test_checkpoints_are_on_in_a_repository_and_off_elsewhere(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, home = ConversationState("c"), desk.home
    assert await CheckpointManager.open_in_git(state, desk.tree, home=home) is None
    assert not home.path.exists()
    inside = desk.tree / "deep" / "er"
    inside.mkdir(parents=True)
    (desk.tree / ".git").mkdir()
    assert await CheckpointManager.open_in_git(state, inside, home=home) is not None
    linked = desk.folder / "linked"
    linked.symlink_to(inside)
    assert await CheckpointManager.open_in_git(ConversationState("d"), linked, home=home) is not None
    monkeypatch.setenv("HOME", str(desk.tree))
    assert await CheckpointManager.open_in_git(ConversationState("e"), desk.tree, home=home) is None

    def no_git(*_: object, **__: object) -> None:
        raise GitMissing

    monkeypatch.setattr("turnstate.checkpoints.manager.ShadowRepository.open", no_git)
    assert await CheckpointManager.open_in_git(ConversationState("f"), inside, home=home) is None


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
            await CheckpointManager.reopen(talk.state, session=talk.session, home=empty)
        assert not empty.path.exists()
        again = await CheckpointManager.reopen(talk.state, session=talk.session, home=desk.home)
        assert again.repository.work_tree == desk.tree


@pytest.mark.req("O3", "O4")
@played
async def test_without_a_session_the_conversation_lives_in_json(desk: Desk) -> None:
    state = ConversationState("c")
    checkpoints = await CheckpointManager.open(state, desk.tree, home=desk.home)
    for number in range(2):
        state.set_next_user_message(f"turn {number}")
        desk.write(a=f"{number}\n")
        await checkpoints.tool_finished("write")
        state.push_assistant_message(Message.assistant("done"))
        await checkpoints.turn_finished(f"turn {number}")
    seen, files = fields(state), desk.files
    await checkpoints.restore("1")
    assert [entry.user.prompt for entry in state.history] == ["turn 0"]
    assert desk.files["a"] == "0\n"
    again = from_json(to_json(state))
    assert to_json(again) == to_json(state)
    checkpoints = await CheckpointManager.open(again, desk.tree, home=desk.home)
    await checkpoints.undo_restore()
    assert (fields(again), desk.files) == (seen, files)


@pytest.mark.req("O3")
@played
async def test_a_restored_conversation_moves_from_json_into_a_session(desk: Desk) -> None:
    async with desk.started() as talk:
        await talk.turn("one", {"a": "1\n"})
        state = ConversationState("moved")
        shutil.rmtree(desk.home.path)
        checkpoints = await CheckpointManager.open(state, desk.tree, home=desk.home)
        for number in range(2):
            state.set_next_user_message(f"turn {number}")
            state.push_assistant_message(Message.assistant("done"))
            await checkpoints.keep(f"{number}")
        await checkpoints.restore("1")
        async with await SessionManager.open(desk.url) as sessions:
            session = await sessions.create(id="moved")
            moved = from_json(to_json(state))
            await session.commit(moved)
            assert fields(await session.conversation()) == fields(state)
            assert await session.undo() == "restore"
            assert len((await session.conversation()).history) == 2


@pytest.mark.req("O3")
@played
async def test_an_unfinished_restore_of_another_process_is_waited_for(desk: Desk) -> None:
    async with desk.started() as talk:
        await talk.turn("one", {"a": "1\n"})
        async with desk.started() as other:
            first, second = await asyncio.gather(
                talk.checkpoints.restore("0"), other.checkpoints.restore("0"), return_exceptions=True
            )
        assert [type(one) for one in (first, second)].count(Conflict) == 1
        assert desk.files["a"] == "one\n"
        assert not os.path.exists(talk.checkpoints.repository.folder / "intent.json")


@pytest.mark.req("O2", "O3")
@state_cap(2)
@played
async def test_numbers_go_on_in_a_conversation_that_is_not_loaded_whole(desk: Desk) -> None:
    async with desk.started() as talk:
        await talk.turn("one", {"a": "1\n"})
        await talk.turn("two", {"a": "2\n"})
        for number in range(6):
            await talk.turn(f"talk {number}")
    async with desk.started() as talk:
        assert talk.state.head.first > 1
        assert talk.labels == ["2"]
        assert await talk.turn("three", {"a": "3\n"}) == "3"
        with pytest.raises(UnknownCheckpoint, match="before the loaded part of the conversation"):
            await talk.checkpoints.restore("2")
        await talk.checkpoints.restore("2", conversation=False)
        assert desk.files["a"] == "2\n"
        seen = talk.seen
        await talk.turn("four", {"a": "4\n"})
    async with desk.started() as talk:
        await talk.checkpoints.restore("3")
        assert talk.seen["transcript"][-1] == seen["transcript"][-1]
        assert desk.files["a"] == "3\n"
        await talk.checkpoints.undo_restore()
        assert desk.files["a"] == "4\n"
        await talk.check()


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
