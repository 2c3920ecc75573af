"""One state through all its operations, written now and then and never loaded again.

After every step the state and its document agree with an obvious model. Whenever it was written, a newly
loaded state, the handle of the session and a new handle show the same.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

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
from turnstate.conversation import ConversationState, fields, from_json, to_json
from turnstate.entry import Answer, Cut, Entry, Revert, Tangent
from turnstate.errors import ContextOverflow, InputError
from turnstate.session import Session, SessionManager
from turnstate.stores.memory import MemoryStore
from turnstate.testing import FixedClock

EXAMPLES = {"memory": examples(25, long=600), "sqlite": examples(8, long=600)}
POLICY = Policy(lock_turns=1, lock_turns_at_most=2, hard_lock=3, summary_tokens=60)
WIDE = Budget(20_000)
BUDGETS = [Budget(450), Budget(900), WIDE]
ID = "s"

T = TypeVar("T")


@dataclass
class LivingConversation(Conversation):
    """The model of a conversation that can also go back to moments and reopen tangents."""

    left: dict[str, BranchModel] = field(default_factory=dict)

    def undo_on_this_line(self) -> str | None:
        """Undo the newest compaction or clear of this branch, and return its name."""
        happened, place = self.head.events, len(self.head.events)
        while place > self.head.begun:
            one = happened[place - 1]
            if one.what in ("clear", "compact"):
                happened.append(Event("revert", undoes=place - 1))
                return one.what
            place = one.undoes if one.what == "revert" else place - 1
        return None


def shown(entry: Entry) -> Entry:
    """Return an entry, or the message that an answer of the core is shown as."""
    return entry.message or entry if isinstance(entry, Answer) else entry


def happens(entry: Entry) -> bool:
    """Return True if the model records an entry."""
    return (
        isinstance(entry, Message | Revert)
        or (isinstance(entry, Cut) and bool(entry.asked))
        or (isinstance(entry, Tangent) and not entry.started)
    )


def seen(state: ConversationState) -> dict[str, Any]:
    """Return the fields of a state without the numbers of its timelines, which are arbitrary."""
    shown = fields(state)
    aside = shown.pop("tangent_state", {})
    return {**shown, "started": aside.get("tangent_start_time")}


class Machine(RuleBasedStateMachine):
    """One state, and the session that it is written to."""

    url: Callable[[], str] | None = None

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = FixedClock()
        self.memory = MemoryStore()
        self.place = self.url() if self.url else ""
        self.managers = list[SessionManager]()
        self.model = LivingConversation()

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    async def manager(self) -> SessionManager:
        if not self.place:
            return SessionManager(self.memory, policy=POLICY, clock=self.clock)
        self.managers.append(await SessionManager.open(self.place, policy=POLICY, clock=self.clock))
        return self.managers[-1]

    async def handle(self) -> Session:
        """Open the session with a new manager."""
        return await SessionManager(self.session._writer.store, policy=POLICY, clock=self.clock).open(ID)

    @initialize()
    def begin(self) -> None:
        async def begun() -> None:
            self.session = await (await self.manager()).create(id=ID, system="You are a test.")
            self.state = await self.session.conversation()

        self.do(begun())

    def told(self, change: Callable[[], object]) -> list[Message]:
        """Change the state, add the new messages to the model, and return them."""
        before = len(self.model.head.messages)
        change()
        said = self.state.messages[before:]
        self.model.said(*said)
        return said

    @rule(words=st.integers(1, 60))
    def say(self, words: int) -> None:
        expected = self.model.head.open_calls
        *cancelled, _ = self.told(lambda: self.state.set_next_user_message("word " * words))
        assert [one.tool_call_id for message in cancelled for one in message.tool_results] == expected

    @precondition(lambda self: self.model.head.waiting and not self.model.head.open_calls)
    @rule(calls=st.integers(0, 3), words=st.integers(0, 40))
    def answer(self, calls: int, words: int) -> None:
        made = [ToolCallRequest(name=f"tool{number}", args={"n": number}) for number in range(calls)]
        message = Message.assistant("answer " * words, tool_calls=made)
        assert self.told(lambda: self.state.push_assistant_message(message)) == [message]

    @precondition(lambda self: self.model.head.open_calls)
    @rule(data=st.data(), lines=st.sampled_from([1, 5, 300]))
    def tools_answer(self, data: st.DataObject, lines: int) -> None:
        some = data.draw(st.lists(st.sampled_from(self.model.head.open_calls), min_size=1, unique=True))
        results = [ToolCallResult(tool_call_id=call, result="line\n" * lines) for call in some]
        self.told(lambda: self.state.add_tool_results(results))

    @rule(budget=st.sampled_from(BUDGETS))
    def take_window(self, budget: Budget) -> None:
        try:
            window = self.state.window(budget)
        except ContextOverflow:
            return
        check_window(window, self.state.manager, budget)

    @rule()
    def note(self) -> None:
        self.state.append_transcript("503")

    @rule(name=st.sampled_from(["gpt-4o", "claude-sonnet-4-5"]), chance=st.integers(0, 3))
    def use_model(self, name: str, chance: int) -> None:
        if chance == 0:
            self.state.set_model(name)

    @rule(keep=st.integers(0, 3), summary=st.sampled_from([None, "Goal: test."]))
    def compact(self, keep: int, summary: str | None) -> None:
        plan = self.state.plan_compaction(Strategy(keep=keep), budget=WIDE)
        if plan is not None:
            self.state.compact(plan, summary)
            self.model.did("compact")

    @precondition(lambda self: self.model.head.exchanges or self.model.head.waiting)
    @rule()
    def clear(self) -> None:
        self.told(self.state.clear)
        assert (self.state.history, self.state.next_message) == ([], None)
        self.model.did("clear")

    @rule()
    def undo(self) -> None:
        expected = self.model.undo_on_this_line()
        if expected is not None:
            assert self.state.undo() == expected
            return
        with pytest.raises(InputError, match="nothing to undo"):
            self.state.undo()

    @rule()
    def begin_tangent(self) -> None:
        self.state.begin_tangent()
        self.model.branch("tangent")

    @precondition(lambda self: self.model.head.messages)
    @rule(data=st.data())
    def begin_tangent_in_the_past(self, data: st.DataObject) -> None:
        known = self.model.head.messages
        place = data.draw(st.integers(0, len(known) - 1))
        self.state.begin_tangent(at=known[place].id)
        kept = self.state.messages
        assert kept == known[: len(kept)]
        assert len(kept) <= place + 1
        self.model.branch_after("tangent", place, len(kept))

    @precondition(lambda self: self.model.head.tangent)
    @rule(how=st.sampled_from(["nothing", "tail", "summary"]))
    def leave_tangent(self, how: str) -> None:
        name = self.state.head.name
        left = self.model.leave()
        before = len(self.model.head.messages)
        happened = len(self.model.head.events)
        match how:
            case "nothing":
                self.state.exit_tangent_mode()
            case "tail":
                self.state.exit_tangent_mode_with_tail()
            case "summary":
                self.state.exit_tangent_mode_with_summary()
        entries = [shown(entry) for entry in self.state.head.entries]
        new = list(filter(happens, entries))[happened:]
        brought = self.state.messages[before:]
        if new and isinstance(new[0], Tangent):  # one in which nothing was said leaves no trace
            self.model.left[name] = left
            self.model.head.events.append(Event("tangent exit", tangent=left))
        assert new[-len(brought) :] == brought or not brought
        self.model.said(*brought)
        assert brought == [] or how != "nothing"

    def under_way(self) -> dict[str, BranchModel]:
        """Return the tangents that lead to the head, by name."""
        timeline, line, found = self.state.head, self.model.head, dict[str, BranchModel]()
        while timeline.parent is not None:
            tangent = line.tangent
            assert tangent is not None
            assert tangent.former is not None
            found[timeline.name] = line
            timeline, line = timeline.parent, tangent.former
        return found

    @precondition(lambda self: self.state.kept_tangents())
    @rule(data=st.data())
    def take_tangent_up(self, data: st.DataObject) -> None:
        kept = data.draw(st.sampled_from(range(len(self.state.kept_tangents()))))
        name = self.state.kept_tangents()[kept].name
        self.model.left |= self.under_way()
        self.state.reopen_tangent(name)
        self.model.head = self.model.left[name]

    @rule()
    def commit(self) -> None:
        self.do(self.session.commit(self.state))
        assert self.session.notices == ()
        self.holds_in_the_log()

    @rule()
    def commit_and_load(self) -> None:
        self.commit()
        self.state = self.do(self.session.conversation())

    @rule()
    def use_another_handle(self) -> None:
        async def other() -> Session:
            return await (await self.manager()).open(ID)

        self.session = self.do(other())

    def holds_in_the_log(self) -> None:
        """Check that every new reader of the session sees what the state shows."""
        fresh = self.do(self.handle())
        loaded = self.do(fresh.conversation())
        assert seen(loaded) == seen(self.state)
        assert loaded.kept_tangents() == self.state.kept_tangents()
        assert self.do(fresh.messages()) == self.state.messages
        shown = as_bytes(self.state.preview(WIDE).messages)
        assert as_bytes(loaded.preview(WIDE).messages) == shown
        of_session = as_bytes(self.do(self.session.preview(WIDE)).messages)
        assert as_bytes(self.do(fresh.preview(WIDE)).messages) == of_session
        if self.state.model_info is None:  # the session counts as it was told to
            assert of_session == shown
        other = self.do(self.handle())
        assert self.do(self.session.snapshot()).messages == self.do(other.snapshot()).messages

    def check(self, state: ConversationState) -> None:
        head = self.model.head
        assert [one.id for one in state.messages] == [one.id for one in head.messages]
        history = [[*(m.id for m in one.user.messages), one.assistant.id] for one in state.history]
        assert history == head.exchanges
        waiting = state.next_message.messages if state.next_message else ()
        assert [message.id for message in waiting] == head.waiting
        assert state.is_in_tangent_mode() == (head.tangent is not None)
        start, end = state.valid_history_range
        assert 0 <= start <= end == len(state.history)

    @invariant()
    def shows_what_the_model_says(self) -> None:
        if hasattr(self, "state"):
            self.check(self.state)
            check_window(self.state.preview(WIDE), self.state.manager, WIDE)

    @invariant()
    def lives_in_json(self) -> None:
        if hasattr(self, "state"):
            restored = from_json(to_json(self.state))
            self.check(restored)
            assert fields(restored) == fields(self.state)
            assert restored.kept_tangents() == self.state.kept_tangents()

    def teardown(self) -> None:
        async def close() -> None:
            for manager in self.managers:
                await manager.close()

        self.do(close())
        self.loop.close()


@pytest.mark.req("I1", "I5", "I9", "J1", "J2", "J4", "D5")
@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_after_any_operations_the_state_agrees_with_the_model(store: str, tmp_path: Path) -> None:
    shared = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else tmp_path
    with tempfile.TemporaryDirectory(dir=shared) as folder:
        number = iter(range(10**9))

        class OnStore(Machine):
            url = staticmethod(lambda: f"sqlite:///{folder}/{next(number)}.db") if store == "sqlite" else None

        run_state_machine_as_test(
            OnStore,
            settings=EXAMPLES[store],
        )
