"""A real small model behind three protocols: it answers, streams, reports usage, and is compacted."""

from __future__ import annotations

import asyncio

import pytest

from turnstate import Budget, Message, SessionManager
from turnstate.agent import Agent, Ended, ReplySaved, RequestStarted
from turnstate.errors import RequestTooLong
from turnstate.models import Finished, ModelRequest, ProviderModel, Retry, TextDelta, UsageReported, complete
from turnstate.models.local import LocalServer

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


@pytest.mark.req("P1", "D2")
def test_ten_turns_of_an_agent_stay_within_a_small_window(server: LocalServer) -> None:
    async def talked() -> None:
        async with SessionManager.open("memory:") as sessions, server.chat() as model:
            session = await sessions.create(system="Answer in one short sentence.")
            agent = Agent(model=model, session=session, budget=Budget(160, output=6))
            sizes, reported = list[int](), list[int]()
            for number in range(10):
                async for event in agent.run(f"What is {number} plus {number}?"):
                    match event:
                        case RequestStarted(tokens=tokens):
                            sizes.append(tokens)
                        case ReplySaved(usage=usage) if usage:
                            reported.append(usage.input)
                        case Ended(reason=reason):
                            assert reason == "done"
            assert len(sizes) == len(reported) == 10
            assert max(sizes) <= 154
            assert len(await session.messages()) == 20
            assert any(entry.kind == "cut" for entry in await session.entries())

    asyncio.run(talked())
