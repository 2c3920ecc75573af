"""After any operations the messages of a session are those of a plain list."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from session_runs import ID, SessionRun, check_handles_agree, check_log, window
from thoroughness import examples
from window_checks import check_window

from turnstate import Message
from turnstate.context.policy import Budget, Policy
from turnstate.errors import EpochEnded, InvalidMessage, NotFound, SessionError
from turnstate.message import ToolCallRequest, ToolCallResult
from turnstate.session import Session
from turnstate.session import branching as session_groups

T = TypeVar("T")
NARROW = Budget(500)

picks = st.integers(0, 10**6)
words = st.sampled_from(["hello", "go on", "word " * 30, "日本 " * 20, ""])


def whole_groups(path: list[Message]) -> list[Message]:
    """Return a path without a group at its end that has open calls."""
    start, open_calls, answered = -1, set[str](), False
    for place, message in enumerate(path):
        if message.role == "user" or (message.role == "assistant" and (answered or not open_calls)):
            start, open_calls, answered = -1, set(), False
        if message.tool_calls:
            start = place if start < 0 else start
            open_calls |= {call.id for call in message.tool_calls}
        if message.role == "tool" and start >= 0:
            answered = True
            open_calls -= {result.tool_call_id for result in message.tool_results}
    return path[:start] if open_calls else path


class Paths(RuleBasedStateMachine):
    """A session beside a list of messages, the paths to go back to, and the path to every message."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.session_run = SessionRun(Policy())
        self.path, self.former = list[Message](), list[list[Message]]()
        self.known = dict[str, list[Message]]()
        self.ended, self.epoch = False, 1
        self.handles = list[tuple[Session, int]]()

    def teardown(self) -> None:
        self.runner.close()

    def do(self, act: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(act)

    @property
    def session(self) -> Session:
        return self.handles[-1][0]

    def one(self, pick: int) -> Session:
        """Return any handle of this epoch."""
        handles = self.current()
        return handles[pick % len(handles)]

    def current(self) -> list[Session]:
        return [handle for handle, epoch in self.handles if epoch == self.epoch]

    @initialize(system=st.sampled_from([None, "You help."]))
    def create(self, system: str | None) -> None:
        async def made() -> Session:
            return await (await self.session_run.sessions()).create(id=ID, system=system)

        self.handles.append((self.do(made()), 1))

    def take(self, *messages: Message) -> None:
        for message in messages:
            self.path = [*self.path, message]
            self.known[message.id] = self.path

    def append(self, *messages: Message, by: int = 0) -> None:
        self.do(self.one(by).append(*messages))
        self.take(*messages)

    @precondition(lambda self: not self.ended)
    @rule(text=words, by=picks)
    def user_speaks(self, text: str, by: int) -> None:
        self.append(Message.user(text), by=by)

    @precondition(lambda self: not self.ended)
    @rule(text=words, by=picks)
    def assistant_speaks(self, text: str, by: int) -> None:
        self.append(Message.assistant(text), by=by)

    @precondition(lambda self: not self.ended)
    @rule(count=st.integers(1, 3), said=st.none() | words, by=picks)
    def assistant_calls(self, count: int, said: str | None, by: int) -> None:
        calls = [ToolCallRequest(name="ls", args={"n": number}) for number in range(count)]
        self.append(Message.assistant(said, tool_calls=calls), by=by)

    @precondition(lambda self: not self.ended and any(message.tool_calls for message in self.path))
    @rule(which=st.lists(picks, min_size=1, max_size=3), result=st.integers(0, 1), by=picks)
    def tools_answer(self, which: list[int], result: int, by: int) -> None:
        """Answer calls of the path, early or late, some of them twice."""
        calls = [call.id for message in self.path for call in message.tool_calls]
        chosen = list(dict.fromkeys(calls[-1 - pick % min(len(calls), 6)] for pick in which))
        given = {one.tool_call_id: one.result for message in self.path for one in message.tool_results}
        message = Message.tool([ToolCallResult(tool_call_id=id, result=result) for id in chosen])
        if any(given.get(id, result) != result for id in chosen):
            with pytest.raises(InvalidMessage):
                self.do(self.one(by).append(message))
            return
        self.do(self.one(by).append(message))
        new = tuple(one for one in message.tool_results if one.tool_call_id not in given)
        if new:
            self.take(message.replace(tool_results=new))

    @precondition(lambda self: not self.ended)
    @rule()
    def nobody_is_answered(self) -> None:
        with pytest.raises(InvalidMessage):
            self.do(self.session.append(Message.tool([ToolCallResult(tool_call_id="nobody", result=1)])))

    @precondition(lambda self: not self.ended)
    @rule(by=picks)
    def a_window_is_made(self, by: int) -> None:
        if made := self.do(window(self.one(by), NARROW)):
            check_window(made, self.session_run.manager, NARROW)

    @precondition(lambda self: not self.ended)
    @rule(text=words)
    def the_prompt_changes(self, text: str) -> None:
        self.do(self.session.set_system(text[:20]))

    @precondition(lambda self: not self.ended and self.known)
    @rule(pick=picks, operation=st.sampled_from(["fork", "rewind"]), by=picks)
    def the_path_goes_elsewhere(self, pick: int, operation: str, by: int) -> None:
        """Fork from or rewind to any message, on this branch or on another."""
        id = list(self.known)[pick % len(self.known)]
        handle = self.one(by)
        self.do(handle.fork(at=id) if operation == "fork" else handle.rewind(to=id))
        self.former.append(self.path)
        self.path = whole_groups(self.known[id])

    @precondition(lambda self: not self.ended)
    @rule()
    def a_branch_begins_here(self) -> None:
        self.do(self.session.fork())
        self.former.append(self.path)

    @precondition(lambda self: not self.ended)
    @rule(by=picks)
    def it_is_undone(self, by: int) -> None:
        if not self.former:
            with pytest.raises(SessionError):
                self.do(self.one(by).undo())
            return
        self.do(self.one(by).undo())
        self.path = self.former.pop()

    @rule()
    def nobody_is_found(self) -> None:
        with pytest.raises(NotFound):
            self.do(self.session.rewind(to="nobody"))

    @rule(by=picks)
    def it_is_reset(self, by: int) -> None:
        handle = self.one(by)
        anew = self.do(handle.reset())
        self.path, self.former, self.ended = [], [], False
        self.epoch += 1
        self.handles.append((anew, self.epoch))

    @precondition(lambda self: not self.ended)
    @rule()
    def it_ends(self) -> None:
        self.do(self.session.end())
        self.ended = True

    @precondition(lambda self: self.ended)
    @rule()
    def it_takes_nothing_any_more(self) -> None:
        with pytest.raises(EpochEnded):
            self.do(self.session.append(Message.user("late")))

    @rule()
    def another_worker_opens_it(self) -> None:
        self.handles.append((self.do(self.session_run.opened()), self.epoch))
        self.handles = self.handles[-4:]

    @precondition(lambda self: any(epoch != self.epoch for _, epoch in self.handles))
    @rule()
    def an_old_handle_is_refused(self) -> None:
        old = next(handle for handle, epoch in self.handles if epoch != self.epoch)
        with pytest.raises(EpochEnded):
            self.do(old.append(Message.user("late")))
        with pytest.raises(EpochEnded):
            self.do(old.messages())

    @invariant()
    def the_messages_are_those_of_the_list(self) -> None:
        if not self.handles:
            return
        for handle in self.current():
            assert self.do(handle.messages()) == self.path
        for count in (0, 1, 3):
            assert self.do(self.session.messages(last=count)) == self.path[max(0, len(self.path) - count) :]
        self.do(check_log(self.session))

    @precondition(lambda self: not self.ended)
    @rule()
    def all_see_the_same_window(self) -> None:
        self.do(
            check_handles_agree(self.session_run, NARROW, *self.current(), self.do(self.session_run.opened()))
        )


EXAMPLES = examples(12, long=400, steps=40)


@pytest.mark.req("A5", "A7", "C3", "C9", "G2", "G5", "G7")
def test_the_messages_of_a_session_are_those_of_a_list() -> None:
    run_state_machine_as_test(Paths, settings=EXAMPLES)


def test_a_rewind_into_a_group_that_stays_there_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    async def raw(log: Any, at: Any, id: str) -> Any:
        row = await session_groups.entry_row(log, at, id)
        return session_groups.Position(row.branch, row.seq)

    monkeypatch.setattr("turnstate.session.session.end_of", raw)
    hunt = settings(EXAMPLES, max_examples=300, database=None, phases=[Phase.generate])
    with pytest.raises(AssertionError):
        run_state_machine_as_test(Paths, settings=hunt)
