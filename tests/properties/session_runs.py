"""Sessions that run random conversations, and what must hold at every moment."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from random import Random

from tests.properties.window_checks import as_bytes, check_window
from turnstate import Message
from turnstate.codec import decode_entry
from turnstate.context.manager import StateManager
from turnstate.context.policy import Budget, Policy
from turnstate.context.preface import Preface
from turnstate.context.window import Window
from turnstate.entry import Answer, Cut, Decision, Entry
from turnstate.errors import ContextOverflow, InputError, SessionError
from turnstate.log.path import path_to
from turnstate.log.records import Eviction, contents
from turnstate.memory.handover import evicted
from turnstate.message import ToolCallRequest, ToolCallResult
from turnstate.session import Session, SessionManager
from turnstate.stores.memory import MemoryStore
from turnstate.stores.values import Row
from turnstate.testing import FixedClock, conversations, samples

ID = "s1"


class SessionRun:
    """One session on one store, and as many managers on that store as a test needs."""

    def __init__(self, policy: Policy, *, url: str = "") -> None:
        self.policy, self.manager, self.url = policy, StateManager(policy=policy), url
        self._memory = MemoryStore()
        self._opened = list[SessionManager]()

    async def sessions(self) -> SessionManager:
        settings = {"policy": self.policy, "clock": FixedClock()}
        if not self.url:
            return SessionManager(self._memory, **settings)  # type: ignore[arg-type]
        self._opened.append(await SessionManager.open(self.url, **settings))  # type: ignore[arg-type]
        return self._opened[-1]

    async def opened(self) -> Session:
        return await (await self.sessions()).open(ID)

    async def close(self) -> None:
        while self._opened:
            await self._opened.pop().close()

    async def pure(self, session: Session, budget: Budget) -> Window | None:
        """Return the window of the whole list of messages with all recorded decisions."""
        entries = await path(session)
        shown = [entry.message if isinstance(entry, Answer) else entry for entry in entries]
        messages = [one for one in shown if isinstance(one, Message)]
        prompts = [entry.text for entry in entries if type(entry).__name__ == "Prompt"]
        decisions = [entry for entry in entries if isinstance(entry, Decision)]
        tally = self.manager.tally(messages, budget, stored=True, decisions=decisions)
        preface = Preface(system=prompts[-1] if prompts else None)
        try:
            return self.manager.window(tally, budget, preface=preface, decisions=decisions)
        except ContextOverflow:
            return None


async def window(session: Session, budget: Budget) -> Window | None:
    """Return a window, or None if none can fit."""
    try:
        return await session.window(budget)
    except ContextOverflow:
        return None


async def rows(session: Session) -> list[Row]:
    """Return the rows of the current path from the store."""
    store = session._writer.store
    row = await store.get(session._row.address)
    spans = await path_to(store, row.address, row.head)
    return [one for span in reversed(spans) for one in await store.read(row.address, span)]


async def path(session: Session) -> list[Entry]:
    return [decode_entry(row.kind, row.body) for row in await rows(session)]


async def check_handles_agree(session_run: SessionRun, budget: Budget, *handles: Session) -> Window | None:
    """Assert that all handles make the same window as the whole list, and decide nothing new."""
    first = await window(handles[0], budget)
    pure = await session_run.pure(handles[0], budget)
    others = [await window(handle, budget) for handle in handles[1:]]
    if first is None:
        assert pure is None
        assert others == [None] * len(others)
        return None
    for again in (pure, *others):
        assert again is not None
        assert again.decisions == ()
        assert as_bytes(again.messages) == as_bytes(first.messages)
        assert again.tokens == first.tokens
    check_window(first, session_run.manager, budget)
    return first


async def check_log(session: Session) -> None:
    """Assert that numbers have no gap, and that no unnecessary cut was recorded."""
    written = await rows(session)
    assert [row.seq for row in written] == list(range(1, len(written) + 1))
    kinds = [row.kind for row in written if row.kind in ("message", "answer", "prompt", "cut")]
    assert all(pair != ("cut", "cut") for pair in pairwise(kinds))


async def check_archived_once(session: Session) -> None:
    """Assert that the parcels of cuts hold no message twice."""
    store, found = session._writer.store, list[str]()
    row = await store.get(session._row.address)
    for parcel in await store.parcels(limit=10_000):
        eviction = contents(parcel)
        if isinstance(eviction, Eviction):
            gone = await evicted(store, row, parcel.id, eviction)
            found += [message.id async for message in gone.messages]
    assert len(found) == len(set(found))


def long_log(rng: Random, parts: int, *, repeats: bool = False) -> list[Message]:
    """Return a log of several conversations, valid and broken; call ids repeat only if asked."""
    log, used = list[Message](), set[str]()
    for _ in range(parts):
        kind = rng.choice([conversations.valid, conversations.broken])
        for message in kind(rng.randrange(2**32)):
            ids = {call.id for call in message.tool_calls}
            if message.role != "system" and (repeats or used.isdisjoint(ids)):
                log.append(message)
                used |= ids
    return log


def disturbed(rng: Random, message: Message) -> Message | None:
    """Drop a tool message, or replace its results by very long ones."""
    if message.role != "tool" or rng.random() < 0.75:
        return message
    if rng.random() < 0.5:
        return None
    outputs = [
        samples.huge_output(rng.randrange(20, 300)),
        "x!?;" * rng.randrange(1_500),
        {"error": "bad " * rng.randrange(2_000), "id": 5},
        [{"type": "text", "text": "line\n" * rng.randrange(600)}, {"type": "text", "text": "short"}],
    ]
    results = [
        ToolCallResult(tool_call_id=one.tool_call_id, result=rng.choice(outputs), is_error=one.is_error)
        for one in message.tool_results
    ]
    return message.replace(tool_results=tuple(results))


async def appended(session: Session, messages: Sequence[Message]) -> list[Message]:
    """Append messages, all or none; return those that were written, which known results are not."""
    try:
        receipt = await session.append(*messages)
    except (InputError, SessionError):
        return []
    count = receipt.last - receipt.first + 1
    return list(messages) if count == len(messages) else await session.messages(last=count)


async def answered_late(session: Session, rng: Random, calls: Sequence[ToolCallRequest]) -> None:
    """Append a result for some earlier call."""
    if calls:
        result = ToolCallResult(
            tool_call_id=rng.choice(calls).id, result=rng.choice(["late", 0, "word " * 400])
        )
        await appended(session, [Message.tool([result])])


def cuts(window: Window | None) -> int:
    return sum(isinstance(decision, Cut) for decision in window.decisions) if window else 0
