"""A real small model behind three protocols: it answers, streams, reports usage, and is compacted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from msgspec import structs

from tests.harness.thoroughness import LONG, runs
from turnstate import Budget, Message, SessionManager, Strategy, formats
from turnstate.agent import Agent, Ended, ReplySaved, RequestStarted
from turnstate.entry import Usage
from turnstate.errors import RequestTooLong
from turnstate.models import (
    Finished,
    ModelEvent,
    ModelRequest,
    ProviderModel,
    Retry,
    TextDelta,
    UsageReported,
    complete,
)
from turnstate.models.local import LocalServer
from turnstate.session import Session
from turnstate.stores.port import Store

pytest.importorskip("xllamacpp")


@pytest.fixture(scope="module")
def server() -> LocalServer:
    return LocalServer(context=1_024)


ASK = ModelRequest(messages=(Message.user("Name a color."),), max_output=8)


@pytest.mark.req("M2")
def test_the_model_streams_and_reports_usage_by_every_protocol(server: LocalServer) -> None:
    for model in (server.chat(), server.chat(responses=True), server.messages()):

        async def heard(model: ProviderModel = model) -> list[object]:
            async with model:
                return [event async for event in model.stream(ASK)]

        events = asyncio.run(heard())
        assert any(isinstance(event, TextDelta) for event in events), model.format
        (usage,) = (event for event in events if isinstance(event, UsageReported))
        assert usage.input > 0, model.format
        assert 0 < usage.output <= 8, model.format
        assert isinstance(events[-1], Finished), model.format


async def asked(model: ProviderModel, request: ModelRequest) -> None:
    async with model:
        await complete(model, request)


@pytest.mark.req("M2")
def test_a_request_that_is_longer_than_its_context_is_told(server: LocalServer) -> None:
    long = ModelRequest(messages=(Message.user("word " * 3_000),), max_output=4)
    with pytest.raises(RequestTooLong):
        asyncio.run(asked(server.chat(retry=Retry(attempts=1)), long))


class Watched:
    """A model that checks each request as its provider would, and remembers it."""

    def __init__(self, model: ProviderModel, *, most: int | None = None) -> None:
        self.name, self._model, self._most = model.name, model, most
        self.requests = list[ModelRequest]()

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        self.requests.append(request)
        target = formats.get(self._model.format)
        payload = target.render(request.messages, tools=request.tools)
        whole = payload if isinstance(payload, dict) else {target.list_key: payload}
        needed = {"max_tokens": 8} if target.name == "anthropic" else {}
        assert target.validate(whole | needed, request=True, strict=True) == []
        if self._most is not None:
            request = structs.replace(request, max_output=self._most)
        return self._model.stream(request)


async def talk(model: ProviderModel, turns: int, *, summarized: bool) -> None:
    """Take turns in a small window, and compact it in the end if it is to be `summarized`."""
    watched, summaries = Watched(model), Watched(model)
    async with SessionManager.open("memory:", model=summaries if LONG else None) as sessions:
        session = await sessions.create(system="Answer in one short sentence.")
        agent = Agent(model=watched, session=session, budget=Budget(160, output=6))
        sizes = list[tuple[int, int]]()
        for number in range(turns):
            words = f"The lamp is lit, the fog is thick, and ships wait. What is {number} plus {number}?"
            async for event in agent.run(words):  # whatever it answers, these fill the window
                match event:
                    case RequestStarted(tokens=tokens, limit=limit):
                        sizes.append((tokens, limit))
                    case ReplySaved(usage=usage):
                        assert usage is not None
                        assert usage.input > 0
                    case Ended(reason=reason):
                        assert reason in ("done", "length")
            await sessions.settled()
        assert len(sizes) == len(watched.requests) == turns
        assert all(tokens <= limit for tokens, limit in sizes)
        assert len(await session.messages()) == 2 * turns
        kinds = [entry.kind for entry in await session.entries()]
        assert kinds.count("cut") >= 1
        await check_calibrated(session, model, sizes)
        if summarized:
            assert summaries.requests or not LONG
            await check_compaction(sessions.store, session.id, model)


async def check_calibrated(session: Session, model: ProviderModel, sizes: list[tuple[int, int]]) -> None:
    """Assert that what the model reported is what was learned, and that budgets follow it in steps."""
    learned = (await session._handle.calibrations())[0][model.name]
    entries = [one.entry for one in await session.entries(kinds=("usage",))]
    usages = [one for one in entries if isinstance(one, Usage)]
    assert [(one.counted, one.limit) for one in usages] == sizes
    told = [one for one in usages if one.counted >= 0.1 * one.limit]
    assert learned["samples"] == len(told)
    ratios = [one.input / one.counted for one in told]
    assert min(ratios) - 0.01 <= learned["factor"] <= max(ratios) + 0.01
    assert len({limit for _, limit in sizes}) <= 1 + sum(
        entry.kind == "cut" for entry in await session.entries()
    ) + sum(abs(ratio - 1) > 0.05 for ratio in ratios[:1])


async def check_compaction(store: Store, id: str, model: ProviderModel) -> None:
    """Assert that a compaction asks the model, and that a summary that was cut off is refused."""
    summaries = Watched(model, most=1)
    session = await SessionManager(store, model=summaries).open(id)
    outcome = await session.compact(strategy=Strategy(keep=1))
    assert (outcome.source, "cut off" in outcome.refused) == ("digest", True)
    assert "plus" in summaries.requests[-1].messages[-1].text
    if not LONG:  # a summary takes the model several seconds
        return
    await session.undo()
    summaries._most = None
    outcome = await session.compact(strategy=Strategy(keep=1))
    assert len(summaries.requests) >= 2
    assert bool(outcome.refused) == (outcome.source == "digest")  # so small a model may fail


@pytest.mark.req("P1", "D2", "B2")
def test_turns_of_an_agent_stay_within_a_small_window_and_calibrate_it(server: LocalServer) -> None:
    """With `TURNSTATE_THOROUGH`, ten turns and more by three protocols, whose cuts ask the model as well."""

    async def talked() -> None:
        models = [server.chat(), server.messages()] + [server.chat(responses=True)] * LONG
        for model in models:
            async with model:
                await talk(model, runs(5, long=20), summarized=LONG or model.format == "anthropic")

    asyncio.run(talked())
