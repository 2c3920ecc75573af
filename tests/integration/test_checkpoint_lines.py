"""The line tracker stays true when files and conversation go back."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.checkpoint_talk import Desk, Talk, played
from turnstate import Message
from turnstate.checkpoints.questions import newest_restore


def agent_writes(talk: Talk, text: str) -> None:
    """Write as a tool does that tells the tracker."""
    lines = talk.checkpoints.lines
    lines.before_write("a", creates=True)
    talk.desk.write(a=text)
    lines.created("a", text)
    lines.reported("a")


async def agent_turn(talk: Talk, text: str) -> None:
    await talk.say(f"write {text}")
    call = await talk.call()
    agent_writes(talk, text)
    await talk.answer(call)
    await talk.checkpoints.tool_finished("write", call=call.id)
    await talk.reply()
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
            await check_lines(talk)
    if anew:
        async with desk.started() as talk:
            await check_lines(talk)


async def check_lines(talk: Talk) -> None:
    assert talk.checkpoints.lines.before_write("a", creates=False) is None
    (known,) = (await talk.state()).file_line_tracker.values()
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


@pytest.mark.req("N3", "O3")
@played
async def test_an_undo_is_done_though_somebody_goes_on_before_the_lines_are_noted(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with desk.started() as talk:
        await agent_turn(talk, "1\n")
        await agent_turn(talk, "1\n2\n3\n")
        desk.write(a="the user's\n")
        await talk.checkpoints.restore("1", files=False)
        agent_writes(talk, "another way\n")
        await talk.checkpoints.tracked.record()
        store, written = talk.session._writer.store, list[object]()
        really = store.commit

        async def commit(change: Any) -> Any:
            if len(written) == 1:
                async with desk.somebody_else() as session:
                    await session.append(Message.user("meanwhile"))
            written.append(change)
            return await really(change)

        monkeypatch.setattr(store, "commit", commit)
        await talk.checkpoints.undo_restore()
        assert len(written) == 3  # the undo, and the lines again behind the other's words
        assert talk.checkpoints.lines.unrecorded == {}
    async with desk.started() as talk:
        assert talk.checkpoints.recovered is None
        assert (await talk.session.messages(last=1))[0].text == "meanwhile"
        assert await talk.labels() == ["0", "1", "2"]
        assert await talk.session.ask(newest_restore()) is None
