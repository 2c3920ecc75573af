"""Looking at a conversation of 20,000 messages: loading it, its last exchange, the next message, the summary.

One session has the cut of a window, as every session has that a model has answered; one has a hundred
tangents as well, and one has no cut. Each time the session is opened anew, so nothing is known from before.
On a busy machine a median measures the other work, so the fastest tenth counts.
"""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from turnstate import Budget, Message, SessionManager

from . import conversation_today as api
from .conversation_operations import talked
from .session_messages import agent
from .window_print import goal, ms, table

LENGTH = 20_000
BUDGET = Budget(128_000)
ROUNDS = 30
GOAL = 0.010  # seconds

CASES = {
    "with a cut": (True, 0),
    "with a cut and 100 tangents": (True, 100),
    "without a cut": (False, 0),
}

LOADING = "conversation()"
VIEWS: dict[str, Callable[[Any], object]] = {
    "history[-1]": lambda state: state.history[-1],
    "next_message": lambda state: state.next_message,
    "latest_summary": lambda state: state.latest_summary,
}


async def report(name: str, url: str) -> None:
    """Measure on a store, and print the table."""
    said = agent(LENGTH)
    found = dict[str, dict[str, float]]()
    async with SessionManager.open(url) as sessions:
        for case, (is_cut, tangents) in CASES.items():
            session = await sessions.create(id=f"views {case}", user="u")
            await talked(sessions, session, said)
            if is_cut:
                await session.window(BUDGET)
            for number in range(tangents):
                await api.begin_tangent(session)
                await session.append(Message.user(f"{number}: is it out?"), Message.assistant("It is."))
                await api.leave_tangent(session, None)
            await session.append(Message.user("And now?"))
            found[case] = await _looked(sessions, session.id)
    print(f"\n{name}: looking at {LENGTH:,} messages, in ms, the fastest tenth of {ROUNDS}")
    table(["", *found], [[view, *(ms(one[view]) for one in found.values())] for view in found["with a cut"]])
    for case, times in found.items():
        worst = max(times, key=lambda view: times[view])
        text = f"{name}, {LENGTH:,} messages {case}: each view in at most {ms(GOAL)} ms"
        goal(text, f"{worst} {ms(times[worst])} ms", times[worst] <= GOAL)


async def _looked(sessions: SessionManager, id: str) -> dict[str, float]:
    """Return the median time of each view."""
    spent = defaultdict[str, list[float]](list)
    for _ in range(ROUNDS):
        session = await sessions.open(id)
        start = time.perf_counter()
        state: Any = await session.conversation()
        spent[LOADING].append(time.perf_counter() - start)
        for name, view in VIEWS.items():
            start = time.perf_counter()
            view(state)
            spent[name].append(time.perf_counter() - start)
    return {name: statistics.quantiles(one, n=10)[0] for name, one in spent.items()}
