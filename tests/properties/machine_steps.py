"""The steps of the random machine: every operation there is, through a handle and to the twin."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from random import Random
from typing import Any

import msgspec
from msgspec import structs

from tests.properties.machine import BUDGETS, WIDE, Machine, as_bytes, rule
from tests.properties.machine_model import Branch, Event, words
from turnstate import Message, ToolCallRequest, ToolCallResult
from turnstate.checkpoints.transaction import RestoreOperation, Undo
from turnstate.context.cut import Strategy
from turnstate.context.window import Window
from turnstate.conversation import ConversationState, FileLineTracker
from turnstate.entry import CANCELLED, INTERRUPTED, Answer, Checkpoint, Restore, Summary
from turnstate.errors import (
    Conflict,
    ContextOverflow,
    EpochEnded,
    InputError,
    InvalidMessage,
    NotFound,
    NothingToUndo,
    SessionError,
)
from turnstate.ids import CallId
from turnstate.log.operations import Operation, write
from turnstate.log.tangents import RETURNED, Bring
from turnstate.log.undo import fork, rewind
from turnstate.session.turn import Turn
from turnstate.testing import ScriptedModel

SUMMARY = "Goal: test what was said."
MODELS = ["gpt-4o", "claude-sonnet-4-5"]
FILES = ["a.py", "b.py"]
WAYS: list[tuple[Bring | None, str | None]] = [
    (None, None),
    ("tail", None),
    ("summary", None),
    ("summary", "what was found"),
    ("tail", None),
]


class RandomMachine(Machine):
    """A machine with all steps; two numbers select what each is about."""

    async def _refused(self, error: type[Exception], act: Callable[[], Awaitable[Any]]) -> None:
        try:
            await act()
        except error:
            return
        raise AssertionError(f"{error.__name__} was expected")

    # Messages.

    async def _said(self, by: int, message: Message) -> None:
        """Append a message, none of results."""
        await self.both(
            by, lambda session: session.append(message), lambda twin: twin.add(message), anywhere=True
        )
        self.model.said(message)

    @rule(8)
    async def ask(self, one: int, two: int) -> None:
        await self._said(two, Message.user(f"{two} " + "word " * (one % 40 + 1)))

    @rule(12, lambda self: self.model.head.waiting and not self.model.head.open_calls)
    async def answer(self, one: int, two: int) -> None:
        calls = [ToolCallRequest(name=f"tool{n}", args={"n": n}) for n in range(one % 5 - 1)]
        await self._said(two, Message.assistant("answer " * (one % 37), tool_calls=calls))

    @rule(8, lambda self: not self.model.head.open_calls)
    async def take_turns(self, one: int, two: int) -> None:
        """Two turns, the second one with a call."""
        call = ToolCallRequest(name="look", args={})
        for calls in ([], [call]):
            message = Message.assistant("answer " * 20, tool_calls=calls)
            await self.say(self.handles[two % 2], Message.user("word " * 25), message)
        await self._answer_calls([(call.id, f"{one} line\n" * [3, 30, 120][one % 3])], one)
        await self.say(self.handles[one % 2], Message.assistant("done"))

    async def _answer_calls(self, results: list[tuple[str, object]], by: int) -> None:
        given = [ToolCallResult.of(id, result) for id, result in results]
        since, message = self._ids.next, Message.tool(given)

        def same(twin: ConversationState) -> None:
            self._ids.next = since  # it mints the id of the message
            taken = twin.add_tool_results(given)
            assert taken is not None
            assert list(taken.tool_results) == given

        await self.both(by, lambda session: session.append(message), same, anywhere=True)
        assert await self.learn() == [message]

    @rule(28, lambda self: self.model.head.open_calls)
    async def tools_answer(self, one: int, two: int) -> None:
        calls = self.model.head.open_calls
        rng = Random(one)
        some = rng.sample(calls, rng.randint(1, len(calls)))
        lines = [1, 5, 300][two % 3]
        await self._answer_calls([(id, f"{one} line\n" * lines) for id in some], two)

    @rule(12, lambda self: self.model.head.given_up)
    async def tool_answers_late(self, one: int, two: int) -> None:
        calls = self.model.head.given_up
        await self._answer_calls([(calls[one % len(calls)], f"late {one}")], two)

    @rule(3, lambda self: self.model.head.results)
    async def tool_answers_twice(self, one: int, two: int) -> None:
        """The same result again changes nothing, another one is refused, and so is one of an unknown call."""
        given = list(self.model.head.results.items())
        id, result = given[one % len(given)]
        again = ToolCallResult.of(id, result)
        wrong = ToolCallResult.of(id if two % 2 else "nobody", "another")

        def known(twin: ConversationState) -> None:
            assert twin.add_tool_results([again]) is None

        receipt = await self.both(two % 2 + 2, lambda session: session.append(Message.tool([again])), known)
        assert receipt.repeated
        refused = self.both(
            two % 2 + 2,
            lambda session: session.append(Message.tool([again, wrong])),
            lambda twin: twin.add_tool_results([again, wrong]),
        )
        await self._refused(InvalidMessage, lambda: refused)

    @rule(2)
    async def be_refused(self, one: int, _two: int) -> None:
        """What cannot be done raises a typed error and changes nothing."""
        session, version = self.handles[one % 2], self.handles[one % 2].version
        error, act = [
            (NotFound, lambda: session.rewind(to="nobody")),
            (NotFound, lambda: session.fork(at="nobody")),
            (NotFound, lambda: session.begin_tangent(at="nobody")),
            (NotFound, lambda: session.reopen_tangent("nobody")),
            (InputError, lambda: session.leave_tangent("all")),  # type: ignore[arg-type]
            ((InputError, NothingToUndo), lambda: session.undo(only="nothing")),
            (Conflict, lambda: session.append(Message.user("late"), expected_version=version + 7)),
        ][one % 7]
        await self._refused(error, act)  # type: ignore[arg-type]

    # Turns, as programs take them.

    @rule(3, lambda self: not self.model.head.waiting)
    async def take_a_turn(self, one: int, two: int) -> None:
        """A turn with a call, and now and then with another writer in between."""
        asked, call = Message.user(f"turn {one}"), ToolCallRequest(name="look", args={"n": two})
        reply, found = Message.assistant("", tool_calls=[call]), ToolCallResult.of(call.id, "found")
        async with self.handles[one % 2].turn(asked, budget=WIDE) as turn:
            self.told(asked)
            if await self._sent(turn) is None:
                return
            if two % 4 == 0:
                await self.say(self.handles[1 - one % 2], Message.user("meanwhile"))
                await self._refused(Conflict, lambda: turn.reply(reply))
                return
            await turn.reply(reply)
            self.told(reply)
            self._since = self._ids.next
            await turn.result(call, "found")
            self.do_same(lambda twin: twin.add_tool_results([found]))
            await self.learn()
            if await self._sent(turn) is None:
                return
            done = Message.assistant("done")
            await turn.reply(done)
            self.told(done)
            assert await turn.window() is None

    async def _sent(self, turn: Turn) -> Window | None:
        """Make the window of a turn; the twin makes it, too, since both write what they decide."""
        try:
            made = await turn.window()
        except ContextOverflow:
            return None
        self.do_same(lambda twin: twin.window(WIDE))
        return made

    @rule(3, lambda self: self.model.head.open_calls)
    async def continue_a_turn(self, one: int, _two: int) -> None:
        """Another process continues a turn, and answers the calls that nobody answered."""
        expected, self._since = self.model.head.open_calls, self._ids.next

        def same(twin: ConversationState) -> None:
            for call in expected:
                twin.add(Answer.give(CallId(call), INTERRUPTED))

        async with self.handles[one % 2].turn(budget=WIDE) as turn:
            assert [call.id for call in turn.calls] == expected
            try:
                await turn.window()
                is_sent = True
            except ContextOverflow:
                is_sent = False
        self.do_same(same)
        if is_sent:
            self.do_same(lambda twin: twin.window(WIDE))
        assert [words(one).results for one in await self.learn()] == [(INTERRUPTED,)] * len(expected)

    # What is in force, and what people read.

    @rule(2)
    async def note(self, one: int, two: int) -> None:
        text = f"note {one}"
        await self.both(
            two,
            lambda session: session.note(text),
            lambda twin: twin.append_transcript(text),
            anywhere=True,
        )
        self.model.did(Event("note", label=text))

    @rule(2)
    async def set_system(self, one: int, two: int) -> None:
        text = f"You are test {one}."
        await self.both(
            two, lambda session: session.set_system(text), lambda twin: twin.set_system(text), anywhere=True
        )
        self.model.did(Event("prompt", label=text))

    @rule(2)
    async def change_settings(self, _one: int, two: int) -> None:
        extra = {"color": f"color {two % 3}"}
        await self.both(
            two,
            lambda session: session.change_settings(extra=extra),
            lambda twin: setattr(twin, "extra", extra),
            anywhere=True,
        )
        self.model.did(Event("setting", label=extra["color"]))

    @rule(3, lambda self: not self.tree)
    async def record_lines(self, one: int, two: int) -> None:
        path = FILES[one % 2]
        record = FileLineTracker(lines=two % 90, is_first_write=False) if two % 4 else None
        if record is None and path not in self.model.head.lines:
            return

        def same(twin: ConversationState) -> None:
            known = {**twin.file_line_tracker, path: record}
            twin.file_line_tracker = {name: one for name, one in known.items() if one is not None}

        await self.both(two, lambda session: session.record_lines({path: record}), same, anywhere=True)
        self.model.did(Event("lines", label=f"{path} {record.lines if record else 'gone'}"))

    @rule(3)
    async def change_model(self, one: int, two: int) -> None:
        name = MODELS[one % len(MODELS)]
        await self.both(
            two, lambda session: session.set_model(name), lambda twin: twin.set_model(name), anywhere=True
        )
        if name != self.model.head.newest("model", ""):
            self.model.did(Event("model", label=name))

    # Windows and compaction.

    @rule(8)
    async def take_window(self, one: int, two: int) -> None:
        self.budget = BUDGETS[one % len(BUDGETS)]
        if await self._window(one, two) is None:
            self.budget = WIDE

    async def _window(self, one: int, two: int) -> bytes | None:
        """Make a window, here and of the twin; what is decided is written."""
        budget = BUDGETS[one % len(BUDGETS)]
        try:
            window = await self.both(
                two, lambda session: session.window(budget), lambda twin: twin.window(budget), anywhere=True
            )
        except ContextOverflow:
            return None
        return as_bytes(window.messages)

    @rule(6)
    async def compact(self, one: int, two: int) -> None:
        await self._compacted(one, two)

    async def _compacted(self, one: int, two: int) -> bool:
        """Compact with or without a model; return False if there was nothing."""
        strategy, by_model, session = Strategy(keep=one % 4), two % 2 == 0, self.handles[one // 4 % 2]
        if by_model:
            session = await self.opened(model=ScriptedModel(SUMMARY))
        self._since = self._ids.next
        try:
            outcome = await session.compact(WIDE, strategy=strategy)
        except SessionError:
            outcome = None
        written = await session.entries(kinds=["summary"])
        source = written[-1].entry.source if written and isinstance(written[-1].entry, Summary) else {}

        def same(twin: ConversationState) -> None:
            plan = twin.plan_compaction(strategy, budget=WIDE)
            assert (plan is None) == (outcome is None), (plan, outcome)
            if plan is not None and outcome is not None:
                is_given = by_model and not outcome.refused
                twin.compact(plan, SUMMARY if is_given else None, source=source if is_given else None)

        self.do_same(same)
        if outcome is not None:
            self.model.did(Event("compact"))
        return outcome is not None

    @rule(4)
    async def compact_and_undo(self, one: int, two: int) -> None:
        """Whatever the collector decided before and after a compaction, undoing it shows the same bytes."""
        by = 2 * two + 2 if two // 2 % 6 == 0 else two  # nobody is faster
        before = await self._window(one, by)
        if await self._compacted(one, two):
            await self._window(one + 1, by)
            await self._window(one, by)
            assert await self._undone(by) == "compact"
            assert await self._window(one, by) == before

    @rule(2)
    async def clear(self, _one: int, two: int) -> None:
        def same(twin: ConversationState) -> None:
            twin.clear()
            assert (twin.history, twin.next_message) == ([], None)

        cleared = await self.both(two, lambda session: session.clear(), same)
        head = self.model.head
        assert cleared == bool(head.shown or head.is_cut_since_clearing)
        expected = [(CANCELLED,)] * len(head.open_calls)
        assert [words(one).results for one in await self.learn()] == expected
        if cleared:
            self.model.did(Event("clear"))

    # Undo.

    @rule(7)
    async def undo(self, one: int, two: int) -> None:
        for number in range(two % 4 + 1):
            await self._undone(one + number * two)

    async def _undone(self, by: int, only: str | None = None) -> str | None:
        """Undo; return what was undone, and None if there was nothing."""
        try:
            undone = await self.both(
                by, lambda session: session.undo(only=only), lambda twin: twin.undo(only=only)
            )
        except NothingToUndo:
            undone = None
        assert undone == self.model.undo()
        return undone

    @rule(2)
    async def undo_only(self, one: int, two: int) -> None:
        """Undo an operation of one name, which must be the newest one."""
        name = ["compact", "clear", "tangent", "tangent exit", "rewind"][one % 5]
        try:
            assert await self._undone(two, name) in (name, None)
        except InputError:
            assert self.model.newest_operation()[0] not in (name, None)

    # Tangents.

    @rule(4)
    async def begin_tangent(self, one: int, two: int) -> None:
        if self.tree and two % 2:
            name = await self.tree.checkpoints.enter_tangent()
            self.model.begin_tangent(name, len(self.model.head.events))
            self._checkpointed("tangent")
            return
        name = await self.both(
            one, lambda session: session.begin_tangent(), lambda twin: twin.begin_tangent()
        )
        self.model.begin_tangent(name, len(self.model.head.events))

    @rule(2, lambda self: self.model.head.messages)
    async def begin_tangent_in_the_past(self, one: int, two: int) -> None:
        said = self.model.head.messages
        id = said[one % len(said)].id
        name = await self.both(
            two, lambda session: session.begin_tangent(at=id), lambda twin: twin.begin_tangent(at=id)
        )
        self.model.begin_tangent(name, self.model.head.whole(_place(self.model.head, id)))

    @rule(14, lambda self: self.model.head.tangent)
    async def leave_tangent(self, one: int, two: int) -> None:
        if self.tree and await self._left_with_files(one % 3):
            return
        bring, summary = WAYS[one % len(WAYS)]

        def same(twin: ConversationState) -> None:
            match bring:
                case None:
                    twin.exit_tangent_mode()
                case "tail":
                    twin.exit_tangent_mode_with_tail()
                case "summary":
                    twin.exit_tangent_mode_with_summary(summary)

        name = await self.both(two, lambda session: session.leave_tangent(bring, summary=summary), same)
        left, tangent = self.model.head, self.model.head.tangent
        assert tangent is not None
        assert name == tangent.name
        said, tail = left.said_in_tangent, left.tail if left.said_in_tangent else []
        self.model.leave_tangent()
        brought = await self.learn()
        match bring:
            case None:
                assert brought == []
            case "tail":
                assert [words(one) for one in brought] == tail
                origins = [one.extra for one in brought if one.extra is not msgspec.UNSET]
                assert not tail or {"origin": left.newest_reply.id} in origins
            case "summary" if summary and said:
                assert [one.text for one in brought] == [RETURNED.format(summary=summary)]
            case _:
                assert len(brought) <= 1
                assert all(one.text.startswith(RETURNED.format(summary="")) for one in brought)

    async def _left_with_files(self, how: int) -> bool:
        """Leave a tangent that was entered with its files; return False if it was entered without."""
        assert self.tree
        head, tangent = self.model.head, self.model.head.tangent
        assert tangent is not None
        own = [event for event in head.events[tangent.begun :] if event.what == "checkpoint"]
        aside = [event for event in own if event.label == "tangent"]
        if not aside:
            return False
        before = self.tree.visible()
        kept = await self.tree.leave_tangent(aside[-1], how)
        if kept:  # a checkpoint of the tangent's files was taken
            self.model.did(Event("checkpoint", label=kept, files=before))
        self.model.leave_tangent()
        await self.learn()
        return True

    @rule(5, lambda self: not self.model.head.open_calls and not self.tree)
    async def take_a_side_trip(self, one: int, two: int) -> None:
        """A tangent of two turns, as people have them; now and then with another model, or taken back."""
        await self.begin_tangent(two, one)
        await self.take_turns(one, two)
        if one % 4 == 1:
            await self.change_model(two, one)
            await self.take_turns(two, one)
        elif one % 4 == 2:
            await self._go_to(self.model.head.said_in_tangent[1].id, 2 * two + 5)
        await self.leave_tangent(one // 5, two)

    @rule(8, lambda self: self.model.kept or self.model.under_way)
    async def reopen_tangent(self, one: int, two: int) -> None:
        names = [*self.model.kept, *(one.tangent.name for one in self.model.under_way if one.tangent)]
        name = names[one % len(names)]
        await self.both(
            two, lambda session: session.reopen_tangent(name), lambda twin: twin.reopen_tangent(name)
        )
        self.model.reopen(name)

    # Branches.

    @rule(4, lambda self: any(branch.messages for branch in self.model.branches))
    async def go_elsewhere(self, one: int, two: int) -> None:
        """Rewind to or fork from any message, on this branch or on another."""
        homes = dict[str, Branch]()  # where each message was written
        for known in self.model.branches:
            homes |= {message.id: known for message in known.messages if message.id not in homes}
        await self._go_to(list(homes)[one % len(homes)], two, homes)

    async def _go_to(self, id: str, two: int, homes: Mapping[str, Branch] | None = None) -> None:
        is_exact, is_before, is_fork = two % 8 == 1, two % 8 == 3, two % 2 == 0
        if is_fork:
            await self.both(two // 8, lambda session: session.fork(at=id), _operated(fork(id)), anywhere=True)
        else:
            await self.both(
                two // 8,
                lambda session: session.rewind(id, exact=is_exact, before=is_before),
                _operated(rewind(id, exact=is_exact, before=is_before)),
                anywhere=True,
            )
        here = {message.id for message in self.model.head.messages}
        branch = self.model.head if homes is None or id in here else homes[id]
        place = _place(branch, id)
        end = place if is_before else place + 1 if is_exact else branch.whole(place)
        anchor = place if is_before or is_exact else min(place, end)
        self.model.go_back("fork" if is_fork else "rewind", branch, end, anchor)

    @rule(1)
    async def fork_here(self, one: int, _two: int) -> None:
        await self.both(one, lambda session: session.fork(), _operated(fork()), anywhere=True)
        end = len(self.model.head.events)
        self.model.go_back("fork", self.model.head, end, end)

    # Checkpoints.

    @rule(4)
    async def checkpoint(self, one: int, two: int) -> None:
        if self.tree:
            taken = await self.tree.checkpoints.keep(f"step {one}")
            self._checkpointed(taken.label)
            return
        entry = Checkpoint(label=str(len(self.model.head.checkpoints)), commit=f"{one:040x}")
        await self.both(
            two,
            lambda session: session.operate(write(entry), anywhere=True),
            lambda twin: twin.add(entry),
            anywhere=True,
        )
        self.model.did(Event("checkpoint", label=entry.label))

    def _checkpointed(self, label: str) -> None:
        assert self.tree
        self.model.did(Event("checkpoint", label=label, files=self.tree.captured()))

    @rule(12, lambda self: self.model.head.checkpoints)
    async def restore(self, one: int, two: int) -> None:
        """Restore the conversation, the files, or both."""
        found = self.model.head.checkpoints
        conversation, files = [(True, True), (True, True), (True, False), (False, True)][two % 4]
        chosen = found[one % len(found)]
        restored = Event("restore", conversation=conversation, has_files=files and self.tree is not None)
        if self.tree:
            chosen = [event for event in found if event.label == chosen.label][-1]
            await self.tree.restore(chosen, restored, conversation=conversation, hard=two // 4 % 2 == 0)
        else:
            session = self.handles[one % 2]
            taken = await session.entries(kinds=("checkpoint",))
            entry = taken[found.index(chosen)]
            assert isinstance(entry.entry, Checkpoint)
            change = RestoreOperation(
                label=chosen.label,
                commit=entry.entry.commit,
                number=entry.seq,
                files=False,
                conversation=conversation,
            )
            name = restored.label = f"restore {one} {self._steps}"

            def same(twin: ConversationState) -> None:
                number = twin.shown.checkpoints[found.index(chosen)][0]
                _operated(structs.replace(change, number=number).change(name))(twin)

            await self.both(one % 2 + 2, lambda session: session.operate(change.change(name)), same)
        if conversation:
            place = self.model.head.events.index(chosen)
            self.model.go_back("restore", self.model.head, place + 1, place)
            expected = len(self.model.head.open_calls)
            assert len(await self.learn()) == expected  # calls that were open then are answered
        self.model.did(restored)

    @rule(14, lambda self: self.model.head.restore)
    async def undo_restore(self, one: int, _two: int) -> None:
        found = self.model.head.restore
        assert found is not None
        if self.tree:
            await self.tree.undo_restore(found[1])
        else:
            session, name = self.handles[one % 2], f"undo {one} {self._steps}"
            marks = [(mark.seq, mark.entry) for mark in await session.entries(kinds=("restore",))]
            change = _undo(marks, found[1].label).change(name)

            def same(twin: ConversationState) -> None:
                its = [(mark.seq, mark.entry) for mark in twin.shown.placed]
                _operated(_undo(its, found[1].label).change(name))(twin)

            await self.both(one % 2 + 2, lambda session: session.operate(change), same)
        self.model.undo_restore()

    @rule(8, lambda self: self.tree)
    async def change_file(self, one: int, two: int) -> None:
        assert self.tree
        self.tree.change(one, two)

    # Handles.

    @rule(3)
    async def open_again(self, one: int, _two: int) -> None:
        self.handles[one % 2] = await self.opened()
        if self.tree:
            await self.tree.open(self.handles[one % 2])

    @rule(1, lambda self: not self.tree)
    async def reset(self, one: int, two: int) -> None:
        if two % 3:
            return
        old = self.handles
        if one // 2 % 2:
            await old[0].end()
            await self._refused(EpochEnded, lambda: old[1].append(Message.user("late")))
        anew = await old[one % 2].reset()
        await self._refused(EpochEnded, lambda: old[0].append(Message.user("late")))
        self.handles = [anew, await self.opened()]
        former = self.model.head  # the next conversation begins with its prompt and its model
        self.begin_model(former.newest("prompt", ""), former.newest("model", ""))


def _operated(operation: Operation) -> Callable[[ConversationState], object]:
    """Return what does to a twin what only sessions have a method for."""
    return lambda twin: twin._operate(operation, "operate(…)")


def _place(branch: Branch, id: str) -> int:
    """Return the index of a message among the events of a branch."""
    return next(n for n, event in enumerate(branch.events) if event.message and event.message.id == id)


def _undo(marks: list[tuple[int, Any]], name: str) -> Undo:
    """Return the operation that undoes the restore of a name."""
    number, last = next(one for one in marks if isinstance(one[1], Restore) and one[1].undo == name)
    return Undo(label=last.label, number=number, undoes=name, files=False, conversation=last.conversation)
