"""Operations know whether they were done and still can be; the intent is on the disk whole, and alone."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from turnstate import Message, ToolCallRequest
from turnstate.checkpoints import transaction as intents
from turnstate.checkpoints.questions import newest_restore
from turnstate.checkpoints.transaction import Change, Intent, LeaveTangent, RestoreOperation, Undo
from turnstate.conversation import ConversationState, from_json, to_json
from turnstate.entry import Checkpoint, Restore
from turnstate.errors import CheckpointError, CheckpointsBusy, CheckpointsDamaged, InvalidPayload
from turnstate.log.operations import Effect, Here, Operation, Steps

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


def asked(state: ConversationState, question: Callable[[Here], Steps[bool]]) -> bool:
    """Answer a question about a conversation from its log."""

    def steps(here: Here) -> Steps[Effect]:
        return Effect(result=(yield from question(here)))

    return bool(state.log.operate(steps, now=0).result)


def is_possible(act: Change, state: ConversationState) -> bool:
    return asked(state, act.is_possible)


def is_done(act: Change, state: ConversationState, name: str) -> bool:
    return asked(state, lambda here: act.is_done(here, name))


def apply(operation: Operation, state: ConversationState) -> None:
    """Run an operation on the log of a conversation."""
    state.log.operate(operation, now=1)
    state.use(state.log)


def do(act: Change, state: ConversationState, name: str) -> None:
    assert is_possible(act, state)
    assert not is_done(act, state, name)
    apply(act.change(name), state)
    assert is_done(act, state, name)


def newest(state: ConversationState) -> tuple[int, Restore] | None:
    found: tuple[int, Restore] | None = state.log.operate(newest_restore(), now=0).result
    return found


def test_a_restore_knows_itself_by_its_name() -> None:
    state = spoken("0", "1", "2")
    do(back(6), state, "c-1")
    assert len(state.history) == 2
    assert not is_done(back(6), state, "c-2")
    state.set_next_user_message("on")
    assert is_done(back(6), state, "c-1")


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
    assert is_possible(act, spoken("0", "1", "2")) == possible


def test_a_restore_to_another_entry_is_refused_and_changes_nothing() -> None:
    state = spoken("0", "1", "2")
    for number in (0, 5, 99):
        with pytest.raises(CheckpointError, match="has changed since"):
            apply(back(number).change("c-1"), state)
    assert (len(state.log.branches), len(state.history)) == (1, 3)


def test_an_undo_is_done_when_the_restore_is_off_the_path() -> None:
    state = spoken("0", "1", "2")
    do(back(6), state, "c-1")
    found = newest(state)
    assert found is not None
    number, restore = found
    undo = Undo(label="1", number=number, undoes=restore.undo, files=True, conversation=True)
    do(undo, state, "c-2")
    assert len(state.history) == 3
    assert newest(state) is None
    assert not is_possible(undo, state)


def test_restores_of_files_alone_are_undone_from_the_newest_on() -> None:
    state = spoken("0", "1")
    for name in ("c-1", "c-2"):
        do(back(6, conversation=False), state, name)
    for name in ("c-2", "c-1"):
        found = newest(state)
        assert found is not None
        number, restore = found
        assert restore.undo == name
        undo = Undo(label="1", number=number, undoes=name, files=True, conversation=False)
        do(undo, state, f"undo {name}")
    assert newest(state) is None


@pytest.mark.req("J4")
@pytest.mark.parametrize(("bring", "more"), [("nothing", 0), ("tail", 1), ("summary", 0)])
def test_leaving_is_done_when_the_tangent_is_not_under_way(bring: Any, more: int) -> None:
    state = spoken("0")
    name = state.begin_tangent()
    state.set_next_user_message("aside")
    state.push_assistant_message(Message.assistant("found"))
    summary = "what was found" if bring == "summary" else None
    do(LeaveTangent(tangent=name, bring=bring, summary=summary), state, "c-1")
    assert len(state.history) == 1 + more
    assert (state.next_message is not None) == (bring == "summary")
    state.reopen_tangent(name)
    assert not is_possible(LeaveTangent(tangent="another"), state)


@pytest.mark.req("J4")
def test_a_tangent_is_not_left_where_another_began_within_it() -> None:
    state = spoken("0")
    leave = LeaveTangent(tangent=state.begin_tangent())
    state.begin_tangent()
    assert not is_possible(leave, state)
    assert not is_done(leave, state, "c-1")


@pytest.mark.req("J4")
def test_the_files_that_a_tangent_leaves_behind_are_noted_in_it_once() -> None:
    def has_recorded(name: str) -> bool:
        return asked(state, lambda here: leave.has_recorded_files(here, name))

    state = spoken("0")
    leave = LeaveTangent(tangent=state.begin_tangent(), kept="1", at=5)
    assert not has_recorded("c-1")
    for _ in range(2):
        apply(leave.record_files("c-1"), state)
    assert state.checkpoint_manager is not None
    assert [(one.label, one.commit) for one in state.checkpoint_manager.checkpoints] == [
        ("0", "commit 0"),
        ("1", "c-1"),
    ]
    assert has_recorded("c-1")
    assert not has_recorded("c-2")
    state.set_next_user_message("somebody goes on")
    assert not has_recorded("c-1")


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
    assert state.shown.open_calls == []


def test_a_restored_conversation_is_undone_after_it_was_a_document() -> None:
    state = spoken("0", "1", "2")
    do(back(6), state, "c-1")
    document = to_json(state)
    again = from_json(document)
    assert to_json(again) == document
    assert newest(again) == newest(state)
    assert again.undo() == "restore"
    assert len(again.history) == 3


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"former": 5}, "$.turnstate.branches[1].former"),
        ({"parent": 2}, "$.turnstate.branches[1].parent"),
        ({"at": 500}, "$.turnstate.branches[1].at"),
        ({"at": -1}, "$.turnstate.branches[1].at"),
    ],
)
def test_a_document_that_restores_nothing_there_is_is_refused(change: dict[str, int], path: str) -> None:
    state = spoken("0", "1", "2")
    do(back(6), state, "c-1")
    document = to_json(state)
    document["turnstate"]["branches"][1] |= change
    with pytest.raises(InvalidPayload) as refused:
        from_json(document)
    assert refused.value.path == path
