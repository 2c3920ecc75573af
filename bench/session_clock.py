"""Timers of the session benchmarks: one item after another, or all clients of one event loop together."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

T = TypeVar("T")

Add = Callable[[T], Awaitable[Any]]


async def timed(given: Sequence[T], add: Add[T], seconds: float) -> list[float]:
    """Add items one after another until the time is up, at least one; return the time of each."""
    spent, until = list[float](), time.perf_counter() + seconds
    for one in given:
        start = time.perf_counter()
        await add(one)
        spent.append(time.perf_counter() - start)
        if time.perf_counter() > until:
            break
    return spent


async def together(given: Sequence[T], clients: Sequence[Add[T]]) -> float:
    """Let all clients concurrently add their part of the items; return the total time."""
    each = len(given) // len(clients)
    start = time.perf_counter()
    await asyncio.gather(*(_all(given[at * each : (at + 1) * each], add) for at, add in enumerate(clients)))
    return time.perf_counter() - start


async def waits(given: Sequence[T], clients: Sequence[Add[T]]) -> list[float]:
    """Let all clients concurrently add their part of the items; return the time of each item."""
    each = len(given) // len(clients)
    parts = (timed(given[at * each : (at + 1) * each], add, math.inf) for at, add in enumerate(clients))
    return [spent for one in await asyncio.gather(*parts) for spent in one]


async def _all(given: Sequence[T], add: Add[T]) -> None:
    for one in given:
        await add(one)
