"""Files and conversation go back together: to a tool, a turn, over a compaction, a tangent, a new process."""

from __future__ import annotations

import asyncio
import functools
import os
import shutil
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from checkpoint_talk import Desk, Talk

from holdfast import Message
from holdfast.checkpoints import Limits
from holdfast.checkpoints.manager import CheckpointManager
from holdfast.context.compaction import Strategy
from holdfast.conversation import ConversationState, fields, from_json, to_json
from holdfast.errors import CheckpointError, Conflict, GitMissing, RestoreFailed, UnknownCheckpoint
from holdfast.home import Home

Scene = Callable[..., Awaitable[None]]


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """A desk in memory, where that can be had: what the disk does is not asked here."""
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if memory.is_dir() else tmp_path, prefix="holdfast-") as folder:
        desk = Desk(Path(folder))
        desk.write(a="one\n", mine="user's\n")
        yield desk


def played(scene: Scene) -> Callable[..., None]:
    """Make a coroutine that is given a desk a test that pytest runs."""

    @functools.wraps(scene)
    def play(desk: Desk, **others: Any) -> None:
        asyncio.run(scene(desk, **others))

    return play


# Where checkpoints are made.


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
            talk.state, desk.tree, session=talk.session, home=desk.home, limits=Limits(file_bytes=1_000)
        )
        await checkpoints.keep("now")
        assert [one.path for one in checkpoints.left_out] == [b"big"]


@pytest.mark.req("O4")
@played
async def test_a_checkpoint_copies_nothing_of_the_conversation(desk: Desk) -> None:
    async with desk.started() as talk:
        for number in range(5):
            await talk.turn(f"say {number} " + "long " * 500)
        entries = len(talk.state.head.entries)
        before = desk.folder.joinpath("agent.db-wal").stat().st_size
        for number in range(3):
            await talk.checkpoints.keep(f"{number}")
        assert len(talk.state.head.entries) == entries + 3
        grown = desk.folder.joinpath("agent.db-wal").stat().st_size - before
        assert grown < 3 * 40_000  # pages of the log's file, and no second history


# Going back.


@pytest.mark.req("O3")
@pytest.mark.parametrize("hard", [False, True])
@pytest.mark.parametrize("anew", [False, True])
@played
async def test_a_turn_comes_back_with_files_history_and_numbers(desk: Desk, hard: bool, anew: bool) -> None:
    async with desk.started() as talk:
        await talk.turn("one", {"a": "two\n"}, {"b": "1"})
        talk.state.append_transcript("a notice")
        await talk.session.commit(talk.state)
        files, seen, numbers = desk.files, talk.seen, talk.checkpoints.numbers
        await talk.turn("two", {"a": None}, {"new": "1"})
        await talk.turn("three", {"b": "2"})
        if not anew:
            await check_back(talk, "1", files, seen, hard=hard)
            assert talk.checkpoints.numbers == numbers
    if anew:
        async with desk.started() as talk:
            await check_back(talk, "1", files, seen, hard=hard)
            assert talk.checkpoints.numbers == numbers
            assert await talk.turn("on", {"x": "1"}) == "2"
            await talk.check()


async def check_back(
    talk: Talk, label: str, files: dict[str, str], seen: dict[str, Any], *, hard: bool = True
) -> None:
    """Restore, and see that everything is as it was at that moment: a notice after it is gone, too."""
    went = await talk.checkpoints.restore(label, hard=hard)
    assert went.files is not None
    assert went.files.kept == ()
    soft = {} if hard else {"new": "1"}
    assert talk.desk.files == files | soft
    expected = seen | {"transcript": [line for line in seen["transcript"] if line != "a notice"]}
    assert talk.seen == expected
    await talk.check()


@pytest.mark.req("O3")
@pytest.mark.parametrize("anew", [False, True])
@played
async def test_a_tool_comes_back_with_its_result(desk: Desk, anew: bool) -> None:
    async with desk.started() as talk:
        await talk.turn("first", {"a": "two\n"})
        talk.state.set_next_user_message("go")
        assert await talk.tool(b="1") == "2.1"
        seen, files = talk.seen, desk.files
        assert await talk.tool(b="2") == "2.2"
        talk.state.push_assistant_message(Message.assistant("done"))
        await talk.checkpoints.turn_finished("go")
        if not anew:
            await check_back(talk, "2.1", files, seen)
    if anew:
        async with desk.started() as talk:
            await check_back(talk, "2.1", files, seen)
            assert await talk.tool(c="3") == "2.2"
            await talk.check()


@pytest.mark.req("O3")
@pytest.mark.parametrize("anew", [False, True])
@played
async def test_a_tool_that_ran_is_not_reported_as_cancelled(desk: Desk, anew: bool) -> None:
    async with desk.started() as talk:
        talk.state.set_next_user_message("go")
        third = talk.call("read", "write", "write")
        first, second = talk.state.head.open_calls[:2]
        assert await talk.checkpoints.tool_finished("read", call=first.id) is None
        desk.write(a="two\n")
        await talk.checkpoints.tool_finished("write", call=second.id)
        seen, files = talk.seen, desk.files
        desk.write(a="three\n")
        await talk.checkpoints.tool_finished("write", call=third.id)
        for call in (first, second, third):
            talk.answer(call)
        talk.state.push_assistant_message(Message.assistant("done"))
        await talk.checkpoints.turn_finished("go")
        if not anew:
            check_answers(talk, await talk.checkpoints.restore("1.1"), seen, files)
            await talk.check()
    if anew:
        async with desk.started() as talk:
            check_answers(talk, await talk.checkpoints.restore("1.1"), seen, files)
            await talk.check()


def check_answers(talk: Talk, went: object, seen: dict[str, Any], files: dict[str, str]) -> None:
    assert went is not None
    assert talk.desk.files == files
    told = talk.seen
    *_, answers = told.pop("next_message")
    assert [(one["result"][:10], one.get("is_error", False)) for one in answers["tool_results"]] == [
        ("[The tool ", False),
        ("[The tool ", False),
        ("[No result", True),
    ]
    assert "cancelled" not in str(answers)
    assert told == {name: value for name, value in seen.items() if name != "next_message"}


@pytest.mark.req("O3")
@played
async def test_a_call_that_is_not_named_is_known_by_its_tool(desk: Desk) -> None:
    async with desk.started() as talk:
        talk.state.set_next_user_message("go")
        talk.call("write")
        desk.write(a="two\n")
        await talk.checkpoints.tool_finished("write")
        await talk.checkpoints.restore("1.1")
        (result,) = talk.state.messages[-1].tool_results
        assert not result.is_error
        await talk.check()


@pytest.mark.req("O3")
@pytest.mark.parametrize("anew", [False, True])
@played
async def test_a_compaction_is_gone_before_it_and_there_after_it(desk: Desk, anew: bool) -> None:
    async with desk.started() as talk:
        for number in range(4):
            await talk.turn(f"turn {number}", {"a": f"{number}\n"})
        before, before_files = talk.seen, desk.files
        plan = talk.state.plan_compaction(Strategy(keep=1))
        assert plan is not None
        talk.state.compact(plan, "a summary of the first turns")
        await talk.turn("after the compaction", {"a": "5\n"})
        after, after_files = talk.seen, desk.files
        assert after["latest_summary"]
        assert after["valid_history_range"] != before["valid_history_range"]
        await talk.turn("more", {"a": "6\n"})
        if not anew:
            await check_back(talk, "4", before_files, before)
            await talk.checkpoints.undo_restore()
            await check_back(talk, "5", after_files, after)
    if anew:
        async with desk.started() as talk:
            await check_back(talk, "4", before_files, before)
        async with desk.started() as talk:
            await talk.checkpoints.undo_restore()
            await check_back(talk, "5", after_files, after)


@pytest.mark.req("O3", "J4")
@pytest.mark.parametrize("anew", [False, True])
@played
async def test_a_moment_of_the_main_conversation_comes_back_in_a_tangent(desk: Desk, anew: bool) -> None:
    async with desk.started() as talk:
        await talk.turn("one", {"a": "1\n"})
        seen, files = talk.seen, desk.files
        await talk.turn("two", {"a": "2\n"})
        await talk.checkpoints.enter_tangent()
        await talk.turn("aside", {"a": "3\n"})
        aside, aside_files = talk.seen, desk.files
        if not anew:
            await check_back(talk, "1", files, seen)
    async with desk.started() as talk:
        if anew:
            await check_back(talk, "1", files, seen)
        assert not talk.state.is_in_tangent_mode()
        assert talk.state.kept_tangents() == []
        await talk.checkpoints.undo_restore()
        assert talk.state.is_in_tangent_mode()
        assert (talk.seen, desk.files) == (aside, aside_files)
        await talk.check()


@pytest.mark.req("O3", "J4")
@pytest.mark.parametrize("anew", [False, True])
@played
async def test_a_moment_of_a_tangent_comes_back_in_it(desk: Desk, anew: bool) -> None:
    async with desk.started() as talk:
        await talk.turn("one", {"a": "1\n"})
        main, main_files = talk.seen, desk.files
        await talk.checkpoints.enter_tangent()
        await talk.turn("aside", {"a": "2\n"})
        seen, files = talk.seen, desk.files
        await talk.turn("further", {"a": "3\n"})
        if not anew:
            await check_back(talk, "2", files, seen | {"tangent_state": talk.seen["tangent_state"]})
    async with desk.started() as talk:
        if anew:
            await check_back(talk, "2", files, seen)
        assert talk.state.is_in_tangent_mode()
        assert talk.state.kept_tangents() == []
        await talk.checkpoints.restore("1")  # from the restored tangent to the main conversation
        assert not talk.state.is_in_tangent_mode()
        assert (talk.seen, desk.files) == (main, main_files)
        await talk.check()
        await talk.checkpoints.undo_restore()
        await talk.checkpoints.leave_tangent()
        assert (talk.seen, desk.files) == (main, main_files)
        kept = talk.state.kept_tangents()
        assert [(one.opening, one.exchanges) for one in kept] == [("aside", 2)]
        assert (await talk.session.conversation()).kept_tangents() == kept


@pytest.mark.req("O3", "O4")
@played
async def test_the_beginning_of_a_tangent_has_a_label(desk: Desk) -> None:
    async with desk.started() as talk:
        await talk.checkpoints.enter_tangent()
        await talk.turn("aside", {"a": "2\n"})
        assert talk.labels == ["0", "tangent", "1"]
        await talk.checkpoints.restore("tangent")
        assert talk.state.is_in_tangent_mode()
        assert talk.state.history == []
        assert desk.files["a"] == "one\n"
        await talk.check()


@pytest.mark.req("O2")
@pytest.mark.parametrize("what", ["files", "conversation"])
@played
async def test_files_or_the_conversation_can_be_restored_alone(desk: Desk, what: str) -> None:
    async with desk.started() as talk:
        await talk.turn("one", {"a": "1\n"})
        early, early_files = talk.seen, desk.files
        await talk.turn("two", {"a": "2\n"})
        late, late_files = talk.seen, desk.files
        await talk.checkpoints.restore("1", files=what == "files", conversation=what == "conversation")
        assert desk.files == (early_files if what == "files" else late_files)
        assert talk.seen == (early if what == "conversation" else late)
        await talk.check()
    async with desk.started() as talk:
        await talk.checkpoints.undo_restore()
        assert (talk.seen, desk.files) == (late, late_files)
        await talk.check()
        with pytest.raises(UnknownCheckpoint, match="nothing was restored"):
            await talk.checkpoints.undo_restore()


@pytest.mark.req("O2")
@played
async def test_restoring_nothing_is_refused(desk: Desk) -> None:
    async with desk.started() as talk:
        with pytest.raises(CheckpointError, match="say what to restore"):
            await talk.checkpoints.restore("0", files=False, conversation=False)
        with pytest.raises(UnknownCheckpoint, match="no checkpoint 7"):
            await talk.checkpoints.restore("7")


# And forth again.


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
        moments.append((talk.seen, desk.files))
        await talk.checkpoints.restore("2", hard=hard)
        desk.write(mine="edited again")
        moments.append((talk.seen, desk.files))
        await talk.checkpoints.restore("1.1", hard=hard)
        if not anew:
            for _ in range(2):
                await talk.checkpoints.undo_restore()
                assert (talk.seen, desk.files) == moments.pop()
                await talk.check()
    while moments:
        async with desk.started() as talk:
            await talk.checkpoints.undo_restore()
            assert (talk.seen, desk.files) == moments.pop()
            await talk.check()
    async with desk.started() as talk:
        with pytest.raises(UnknownCheckpoint, match="nothing was restored"):
            await talk.checkpoints.undo_restore()
        assert talk.labels == ["0", "1", "2", "3"]


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
        seen, files = talk.seen, desk.files
        await talk.checkpoints.restore("1")
        await talk.turn("other", {"a": "other\n"})
        if since == "a compaction":
            plan = talk.state.plan_compaction(Strategy(keep=1))
            assert plan is not None
            talk.state.compact(plan)
        if since == "a clearing":
            talk.state.clear()
        if since == "a tangent":
            await talk.checkpoints.enter_tangent()
            await talk.turn("aside")
        await talk.session.commit(talk.state)
        await talk.checkpoints.undo_restore()
        assert (talk.seen, desk.files) == (seen, files)
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
    from holdfast.checkpoints import restoring

    async with desk.started() as talk:
        await talk.turn("one", {"a": "1\n"})
        seen, files = talk.seen, desk.files

        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(restoring._Work, "_write", full)
            with pytest.raises(RestoreFailed):
                await talk.checkpoints.restore("0")
        assert (talk.seen, desk.files) == (seen, files)
        await talk.check()
    async with desk.started() as talk:
        assert talk.checkpoints.recovered is None
        assert (talk.seen, desk.files) == (seen, files)
        await talk.checkpoints.restore("0")
        assert desk.files["a"] == "one\n"


@pytest.mark.req("O3")
@played
async def test_where_the_log_refuses_the_files_are_put_back(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with desk.started() as talk:
        await talk.turn("one", {"a": "1\n"})
        seen, files = talk.seen, desk.files
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
        with pytest.raises(Conflict):
            await talk.checkpoints.restore("0")
        assert (talk.seen, desk.files) == (seen, files)
    async with desk.started() as talk:
        assert talk.checkpoints.recovered is None
        assert talk.state.messages[-1].text == "somebody else"


# Tangents and files.


@pytest.mark.req("J4")
@pytest.mark.parametrize("bring", ["nothing", "tail", "summary"])
@played
async def test_files_that_a_tangent_changed_are_put_back_on_the_way_out(desk: Desk, bring: Any) -> None:
    async with desk.started() as talk:
        await talk.turn("one", {"a": "1\n"})
        files, main = desk.files, talk.seen
        name = await talk.checkpoints.enter_tangent()
        await talk.turn("aside", {"a": "2\n", "new": "x"})
        desk.write(a="3\n", users="x")
        left = desk.files
        await talk.checkpoints.leave_tangent(bring)
        assert desk.files == files | {"users": "x"}
        assert not talk.state.is_in_tangent_mode()
        assert (talk.seen == main) == (bring == "nothing")
        await talk.check()
        talk.state.reopen_tangent(name)
        await talk.session.commit(talk.state)
    async with desk.started() as talk:
        assert talk.labels == ["0", "1", "tangent", "2", "3"]
        await talk.checkpoints.restore("3", conversation=False)
        assert desk.files == left


@pytest.mark.req("J4")
@played
async def test_files_of_a_tangent_stay_where_that_is_wished(desk: Desk) -> None:
    async with desk.started() as talk:
        await talk.checkpoints.enter_tangent()
        await talk.turn("aside", {"a": "2\n"})
        went = await talk.checkpoints.leave_tangent(files=False)
        assert went.files is None
        assert desk.files["a"] == "2\n"
        with pytest.raises(CheckpointError, match="no tangent"):
            await talk.checkpoints.leave_tangent()


@pytest.mark.req("J4")
@played
async def test_nested_tangents_are_left_one_by_one(desk: Desk) -> None:
    async with desk.started() as talk:
        await talk.checkpoints.enter_tangent()
        await talk.turn("outer", {"a": "outer\n"})
        await talk.checkpoints.enter_tangent()
        await talk.turn("inner", {"a": "inner\n"})
        await talk.checkpoints.leave_tangent()
        assert desk.files["a"] == "outer\n"
        await talk.checkpoints.leave_tangent()
        assert desk.files["a"] == "one\n"
        await talk.check()


# Cleaning, and where checkpoints are.


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
    assert await CheckpointManager.open_if_usual(state, desk.tree, home=home) is None
    assert not home.path.exists()
    inside = desk.tree / "deep" / "er"
    inside.mkdir(parents=True)
    (desk.tree / ".git").mkdir()
    assert await CheckpointManager.open_if_usual(state, inside, home=home) is not None
    linked = desk.folder / "linked"
    linked.symlink_to(inside)
    assert await CheckpointManager.open_if_usual(ConversationState("d"), linked, home=home) is not None
    monkeypatch.setenv("HOME", str(desk.tree))
    assert await CheckpointManager.open_if_usual(ConversationState("e"), desk.tree, home=home) is None

    def no_git(*_: object, **__: object) -> None:
        raise GitMissing

    monkeypatch.setattr("holdfast.checkpoints.manager.ShadowRepository.open", no_git)
    assert await CheckpointManager.open_if_usual(ConversationState("f"), inside, home=home) is None


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
        from holdfast import SessionManager

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
@played
async def test_numbers_go_on_in_a_conversation_that_is_not_loaded_whole(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.session.strands.MAX_CONVERSATION_STATE_HISTORY_LEN", 4)
    async with desk.started() as talk:
        await talk.turn("one", {"a": "1\n"})
        await talk.turn("two", {"a": "2\n"})
        for number in range(6):
            await talk.turn(f"talk {number}")
    async with desk.started() as talk:
        assert talk.state.head.first > 1
        assert talk.labels == ["2"]
        assert await talk.turn("three", {"a": "3\n"}) == "3"
        with pytest.raises(UnknownCheckpoint, match="before the part of the conversation that is loaded"):
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


# The line tracker goes along.


def agent_writes(talk: Talk, text: str) -> None:
    """Write as a tool does that tells the tracker."""
    lines = talk.checkpoints.lines
    lines.before_write("a", creates=True)
    talk.desk.write(a=text)
    lines.created("a", text)
    lines.reported("a")


async def agent_turn(talk: Talk, text: str) -> None:
    talk.state.set_next_user_message(f"write {text}")
    call = talk.call()
    agent_writes(talk, text)
    talk.answer(call)
    await talk.checkpoints.tool_finished("write", call=call.id)
    talk.state.push_assistant_message(Message.assistant("done"))
    await talk.checkpoints.turn_finished(text)


@pytest.mark.req("N3")
@pytest.mark.parametrize("what", ["both", "files", "conversation", "undone", "left"])
@pytest.mark.parametrize("anew", [False, True])
@played
async def test_going_back_makes_no_lines_the_users(desk: Desk, what: str, anew: bool) -> None:
    async with desk.started() as talk:
        await agent_turn(talk, "1\n")
        if what == "left":
            await talk.checkpoints.enter_tangent()
        await agent_turn(talk, "1\n2\n3\n")
        if what == "left":
            await talk.checkpoints.leave_tangent(files=False)
        else:
            files, conversation = what != "conversation", what != "files"
            await talk.checkpoints.restore("1", files=files, conversation=conversation)
        if what == "undone":
            await talk.checkpoints.undo_restore()
        if not anew:
            check_lines(talk)
    if anew:
        async with desk.started() as talk:
            check_lines(talk)


def check_lines(talk: Talk) -> None:
    assert talk.checkpoints.lines.before_write("a", creates=False) is None
    (known,) = talk.state.file_line_tracker.values()
    assert known.lines_by_user == 0
    assert [change.by for change in known.history if change.by == "user"] == []


@pytest.mark.req("N2", "N3")
@pytest.mark.parametrize("what", ["both", "conversation"])
@played
async def test_what_the_user_had_changed_is_told_after_going_back(desk: Desk, what: str) -> None:
    async with desk.started() as talk:
        await agent_turn(talk, "1\n")
        desk.write(a="1\nthe user's\n")
        await talk.checkpoints.keep("with the user's line")
        if what == "both":
            talk.checkpoints.lines.read("a")
            await agent_turn(talk, "1\n2\n")
        await talk.checkpoints.restore("2", files=what == "both")
        conflict = talk.checkpoints.lines.before_write("a", creates=True)
        assert conflict is not None
        assert conflict.lines == 1
