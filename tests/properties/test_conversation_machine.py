"""All operations on a conversation, in any order, compared with an obvious model.

After every step the log and the state agree with the model, a newly opened handle sees the same bytes, and
every provider accepts the window.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
from conversation_model import BranchModel, Conversation, Event
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from thoroughness import examples
from window_checks import as_bytes, check_window

from turnstate import Budget, Message, Policy, ToolCallRequest, ToolCallResult
from turnstate.context.cut import Strategy
from turnstate.context.manager import StateManager
from turnstate.conversation import ConversationState, fields
from turnstate.errors import ContextOverflow, InvalidMessage, SessionError
from turnstate.session import Session, SessionManager
from turnstate.stores.memory import MemoryStore
from turnstate.testing import FixedClock

EXAMPLES = {"memory": examples(25, long=1000), "sqlite": examples(8, long=1000)}
POLICY = Policy(lock_turns=1, lock_turns_at_most=2, hard_lock=3, summary_tokens=60)
BUDGETS = [Budget(450), Budget(700), Budget(20_000)]
ID = "s"

T = TypeVar("T")


def image(state: ConversationState) -> bytes:
    return msgspec.json.encode(fields(state), order="sorted")


class Machine(RuleBasedStateMachine):
    """One session, changed through its handle and through states."""

    url: Callable[[], str] | None = None

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = FixedClock()
        self.memory = MemoryStore()
        self.place = self.url() if self.url else ""
        self.managers = list[SessionManager]()
        self.model = Conversation()
        self.budget = BUDGETS[-1]

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    async def manager(self) -> SessionManager:
        if not self.place:
            return SessionManager(self.memory, policy=POLICY, clock=self.clock)
        self.managers.append(await SessionManager.open(self.place, policy=POLICY, clock=self.clock))
        return self.managers[-1]

    async def changed(self, change: Callable[[ConversationState], object]) -> ConversationState:
        state = await self.session.conversation()
        change(state)
        await self.session.commit(state)
        return state

    def added_since(self, state: ConversationState, count: int) -> list[Message]:
        return state.messages[count:]

    @initialize()
    def begin(self) -> None:
        async def begun() -> Session:
            return await (await self.manager()).create(id=ID, system="You are a test.")

        self.session = self.do(begun())

    @rule(words=st.integers(1, 60), by_state=st.booleans())
    def say(self, words: int, by_state: bool) -> None:
        text = "word " * words
        if by_state:
            before = len(self.model.head.messages)
            state = self.do(self.changed(lambda state: state.set_next_user_message(text)))
            added = self.added_since(state, before)
            cancelled = [result.tool_call_id for message in added[:-1] for result in message.tool_results]
            assert cancelled == self.model.head.open_calls
            self.model.said(*added)
        else:
            message = Message.user(text)
            self.do(self.session.append(message))
            self.model.said(message)

    @precondition(lambda self: self.model.head.waiting and not self.model.head.open_calls)
    @rule(calls=st.integers(0, 3), words=st.integers(0, 40), by_state=st.booleans())
    def answer(self, calls: int, words: int, by_state: bool) -> None:
        made = [ToolCallRequest(name=f"tool{n}", args={"n": n}) for n in range(calls)]
        message = Message.assistant("answer " * words, tool_calls=made)
        if by_state:
            self.do(self.changed(lambda state: state.push_assistant_message(message)))
        else:
            self.do(self.session.append(message))
        self.model.said(message)

    @precondition(lambda self: self.model.head.open_calls)
    @rule(data=st.data(), lines=st.sampled_from([1, 5, 300]), by_state=st.booleans())
    def tools_answer(self, data: st.DataObject, lines: int, by_state: bool) -> None:
        calls = self.model.head.open_calls
        some = data.draw(st.lists(st.sampled_from(calls), min_size=1, unique=True))
        results = [ToolCallResult(tool_call_id=call, result="line\n" * lines) for call in some]
        if by_state:
            before = len(self.model.head.messages)
            state = self.do(self.changed(lambda state: state.add_tool_results(results)))
            self.model.said(*self.added_since(state, before))
        else:
            message = Message.tool(results)
            self.do(self.session.append(message))
            self.model.said(message)

    @precondition(lambda self: self.model.head.given_up)
    @rule(data=st.data(), by_state=st.booleans())
    def tools_answer_late(self, data: st.DataObject, by_state: bool) -> None:
        call = data.draw(st.sampled_from(self.model.head.given_up))
        late, other = (ToolCallResult(tool_call_id=call, result=text) for text in ("late", "another"))
        if by_state:
            before = len(self.model.head.messages)
            state = self.do(self.changed(lambda state: state.add_tool_results([late])))
            self.model.said(*self.added_since(state, before))
        else:
            message = Message.tool([late])
            self.do(self.session.append(message))
            self.model.said(message)
        self.do(self.session.append(Message.tool([late])))
        with pytest.raises(InvalidMessage):
            self.do(self.session.append(Message.tool([other])))
        with pytest.raises(InvalidMessage):
            self.do(self.changed(lambda state: state.add_tool_results([other])))

    @rule(budget=st.sampled_from(BUDGETS))
    def take_window(self, budget: Budget) -> None:
        self.budget = budget
        try:
            self.do(self.session.window(budget))
        except ContextOverflow:
            self.budget = BUDGETS[-1]

    @rule(keep=st.integers(0, 3), by_state=st.booleans())
    def compact(self, keep: int, by_state: bool) -> None:
        strategy = Strategy(keep=keep)
        if by_state:
            done = list[bool]()

            def compacted(state: ConversationState) -> None:
                plan = state.plan_compaction(strategy, budget=BUDGETS[-1])
                if plan is not None:
                    state.compact(plan)
                    done.append(True)

            self.do(self.changed(compacted))
            if done:
                self.model.did("compact")
            return
        try:
            self.do(self.session.compact(BUDGETS[-1], strategy=strategy))
        except SessionError:
            return
        self.model.did("compact")

    @rule()
    def compact_and_undo(self) -> None:
        before = self.shown(self.session)
        try:
            self.do(self.session.compact(BUDGETS[-1], strategy=Strategy(keep=0)))
        except SessionError:
            return
        assert self.do(self.session.undo()) == "compact"
        assert self.shown(self.session) == before

    @precondition(lambda self: self.model.head.exchanges or self.model.head.waiting)
    @rule()
    def clear(self) -> None:
        before = len(self.model.head.messages)
        state = self.do(self.changed(lambda state: state.clear()))
        assert (state.history, state.next_message) == ([], None)
        self.model.said(*self.added_since(state, before))
        self.model.did("clear")

    @rule()
    def undo(self) -> None:
        expected = self.model.undo()
        if expected is not None:
            assert self.do(self.session.undo()) == expected
            return
        with pytest.raises(SessionError, match="nothing to undo"):
            self.do(self.session.undo())

    @rule(nested=st.booleans())
    def enter_tangent(self, nested: bool) -> None:
        inside = self.model.head.tangent is not None
        self.do(self.changed(lambda state: state.begin_tangent() if nested else state.enter_tangent_mode()))
        if nested or not inside:
            self.model.branch("tangent")

    @precondition(lambda self: self.model.head.messages)
    @rule(data=st.data())
    def tangent_from_the_past(self, data: st.DataObject) -> None:
        place = data.draw(st.integers(0, len(self.model.head.messages) - 1))
        id = self.model.head.messages[place].id
        state = self.do(self.changed(lambda state: state.begin_tangent(at=id)))
        self.model.branch_after("tangent", place, self.prefix(state.messages, place))

    @precondition(lambda self: self.model.head.tangent)
    @rule(how=st.sampled_from(["nothing", "tail", "summary"]))
    def leave_tangent(self, how: str) -> None:
        tangent = self.model.head.tangent
        assert tangent is not None
        said = list(self.model.head.messages)
        said_in_it = said[len([one for one in tangent.events[: tangent.begun] if one.message]) :]
        left = self.model.leave()
        before = len(self.model.head.messages)

        def leave(state: ConversationState) -> None:
            match how:
                case "nothing":
                    state.exit_tangent_mode()
                case "tail":
                    state.exit_tangent_mode_with_tail()
                case "summary":
                    state.exit_tangent_mode_with_summary()

        state = self.do(self.changed(leave))
        self.model.head.events.append(Event("tangent exit", tangent=left))
        brought = self.added_since(state, before)
        self.model.said(*brought)
        if how == "tail":
            copies = [message for message in brought if message.extra is not msgspec.UNSET]
            assert {message.role for message in brought if message not in copies} <= {"tool"}  # answers
            origins = {message.extra["origin"] for message in copies}  # type: ignore[index]
            assert origins >= {message.id for message in said_in_it[-1:] if message.role == "assistant"}
            assert not {message.id for message in brought} & {message.id for message in said}
        elif how == "nothing":
            assert brought == []

    @precondition(lambda self: self.model.head.messages)
    @rule(data=st.data(), operation=st.sampled_from(["fork", "rewind"]))
    def go_elsewhere(self, data: st.DataObject, operation: str) -> None:
        place = data.draw(st.integers(0, len(self.model.head.messages) - 1))
        id = self.model.head.messages[place].id
        self.do(self.session.fork(at=id) if operation == "fork" else self.session.rewind(to=id))
        self.model.branch_after(operation, place, self.prefix(self.do(self.session.messages()), place))

    @rule()
    def fork_here(self) -> None:
        self.do(self.session.fork())
        self.model.branch("fork")

    @rule(chance=st.integers(0, 5))
    def reset(self, chance: int) -> None:
        if chance == 0:
            self.session = self.do(self.session.reset())
            self.model = Conversation()

    @rule()
    def crash_and_reopen(self) -> None:
        async def again() -> Session:
            return await (await self.manager()).open(ID)

        self.session = self.do(again())

    def prefix(self, messages: list[Message], place: int) -> int:
        """Check that what is left is a prefix that ends after a message, or before its group of calls."""
        known = self.model.head.messages
        assert messages == known[: len(messages)]
        assert len(messages) <= place + 1
        assert BranchModel([Event("message", message) for message in messages]).open_calls == []
        assert all(message.role in ("tool", "assistant") for message in known[len(messages) : place + 1])
        return len(messages)

    def shown(self, session: Session) -> bytes | None:
        try:
            return as_bytes(self.do(session.preview(self.budget)).messages)
        except ContextOverflow:
            return None

    @invariant()
    def holds(self) -> None:
        if not hasattr(self, "session"):
            return
        head = self.model.head
        assert [one.id for one in self.do(self.session.messages())] == [one.id for one in head.messages]
        state = self.do(self.session.conversation())
        history = [[*(m.id for m in one.user.messages), one.assistant.id] for one in state.history]
        assert history == head.exchanges
        waiting = state.next_message.messages if state.next_message else ()
        assert [message.id for message in waiting] == head.waiting
        assert state.is_in_tangent_mode() == (head.tangent is not None)
        start, end = state.valid_history_range
        assert 0 <= start <= end == len(state.history)

    @invariant()
    def is_seen_alike_and_can_be_sent(self) -> None:
        if not hasattr(self, "session"):
            return

        async def other() -> Session:
            return await SessionManager(self.session._writer.store, policy=POLICY, clock=self.clock).open(ID)

        assert self.shown(self.session) == self.shown(self.do(other()))
        for budget in (self.budget, BUDGETS[-1]):
            try:
                window = self.do(self.session.preview(budget))
            except ContextOverflow:
                assert budget is not BUDGETS[-1]
                continue
            check_window(window, StateManager(policy=POLICY), budget)
        state = self.do(self.session.conversation())
        check_window(state.preview(BUDGETS[-1]), state.manager, BUDGETS[-1])

    def teardown(self) -> None:
        async def close() -> None:
            for manager in self.managers:
                await manager.close()

        self.do(close())
        self.loop.close()


@pytest.mark.req("I1", "I3", "I5", "I8", "J1", "J2", "J4", "D5", "C9")
@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_after_any_operations_the_conversation_agrees_with_the_model(store: str, tmp_path: Path) -> None:
    shared = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else tmp_path
    with tempfile.TemporaryDirectory(dir=shared) as folder:
        number = iter(range(10**9))

        class OnStore(Machine):
            url = staticmethod(lambda: f"sqlite:///{folder}/{next(number)}.db") if store == "sqlite" else None

        run_state_machine_as_test(
            OnStore,
            settings=EXAMPLES[store],
        )
