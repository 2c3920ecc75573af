"""The random machine: one conversation through every operation there is, compared with a plain model.

A step is a name and two numbers, which select what it is about, so any list of steps can be played again and
made shorter. All steps go through a session, of which there are two handles, and the same is done to a
conversation without a session, its *twin*. Now and then another writer is faster: another handle or another
process writes after an operation has read, and before it writes.

After each step all readers agree: the model, views with and without `last`, messages and entries, the twin,
and now and then another process. Every window fits its budget and is valid for every provider. The steps are
in `machine_steps`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec
import pytest

from tests.properties.machine_files import WorkTree
from tests.properties.machine_model import Conversation, Event
from tests.properties.window_checks import check_window
from turnstate import Budget, Message, Policy, ids
from turnstate.context.cut import MAX_CONVERSATION_STATE_HISTORY_LEN
from turnstate.context.live_window import LiveWindow
from turnstate.context.manager import StateManager
from turnstate.context.window import Window
from turnstate.conversation import ConversationState, fields, from_json, state, to_json
from turnstate.conversation.environment import System
from turnstate.errors import Conflict, ContextOverflow, TurnstateError
from turnstate.session import Session, SessionManager
from turnstate.stores.memory import MemoryStore
from turnstate.stores.port import Store
from turnstate.stores.values import Change, Receipt
from turnstate.testing import FixedClock

SYSTEM = "You are a test."
POLICY = Policy(lock_turns=1, lock_turns_at_most=2, hard_lock=3, summary_tokens=60)
WIDE = Budget(20_000)
BUDGETS = [Budget(240), Budget(250), Budget(450), Budget(1_000), WIDE]
ALL = MAX_CONVERSATION_STATE_HISTORY_LEN
READERS = 5
SPARE = 1_000
"""Ids for an operation that starts over, between those of its first try and those of the faster writer."""

if TYPE_CHECKING:
    from tests.properties.machine_process import Process

T = TypeVar("T")

_numbers = count(1)


class Step(NamedTuple):
    """A step: its name, and two numbers that select what it is about."""

    name: str
    one: int = 0
    two: int = 0


class View(NamedTuple):
    """What a reader of the conversation sees: its fields, its tangents, its messages, and some windows."""

    fields: bytes
    tangents: bytes
    messages: bytes
    windows: tuple[bytes | None, ...] = ()


def as_bytes(messages: Sequence[Message]) -> bytes:
    """Return messages as bytes to compare."""
    return msgspec.json.encode(messages)


def view_of(state: ConversationState, windows: Sequence[Window | None] = ()) -> View:
    """Return what a state shows, and these windows of it."""
    return View(
        msgspec.json.encode(fields(state), order="sorted"),
        msgspec.json.encode(state.kept_tangents()),
        as_bytes(state.messages),
        tuple(as_bytes(one.messages) if one is not None else None for one in windows),
    )


async def seen(session: Session, budgets: Sequence[Budget]) -> View:
    """Return everything that a handle shows."""
    state = await session.conversation(last=ALL)
    return view_of(state, [await preview(session, budget) for budget in budgets])


async def preview(session: Session, budget: Budget) -> Window | None:
    """Return the window of a session; None if none fits."""
    try:
        return await session.preview(budget)
    except ContextOverflow:
        return None


def _preview(state: ConversationState, budget: Budget) -> Window | None:
    try:
        return state.preview(budget)
    except ContextOverflow:
        return None


Act = Callable[["Machine", int, int], Awaitable[None]]


class _Rule(NamedTuple):
    act: Act
    weight: int
    when: Callable[[Machine], Any]


RULES = dict[str, _Rule]()


def rule(weight: int, when: Callable[[Machine], Any] = lambda _: True) -> Callable[[Act], Act]:
    """Register a method as a step, with its weight among the others, for when a condition holds."""

    def register(act: Act) -> Act:
        RULES[act.__name__] = _Rule(act, weight, when)
        return act

    return register


def enabled_steps(machine: Machine) -> dict[str, int]:
    """Return the steps that are possible now, with their weights."""
    return {name: one.weight for name, one in RULES.items() if one.when(machine)}


class _Clock(System, frozen=True, kw_only=True):
    """A system whose time is that of a session."""

    clock: FixedClock

    def now(self) -> int:
        return self.clock()


class Ids:
    """The ids that are minted in a run: numbers, so that a session and its twin can mint the same."""

    def __init__(self) -> None:
        self.next = self.newest = 1

    def minted(self) -> str:
        """Return the hexadecimal digits of the next id."""
        self.next, self.newest = self.next + 1, max(self.newest, self.next + 1)
        return f"{FixedClock()():012x}7000{8 << 60 | self.next:016x}"

    @contextmanager
    def again(self, since: int) -> Iterator[None]:
        """Mint the same ids as since a moment."""
        self.next = since
        try:
            yield
        finally:
            self.next = self.newest


@contextmanager
def alike() -> Iterator[Ids]:
    """Let a conversation without a session do what a session does, to the byte.

    Both mint the same ids at the same time, and what they shorten names the full output, which sessions have.
    """
    known = Ids()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ids, "_uuid7", known.minted)
        patch.setattr(ids, "now", lambda: ids.UNKNOWN_TIME)
        patch.setattr(state, "LiveWindow", lambda *given, **_: LiveWindow(*given, stored=True))
        yield known


class _Overtaken:
    """A store on which another writer is faster, once: right before the next change is committed."""

    def __init__(self, store: Store, faster: Callable[[], Awaitable[None]]) -> None:
        self._store, self._faster = store, faster
        self._is_due = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def commit(self, change: Change) -> Receipt:
        if self._is_due:
            self._is_due = False
            await self._faster()
        return await self._store.commit(change)


@contextmanager
def _overtaken(session: Session, faster: Callable[[], Awaitable[None]]) -> Iterator[None]:
    """Let another writer be faster than the next write of a handle."""
    writer, store = session._writer, session._writer.store
    writer.store = _Overtaken(store, faster)  # type: ignore[assignment]
    try:
        yield
    finally:
        writer.store = store


class Machine:
    """One conversation on one store, two handles, its twin without a session, and the model."""

    def __init__(
        self,
        store: Store | None = None,
        minting: Ids | None = None,
        *,
        url: str = "",
        turns: int = 0,
        tree: Path | None = None,
        cap: int = ALL,
        process: Process | None = None,
    ) -> None:
        """Begin with some turns; `cap` is how many exchanges a view may show."""
        self.url, self._turns, self.cap, self.process = url, turns, cap, process
        self.id, self.clock, self._store = f"s{next(_numbers)}", FixedClock(), store or MemoryStore()
        self.model, self.budget = Conversation(), WIDE
        self.handles: list[Session]
        self.tree = WorkTree(tree) if tree else None
        self.twin: ConversationState | None = None
        self._ids = minting or Ids()
        self._since = self._ids.next  # the first id of the last operation
        self._valid, self._steps = set[tuple[bytes, int, str]](), 0
        self._former: tuple[ConversationState, bytes] | None = None  # a view, and what it showed
        self.has_moved = False  # another writer was faster, and moved the head to another branch

    # Running.

    async def begin(self) -> None:
        """Create the conversation."""
        first = await self.manager().create(id=self.id, system=SYSTEM)
        self.handles = [first, await self.opened()]
        self.begin_model(SYSTEM)
        if self.tree:
            await self.tree.open(first)
            self.model.did(Event("checkpoint", label="0", files=self.tree.captured()))
        for turn in range(self._turns):
            asked = Message.user(f"turn {turn} " + "word " * 20)
            await self.say(first, asked, Message.assistant("answer " * (turn * 37 % 60)))
        await self.check()

    async def play(self, step: Step) -> bool:
        """Do one step and check what must hold; return False if it is not possible now."""
        rule = RULES[step.name]
        if not rule.when(self):
            return False
        try:
            await rule.act(self, step.one, step.two)
        except Conflict:
            if not self.has_moved:
                raise
        await self.check(step.one + step.two)
        return True

    def manager(self, **settings: Any) -> SessionManager:
        """Return a new manager, as another process has one, on the same store."""
        return SessionManager(self._store, policy=POLICY, clock=self.clock, **settings)

    async def opened(self, **settings: Any) -> Session:
        """Return a handle that has seen nothing."""
        return await self.manager(**settings).open(self.id)

    def begin_model(self, prompt: str, model: str = "") -> None:
        """Begin the model and the twin, with what an epoch begins with.

        A twin has no files, and it cuts at the cap when a message is added, a session when a window is made.
        """
        self.model, self.twin = Conversation(), None
        if self.tree is None and self.cap == ALL:
            self.twin = ConversationState(self.id, os=_Clock(clock=self.clock), policy=POLICY)
            self.twin.set_system(prompt)
            if model:
                self.twin.set_model(model)
        self.model.did(Event("prompt", label=prompt))
        if model:
            self.model.did(Event("model", label=model))

    async def both(
        self,
        by: int,
        act: Callable[[Session], Awaitable[T]],
        same: Callable[[ConversationState], object],
        *,
        anywhere: bool = False,
    ) -> T:
        """Do something through a handle, and the same to the twin; what is refused is refused by both.

        Now and then another writer is faster. If it moved the head to another branch, the handle raises
        `Conflict`, unless the operation is done anywhere.
        """
        session, self._since, self.has_moved = self.handles[by % 2], self._ids.next, False
        refused: TurnstateError | None = None
        try:
            if by // 2 % 6:
                result = await act(session)
            else:
                with _overtaken(session, lambda: self._write_first(self.handles[1 - by % 2], by // 12)):
                    result = await act(session)
                assert anywhere or not self.has_moved
        except TurnstateError as error:
            if isinstance(error, Conflict) and self.has_moved:
                raise
            refused = error
        self.do_same(same, refused=refused)
        if refused is not None:
            raise refused
        return result

    def do_same(
        self, same: Callable[[ConversationState], object], *, refused: TurnstateError | None = None
    ) -> None:
        """Do to the twin what the last operation did, with the same ids."""
        if self.twin is None:
            return
        with self._ids.again(self._since), pytest.raises(type(refused)) if refused else nullcontext():
            same(self.twin)

    async def _write_first(self, other: Session, by: int) -> None:
        """Write by another handle, or another process."""
        since = self._since
        self._since = self._ids.next = self._ids.newest + SPARE
        if by % 4 == 0 and self.tree is None:
            name = await other.begin_tangent()
            self.do_same(lambda twin: twin.begin_tangent())
            self.model.begin_tangent(name, len(self.model.head.events))
            self.has_moved = True
        elif by % 4 == 1:
            await other.note(f"first {by}")
            self.do_same(lambda twin: twin.append_transcript(f"first {by}"))
            self.model.did(Event("note", label=f"first {by}"))
        elif self.process is not None and by % 4 == 2:
            message = Message.user(f"first {by}")
            await self.process.append(self.url, self.id, message)
            self.told(message)
        else:
            await self.say(other, Message.user(f"first {by}"))
        self._ids.next = self._since = since  # the operation starts over

    # What was done: it is told to the twin and the model.

    async def say(self, session: Session, *messages: Message) -> None:
        """Append messages, none of them results."""
        await session.append(*messages)
        self.told(*messages)

    def told(self, *messages: Message) -> None:
        """Add messages, none of them results, to the twin and the model."""
        self.model.said(*messages)
        for message in messages:
            self.do_same(lambda twin, message=message: twin.add(message))  # type: ignore[misc]

    async def learn(self) -> list[Message]:
        """Return the messages that the last operation wrote by itself; the model learns them."""
        known = {message.id for message in self.model.head.messages}
        said = await self.handles[0].messages()
        written = [message for message in said if message.id not in known]
        assert said[len(said) - len(written) :] == written
        self.model.said(*written)
        return written

    # What must hold.

    async def check(self, by: int = 0) -> None:
        """Check that readers see what the model says, and that every window can be sent.

        A handle shows all of it after each step. The step's numbers select which other reader is asked, so
        that a list of steps fails in the same way when others are left out.
        """
        self._steps += 1
        handle = self.handles[by // READERS % 2]
        whole = await handle.conversation(last=ALL)
        self._check_model(whole, ALL)
        windows = [await preview(handle, budget) for budget in self.budgets]
        expected = view_of(whole, windows)
        for window, budget in zip(windows, self.budgets, strict=True):
            if window is not None:
                self._check_window(window, budget, whole.manager)
        self._check_twin(expected)
        self._check_former(whole, expected)
        match by % READERS:
            case 0:
                assert await seen(await self.opened(), self.budgets) == expected
            case 1:
                self._check_default(await self.handles[0].conversation(), whole)
            case 2:
                most = by // READERS % 5 + 1
                self._check_model(await self.handles[0].conversation(last=most), most)
            case 3:
                await self._check_log(handle, by // READERS)
            case _ if self.process is not None:
                assert await self.process.seen(self.url, self.id, self.budgets, self.cap) == expected
            case _:
                self._check_document(whole, expected)
        assert self.handles[0].notices == self.handles[1].notices == ()
        if self.tree:
            self.tree.check()

    @property
    def budgets(self) -> list[Budget]:
        """The budgets of the windows that are compared: the current one, and a wide one."""
        return [self.budget, WIDE] if self.budget != WIDE else [WIDE]

    def _check_model(self, state: ConversationState, last: int) -> None:
        """Check a view with the last exchanges, as far as the cap allows."""
        head, is_capped = self.model.head, last >= self.cap
        said = [one.id for one in head.messages]
        loaded = [one.id for one in state.messages]
        assert loaded == said[len(said) - len(loaded) :]
        replies = sum(message.role == "assistant" for message in head.messages)
        most = self.cap + 1 if is_capped else last
        assert state.has_earlier == (len(loaded) < len(said)) == (replies > most) or replies == most
        exchanges = [[*(m.id for m in one.user.messages), one.assistant.id] for one in state.history]
        assert exchanges == (head.newest_exchanges(self.cap) if is_capped else head.exchanges[-last:])
        self._check_now(state)
        lines = {path: one.lines for path, one in state.file_line_tracker.items()}
        assert lines == head.lines
        labels = [one.label for one in head.checkpoints]
        taken = state.checkpoint_manager
        assert [one.label for one in taken.checkpoints] if taken else labels == []
        kept = [(one.name, one.opening) for one in state.kept_tangents()]
        assert kept == [(name, opening) for name, (_, opening) in self.model.kept.items()]
        transcript = head.transcript[-self.cap :]
        shown = state.transcript
        assert shown == transcript[len(transcript) - len(shown) :]
        assert state.has_earlier or shown == transcript

    def _check_now(self, state: ConversationState) -> None:
        """Check what every view has: what is in force, and what waits."""
        head = self.model.head
        waiting = state.next_message.messages if state.next_message else ()
        assert [message.id for message in waiting] == head.waiting
        assert [call.id for call in state.shown.open_calls] == head.open_calls
        assert state.is_in_tangent_mode() == (head.tangent is not None)
        assert [one.name for one in state.open_tangents] == [
            one.tangent.name for one in self.model.under_way if one.tangent
        ]
        assert state.system == head.newest("prompt", "")
        assert state.extra.get("color", "") == head.newest("setting", "")
        assert (state.model_info.id if state.model_info else "") == head.newest("model", "")
        start, end = state.valid_history_range
        assert 0 <= start <= end == len(state.history)

    def _check_default(self, state: ConversationState, whole: ConversationState) -> None:
        """Check the view that one gets without saying how much: from the newest cut on, all is the same."""
        self._check_now(state)
        assert state.version == whole.version
        both = min(len(state.history), len(whole.history))
        assert state.history[len(state.history) - both :] == whole.history[len(whole.history) - both :]
        assert state.latest_summary == whole.latest_summary
        if self.cap == ALL:  # else the whole one is too long, and shortened to begin with a turn
            sent, all_sent = state.valid_history_range, whole.valid_history_range
            assert state.history[sent[0] :] == whole.history[all_sent[0] :]
        assert state.has_earlier or state.messages == whole.messages
        main, other = state.tangent_state, whole.tangent_state
        assert (main is None) == (other is None)
        if main is not None and other is not None:
            assert main.main_next_message == other.main_next_message
            assert main.main_latest_summary == other.main_latest_summary

    async def _check_log(self, handle: Session, number: int) -> None:
        """Check messages and entries, read in some way."""
        head = self.model.head
        said = head.messages
        match number % 3:
            case 0:
                assert await handle.messages() == said
            case 1:
                assert await handle.messages(last=3) == said[-3:]
            case 2 if said:
                place = number % len(said)
                found = await handle.messages(after=said[place].id, limit=4)
                assert found == said[place + 1 :][:4]
        marks = await handle.entries(kinds=("tangent", "revert", "prompt"))
        kinds = [(one.kind, getattr(one.entry, "started", 0) > 0) for one in marks]
        assert kinds.count(("revert", False)) == head.count("undo")
        assert kinds.count(("prompt", False)) == head.count("prompt")
        exits = [one.entry for one in marks if one.kind == "tangent"]
        ended = [one for one in exits if not getattr(one, "started", 0) and not getattr(one, "undone", 0)]
        assert len(ended) == head.count("exit")
        lines = {path: one.lines for path, one in (await handle.lines()).items()}
        assert lines == head.lines

    def _check_twin(self, expected: View) -> None:
        """Check that a conversation without a session shows the same after the same operations."""
        if self.twin is not None:
            assert view_of(self.twin, [_preview(self.twin, budget) for budget in self.budgets]) == expected

    def _check_former(self, whole: ConversationState, shown: View) -> None:
        """Check that the view before this step shows what it did."""
        if self._former is not None:
            former, what = self._former
            assert view_of(former).fields == what
        self._former = whole, shown.fields

    def _check_document(self, whole: ConversationState, expected: View) -> None:
        """Check that a conversation is the same when it was saved and read again.

        One that is too long is cut when it is read, so only what people see is the same.
        """
        restored = from_json(to_json(whole))
        assert restored.history == whole.history
        assert restored.next_message == whole.next_message
        if self.cap == ALL:
            again = view_of(restored)
            assert (again.fields, again.messages) == (expected.fields, expected.messages)
        if self.twin is not None:
            assert view_of(from_json(to_json(self.twin))) == view_of(self.twin)

    def _check_window(self, window: Window, budget: Budget, manager: StateManager) -> None:
        """Check a window for every provider; the same bytes are checked once."""
        key = (as_bytes(window.messages), budget.limit, manager.counter.name)
        if key not in self._valid:
            check_window(window, manager, budget)
            self._valid.add(key)
