"""A state that others overtook catches up: it is then what a loaded one is, with what it had not written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.session.session_fixtures import Harness, run
from tests.unit.session.state_fixtures import BUDGET, elsewhere, plain, reloaded, said
from turnstate import Message, ToolCallRequest, ToolCallResult
from turnstate.conversation import ConversationState, FileLineTracker
from turnstate.entry import Checkpoint, Note
from turnstate.errors import Conflict

ON_DISK = True


def checkpoint(label: str) -> Checkpoint:
    return Checkpoint(label=label, commit="0" * 40, description=label, at=1)


@run
async def test_a_state_follows_what_a_turn_appends(harness: Harness) -> None:
    session = await (await harness.manager()).create(system="You help.")
    state = await session.conversation()
    for number in range(3):
        async with session.turn(f"question {number}", budget=BUDGET) as turn:
            await turn.window()
            (call,) = await turn.reply(Message.assistant(tool_calls=[ToolCallRequest(name="look", args={})]))
            await turn.started([call])
            await turn.result(call, "seen")
            await session.catch_up(state)
            state.add(checkpoint(f"1.{number}"))
            await session.commit(state)  # a decision: the turn goes on
            await turn.window()
            await turn.reply(Message.assistant("done"))
        await session.catch_up(state)
        assert plain(state) == plain(await reloaded(harness, session))
    await session.compact(BUDGET, model=False)
    await session.set_model("gpt-4o")
    await session.catch_up(state)
    assert state.model_info is not None
    assert state.model_info.id == "gpt-4o"
    assert plain(state) == plain(await reloaded(harness, session))
    assert await session.commit(state) is None


@pytest.mark.parametrize("marked", [True, False])
@run
async def test_what_a_state_had_not_written_comes_after_what_others_wrote(
    harness: Harness, marked: bool
) -> None:
    session = await (await harness.manager()).create()
    state = await session.conversation()
    said(state, "one")
    await session.commit(state)
    state.file_line_tracker = {"/a": FileLineTracker(sha256="x", lines=1)}
    if marked:
        state.add(checkpoint("1"))
    else:
        state.record_settings()  # as a commit does that is cancelled right after it
    await (await elsewhere(harness, session)).append(Message.user("two"))
    with pytest.raises(Conflict):
        await session.commit(state)
    await session.catch_up(state)
    await session.commit(state)
    again = await reloaded(harness, session)
    assert plain(state) == plain(again)
    assert again.next_message is not None
    assert [one.label for _, one in again.head.checkpoints] == ["1"] * marked
    assert again.file_line_tracker == {"/a": FileLineTracker(sha256="x", lines=1)}


@run
async def test_a_head_on_another_branch_is_loaded_and_refused_if_something_is_not_written(
    harness: Harness,
) -> None:
    session = await (await harness.manager()).create()
    state = await session.conversation()
    said(state, "one", "two")
    await session.commit(state)
    other = await elsewhere(harness, session)
    await other.rewind((await other.messages())[1].id)
    await session.catch_up(state)
    assert plain(state) == plain(await reloaded(harness, session))
    await other.undo()
    state.add(Note("not written"))
    with pytest.raises(Conflict):
        await session.catch_up(state)


@run
async def test_a_late_result_is_taken_in(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    call = ToolCallRequest(name="look", args={})
    await session.append(Message.user("look"), Message.assistant(tool_calls=[call]), Message.user("well?"))
    state = await session.conversation()
    await session.append(Message.tool([ToolCallResult(tool_call_id=call.id, result="fog")]))
    await session.catch_up(state)
    assert plain(state) == plain(await reloaded(harness, session))


@pytest.mark.parametrize("others", ["short", "long " * 10_000])
@pytest.mark.parametrize("awaited", ["read", "branches"])
@run
async def test_what_another_task_adds_while_a_state_catches_up_is_kept(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, others: str, awaited: str
) -> None:
    session = await (await harness.manager()).create()
    state = await session.conversation()
    said(state, "one")
    await session.commit(state)
    if awaited == "branches":
        state.add(checkpoint("0"))  # the conversation is loaded again
    await (await elsewhere(harness, session)).append(Message.user(others))
    log = session._writer.log
    reads = getattr(log, awaited)

    async def read(*given: Any) -> Any:
        found = await reads(*given)
        monkeypatch.undo()
        state.add(checkpoint("1"))
        return found

    monkeypatch.setattr(log, awaited, read)
    await session.catch_up(state)
    await session.commit(state)
    again = await reloaded(harness, session)
    assert plain(state) == plain(again)
    assert [one.text for one in again.messages] == ["one", "answer to one", others]
    labels = ["0", "1"] if awaited == "branches" else ["1"]
    assert [one.label for _, one in again.head.checkpoints] == labels


@run
async def test_a_state_that_lacks_many_entries_is_loaded_again(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turnstate.session.conversation.MAX_FOLDED", 2)
    session = await (await harness.manager()).create()
    state = await session.conversation()
    said(state, "one")
    await session.commit(state)
    for count, same in ((2, True), (3, False)):
        before = state.head
        await (await elsewhere(harness, session)).append(*(Message.user("more") for _ in range(count)))
        await session.catch_up(state)
        assert (state.head is before) is same
        assert plain(state) == plain(await reloaded(harness, session))


def begins_a_tangent(state: ConversationState) -> None:
    state.begin_tangent()
    said(state, "aside")


@pytest.mark.parametrize("step", [begins_a_tangent, lambda state: state.restore_moment(2)])
@run
async def test_a_head_that_was_moved_and_not_written_is_refused_and_left_as_it_is(
    harness: Harness, step: Callable[[ConversationState], None]
) -> None:
    session = await (await harness.manager()).create()
    state = await session.conversation()
    said(state, "one", "two")
    await session.commit(state)
    step(state)
    before = plain(state)
    await (await elsewhere(harness, session)).append(Message.user("three"))
    with pytest.raises(Conflict):
        await session.catch_up(state)
    assert plain(state) == before


@run
async def test_an_undo_that_is_not_written_is_refused_as_well(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    state = await session.conversation()
    said(state, "one", "two")
    await session.commit(state)
    state.restore_moment(2)
    await session.commit(state)
    state.undo_restore()
    before = plain(state)
    await (await elsewhere(harness, session)).append(Message.user("three"))
    with pytest.raises(Conflict):
        await session.catch_up(state)
    assert plain(state) == before
