"""The agent's loop: every step is saved, every end leaves a valid history, and a run can be resumed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from random import Random
from typing import Any

import pytest

from turnstate import Budget, Message, SessionManager, ToolCallRequest, ToolCallResult, catalog, formats
from turnstate.agent import (
    Agent,
    AgentEvent,
    Compacted,
    Ended,
    Hooks,
    Limits,
    Prices,
    ReplySaved,
    RequestStarted,
    Stop,
    ToolFinished,
    ToolManager,
    tool,
)
from turnstate.entry import UNCERTAIN, Started, Usage
from turnstate.errors import ModelFailed, RequestTooLong
from turnstate.models import Finished, TextDelta, ToolCallMade, UsageReported
from turnstate.session import Session
from turnstate.testing import ScriptedModel
from turnstate.tools import Approval, ApprovalRequest, Approvals, Rule

BUDGET = Budget(8_000, output=500)


@tool(idempotent=True)
def look(where: str) -> str:
    """Look somewhere."""
    return f"fog at {where}"


def calls(*wheres: str, name: str = "look") -> Message:
    return Message.assistant(tool_calls=[ToolCallRequest(name=name, args={"where": one}) for one in wheres])


def asks(*wheres: str, name: str = "look") -> Callable[[Any], Message]:
    """Return a reply that makes new calls each time it is played."""
    return lambda _: calls(*wheres, name=name)


def agent(session: Session, *replies: Any, tools: Any = (look,), **settings: Any) -> Agent:
    manager = ToolManager(tools, approvals=Approvals([Rule("*", "allow")]))
    model = ScriptedModel(*replies)
    return Agent(model=model, session=session, tools=manager, budget=BUDGET, **settings)


async def events(agent: Agent, words: str | None = "How is the sea?") -> list[AgentEvent]:
    run = agent.resume() if words is None else agent.run(words)
    return [event async for event in run]


def ended(found: list[AgentEvent]) -> Ended:
    last = found[-1]
    assert isinstance(last, Ended)
    return last


def on_session(test: Callable[[Session], Any]) -> Callable[[], None]:
    async def opened() -> None:
        async with SessionManager.open("memory:") as sessions:
            await test(await sessions.create(user="u1", system="You keep a lighthouse."))

    def run() -> None:
        asyncio.run(opened())

    run.__name__ = test.__name__
    return run


async def check(session: Session) -> None:
    """Check that the next request is valid for every provider."""
    window = await session.window(BUDGET)
    for name in formats.names():
        provider = formats.get(name)
        assert provider.validate(provider.render(window.messages)) == [], name


@pytest.mark.req("P1")
@on_session
async def test_a_run_goes_on_until_the_model_makes_no_calls(session: Session) -> None:
    found = await events(agent(session, calls("sea", "land"), calls("sky"), "All is fog."))
    kinds = [type(event).__name__ for event in found if not isinstance(event, TextDelta)]
    assert kinds == [
        *("RequestStarted", "ReplySaved", "ToolStarted", "ToolStarted", "ToolFinished", "ToolFinished"),
        *("RequestStarted", "ReplySaved", "ToolStarted", "ToolFinished"),
        *("RequestStarted", "ReplySaved", "Ended"),
    ]
    assert "".join(event.text for event in found if isinstance(event, TextDelta)) == "All is fog."
    last = found[-1]
    assert isinstance(last, Ended)
    assert (last.reason, last.message and last.message.text) == ("done", "All is fog.")
    messages = await session.messages()
    assert [message.role for message in messages] == [
        *("user", "assistant", "tool", "tool", "assistant", "tool", "assistant")
    ]
    assert await session.pending() is None
    await check(session)


@pytest.mark.req("L2", "P1")
@on_session
async def test_an_error_of_a_tool_goes_back_to_the_model(session: Session) -> None:
    @tool
    def breaks(where: str) -> str:
        """Break."""
        raise OSError(f"no {where}")

    model = [asks("sea", name="breaks"), asks("sea", name="lok"), "I see."]
    found = await events(agent(session, *model, tools=(look, breaks)))
    results = [event.result for event in found if isinstance(event, ToolFinished)]
    assert [result.is_error for result in results] == [True, True]
    assert results[0].result == "OSError: no sea"
    assert "did you mean look?" in results[1].result
    assert isinstance(found[-1], Ended)


@on_session
async def test_a_refusal_and_a_reply_that_was_cut_off_are_told(session: Session) -> None:
    for reason, words in (("refusal", "refused"), ("length", "cut off")):
        last = (await events(agent(session, [TextDelta("All"), Finished(reason)])))[-1]  # type: ignore[arg-type]
        assert isinstance(last, Ended)
        assert last.reason == reason
        assert words in last.text
        await check(session)


@pytest.mark.req("P1")
@on_session
async def test_limits_end_a_run_and_it_can_be_resumed(session: Session) -> None:
    limited = agent(session, asks("a"), asks("b"), "Done.", limits=Limits(rounds=2))
    last = (await events(limited))[-1]
    assert isinstance(last, Ended)
    assert last.reason == "rounds"
    await check(session)
    last = (await events(limited, None))[-1]
    assert isinstance(last, Ended)
    assert (last.reason, last.message and last.message.text) == ("done", "Done.")


@pytest.mark.req("P1")
@on_session
async def test_a_model_that_repeats_itself_is_stopped(session: Session) -> None:
    found = await events(agent(session, *[asks("sea")] * 9))
    last = found[-1]
    assert isinstance(last, Ended)
    assert last.reason == "repeated"
    assert sum(isinstance(event, ReplySaved) for event in found) == 3


@on_session
async def test_the_tokens_of_a_run_are_limited_by_what_the_provider_reports(session: Session) -> None:
    def reply(_: Any) -> list[Any]:
        call = calls("sea").tool_calls[0]
        return [ToolCallMade(call), UsageReported(input=400, output=100), Finished("tool_calls")]

    found = await events(agent(session, *[reply] * 9, limits=Limits(tokens=900)))
    last = found[-1]
    assert isinstance(last, Ended)
    assert last.reason == "tokens"
    usage = [event.usage for event in found if isinstance(event, ReplySaved)]
    assert [one and (one.input, one.output, one.model) for one in usage] == [(400, 100, "scripted")] * 2
    saved = [one.entry for one in await session.entries(kinds=("usage",))]
    assert [one.input for one in saved if isinstance(one, Usage)] == [400, 400]


@pytest.mark.req("P1")
@on_session
async def test_a_request_that_is_too_long_is_compacted_and_sent_again_once(session: Session) -> None:
    for number in range(6):
        await session.append(Message.user(f"Night {number}?"), Message.assistant("Quiet. " * 50))
    found = await events(agent(session, RequestTooLong("too long"), "Better."))
    assert [type(event) for event in found if isinstance(event, RequestStarted | Compacted)] == [
        RequestStarted,
        Compacted,
        RequestStarted,
    ]
    sizes = [event.tokens for event in found if isinstance(event, RequestStarted)]
    assert sizes[1] < sizes[0]
    with pytest.raises(RequestTooLong):
        await events(agent(session, RequestTooLong("too long"), RequestTooLong("still too long")))
    await check(session)


@pytest.mark.req("I3", "P1")
@on_session
async def test_a_stream_that_breaks_off_saves_nothing_and_the_run_can_be_resumed(session: Session) -> None:
    broken = agent(session, [TextDelta("All is"), ModelFailed("connection lost")])
    with pytest.raises(ModelFailed):
        await events(broken)
    unfinished = agent(session, [TextDelta("All is")])
    with pytest.raises(ModelFailed, match="interrupted"):
        await events(unfinished, None)
    pending = await session.pending()
    assert pending is not None
    assert pending.prompt is not None
    last = (await events(agent(session, "All is fog."), None))[-1]
    assert isinstance(last, Ended)
    assert [message.role for message in await session.messages()] == ["user", "assistant"]


@on_session
async def test_hooks_change_requests_answer_calls_change_results_and_stop(session: Session) -> None:
    seen = list[str]()

    async def before_request(request: Any) -> None:
        seen.append(f"request of {len(request.messages)}")

    async def before_tool(call: ToolCallRequest) -> ToolCallResult | None:
        return ToolCallResult.of(call.id, "from the cache") if call.args["where"] == "sea" else None

    async def after_tool(call: ToolCallRequest, result: ToolCallResult) -> ToolCallResult:
        return ToolCallResult.of(call.id, f"{result.result}!")

    async def after_reply(message: Message) -> None:
        if "enough" in message.text:
            raise Stop("the user has heard enough")

    hooks = Hooks(
        before_request=before_request, before_tool=before_tool, after_tool=after_tool, after_reply=after_reply
    )
    found = await events(agent(session, asks("sea", "land"), "That is enough.", hooks=hooks))
    results = {event.result.result for event in found if isinstance(event, ToolFinished)}
    assert results == {"from the cache!", "fog at land!"}
    last = found[-1]
    assert isinstance(last, Ended)
    assert (last.reason, last.text) == ("stopped", "the user has heard enough")
    assert seen == ["request of 2", "request of 5"]


@on_session
async def test_a_call_with_unusable_arguments_reaches_no_hook_no_question_and_is_not_started(
    session: Session,
) -> None:
    site, seen = Site(), list[str]()

    async def before_tool(call: ToolCallRequest) -> None:
        seen.append(f"hook {call.id}")

    async def ask(question: ApprovalRequest) -> Approval:
        seen.append(f"question {question.call.id}")
        return Approval(allow=True)

    cut = ToolCallRequest(name="pay", args={}, raw='{"where": "sh')
    model = ScriptedModel(Message.assistant(tool_calls=[cut]), "I see.")
    manager = ToolManager([site.tool], approvals=Approvals(ask=ask))
    hooks = Hooks(before_tool=before_tool)
    cautious = Agent(model=model, session=session, tools=manager, budget=BUDGET, hooks=hooks)
    (result,) = (event.result for event in await events(cautious) if isinstance(event, ToolFinished))
    assert result.is_error
    assert '{"where": "sh' in result.result
    assert (seen, site.runs) == ([], {})
    assert not any(isinstance(one.entry, Started) for one in await session.entries())
    await check(session)


@on_session
async def test_the_last_call_of_a_reply_that_was_cut_off_is_not_run(session: Session) -> None:
    """Its arguments may lack their end even if they look complete: some providers close the JSON."""

    def reply(_: Any) -> list[Any]:
        return [*map(ToolCallMade, calls("sea", "land").tool_calls), Finished("length")]

    found = await events(agent(session, reply, "All is fog."))
    results = [event.result for event in found if isinstance(event, ToolFinished)]
    assert sorted((one.is_error, "cut off" in one.result) for one in results) == [
        (False, False),
        (True, True),
    ]
    assert ended(found).reason == "done"
    await check(session)


@pytest.mark.parametrize("reported", [True, False], ids=["usage", "no usage"])
@pytest.mark.parametrize("end", ["limit", "hook", "left"])
def test_a_call_that_was_cut_off_is_not_run_by_a_later_process(
    end: str, reported: bool, tmp_path: Path
) -> None:
    """However the first run ended after the reply: by a limit, by a hook, or with its process."""
    url, site = f"sqlite:///{tmp_path}/agent.db", Site()
    usage = [UsageReported(input=10, output=5)] if reported else []
    made = calls("sea", "land", name="pay").tool_calls

    def stop(_: Message) -> None:
        raise Stop("enough")

    async def first() -> None:
        async with SessionManager.open(url) as sessions:
            session = await sessions.create(id="s", user="u1")
            reply = [*map(ToolCallMade, made), *usage, Finished("length")]
            settings = {"limit": {"limits": Limits(tokens=1)}, "hook": {"hooks": Hooks(after_reply=stop)}}
            run = agent(session, reply, tools=(site.tool,), **settings.get(end, {})).run("Pay.")
            async with aclosing(run) as found:
                async for event in found:
                    if isinstance(event, ReplySaved) and end == "left":
                        break

    async def second() -> None:
        async with SessionManager.open(url) as sessions:
            session = await sessions.open_or_create("s", user="u1")
            found = await events(agent(session, "Done.", tools=(site.tool,)), None)
            results = {one.call.args["where"]: one.result for one in found if isinstance(one, ToolFinished)}
            assert "was cut off" in results["land"].result
            assert results["land"].is_error
            assert ended(found).reason == "done"
            await check(session)

    asyncio.run(first())
    asyncio.run(second())
    assert site.runs == {"sea": 1}


@on_session
async def test_calls_before_the_one_that_was_cut_off_are_run_by_a_later_run(session: Session) -> None:
    site = Site()
    made = calls("sea", "land", name="pay").tool_calls
    async with session.turn("Pay.", budget=BUDGET) as turn:
        await turn.window()
        usage = Usage(details={"finish_reason": "length"})  # as providers say it
        _first, last = await turn.reply(Message.assistant(tool_calls=made), usage=usage)
        pending = await session.pending()
        assert (turn.cut_off, pending and pending.cut_off) == (last.id, last.id)
        await turn.result(last, "cut off", is_error=True)
    found = await events(agent(session, "Done.", tools=(site.tool,)), None)
    assert (site.runs, ended(found).reason) == ({"sea": 1}, "done")


@pytest.mark.parametrize("reported", [True, False], ids=["usage", "no usage"])
@pytest.mark.parametrize("reason", ["length", "refusal", "stop"])
def test_a_run_that_is_repeated_ends_as_it_did(reason: str, reported: bool) -> None:
    async def run() -> None:
        async with SessionManager.open("memory:") as sessions:
            session = await sessions.create(user="u1")
            usage = [UsageReported(input=10, output=5)] if reported else []
            reply = [TextDelta("All"), *usage, Finished(reason)]  # type: ignore[arg-type]
            first = ended([one async for one in agent(session, reply).run("How?", key="k1")])
            again = ended([one async for one in agent(session).run("How?", key="k1")])
            resumed = ended(await events(agent(session), None))
            await events(agent(session, "Done."), "And now?")
            later = ended([one async for one in agent(session).run("How?", key="k1")])
            expected = "done" if reason == "stop" else reason
            assert [one.reason for one in (first, again, resumed, later)] == [expected] * 4
            assert {one.message.text for one in (first, again, resumed, later) if one.message} == {"All"}
            assert ended(await events(agent(session), None)).reason == "done"

    asyncio.run(run())


class Site:
    """A tool that is not idempotent, counts its runs, and can be made to wait."""

    def __init__(self) -> None:
        self.runs = dict[str, int]()
        self.hold = asyncio.Event()
        self.hold.set()

    @property
    def tool(self) -> Any:
        @tool
        async def pay(where: str) -> str:
            """Pay somewhere."""
            self.runs[where] = self.runs.get(where, 0) + 1
            await asyncio.sleep(0)
            await self.hold.wait()
            return f"paid at {where}"

        return pay


@pytest.mark.req("P1")
@on_session
async def test_a_call_that_was_started_is_not_run_again_unless_it_is_idempotent(session: Session) -> None:
    site = Site()
    site.hold.clear()
    both = Message.assistant(
        tool_calls=[
            ToolCallRequest(name="pay", args={"where": "shop"}),
            ToolCallRequest(name="look", args={"where": "sea"}),
        ]
    )
    interrupted = asyncio.ensure_future(events(agent(session, both, tools=(look, site.tool))))
    while not site.runs or len(await session.messages()) < 3:
        await asyncio.sleep(0.001)
    interrupted.cancel()
    with pytest.raises(asyncio.CancelledError):
        await interrupted
    await check(session)
    found = await events(agent(session, "I will check.", tools=(look, site.tool)), None)
    (result,) = (event.result for event in found if isinstance(event, ToolFinished))
    assert (result.result, result.is_error) == (UNCERTAIN, True)
    assert site.runs == {"shop": 1}
    await check(session)


@pytest.mark.req("P1")
@on_session
async def test_a_call_that_was_not_started_is_run(session: Session) -> None:
    site = Site()
    await session.append(Message.user("Pay."), calls("shop", name="pay"))
    found = await events(agent(session, "Paid.", tools=(site.tool,)), None)
    assert [event.result.result for event in found if isinstance(event, ToolFinished)] == ["paid at shop"]
    assert site.runs == {"shop": 1}


@pytest.mark.req("P1")
def test_cancelled_at_any_moment_the_history_is_valid_and_nothing_runs_twice() -> None:
    async def cancelled(seed: int) -> None:
        rng, site = Random(seed), Site()
        script = [asks("a", "b", name="pay"), asks("c"), asks("d", name="pay"), "Done."]
        async with SessionManager.open("memory:") as sessions:
            session = await sessions.create()
            left, words = list(script), "Pay."
            while True:
                running = agent(session, *left, tools=(look, site.tool))
                model = running.model
                assert isinstance(model, ScriptedModel)
                run = running.run(words) if words else running.resume()
                stop, count, words = rng.randrange(1, 14), 0, ""
                ended = None
                async with aclosing(run) as following:
                    async for event in following:
                        count += 1
                        ended = event if isinstance(event, Ended) else None
                        if count == stop:
                            break
                await check(session)
                if ended is not None:
                    break
                replied = sum(message.role == "assistant" for message in await session.messages())
                left = script[replied:]
            assert all(count == 1 for count in site.runs.values()), (seed, site.runs)
            assert await session.pending() is None
            assert (await session.messages())[-1].text == "Done."

    for seed in range(40):
        asyncio.run(cancelled(seed))


@pytest.mark.req("P1")
@on_session
async def test_the_cost_of_a_run_is_limited_by_what_is_reported_or_by_prices(session: Session) -> None:
    def reply(details: dict[str, Any]) -> Any:
        def made(_: Any) -> list[Any]:
            call = calls(str(details)).tool_calls[0]
            usage = UsageReported(input=1_000_000, output=100_000, cached=500_000, details=details)
            return [ToolCallMade(call), usage, Finished("tool_calls")]

        return made

    prices = Prices(input=2, output=10, cached=0.2)  # 1 for input, 0.1 for what was cached, 1 for output
    for details, limits, rounds in (
        ({}, Limits(cost=6, prices=prices, repeats=9), 3),
        ({"cost": 0.5}, Limits(cost=4, prices=prices, repeats=9), 8),
        ({"cost": 0.5}, Limits(cost=1, repeats=9), 2),
        ({"usage": {"cost": 0.5}}, Limits(cost=1, repeats=9), 2),
        ({}, Limits(cost=1, repeats=9), 1),
    ):
        found = await events(agent(session, *[reply(details)] * 9, limits=limits))
        last = found[-1]
        assert isinstance(last, Ended)
        assert last.reason == "cost"
        assert sum(isinstance(event, ReplySaved) for event in found) == rounds, (details, limits)
        await check(session)


@on_session
async def test_a_hook_may_change_a_reply_and_one_that_stops_before_a_tool_leaves_it_unstarted(
    session: Session,
) -> None:
    site = Site()

    async def after_reply(message: Message) -> Message | None:
        return Message.assistant(message.text.upper()) if message.text else None

    async def before_tool(_: ToolCallRequest) -> ToolCallResult | None:
        raise Stop("not today")

    hooks = Hooks(after_reply=after_reply, before_tool=before_tool)
    found = await events(agent(session, asks("shop", name="pay"), tools=(site.tool,), hooks=hooks))
    last = found[-1]
    assert isinstance(last, Ended)
    assert (last.reason, last.text) == ("stopped", "not today")
    pending = await session.pending()
    assert pending is not None
    assert (len(pending.open), len(pending.started), site.runs) == (1, 0, {})
    hooks = Hooks(after_reply=after_reply)
    found = await events(agent(session, "Paid.", tools=(site.tool,), hooks=hooks), None)
    assert site.runs == {"shop": 1}
    assert (await session.messages())[-1].text == "PAID."


@on_session
async def test_a_cost_limit_needs_no_prices_for_a_model_of_the_catalog(session: Session) -> None:
    def reply(_: Any) -> list[Any]:
        usage = UsageReported(input=100_000, output=10_000, model="claude-sonnet-5-5-20261001")
        return [ToolCallMade(calls("fog").tool_calls[0]), usage, Finished("tool_calls")]

    found = await events(
        agent(session, *[reply] * 9, limits=Limits(cost=0.5, repeats=9))
    )  # 0.2 + 0.1 a round
    assert isinstance(last := found[-1], Ended)
    assert (last.reason, sum(isinstance(event, ReplySaved) for event in found)) == ("cost", 2)


@on_session
async def test_given_prices_come_before_registered_ones(session: Session) -> None:
    catalog.register("harbor-1", context_window=8_192, prices=Prices(input=1, output=1))

    def reply(_: Any) -> list[Any]:
        usage = UsageReported(input=1_000_000, output=0, model="harbor-1")
        return [ToolCallMade(calls("fog").tool_calls[0]), usage, Finished("tool_calls")]

    for prices, rounds in ((Prices(input=3, output=3), 2), (None, 6)):
        limits = Limits(cost=6, prices=prices, repeats=9)
        found = await events(agent(session, *[reply] * 9, limits=limits))
        assert isinstance(last := found[-1], Ended)
        assert (last.reason, sum(isinstance(event, ReplySaved) for event in found)) == ("cost", rounds)
    del catalog._registered["harbor-1"]
    catalog.model.cache_clear()


@on_session
async def test_the_output_limit_of_an_unknown_model_is_reserved_but_not_sent(session: Session) -> None:
    for name, most in (("gpt-9", None), ("gpt-5", 128_000)):
        model = ScriptedModel("Calm.", name=name)
        await events(Agent(model=model, session=session, tools=ToolManager()))
        assert [request.max_output for request in model.requests] == [most]
        assert Budget.of(catalog.model(name)).output == 128_000


def test_a_run_that_is_repeated_by_its_key_ends_with_its_own_answer() -> None:
    async def main() -> None:
        async with SessionManager.open("memory:") as sessions:
            session = await sessions.create()
            assert await said(agent(session, asks("here"), "Paris."), "k1") == "Paris."
            assert await said(agent(session, "Madrid."), "k2") == "Madrid."
            assert await said(agent(session), "k1") == "Paris."  # no model is asked

    async def said(one: Agent, key: str) -> str:
        async with aclosing(one.run(key, key=key)) as run:
            (ended,) = [event async for event in run if isinstance(event, Ended)]
        assert ended.message is not None
        return ended.message.text

    asyncio.run(main())
