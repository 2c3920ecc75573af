"""The event loop is never blocked while a session works on a huge text.

No step of the loop takes long: what counts is its processor time, since wall time depends on other
processes. No task waits long either, including for a thread that holds Python's lock: its lag is the part of
the wait in which this process used the processor, and the best of a few attempts counts. A busy machine
makes that longer, so `make test` prints it only; `make faults` checks it.
`tests/unit/session/test_large_texts.py` tests that long texts are processed in threads, in short steps.

"deep lists" is not a text but five million nested lists. To collect or to free them is one step of Python
itself and takes longer than the limit, so its times are printed only.
"""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest

from tests.harness.thoroughness import LONG
from turnstate import Budget, Message, SessionManager, ToolCallRequest, ToolCallResult
from turnstate.session import Session

NAMES = (
    *("one letter", "spaces", "digits", "marks", "Chinese", "Hangul", "emoji", "accents", "base64"),
    *("newlines", "short lines", "carriage returns", "one long line, then short ones", "quotes", "NUL"),
    *("rows", "deep lists"),
)
SIZE = 10_000_000 if LONG else 600_000
MOST = (
    0.05  # seconds: of processor time in one step of the loop, and of a task's lag; more on slow processors
)
USUAL = 0.02  # seconds that `measured` takes on a processor that is not slow
ATTEMPTS = 3
NOT_TEXTS = ("deep lists",)
TEXTS = NAMES if LONG else ("Chinese", "rows")


def measured() -> float:
    """Return the processor time of a fixed amount of work."""
    begun = time.thread_time()
    sum(number * number for number in range(200_000))
    return time.thread_time() - begun


def hostile(name: str, size: int) -> Any:
    """Return the text, or the structured value, of about so many bytes."""
    match name:
        case "base64":
            return base64.b64encode(Random(1).randbytes(size * 3 // 4)).decode()
        case "one long line, then short ones":
            return "a" * (size - 1_000) + "\nb" * 500
        case "rows":
            return [{"row": n, "name": "keeper"} for n in range(size // 28)]
        case "deep lists":
            return [_nested(150) for _ in range(size // 302)]
        case _:
            unit = _UNITS[name]
            return unit * (size // len(unit.encode()))


_UNITS = {
    "one letter": "a",
    "spaces": " ",
    "digits": "7",
    "marks": "=",
    "Chinese": "数据库连接失败请检查网络",
    "Hangul": "한",
    "emoji": "👩‍👧🎉",
    "accents": "e\u0301",
    "newlines": "\n",
    "short lines": "ok 1\n",
    "carriage returns": "a\r\n",
    "quotes": '"\\',
    "NUL": "\0",
}


def _nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


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
            begun, used = time.perf_counter(), time.process_time()
            await asyncio.sleep(0.001)
            waited, used = time.perf_counter() - begun - 0.001, time.process_time() - used
            self.lag = max(self.lag, min(waited, used))  # the rest of the wait is for other processes

    async def during(self, work: Callable[[], Awaitable[Any]]) -> tuple[float, float]:
        await asyncio.sleep(0)  # what the test itself did is another step
        self.longest = self.lag = 0.0
        await work()
        await asyncio.sleep(0.002)
        return self.longest, self.lag


async def operations(sessions: SessionManager, value: Any) -> dict[str, Callable[[], Awaitable[Any]]]:
    """Return the operations on a session that gets the value as tool output or as a user message."""
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
        "fork": lambda: session.fork(at=output.id),
    }


@pytest.mark.req("B1")
@pytest.mark.parametrize("name", TEXTS)
def test_no_task_waits_long_for_work_on_a_hostile_text(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    steps, value = Steps(monkeypatch), hostile(name, SIZE)
    best: dict[str, tuple[float, float]] = {}

    async def run() -> None:
        watching = asyncio.create_task(steps.watch())
        async with await SessionManager.open("memory:") as sessions:
            for operation, work in (await operations(sessions, value)).items():
                seen = await steps.during(work)
                best[operation] = min(best.get(operation, seen), seen, key=max)
        watching.cancel()

    most = MOST * max(1, measured() / USUAL)

    def slow() -> dict[str, tuple[float, float]]:
        return {
            operation: seen for operation, seen in best.items() if (max(seen) if LONG else seen[0]) > most
        }

    for _ in range(1 if name in NOT_TEXTS else ATTEMPTS):
        asyncio.run(run())
        if not slow():
            break
    for operation, (step, lag) in best.items():
        print(f"{name}, {operation}: longest step {step * 1e3:.1f} ms, longest lag {lag * 1e3:.1f} ms")
    assert slow() == {} or name in NOT_TEXTS
