"""A log in memory beside a store: each read of an operation has one answer, and each effect one outcome."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from msgspec import structs

from tests.harness.thoroughness import report, rng, runs
from turnstate import Message, Session, SessionManager, ToolCallRequest, ToolCallResult
from turnstate.context.cut import Strategy
from turnstate.conversation import ConversationState, fields, from_json, to_json
from turnstate.conversation.kept_settings import changed
from turnstate.entry import Checkpoint, ModelChange, Note, Prompt, Restore, Usage
from turnstate.errors import InputError, SessionError
from turnstate.log import operations
from turnstate.log.memory_log import MemoryLog
from turnstate.log.operations import Effect, Here, Operation, Placed, Read, Steps
from turnstate.log.tangents import begin, kept, leave, reopen
from turnstate.log.undo import fork, restore, rewind, undo, undo_restore
from turnstate.session.operate import answered
from turnstate.sticky import Workspace
from turnstate.testing import FixedClock

NOWHERE = Path("/nonexistent")


class Nowhere:
    """An environment without files whose clock is that of the store."""

    def __init__(self, clock: FixedClock) -> None:
        self._clock = clock

    def now(self) -> int:
        return self._clock()

    def workspace(self) -> Workspace:
        return Workspace(root=NOWHERE, home=NOWHERE)


def same(answer: Any) -> Any:
    """Return an answer without the ids that a store gives to entries that have none."""
    match answer:
        case Placed():
            return answer if answer.message else answer._replace(id="")
        case dict():
            return {kind: same(one) for kind, one in answer.items()}
        case list():
            return [same(one) for one in answer]
    return answer


class Pair:
    """One conversation in a log in memory and in a session."""

    def __init__(self, session: Session, clock: FixedClock, random: Random) -> None:
        self.session, self.clock, self.pick = session, clock, random.choice
        self.done = Counter[str]()
        self.log = MemoryLog(session.id)
        self.log.branches[1] = structs.replace(self.log.branches[1], created=clock())

    async def run(self, operation: Operation) -> Any:
        """Run an operation once on both, and apply its effect to both; return its result."""
        while True:
            self.clock.advance(1_000)
            writer = self.session._writer

            async def job(row: Any, log: Any) -> Effect:
                here = Here(row.id, row.head, self.clock())
                assert row.head == self.log.head
                return await answered(self._compared(operation, here), log, row.address)

            effect: Effect = await writer.read(job)
            self.log.apply(effect, now=self.clock())
            await self.session.operate(_having(effect))
            assert self.session.info.branch == self.log.head.branch
            if not effect.again:
                return effect.result

    def _compared(self, operation: Operation, here: Here) -> Steps[Effect]:
        """Run an operation; each read that the store answers is also answered by the log in memory."""
        steps, answer = operation(here), None
        while True:
            try:
                read: Read = steps.send(answer)
            except StopIteration as end:
                effect: Effect = end.value
                return effect
            answer = yield read
            assert same(answer) == same(self.log.answer(read)), read

    # What is done. Numbers choose among what is there.

    @property
    def path(self) -> list[Placed]:
        return self.log.walk(self.log.path())

    def any_message(self) -> str:
        ids = [str(one.id) for entries in self.log.entries.values() for one in entries if one.message]
        return self.pick([*ids[-20:], *ids[-20:], "nowhere"])

    async def user(self) -> None:
        await self.run(operations.write(Message.user(f"question {self.log.head.seq}")))

    async def assistant(self) -> None:
        calls = [ToolCallRequest(name="ls", args={}) for _ in range(self.pick([0, 0, 1, 2]))]
        await self.run(operations.write(Message.assistant("well", tool_calls=calls), Usage(input=1)))

    async def results(self) -> None:
        calls = [call for one in self.path if one.message for call in one.message.tool_calls]
        if calls:
            results = [ToolCallResult(tool_call_id=self.pick(calls).id, result="done")]
            await self.run(operations.write(Message.tool(results)))

    async def other(self) -> None:
        await self.run(
            self.pick(
                [
                    operations.write(Note("503")),
                    operations.write(Prompt("Keep.")),
                    operations.set_model(ModelChange(self.pick(["gpt-4o", "gpt-4.1"]), "o200k_base")),
                    operations.change_settings(changed({"extra": {"n": self.pick([1, 2])}})),
                    operations.record_lines({"a.py": {"lines": self.log.head.seq}}),
                ]
            )
        )

    async def compact(self) -> None:
        state = ConversationState(self.log.id, os=Nowhere(self.clock))
        state.use(self.log)
        plan = state.plan_compaction(Strategy(keep=self.pick([0, 1, 2])))
        if plan is not None:
            await self.run(operations.write(state.shown.fold.archiving(plan.cut)))

    async def clear(self) -> None:
        await self.run(operations.clear())

    async def undo(self) -> None:
        only = self.pick([None, None, None, "clear"])
        self.done[f"undone {await self.run(undo(only))}"] += 1

    async def begin(self) -> None:
        await self.run(begin(self.pick([None, self.any_message()])))

    async def leave(self) -> None:
        bring = self.pick([None, "tail", "tail", "summary"])
        summary = self.pick([None, "short", " "]) if bring == "summary" else None
        name = await self.run(leave(bring, summary))
        self.done[f"left with {bring or 'nothing'}"] += name is not None

    async def reopen(self) -> None:
        names = [one.name for one in await self.run(kept())]
        open = [one.name for one in self.log.branches.values() if one.operation == "tangent"]
        await self.run(reopen(self.pick([*names, *open, "nowhere"])))
        self.done["reopened"] += 1

    async def move(self) -> None:
        at = self.any_message()
        exact, before = self.pick([(False, False), (True, False), (False, True)])
        await self.run(self.pick([fork(at), fork(), rewind(at, exact=exact, before=before)]))

    async def checkpoint(self) -> None:
        await self.run(operations.write(Checkpoint(label="1", commit="a" * 40, work_tree="/work")))

    async def restore(self) -> None:
        saved = [one for one in self.path if isinstance(one.entry, Checkpoint)]
        if saved:
            one = self.pick(saved)
            await self.run(restore(one.seq, one.entry, Restore(label="1", commit="a" * 40)))
            if self.pick([True, False]):
                await self.user()
                mark = next(one.seq for one in self.path[::-1] if isinstance(one.entry, Restore))
                await self.run(undo_restore(mark))

    async def check(self) -> None:
        """Both have the same log and show the same."""
        assert self.session.info.seq == self.log.head.seq
        rows = await self.session.entries()
        assert [one.entry for one in rows] == [one.entry for one in self.path]
        state = ConversationState(self.log.id, os=Nowhere(self.clock))
        state.use(self.log)
        view = await self.session.conversation(last=10_000, os=Nowhere(self.clock))
        assert view.messages == state.messages == await self.session.messages()
        assert view.kept_tangents() == state.kept_tangents()
        assert view.open_tangents == tuple(state.open_tangents)
        assert view.tangent_state == state.tangent_state
        assert (view.history, view.next_message) == (state.history, state.next_message)
        assert (view.transcript, view.latest_summary) == (state.transcript, state.latest_summary)
        assert view.valid_history_range == state.valid_history_range
        assert view.checkpoint_manager == state.checkpoint_manager
        restored = from_json(to_json(view), os=Nowhere(self.clock))
        assert fields(restored) == fields(view)


def _having(effect: Effect) -> Operation:
    def steps(_: Here) -> Steps[Effect]:
        yield from ()
        return Effect(entries=effect.entries, fork=effect.fork, select=effect.select, after=effect.after)

    return steps


Step = Callable[[Pair], Awaitable[None]]

STEPS: list[Step] = [
    *[Pair.user, Pair.user, Pair.user, Pair.assistant, Pair.assistant, Pair.assistant, Pair.results],
    *[Pair.other, Pair.compact, Pair.clear, Pair.undo, Pair.undo, Pair.begin, Pair.begin, Pair.leave],
    *[Pair.leave, Pair.reopen, Pair.move, Pair.checkpoint, Pair.restore],
]
LENGTH = 60
"""How many steps are made in one conversation."""


async def walk(url: str, random: Random) -> Counter[str]:
    """Make random steps in one conversation, and return what was done."""
    clock = FixedClock()
    async with await SessionManager.open(url, clock=clock) as sessions:
        pair = Pair(await sessions.create(id="c"), clock, random)
        for number in range(LENGTH):
            try:
                await random.choice(STEPS)(pair)
            except (InputError, SessionError) as error:
                pair.done[f"refused {type(error).__name__}"] += 1
            if number % 5 == 0:
                await pair.check()
        await pair.check()
        return pair.done


@pytest.mark.req("I1", "J2", "J3", "J4", "D5")
@pytest.mark.parametrize(("kind", "count"), [("memory", runs(60, long=600)), ("sqlite", runs(15, long=150))])
def test_a_log_in_memory_is_as_one_in_a_store(
    kind: str, count: int, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    random, done = rng(f"logs in memory beside {kind}"), Counter[str]()
    for number in range(count):
        url = "memory:" if kind == "memory" else f"sqlite:///{tmp_path}/{number}.db"
        done += asyncio.run(walk(url, random))
    report(record_property, f"logs in memory beside {kind}", **done)
    for what in ("undone tangent exit", "undone clear", "left with tail", "left with summary", "reopened"):
        assert done[what], f"{what} did not happen"
