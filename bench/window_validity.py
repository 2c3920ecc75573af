"""Windows that a provider would reject, that are too large, or that lost the user's question.

There are two thousand conversations with parallel calls, half of them interrupted, each cut to a part of its
size. The same function judges our windows and the peer's: it renders them, validates them as OpenAI and
Anthropic do, and counts them. Anthropic requires that the user begins; our renderer would repair that, so it
is judged before rendering, for both.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

from turnstate import formats
from turnstate.context.manager import StateManager
from turnstate.context.policy import Budget
from turnstate.errors import ContextOverflow
from turnstate.message import Message
from turnstate.testing import conversations
from turnstate.testing.conversations import Fault
from turnstate.tokens.cost import REPLY_START

from . import window_peer
from .window_print import goal, table

CONVERSATIONS = 1_000
TURNS = (3, 12)
SHARES = (0.3, 0.9)  # the budget as a share of the conversation's own size
INTERRUPTIONS = (Fault.PARTIAL_RESULTS, Fault.NO_RESULTS, Fault.DANGLING_CALL)
KINDS = {
    "openai-chat": "OpenAI rejects",
    "anthropic": "Anthropic rejects",
    "over": "over budget",
    "lost": "question lost",
}
PEER = {"defaults": "trim_messages, defaults", "human": "trim_messages, start_on human, include_system"}

Case = tuple[list[Message], int]
"""A conversation and the tokens that its window may have."""


def cases(count: int, *, interrupted: bool, manager: StateManager) -> list[Case]:
    """Return generated conversations with parallel calls, each with its budget."""
    written = map(_interrupted if interrupted else _valid, itertools.count())
    parallel = (found for found in written if any(len(message.tool_calls) > 1 for message in found))
    shares = (Random(seed).uniform(*SHARES) for seed in range(count))
    return [
        (found, int(manager.count(found).tokens * share))
        for share, found in zip(shares, parallel, strict=False)
    ]


def _valid(seed: int) -> list[Message]:
    return conversations.valid(seed, turns=Random(seed).randint(*TURNS))


def _interrupted(seed: int) -> list[Message]:
    rng = Random(seed)
    return conversations.broken_with(seed, rng.choice(INTERRUPTIONS), turns=rng.randint(*TURNS))


def ours(cases: Sequence[Case], manager: StateManager) -> Counter[str]:
    """Count what is wrong with our windows."""
    faults: Counter[str] = Counter()
    for messages, limit in cases:
        try:
            window = manager.window(messages, Budget(limit))
        except ContextOverflow:
            faults["overflow"] += 1
        else:
            faults.update(judged(messages, limit, window.messages, manager))
    return faults


def peers(cases: Sequence[Case], windows: Sequence[Sequence[str]], manager: StateManager) -> Counter[str]:
    """Count what is wrong with the peer's windows."""
    faults: Counter[str] = Counter()
    for (messages, limit), ids in zip(cases, windows, strict=True):
        faults.update(judged(messages, limit, window_peer.kept(messages, ids), manager))
    return faults


def judged(
    messages: Sequence[Message], limit: int, window: Sequence[Message], manager: StateManager
) -> Iterator[str]:
    """Yield the faults of a window."""
    spoken = [message for message in window if message.role != "system"]
    request = bool(spoken) and spoken[-1].role in ("user", "tool")
    for name in ("openai-chat", "anthropic"):
        format = formats.get(name)
        if format.validate(format.render(window), request=request) or (
            name == "anthropic" and spoken and spoken[0].role != "user"
        ):
            yield name
    if manager.count(window).tokens > limit:
        yield "over"
    question = next((message.id for message in reversed(messages) if message.role == "user"), None)
    if question and question not in {message.id for message in window}:
        yield "lost"


def asked(cases: Sequence[Case]) -> list[dict[str, Any]]:
    """Return the cases for the peer, whose counter does not include the start of the reply."""
    return [{"rows": window_peer.rows(messages), "limit": limit - REPLY_START} for messages, limit in cases]


def report(sets: dict[str, list[Case]], windows: dict[str, list[list[str]]], manager: StateManager) -> None:
    """Judge all windows and print the table; `windows` are the peer's, for one set after another."""
    rows: list[list[str]] = []
    wrong: Counter[str] = Counter()
    start = 0
    for name, found in sets.items():
        end, faults = start + len(found), ours(found, manager)
        rows.append([f"{name}: Turnstate", *_cells(faults, len(found))])
        wrong.update({kind: faults[kind] for kind in KINDS})
        for mode, ids in windows.items():
            theirs = peers(found, ids[start:end], manager)
            rows.append([f"{name}: {PEER[mode]}", *_cells(theirs, len(found))])
        start = end
    print("\nWindows that are wrong, of conversations with parallel calls.")
    table(("conversations", "windows", *KINDS.values(), "overflow raised"), rows)
    goal("nothing wrong with ours", f"{wrong.total():,} faults", not wrong.total())


def _cells(faults: Counter[str], cases: int) -> list[str]:
    figures = (cases - faults["overflow"], *(faults[kind] for kind in KINDS), faults["overflow"])
    return [f"{figure:,}" for figure in figures]
