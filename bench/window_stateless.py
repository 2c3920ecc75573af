"""Calls without a session: each call gets the whole list of messages, with one more message.

One call starts from nothing; the other gets the state of the call before it: a parser that the program keeps,
and the previous result as `previous`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import turnstate
from turnstate import formats

from .window_agent import MESSAGES_A_TURN, turns
from .window_print import table, times
from .window_speed import median

MESSAGES = 1_000
BUDGET = 8_000
ROUNDS = 9


def report(messages: int = MESSAGES) -> None:
    """Measure every format and print."""
    played = turns(-(-(messages + 1) // MESSAGES_A_TURN))[: messages + 1]
    rows = []
    for name in formats.names():
        format = formats.get(name)
        long = format.render(played)
        items = long[format.list_key]
        short = {**long, format.list_key: items[:-1]}
        fresh = median(partial(format.parse, long))
        again = _middle(partial(_parsed, format, short, long))
        fit = median(partial(turnstate.fit, long, BUDGET, format=name))
        continued = _middle(partial(_fitted, name, short, long))
        figures = [f"{seconds * 1000:,.1f}" for seconds in (fresh, again, fit, continued)]
        rows.append([name, *figures[:2], times(fresh / again), *figures[2:], times(fit / continued)])
    print(f"\nWithout a session: {messages:,} messages and one more, within {BUDGET:,} tokens (ms).")
    table(("format", "parse", "held parser", "faster", "fit", "with previous", "faster"), rows)


def _middle(measured: Callable[[], float]) -> float:
    return sorted(measured() for _ in range(ROUNDS))[ROUNDS // 2]


def _parsed(format: formats.Format, short: Any, long: Any) -> float:
    parser = format.parser()
    parser.parse(short)
    start = time.process_time()
    parser.parse(long)
    return time.process_time() - start


def _fitted(name: str, short: Any, long: Any) -> float:
    previous = turnstate.fitted(short, BUDGET, format=name)
    start = time.process_time()
    turnstate.fitted(long, BUDGET, format=name, previous=previous)
    return time.process_time() - start
