"""What providers' prompt caches reuse of an agent's requests, by the published rules of Anthropic's cache."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.harness.provider_server import anthropic_events
from tests.harness.thoroughness import examples, rng, runs
from tests.properties.prompt_cache import PromptCache
from turnstate import (
    Budget,
    Message,
    SessionManager,
    StateManager,
    ToolCallRequest,
    ToolCallResult,
    ToolSpec,
    formats,
)
from turnstate.agent import Agent, Limits, ToolManager, tool
from turnstate.context import Preface
from turnstate.context.live_window import LiveWindow
from turnstate.entry import Decision
from turnstate.memory.engines import NoEngine
from turnstate.memory.port import Recollection, User
from turnstate.models.cache_marks import marked_for_anthropic, marked_for_bedrock
from turnstate.models.provider import ProviderModel
from turnstate.part import TextPart
from turnstate.tools import Approvals, Rule

TOOLS = tuple(ToolSpec(name=f"look_{number}", description="Look at a part. " * 9) for number in range(4))
SYSTEM = "You keep a lighthouse. " * 40
FIXED = len(SYSTEM) + sum(len(one.description) for one in TOOLS)
MARKED = {"anthropic": marked_for_anthropic, "bedrock": marked_for_bedrock}

Turn = list[int]
"""The number of calls in each round, and of blocks of the answer: 0 if the turn ends without one."""

TURNS = st.builds(
    lambda rounds, answer: [*rounds, answer],
    st.lists(st.integers(1, 40), max_size=3),
    st.just(0) | st.integers(1, 40),
)


def requests(turns: list[Turn], provider: str, *, recalls: bool) -> Iterator[dict[str, Any]]:
    """Yield the requests of an agent, one for each round and one for the answer of each turn."""
    manager, messages = StateManager(counter="estimate"), list[Message]()

    def sent(messages: list[Message], preface: Preface) -> dict[str, Any]:
        window = manager.window(messages, Budget.UNLIMITED, preface=preface)
        return formats.get(provider).request(window.messages, tools=TOOLS, model="claude-sonnet-5-5")

    for turn, (*rounds, answer) in enumerate(turns):
        messages.append(Message.user(f"Question {turn}? " + "What of the harbor? " * 5))
        memory = f"Known since day {turn}: the lamp was repaired. " * 20 if recalls else None
        preface = Preface(system=SYSTEM, memory=memory, tools=TOOLS)
        for number, calls in enumerate(rounds):
            yield sent(messages, preface)
            messages += _round(f"{turn}-{number}", calls)
        if answer:
            yield sent(messages, preface)
            parts = [TextPart(text=f"Answer {turn}.{part}") for part in range(answer)]
            messages.append(Message.assistant(parts))


def _round(id: str, calls: int) -> list[Message]:
    """Return a reply that says something and calls tools, and their results."""
    asked = [
        ToolCallRequest(id=f"c{id}-{one}", name=f"look_{one % 4}", args={"part": one}) for one in range(calls)
    ]
    results = [
        ToolCallResult(tool_call_id=one.id, result=f"{one.id}: " + "fog and rain, " * 30) for one in asked
    ]
    return [Message.assistant(f"I look {id}.", tool_calls=asked), Message.tool(results)]


def shares(turns: list[Turn], provider: str, mark: Callable[[dict[str, Any]], dict[str, Any]]) -> PromptCache:
    cache = PromptCache()
    for request in requests(turns, provider, recalls=True):
        cache.answer(mark(request))
    return cache


@pytest.mark.req("M2")
@pytest.mark.parametrize("provider", MARKED)
@given(
    turns=st.lists(TURNS, min_size=1, max_size=5),
    recalls=st.booleans(),
)
@examples(30, long=1_000)
def test_a_request_finds_all_that_it_shares_with_an_earlier_one(
    provider: str, turns: list[Turn], recalls: bool
) -> None:
    cache = PromptCache()
    for request in requests(turns, provider, recalls=recalls):
        read, possible = cache.answer(MARKED[provider](request))
        assert read == possible


@pytest.mark.parametrize("provider", MARKED)
def test_twelve_calls_at_once_with_recall_are_read_again(provider: str) -> None:
    cache = shares([[12, 1]] * 12, provider, MARKED[provider])
    assert cache.read == cache.possible
    assert cache.read / cache.sent > 0.8


@pytest.mark.parametrize("provider", MARKED)
def test_after_a_cut_the_tools_and_the_system_prompt_are_found(provider: str) -> None:
    numbers, cache = rng(f"cuts {provider}"), PromptCache()
    for start in range(runs(6, long=100)):  # each begins with what a cut leaves of the one before
        turns = [[numbers.randint(1, 40) for _ in range(numbers.randint(1, 3))] + [1] for _ in range(3)]
        for number, request in enumerate(requests(turns, provider, recalls=True)):
            kind = {"type": "text"} if provider == "anthropic" else {}
            request["messages"][0]["content"] = [{"text": f"{start} conversations were cut."} | kind]
            read, _ = cache.answer(MARKED[provider](request))
            assert read >= FIXED or start == number == 0


def test_only_a_recorded_decision_costs_what_was_cached() -> None:
    for seed in range(runs(6, long=100)):
        numbers, manager, cache = rng(f"live {seed}"), StateManager(counter="estimate"), PromptCache()
        live = LiveWindow(manager.counter, manager.policy)
        messages, decisions = list[Message](), list[Decision]()
        for turn in range(10):
            messages.append(Message.user(f"Question {turn}? " + "What of the harbor? " * 5))
            preface = Preface(system=SYSTEM, memory=f"Known since day {turn}. " * 20, tools=TOOLS)
            for number in range(numbers.randint(1, 4)):
                live.under(Budget(12_000), decisions)
                live.grow(messages[live.length :])
                window = live.window(preface, decisions)
                live.sent(window)
                decisions += window.decisions
                request = formats.get("anthropic").request(window.messages, tools=TOOLS)
                read, possible = cache.answer(marked_for_anthropic(request))
                assert read == possible or window.decisions
                messages += _round(f"{turn}-{number}", numbers.randint(1, 25))
            messages.append(Message.assistant("Answer. " * 20))
        assert decisions


@tool(idempotent=True)
def look(where: str) -> str:
    """Look somewhere."""
    return f"At {where}: " + "fog and rain, " * 30


class Cached:
    """A model of Anthropic that makes twelve calls in each of some rounds and then answers, and its cache."""

    def __init__(self, rounds: int) -> None:
        self.cache, self._rounds, self._sent = PromptCache(), rounds, 0
        self.model = ProviderModel(
            "claude-sonnet-4-5", "anthropic", self._send, limit=lambda most: {"max_tokens": most}
        )

    async def _send(self, request: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        self.cache.answer(marked_for_anthropic(request))
        assert "Long ago" in str(request["messages"])
        return self._answer()

    async def _answer(self) -> AsyncIterator[dict[str, Any]]:
        number, self._sent = self._sent, self._sent + 1
        calls: list[dict[str, Any]] = [
            {
                "type": "tool_use",
                "id": f"toolu_{number}_{one}",
                "name": "look",
                "input": {"where": f"{number}, {one}"},
            }
            for one in range(12)
        ]
        ends = number % (self._rounds + 1) == self._rounds
        content = [{"type": "text", "text": f"Round {number}. " * 5}, *(() if ends else calls)]
        response = {"id": f"msg_{number}", "role": "assistant", "content": content, "usage": {}}
        for event in anthropic_events({**response, "stop_reason": "end_turn" if ends else "tool_use"}):
            yield event


class Recalls(NoEngine):
    """A memory that finds a text of its own for each question."""

    async def search(self, user: User, query: str, k: int) -> list[Recollection]:
        text = f"{query} Long ago: " + "the lamp was repaired. " * 20
        return [Recollection(text=text, session="old", message=query, timestamp="2025-06-15T12:00:00Z")]


@pytest.mark.req("M2")
@pytest.mark.parametrize(("rounds", "limit"), [(1, 100), (2, 100), (5, 100), (5, 3)])
def test_an_agent_reads_again_all_that_it_can_of_twelve_calls_at_once_with_recall(
    rounds: int, limit: int
) -> None:
    caching = Cached(rounds)

    async def run() -> None:
        async with await SessionManager.open("memory:", memory=Recalls()) as sessions:
            session = await sessions.create(user="ann", system=SYSTEM)
            tools = ToolManager([look], approvals=Approvals([Rule("*", "allow")]))
            agent = Agent(
                model=caching.model,
                session=session,
                tools=tools,
                budget=Budget.UNLIMITED,
                limits=Limits(rounds=limit),  # a turn that it ends is followed by one in the same message
            )
            for turn in range(12):
                async for _ in agent.run(f"Question {turn}? " + "What of the harbor? " * 5):
                    pass

    asyncio.run(run())
    cache = caching.cache
    print(f"{rounds} rounds: {cache.read / cache.sent:.3f} of {cache.possible / cache.sent:.3f} possible")
    assert cache.read == cache.possible
    assert cache.read / cache.sent > 0.8
