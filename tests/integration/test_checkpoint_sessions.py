"""Files and conversation go back together: to a tool, a turn, over a compaction, a tangent, a new process."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.checkpoint_talk import Desk, Talk, played
from turnstate.context.cut import Strategy
from turnstate.errors import CheckpointError, UnknownCheckpoint


@pytest.mark.req("O3")
@pytest.mark.parametrize("hard", [False, True])
@pytest.mark.parametrize("anew", [False, True])
@played
async def test_a_turn_comes_back_with_files_history_and_numbers(desk: Desk, hard: bool, anew: bool) -> None:
    async with desk.started() as talk:
        await talk.turn("one", {"a": "two\n"}, {"b": "1"})
        await talk.session.note("a notice")
        files, seen, numbers = desk.files, await talk.seen(), await talk.checkpoints.numbers()
        await talk.turn("two", {"a": None}, {"new": "1"})
        await talk.turn("three", {"b": "2"})
        if not anew:
            await check_back(talk, "1", files, seen, hard=hard)
            assert await talk.checkpoints.numbers() == numbers
    if anew:
        async with desk.started() as talk:
            await check_back(talk, "1", files, seen, hard=hard)
            assert await talk.checkpoints.numbers() == numbers
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
    assert await talk.seen() == expected
    await talk.check()


@pytest.mark.req("O3")
@pytest.mark.parametrize("anew", [False, True])
@played
async def test_a_tool_comes_back_with_its_result(desk: Desk, anew: bool) -> None:
    async with desk.started() as talk:
        await talk.turn("first", {"a": "two\n"})
        await talk.say("go")
        assert await talk.tool(b="1") == "2.1"
        seen, files = await talk.seen(), desk.files
        assert await talk.tool(b="2") == "2.2"
        await talk.reply()
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
        await talk.say("go")
        first, second, third = await talk.calls("read", "write", "write")
        assert await talk.checkpoints.tool_finished("read", call=first.id) is None
        desk.write(a="two\n")
        await talk.checkpoints.tool_finished("write", call=second.id)
        seen, files = await talk.seen(), desk.files
        desk.write(a="three\n")
        await talk.checkpoints.tool_finished("write", call=third.id)
        await talk.answer(first, second, third)
        await talk.reply()
        await talk.checkpoints.turn_finished("go")
        if not anew:
            await check_answers(talk, await talk.checkpoints.restore("1.1"), seen, files)
            await talk.check()
    if anew:
        async with desk.started() as talk:
            await check_answers(talk, await talk.checkpoints.restore("1.1"), seen, files)
            await talk.check()


async def check_answers(talk: Talk, went: object, seen: dict[str, Any], files: dict[str, str]) -> None:
    assert went is not None
    assert talk.desk.files == files
    told = await talk.seen()
    answers = [one for message in told.pop("next_message") for one in message["tool_results"]]
    assert [(one["result"][:10], one.get("is_error", False)) for one in answers] == [
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
        await talk.say("go")
        await talk.call("write")
        desk.write(a="two\n")
        await talk.checkpoints.tool_finished("write")
        await talk.checkpoints.restore("1.1")
        (result,) = (await talk.session.messages(last=1))[0].tool_results
        assert not result.is_error
        await talk.check()


@pytest.mark.req("O3")
@pytest.mark.parametrize("anew", [False, True])
@played
async def test_a_compaction_is_gone_before_it_and_there_after_it(desk: Desk, anew: bool) -> None:
    async with desk.started() as talk:
        for number in range(4):
            await talk.turn(f"turn {number}", {"a": f"{number}\n"})
        before, before_files = await talk.seen(), desk.files
        await talk.session.compact(strategy=Strategy(keep=1))
        await talk.turn("after the compaction", {"a": "5\n"})
        after, after_files = await talk.seen(), desk.files
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
        seen, files = await talk.seen(), desk.files
        await talk.turn("two", {"a": "2\n"})
        await talk.checkpoints.enter_tangent()
        await talk.turn("aside", {"a": "3\n"})
        aside, aside_files = await talk.seen(), desk.files
        if not anew:
            await check_back(talk, "1", files, seen)
    async with desk.started() as talk:
        if anew:
            await check_back(talk, "1", files, seen)
        assert not await talk.is_aside()
        assert await talk.session.tangents() == []
        await talk.checkpoints.undo_restore()
        assert await talk.is_aside()
        assert (await talk.seen(), desk.files) == (aside, aside_files)
        await talk.check()


@pytest.mark.req("O3", "J4")
@pytest.mark.parametrize("anew", [False, True])
@played
async def test_a_moment_of_a_tangent_comes_back_in_it(desk: Desk, anew: bool) -> None:
    async with desk.started() as talk:
        await talk.turn("one", {"a": "1\n"})
        main, main_files = await talk.seen(), desk.files
        await talk.checkpoints.enter_tangent()
        await talk.turn("aside", {"a": "2\n"})
        seen, files = await talk.seen(), desk.files
        await talk.turn("further", {"a": "3\n"})
        if not anew:
            await check_back(talk, "2", files, seen | {"tangent_state": (await talk.seen())["tangent_state"]})
    async with desk.started() as talk:
        if anew:
            await check_back(talk, "2", files, seen)
        assert await talk.is_aside()
        assert await talk.session.tangents() == []
        await talk.checkpoints.restore("1")  # from the restored tangent to the main conversation
        assert not await talk.is_aside()
        assert (await talk.seen(), desk.files) == (main, main_files)
        await talk.check()
        await talk.checkpoints.undo_restore()
        await talk.checkpoints.leave_tangent()
        assert (await talk.seen(), desk.files) == (main, main_files)
        kept = await talk.session.tangents()
        assert [one.opening for one in kept] == ["aside"]
        assert (await talk.state()).kept_tangents() == kept


@pytest.mark.req("O3", "O4")
@played
async def test_the_beginning_of_a_tangent_has_a_label(desk: Desk) -> None:
    async with desk.started() as talk:
        await talk.checkpoints.enter_tangent()
        await talk.turn("aside", {"a": "2\n"})
        assert await talk.labels() == ["0", "tangent", "1"]
        await talk.checkpoints.restore("tangent")
        assert await talk.is_aside()
        assert (await talk.state()).history == []
        assert desk.files["a"] == "one\n"
        await talk.check()


@pytest.mark.req("O2")
@pytest.mark.parametrize("what", ["files", "conversation"])
@played
async def test_files_or_the_conversation_can_be_restored_alone(desk: Desk, what: str) -> None:
    async with desk.started() as talk:
        await talk.turn("one", {"a": "1\n"})
        early, early_files = await talk.seen(), desk.files
        await talk.turn("two", {"a": "2\n"})
        late, late_files = await talk.seen(), desk.files
        await talk.checkpoints.restore("1", files=what == "files", conversation=what == "conversation")
        assert desk.files == (early_files if what == "files" else late_files)
        assert await talk.seen() == (early if what == "conversation" else late)
        await talk.check()
    async with desk.started() as talk:
        await talk.checkpoints.undo_restore()
        assert (await talk.seen(), desk.files) == (late, late_files)
        await talk.check()
        with pytest.raises(UnknownCheckpoint, match="no restore on this path"):
            await talk.checkpoints.undo_restore()


@pytest.mark.req("O2")
@played
async def test_restoring_nothing_is_refused(desk: Desk) -> None:
    async with desk.started() as talk:
        with pytest.raises(CheckpointError, match="nothing to restore"):
            await talk.checkpoints.restore("0", files=False, conversation=False)
        with pytest.raises(UnknownCheckpoint, match="no checkpoint 7"):
            await talk.checkpoints.restore("7")


@pytest.mark.req("J4")
@pytest.mark.parametrize("bring", ["nothing", "tail", "summary"])
@played
async def test_files_that_a_tangent_changed_are_put_back_on_the_way_out(desk: Desk, bring: Any) -> None:
    async with desk.started() as talk:
        await talk.turn("one", {"a": "1\n"})
        files, main = desk.files, await talk.seen()
        name = await talk.checkpoints.enter_tangent()
        await talk.turn("aside", {"a": "2\n", "new": "x"})
        desk.write(a="3\n", users="x")
        left = desk.files
        await talk.checkpoints.leave_tangent(bring)
        assert desk.files == files | {"users": "x"}
        assert not await talk.is_aside()
        assert (await talk.seen() == main) == (bring == "nothing")
        await talk.check()
        await talk.session.reopen_tangent(name)
    async with desk.started() as talk:
        assert await talk.labels() == ["0", "1", "tangent", "2", "3"]
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
