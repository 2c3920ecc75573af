"""Foreign code: a call of somebody else's engine, whatever it does.

It may raise anything, `SystemExit` and the panics of native libraries included, cancel itself, never
return, or refuse to be cancelled. The caller gets an answer within the time that it gives.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

__all__ = ["GRACE", "failure"]

GRACE = 5.0
"""Seconds for a call to end after it was cancelled; then it is left behind."""

LONGEST_ERROR = 500

_left_behind = set[asyncio.Task[BaseException | None]]()


async def failure(call: Callable[[], Awaitable[object]], *, timeout: float) -> str | None:
    """Make a call and say why it failed, or nothing."""
    task = asyncio.ensure_future(_contained(call))
    try:
        await asyncio.wait({task}, timeout=timeout)
    finally:  # also where whoever waits is cancelled
        if not task.done():
            await _end(task)
    if not task.done() or task.cancelled():
        return f"no answer within {timeout:g} s"
    return _described(task.result())


async def _contained(call: Callable[[], Awaitable[object]]) -> BaseException | None:
    """Turn whatever is raised into a value, except what was raised to stop this very task."""
    try:
        await call()
    except KeyboardInterrupt:
        raise
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        return error
    except BaseException as error:
        return error
    return None


async def _end(task: asyncio.Task[BaseException | None]) -> None:
    task.cancel()
    await asyncio.wait({task}, timeout=GRACE)
    if not task.done():
        _left_behind.add(task)  # the event loop alone would not keep it from being collected
        task.add_done_callback(_left_behind.discard)


def _described(error: BaseException | None) -> str | None:
    """Put an error into a line that any store can keep."""
    if error is None:
        return None
    name = type(error).__name__
    try:
        text = str(error)
    except Exception:
        text = "an error that cannot be told"
    told = f"{name}: {text}" if text else name
    return told[:LONGEST_ERROR].replace("\0", "").encode(errors="replace").decode()
