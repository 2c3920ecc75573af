"""An event loop goes on while a session works on a huge text: nothing long runs in the loop's own thread.

What counts is the processor time of one step of the loop, since wall time is that of all processes; the
long version asserts it. The lag that other tasks see is printed and not asserted. That long texts are
worked on in threads is tested in `tests/unit/session/test_large_texts.py`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hostile_texts import NAMES, hostile
from thoroughness import LONG

from turnstate import Budget, Message, SessionManager, ToolCallRequest, ToolCallResult
from turnstate.session import Session

SIZE = 10_000_000 if LONG else 600_000
MOST = 0.05  # seconds of processor time in one step of the loop
TEXTS = NAMES if LONG else ("one letter", "Chinese", "newlines", "rows")


class Steps:
    """Watches the steps of a loop: the processor time of the longest one, and the longest lag of a task."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.longest, self.lag = 0.0, 0.0
        run = asyncio.events.Handle._run

        def timed(handle: asyncio.events.Handle) -> None:
            begun = time.thread_time()
            run(handle)
            self.longest = max(self.longest, time.thread_time() - begun)

        monkeypatch.setattr(asyncio.events.Handle, "_run", timed)

    async def watch(self) -> None:
        while True:
            begun = time.perf_counter()
            await asyncio.sleep(0.001)
            self.lag = max(self.lag, time.perf_counter() - begun - 0.001)

    async def during(self, work: Callable[[], Awaitable[Any]]) -> tuple[float, float]:
        await asyncio.sleep(0)  # what the test itself did is another step
        self.longest = self.lag = 0.0
        await work()
        await asyncio.sleep(0.002)
        return self.longest, self.lag


async def operations(sessions: SessionManager, value: Any) -> dict[str, Callable[[], Awaitable[Any]]]:
    """Give what is done with a session that gets a value: as a tool's output, or as the user's words."""
    session, call = await sessions.create(), ToolCallRequest(name="cat", args={})
    await session.append(Message.user("Read it."), Message.assistant(tool_calls=[call]))
    output = Message.tool([ToolCallResult(tool_call_id=call.id, result=value)])
    words = Message.user(value if isinstance(value, str) else "And now?")
    budget, wide = Budget(32_000), Budget(100_000_000)
    again: list[Session] = []

    async def reopened() -> None:
        again.append(await sessions.open(session.id))
        await again[0].window(budget)

    async def found() -> list[Any]:
        return [hit async for hit in sessions.search("keeper")]

    return {
        "append": lambda: session.append(output, key="k"),
        "append again": lambda: session.append(output, key="k"),
        "window": lambda: session.window(budget),
        "append words": lambda: session.append(words),
        "wide window": lambda: session.window(wide),
        "answer": lambda: session.append(Message.assistant("I see."), Message.user("Go on.")),
        "preview": lambda: session.preview(wide),
        "messages": session.messages,
        "last messages": lambda: session.messages(last=3),
        "snapshot": session.snapshot,
        "open and window": reopened,
        "conversation": session.conversation,
        "search": found,
    }


@pytest.mark.req("B1")
@pytest.mark.parametrize("name", TEXTS)
def test_no_step_of_the_loop_works_long_on_a_hostile_text(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, tuple[float, float]] = {}

    async def run() -> None:
        steps, value = Steps(monkeypatch), hostile(name, SIZE)
        watching = asyncio.create_task(steps.watch())
        async with await SessionManager.open("memory:") as sessions:
            for operation, work in (await operations(sessions, value)).items():
                seen[operation] = await steps.during(work)
        watching.cancel()

    asyncio.run(run())
    for operation, (step, lag) in seen.items():
        print(f"{name}, {operation}: longest step {step * 1e3:.1f} ms, longest lag {lag * 1e3:.1f} ms")
    if LONG:
        assert {operation: step for operation, (step, _) in seen.items() if step > MOST} == {}
