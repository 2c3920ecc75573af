"""The steps of the random machine: every operation there is, as it is done by a state or through a handle."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from random import Random
from typing import Any

import msgspec

from tests.properties.machine import BUDGETS, ID, WIDE, Machine, as_bytes, rule
from tests.properties.machine_model import Conversation, Event
from turnstate import Message, ToolCallRequest, ToolCallResult
from turnstate.checkpoints.transaction import RestoreOperation, Undo, newest_restore
from turnstate.context.cut import Strategy
from turnstate.entry import Checkpoint
from turnstate.errors import (
    Conflict,
    ContextOverflow,
    EpochEnded,
    InvalidMessage,
    NotFound,
    NothingToUndo,
    SessionError,
)
from turnstate.testing import ScriptedModel

__all__ = ["RandomMachine"]

SUMMARY = "Goal: test what was said."
MODELS = ["gpt-4o", "claude-sonnet-4-5"]


class RandomMachine(Machine):
    """A machine with all steps; two numbers select what each is about."""

    # Messages.

    @rule(8)
    async def say(self, one: int, two: int) -> None:
        text = f"{two} " + "word " * (one % 40 + 1)
        if self._is_by_session(two):
            await self._write(Message.user(text), by=one)
            return
        expected = self.model.head.open_calls
        *cancelled, _ = self._tell(lambda: self.state.set_next_user_message(text))
        assert [result.tool_call_id for message in cancelled for result in message.tool_results] == expected

    @rule(12, lambda self: self.model.head.waiting and not self.model.head.open_calls)
    async def answer(self, one: int, two: int) -> None:
        calls = [ToolCallRequest(name=f"tool{n}", args={"n": n}) for n in range(one % 5 - 1)]
        message = Message.assistant("answer " * (one % 37), tool_calls=calls)
        if self._is_by_session(two):
            await self._write(message, by=one)
        else:
            assert self._tell(lambda: self.state.push_assistant_message(message)) == [message]

    @rule(8, lambda self: not self.model.head.open_calls)
    async def take_turns(self, one: int, _two: int) -> None:
        """Two turns, the second one with a call."""
        call = ToolCallRequest(name="look", args={})
        result = ToolCallResult(tool_call_id=call.id, result=f"{one} line\n" * [3, 30, 120][one % 3])
        for calls in ([], [call]):
            self._tell(lambda: self.state.set_next_user_message("word " * 25))
            message = Message.assistant("answer " * 20, tool_calls=calls)
            self._tell(partial(self.state.push_assistant_message, message))
        self._tell(lambda: self.state.add_tool_results([result]))
        self._tell(lambda: self.state.push_assistant_message(Message.assistant("done")))

    async def _answer_calls(self, results: list[ToolCallResult], one: int, two: int) -> None:
        if self._is_by_session(two):
            await self._write(Message.tool(results), by=one)
            return
        (taken,) = self._tell(lambda: self.state.add_tool_results(results))
        assert list(taken.tool_results) == results

    @rule(28, lambda self: self.model.head.open_calls)
    async def tools_answer(self, one: int, two: int) -> None:
        calls = self.model.head.open_calls
        rng = Random(one)
        some = rng.sample(calls, rng.randint(1, len(calls)))
        lines = [1, 5, 300][two % 3]
        results = [ToolCallResult(tool_call_id=id, result=f"{one} line\n" * lines) for id in some]
        await self._answer_calls(results, one, two)

    @rule(12, lambda self: self.model.head.given_up)
    async def tool_answers_late(self, one: int, two: int) -> None:
        calls = self.model.head.given_up
        if not self._is_by_session(two) and calls[one % len(calls)] not in self._loaded_calls():
            return
        late = ToolCallResult(tool_call_id=calls[one % len(calls)], result=f"late {one}")
        await self._answer_calls([late], one, two)

    @rule(3, lambda self: self.model.head.results)
    async def tool_answers_twice(self, one: int, two: int) -> None:
        """The same result again changes nothing, another one is refused, and so is one of an unknown call."""
        given = [one for one in self.model.head.results.items() if one[0] in self._loaded_calls()]
        if not given:
            return
        id, result = given[one % len(given)]
        again = ToolCallResult(tool_call_id=id, result=result)
        wrong = ToolCallResult(tool_call_id=id if two % 2 else "nobody", result="another")
        assert self.state.add_tool_results([again]) is None
        await self._refused(InvalidMessage, lambda: self.state.add_tool_results([again, wrong]))
        await self._commit(one)
        await self.handles[0].append(Message.tool([again]))
        await self._refused(InvalidMessage, lambda: self.handles[1].append(Message.tool([wrong])))

    def _loaded_calls(self) -> set[str]:
        """Return the calls that the state has loaded."""
        return {call.id for message in self.state.messages for call in message.tool_calls}

    async def _refused(self, error: type[Exception], act: Callable[[], Any]) -> None:
        try:
            result = act()
            if isinstance(result, Awaitable):
                await result
        except error:
            return
        raise AssertionError(f"{error.__name__} was expected")

    @rule(3)
    async def note(self, one: int, _two: int) -> None:
        match one % 3:
            case 0:
                self.state.append_transcript(f"503 {one}")
            case 1:
                self.state.set_system(f"You are test {one}.")
                self.model.did(Event("prompt", label=f"You are test {one}."))
            case 2:
                self.state.mcp_enabled = not self.state.mcp_enabled
                self.model.did(Event("setting", label=str(self.state.mcp_enabled)))

    # Windows and compaction.

    @rule(8)
    async def take_window(self, one: int, two: int) -> None:
        self.budget = BUDGETS[one % len(BUDGETS)]
        if await self._window(one, two) is None:
            self.budget = WIDE

    async def _window(self, one: int, two: int) -> bytes | None:
        """Make a window through one of the doors; what it decides is written."""
        budget = BUDGETS[one % len(BUDGETS)]
        try:
            if not self._is_by_session(two):
                return as_bytes(self.state.window(budget).messages)
            await self._commit(one)
            window = await self.handles[one % 2].window(budget)
        except ContextOverflow:
            return None
        await self._load(one)
        return as_bytes(window.messages)

    @rule(3)
    async def change_model(self, one: int, two: int) -> None:
        name = MODELS[one % len(MODELS)]
        if self._is_by_session(two):
            await self._commit(one)
            await self.handles[one % 2].set_model(name)
            await self._load(one)
        else:
            self.state.set_model(name)
        if name != self.model.head.newest("model", ""):
            self.model.did(Event("model", label=name))

    @rule(6)
    async def compact(self, one: int, two: int) -> None:
        if await self._compacted(one, two):
            self.model.did(Event("compact"))

    async def _compacted(self, one: int, two: int) -> bool:
        """Compact through one of the doors, with or without a model; return False if there was nothing."""
        strategy, by_model = Strategy(keep=one % 4), two % 2 == 0
        if not self._is_by_session(two):
            plan = self.state.plan_compaction(strategy, budget=WIDE)
            if plan is not None:
                self.state.compact(plan, SUMMARY if by_model else None)
            return plan is not None
        await self._commit(one)
        handle = self.handles[one % 2]
        if by_model:
            handle = await (await self._manager(model=ScriptedModel(SUMMARY))).open(ID)
        try:
            await handle.compact(WIDE, strategy=strategy)
        except SessionError:
            return False
        await self._load(one)
        return True

    @rule(4)
    async def compact_and_undo(self, one: int, two: int) -> None:
        """Whatever the collector decided before and after a compaction, undoing it shows the same bytes."""
        before = await self._window(one, two)
        if await self._compacted(one, two):
            await self._window(one + 1, two)
            await self._window(one, two)
            assert await self._undone(one + two) == "compact"
            assert await self._window(one, two) == before

    @rule(1, lambda self: self.model.head.shown)
    async def clear(self, _one: int, _two: int) -> None:
        self._tell(self.state.clear)
        assert (self.state.history, self.state.next_message) == ([], None)
        self.model.did(Event("clear"))

    # Undo.

    @rule(7)
    async def undo(self, one: int, two: int) -> None:
        for number in range(two % 4 + 1):
            if self._is_by_session(one + number * two):
                await self._commit(one)
            assert await self._undone(one + number * two) == self.model.undo()
            self._check_model(self.state)

    async def _undone(self, one: int) -> str | None:
        """Undo through one of the doors; return what was undone, and None if there was nothing."""
        if not self._is_by_session(one):
            try:
                return self.state.undo()
            except NothingToUndo as error:
                if not self.is_long or "load it again" not in str(error):
                    return None
        try:
            await self._commit(one)
            undone = await self.handles[one // 100 % 2].undo()
        except NothingToUndo:
            return None
        await self._load(one)
        return undone

    # Tangents.

    @rule(4)
    async def begin_tangent(self, one: int, two: int) -> None:
        if self.tree and two % 2:
            await self.tree.checkpoints.enter_tangent()
            self.model.begin_tangent(self.state.head.name, len(self.model.head.events))
            self._checkpointed()
            return
        if one % 4 == 0:
            was_inside = self.state.is_in_tangent_mode()
            self.state.enter_tangent_mode()
            if was_inside:
                return
        else:
            self.state.begin_tangent()
        self.model.begin_tangent(self.state.head.name, len(self.model.head.events))

    @rule(2, lambda self: self.model.head.messages)
    async def begin_tangent_in_the_past(self, one: int, _two: int) -> None:
        place = self._message(one)
        message = self.model.head.events[place].message
        assert message is not None
        try:
            name = self.state.begin_tangent(at=message.id)
        except NotFound:
            assert self.is_long
            return
        self.model.begin_tangent(name, self.model.head.whole(place))

    def _message(self, one: int) -> int:
        """Select a message of the path; return its index among the events."""
        places = [place for place, event in enumerate(self.model.head.events) if event.message]
        return places[one % len(places)]

    @rule(14, lambda self: self.model.head.tangent)
    async def leave_tangent(self, one: int, _two: int) -> None:
        tangent = self.model.head.tangent
        assert tangent is not None
        said_in_it = [event.message for event in self.model.head.events[tangent.begun :] if event.message]
        before = {message.id for message in self.model.head.messages}
        how = one % 3
        if self.tree and await self._left_with_files(how):
            self._tell(lambda: None)  # what was brought
            return
        self.model.leave_tangent()
        brought = self._tell(
            [
                self.state.exit_tangent_mode,
                self.state.exit_tangent_mode_with_tail,
                self.state.exit_tangent_mode_with_summary,
            ][how]
        )
        assert brought == [] or how != 0
        assert before.isdisjoint(message.id for message in brought)
        if how == 1 and said_in_it and said_in_it[-1].role == "assistant":
            origins = [message.extra for message in brought if message.extra is not msgspec.UNSET]
            assert {"origin": said_in_it[-1].id} in origins

    async def _left_with_files(self, how: int) -> bool:
        """Leave a tangent that was entered with its files; return False if it was entered without."""
        assert self.tree
        head, tangent, left = self.model.head, self.model.head.tangent, self.state.head
        own = [
            event for event in head.events[tangent.begun if tangent else 0 :] if event.what == "checkpoint"
        ]
        aside = [event for event in own if event.label == "tangent"]
        if not aside:
            return False
        before = self.tree.visible()
        await self.tree.leave_tangent(aside[-1], how)
        if len(left.checkpoints) > len(head.checkpoints):  # one of the tangent's files was taken
            self.model.did(Event("checkpoint", label=left.checkpoints[-1][1].label, files=before))
        self.model.leave_tangent()
        return True

    @rule(8, lambda self: self.model.kept or self.model.under_way)
    async def reopen_tangent(self, one: int, _two: int) -> None:
        names = [*self.model.kept, *(one.tangent.name for one in self.model.under_way if one.tangent)]
        name = names[one % len(names)]
        try:
            self.state.reopen_tangent(name)
        except NotFound:
            assert self.is_long
            return
        self.model.reopen(name)

    # Branches.

    @rule(3, lambda self: self.known)
    async def go_elsewhere(self, one: int, two: int) -> None:
        """Rewind to or fork from any message, on this branch or on another."""
        id = list(self.known)[one % len(self.known)]
        branch = self.model.head if id in {m.id for m in self.model.head.messages} else self.known[id]
        place = next(n for n, event in enumerate(branch.events) if event.message and event.message.id == id)
        end, operation = branch.whole(place), "fork" if two % 2 else "rewind"
        await self._commit(one)
        handle = self.handles[two // 2 % 2]
        await (handle.fork(at=id) if two % 2 else handle.rewind(to=id))
        self.model.go_back(operation, branch, end, min(place, end))
        await self._load(one)

    @rule(1)
    async def fork_here(self, one: int, two: int) -> None:
        await self._commit(one)
        await self.handles[two % 2].fork()
        end = len(self.model.head.events)
        self.model.go_back("fork", self.model.head, end, end)
        await self._refused(NotFound, lambda: self.handles[one % 2].rewind(to="nobody"))
        await self._load(one)

    # Checkpoints.

    @rule(4)
    async def checkpoint(self, one: int, _two: int) -> None:
        if self.tree:
            await self.tree.checkpoints.keep(f"step {one}")
        else:
            label = str(len(self.model.head.checkpoints))
            self.state.add(Checkpoint(label=label, commit=f"{one:040x}"))
        self._checkpointed()

    @rule(12, lambda self: self.model.head.checkpoints)
    async def restore(self, one: int, two: int) -> None:
        """Restore the conversation, the files, or both."""
        found = self.model.head.checkpoints
        conversation, files = [(True, True), (True, True), (True, False), (False, True)][two % 4]
        chosen = found[one % len(found)]
        restored = Event("restore", conversation=conversation, has_files=files and self.tree is not None)
        if self.tree:
            chosen = [event for event in found if event.label == chosen.label][-1]
            await self._commit(one)
            await self.tree.restore(chosen, restored, conversation=conversation, hard=two // 4 % 2 == 0)
        else:
            known = self.state.head.checkpoints
            place = found.index(chosen) - len(found)  # from the newest back: older ones may not be loaded
            if place < -len(known) or (conversation and not known[place][0]):
                assert self.is_long
                return
            number, taken = known[place]
            operation = RestoreOperation(
                label=taken.label,
                commit=taken.commit,
                number=self.state.head.first - 1 + number,
                files=False,
                conversation=conversation,
            )
            try:
                await operation.apply(self.state, None, f"restore {one} {two} {len(self.model.branches)}")
            except NotFound:
                assert self.is_long
                return
        if conversation:
            place = self.model.head.events.index(chosen)
            self.model.go_back("restore", self.model.head, place + 1, place)
            self._tell(lambda: None)  # calls that were open then are answered
        self.model.did(restored)

    @rule(14, lambda self: self.model.head.restore)
    async def undo_restore(self, one: int, _two: int) -> None:
        newest, found = newest_restore(self.state), self.model.head.restore
        assert found is not None
        if newest is None:
            assert self.is_long
            return
        await self._commit(one)
        if self.tree:
            await self.tree.undo_restore(found[1])
        else:
            number, last = newest
            undo = Undo(
                label=last.label, number=number, undoes=last.undo, files=False, conversation=last.conversation
            )
            await undo.apply(self.state, self.handles[one % 2], f"undo {number} {one}")
        self.model.undo_restore()

    @rule(8, lambda self: self.tree)
    async def change_file(self, one: int, two: int) -> None:
        assert self.tree
        self.tree.change(one, two)

    # Writing and reading.

    @rule(6)
    async def commit(self, one: int, _two: int) -> None:
        await self._commit(one)

    @rule(3)
    async def load_again(self, one: int, two: int) -> None:
        await self._commit(one)
        if two % 2:
            self.handles[one % 2] = await (await self._manager()).open(ID)
        await self._load(one)

    @rule(2)
    async def be_overtaken(self, one: int, two: int) -> None:
        """Another handle writes first: what the state has not written is refused, all of it."""
        await self._commit(one)
        message = Message.user(f"first {two}")
        await self.handles[two % 2].append(message)
        self._told(message)
        [
            lambda: self.state.set_next_user_message("second"),
            lambda: self.state.begin_tangent(),
            lambda: self.state.add(Checkpoint(label="late", commit="0" * 40)),
            lambda: self.state.clear(),
        ][one % 4]()
        await self._refused(Conflict, lambda: self.handles[1 - two % 2].commit(self.state))
        await self._load(one)

    @rule(1, lambda self: not self.tree)
    async def reset(self, one: int, two: int) -> None:
        if two % 3:
            return
        await self._commit(one)
        old = self.handles
        if one // 2 % 2:
            await old[0].end()
            await self._refused(EpochEnded, lambda: old[1].append(Message.user("late")))
        anew = await old[one % 2].reset()
        await self._refused(EpochEnded, lambda: old[0].append(Message.user("late")))
        self.handles = [anew, await (await self._manager()).open(ID)]
        former, self.model, self.known = self.model.head, Conversation(), {}
        for what in ("prompt", "model"):  # the next conversation begins with both
            if label := former.newest(what, ""):
                self.model.did(Event(what, label=label))
        await self._load(one)
