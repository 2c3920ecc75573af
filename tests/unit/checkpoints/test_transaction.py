"""Operations know whether they were done and still can be; the intent is on the disk whole, and alone."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from turnstate import Message, ToolCallRequest
from turnstate.checkpoints import transaction as intents
from turnstate.checkpoints.transaction import (
    Intent,
    LeaveTangent,
    Operation,
    RestoreOperation,
    Undo,
    newest_restore,
)
from turnstate.conversation import ConversationState, from_json, to_json
from turnstate.entry import Checkpoint
from turnstate.errors import CheckpointError, CheckpointsBusy, CheckpointsDamaged, InvalidPayload

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


def spoken(*labels: str) -> ConversationState:
    """Return a conversation with an exchange before each checkpoint."""
    state = ConversationState("c")
    for label in labels:
        state.set_next_user_message(f"before {label}")
        state.push_assistant_message(Message.assistant("done"))
        state.add(Checkpoint(label=label, commit=f"commit {label}"))
    return state


def back(number: int, **changes: Any) -> RestoreOperation:
    settings = {"label": "1", "commit": "commit 1", "files": True, "conversation": True}
    return RestoreOperation(number=number, **(settings | changes))


def do(act: Operation, state: ConversationState, name: str) -> None:
    assert act.is_possible(state)
    assert not act.is_done(state, name)
    asyncio.run(act.apply(state, None, name))
    assert act.is_done(state, name)


def test_a_restore_knows_itself_by_its_name() -> None:
    state = spoken("0", "1", "2")
    do(back(6), state, "c-1")
    assert len(state.history) == 2
    assert not back(6).is_done(state, "c-2")
    state.set_next_user_message("on")
    assert back(6).is_done(state, "c-1")


@pytest.mark.parametrize(
    ("act", "possible"),
    [
        (back(6), True),
        (back(5), False),
        (back(7), False),
        (back(0), False),
        (back(99), False),
        (back(6, commit="another"), False),
        (back(99, conversation=False), True),
    ],
)
def test_a_restore_is_possible_where_its_checkpoint_stands(act: RestoreOperation, possible: bool) -> None:
    assert act.is_possible(spoken("0", "1", "2")) == possible


def test_an_undo_is_done_when_the_restore_is_off_the_path() -> None:
    state = spoken("0", "1", "2")
    do(back(6), state, "c-1")
    found = newest_restore(state)
    assert found is not None
    number, restore = found
    undo = Undo(label="1", number=number, undoes=restore.undo, files=True, conversation=True)
    do(undo, state, "c-2")
    assert len(state.history) == 3
    assert newest_restore(state) is None


def test_restores_of_files_alone_are_undone_from_the_newest_on() -> None:
    state = spoken("0", "1")
    for name in ("c-1", "c-2"):
        do(back(6, conversation=False), state, name)
    for name in ("c-2", "c-1"):
        found = newest_restore(state)
        assert found is not None
        number, restore = found
        assert restore.undo == name
        undo = Undo(label="1", number=number, undoes=name, files=True, conversation=False)
        do(undo, state, f"undo {name}")
    assert newest_restore(state) is None


@pytest.mark.req("J4")
@pytest.mark.parametrize(("bring", "more"), [("nothing", 0), ("tail", 1), ("summary", 0)])
def test_leaving_is_done_when_the_tangent_is_not_under_way(bring: Any, more: int) -> None:
    state = spoken("0")
    name = state.begin_tangent()
    state.set_next_user_message("aside")
    state.push_assistant_message(Message.assistant("found"))
    do(LeaveTangent(tangent=name, bring=bring, summary="what was found"), state, "c-1")
    assert len(state.history) == 1 + more
    assert (state.next_message is not None) == (bring == "summary")
    state.reopen_tangent(name)
    assert not LeaveTangent(tangent="another").is_possible(state)


@pytest.mark.req("J4")
def test_a_tangent_is_not_left_where_another_began_within_it() -> None:
    state = spoken("0")
    leave = LeaveTangent(tangent=state.begin_tangent())
    state.begin_tangent()
    assert not leave.is_possible(state)
    assert not leave.is_done(state, "c-1")


@pytest.mark.req("J4")
def test_the_files_that_a_tangent_leaves_behind_are_noted_in_it_once() -> None:
    state = spoken("0")
    leave = LeaveTangent(tangent=state.begin_tangent(), kept="1", at=5)
    assert not leave.has_recorded_files(state, "c-1")
    for _ in range(2):
        leave.record_files(state, "c-1")
    assert [(one.label, one.commit) for _, one in state.head.checkpoints] == [
        ("0", "commit 0"),
        ("1", "c-1"),
    ]
    assert leave.has_recorded_files(state, "c-1")
    assert not leave.has_recorded_files(state, "c-2")
    state.set_next_user_message("somebody goes on")
    assert not leave.has_recorded_files(state, "c-1")


def test_calls_are_told_what_became_of_them() -> None:
    state = spoken("0")
    calls = [ToolCallRequest(name="write", args={"n": n}) for n in range(2)]
    state.set_next_user_message("go")
    state.push_assistant_message(Message.assistant(tool_calls=calls))
    state.add(Checkpoint(label="1.1", commit="commit 1.1", tool="write", ran=(calls[0].id,)))
    state.set_next_user_message("never mind")  # which cancels them, here and not there
    do(back(6, label="1.1", commit="commit 1.1"), state, "c-1")
    first, second = (result for message in state.messages[-2:] for result in message.tool_results)
    assert (first.tool_call_id, first.is_error) == (calls[0].id, False)
    assert (second.tool_call_id, second.is_error) == (calls[1].id, True)
    assert state.head.open_calls == []


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"restores": 5}, "$.turnstate.timelines[1].restores"),
        ({"restores": 1}, "$.turnstate.timelines[1].restores"),
        ({"shared": 500}, "$.turnstate.timelines[1].shared"),
        ({"shared": -1}, "$.turnstate.timelines[1].shared"),
    ],
)
def test_a_document_that_restores_nothing_there_is_is_refused(change: dict[str, int], path: str) -> None:
    state = spoken("0", "1", "2")
    do(back(6), state, "c-1")
    document = to_json(state)
    assert to_json(from_json(document)) == document
    document["turnstate"]["timelines"][1] |= change
    with pytest.raises(InvalidPayload) as refused:
        from_json(document)
    assert refused.value.path == path
