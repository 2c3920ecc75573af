"""The random machine: one conversation through every operation there is, compared with a plain model.

A step is a name and two numbers, which select what it is about, so any list of steps can be played again and
made shorter. After each step the live state, the log as other readers see it, and the model agree; every
window fits its budget and is valid for every provider.

The conversation is changed through two doors. A state lives for long and is written now and then; a session's
handle, of which there are two, writes at once, after which the state is loaded again. The steps are in
`machine_steps`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from tests.properties.machine_files import WorkTree
from tests.properties.machine_model import Branch, Conversation, Event
from tests.properties.session_runs import rows
from tests.properties.window_checks import check_window
from turnstate import Budget, Message, Policy
from turnstate.context.cut import MAX_CONVERSATION_STATE_HISTORY_LEN
from turnstate.context.window import Window
from turnstate.conversation import ConversationState, fields, from_json, to_json
from turnstate.errors import ContextOverflow
from turnstate.session import Session, SessionManager
from turnstate.session.commit import sync_of
from turnstate.session.conversation import LOADED
from turnstate.stores.memory import MemoryStore
from turnstate.testing import FixedClock

__all__ = [
    "BUDGETS",
    "ID",
    "POLICY",
    "WIDE",
    "Machine",
    "Step",
    "View",
    "as_bytes",
    "enabled_steps",
    "rule",
    "shown",
    "view_of",
]

ID = "s"
POLICY = Policy(lock_turns=1, lock_turns_at_most=2, hard_lock=3, summary_tokens=60)
WIDE = Budget(20_000)
BUDGETS = [Budget(240), Budget(250), Budget(450), Budget(1_000), WIDE]


class Step(NamedTuple):
    """A step: its name, and two numbers that select what it is about."""

    name: str
    one: int = 0
    two: int = 0


class View(NamedTuple):
    """What a reader of the conversation sees: its fields, its tangents, its messages, and two windows."""

    fields: bytes
    tangents: bytes
    messages: bytes
    windows: tuple[bytes | None, ...]


def as_bytes(messages: Sequence[Message]) -> bytes:
    """Return messages as bytes to compare."""
    return msgspec.json.encode(messages)


def shown(state: ConversationState, budget: Budget) -> Window | None:
    """Return the window of a state; None if none fits."""
    try:
        return state.preview(budget)
    except ContextOverflow:
        return None


def view_of(state: ConversationState, windows: Iterable[Window | None]) -> View:
    """Return what a state shows, and these windows of it."""
    return View(
        msgspec.json.encode(fields(state), order="sorted"),
        msgspec.json.encode(state.kept_tangents()),
        as_bytes(state.messages),
        tuple(as_bytes(one.messages) if one is not None else None for one in windows),
    )


def _without_older(view: View) -> View:
    """Return a view of a long conversation without what is listed only as far as it is loaded."""
    listed = msgspec.json.decode(view.fields)
    listed.pop("checkpoint_manager", None)
    return view._replace(fields=msgspec.json.encode(listed, order="sorted"), messages=b"")


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


class Machine:
    """One conversation on one store, its live state, two handles, and the model."""

    def __init__(
        self,
        url: str = "",
        *,
        by_session: float = 0.3,
        turns: int = 0,
        tree: Path | None = None,
        cap: int = MAX_CONVERSATION_STATE_HISTORY_LEN,
    ) -> None:
        """Begin with some turns; `by_session` is how often a handle changes it, instead of the state.

        `cap` is how many exchanges a state shows; with a small one it does not load all of the conversation.
        """
        self.cap = cap
        self.url, self._by_session, self._turns = url, by_session, turns
        self.clock, self._memory = FixedClock(), MemoryStore()
        self._managers = list[SessionManager]()
        self.model, self.budget = Conversation(), WIDE
        self.known = dict[str, Branch]()
        self.state: ConversationState
        self.handles: list[Session]
        self._valid, self._turn = set[tuple[bytes, int, str]](), 0
        self.tree = WorkTree(tree) if tree else None

    # Running.

    async def begin(self) -> None:
        """Create the conversation."""
        first = await (await self._manager()).create(id=ID, system="You are a test.")
        self.handles = [first, await (await self._manager()).open(ID)]
        await self._load(0)
        if self.tree:
            await self.tree.open(self.state, first)
            self._checkpointed()
        for turn in range(self._turns):
            said = (
                Message.user(f"turn {turn} " + "word " * 20),
                Message.assistant("answer " * (turn * 37 % 60)),
            )
            await first.append(*said)
            self._told(*said)
        await self._load(0)
        await self.check()

    async def play(self, step: Step) -> bool:
        """Do one step and check what must hold; return False if it is not possible now."""
        rule = RULES[step.name]
        if not rule.when(self):
            return False
        await rule.act(self, step.one, step.two)
        await self.check()
        return True

    async def close(self) -> None:
        """Close all managers."""
        for manager in self._managers:
            await manager.close()

    async def _manager(self, **settings: Any) -> SessionManager:
        """Return a new manager, as another process has one."""
        if not self.url:
            return SessionManager(self._memory, policy=POLICY, clock=self.clock, **settings)
        manager = await SessionManager.open(self.url, policy=POLICY, clock=self.clock, **settings)
        self._managers.append(manager)
        return manager

    async def _load(self, which: int) -> None:
        self.state = await self.handles[which % 2].conversation()
        if self.tree and self.tree.is_open:
            await self.tree.open(self.state, self.handles[which % 2])

    async def _commit(self, which: int) -> None:
        await self.handles[which % 2].commit(self.state)
        assert self.handles[which % 2].notices == ()
        for branch in self.model.branches:
            branch.kept = True

    def _is_by_session(self, number: int) -> bool:
        return number % 100 < self._by_session * 100

    async def _write(self, *messages: Message, by: int) -> None:
        """Append messages through a handle."""
        await self._commit(by)
        await self.handles[by // 100 % 2].append(*messages)
        self._told(*messages)
        await self._load(by)

    def _told(self, *messages: Message) -> None:
        self.model.said(*messages)
        self.known |= {message.id: self.model.head for message in messages}

    def _tell(self, change: Callable[[], object]) -> list[Message]:
        """Change the state, add the new messages to the model, and return them."""
        change()
        known = {message.id for message in self.model.head.messages}
        said = [message for message in self.state.messages if message.id not in known]
        self._told(*said)
        return said

    def _checkpointed(self) -> None:
        """Add the newest checkpoint of the state to the model."""
        taken = self.state.head.checkpoints[-1][1]
        captured = self.tree.captured() if self.tree else {}
        self.model.did(Event("checkpoint", label=taken.label, files=captured))

    # What must hold.

    async def check(self) -> None:
        """Check that all readers see what the model says, and that every window can be sent."""
        self._check_model(self.state)
        self.model.head.kept |= len(self.state.head.entries) > self.state.head.forked_at + 1
        if self.tree:
            self.tree.check()
        windows = [shown(self.state, budget) for budget in self.budgets]
        live = view_of(self.state, windows)
        for window, budget in zip(windows, self.budgets, strict=True):
            if window is not None:
                self._check_window(window, budget)
        if self._is_written():
            await self._check_log(live)
        else:
            restored = from_json(to_json(self.state))
            self._check_model(restored)
            assert view_of(restored, ()) == live._replace(windows=())

    async def _check_log(self, live: View) -> None:
        """Check that new readers of the log, and the handles, see what the state shows."""
        fresh = await (await self._reader()).open(ID)
        loaded = await fresh.conversation()
        self._check_model(loaded)
        seen = view_of(loaded, [shown(loaded, budget) for budget in self.budgets])
        if self.is_long:
            seen, live = _without_older(seen), _without_older(live)
        assert seen == live
        said = await fresh.messages()
        assert [one.id for one in said] == [one.id for one in self.model.head.messages]
        self._turn += 1
        handle = self.handles[self._turn % 2]
        assert await handle.messages(last=3) == self.state.messages[-3:]
        for one in (fresh, handle):
            for budget, expected in zip(self.budgets, live.windows, strict=True):
                assert await self._sent(one, budget) == expected
        written = [row.seq for row in await rows(fresh)]
        assert written == list(range(1, len(written) + 1))

    @property
    def is_long(self) -> bool:
        """Whether the path has more exchanges than a state shows, so that not all of it may be loaded."""
        return sum(message.role == "assistant" for message in self.model.head.messages) > self.cap

    @property
    def budgets(self) -> list[Budget]:
        """The budgets of the windows that are compared: the current one, and a wide one."""
        return [self.budget, WIDE] if self.budget != WIDE else [WIDE]

    async def _reader(self) -> SessionManager:
        """Return a manager that has seen nothing, on the store of another."""
        return SessionManager(self.handles[1]._writer.store, policy=POLICY, clock=self.clock)

    def _is_written(self) -> bool:
        sync = sync_of(self.state)
        places = [(sync.place(one), one) for one in self.state.timelines]
        written = all(place.branch and place.written == len(one.entries) for place, one in places)
        return written and sync.place(self.state.head).branch == sync.branch

    async def _sent(self, handle: Session, budget: Budget) -> bytes | None:
        try:
            window = await handle.preview(budget)
        except ContextOverflow:
            return None
        self._check_window(window, budget)
        return as_bytes(window.messages)

    def _check_window(self, window: Window, budget: Budget) -> None:
        """Check a window for every provider; the same bytes are checked once."""
        key = (as_bytes(window.messages), budget.limit, self.state.manager.counter.name)
        if key not in self._valid:
            check_window(window, self.state.manager, budget)
            self._valid.add(key)

    def _check_model(self, state: ConversationState) -> None:
        head, since = self.model.head, state.head.fold.recalled
        said = [one.id for one in head.messages]
        loaded = [one.id for one in state.messages[since:]]
        assert loaded == said[len(said) - len(loaded) :]
        assert self.is_long or loaded == said
        history = [[*(m.id for m in one.user.messages), one.assistant.id] for one in state.history]
        assert history == head.newest_exchanges(self.cap)
        waiting = state.next_message.messages if state.next_message else ()
        assert [message.id for message in waiting] == head.waiting
        assert [call.id for call in state.head.open_calls] == head.open_calls
        assert state.is_in_tangent_mode() == (head.tangent is not None)
        kept = [(one.name, one.exchanges, one.opening) for one in state.kept_tangents()]
        left = [(name, *one.in_its_tangent) for name, one in sorted(self.model.kept.items())]
        assert [name for name, *_ in kept] == [name for name, *_ in left]
        for (_, exchanges, opening), (_, all_exchanges, first) in zip(kept, left, strict=True):
            if all_exchanges > LOADED * self.cap:  # of such a tangent the end is loaded
                assert exchanges <= all_exchanges
            else:
                assert (exchanges, opening) == (all_exchanges, first)
        labels = [one.label for one in head.checkpoints]
        known = [one.label for _, one in state.head.checkpoints]
        assert known == labels[len(labels) - len(known) :]
        assert self.is_long or known == labels
        assert state.head.fold.prompt == head.newest("prompt", "You are a test.")
        assert str(state.mcp_enabled) == head.newest("setting", "True")
        assert (state.model_info.id if state.model_info else "") == head.newest("model", "")
        start, end = state.valid_history_range
        assert 0 <= start <= end == len(state.history)
