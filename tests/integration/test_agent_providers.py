"""The agent's loop with the SDKs of five providers, over HTTP, and all that goes wrong there."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.harness.provider_model import Call, Said, Turn
from tests.harness.provider_server import FINAL, ProviderServer, Trouble
from turnstate import Budget, Message, SessionManager
from turnstate.agent import Agent, AgentEvent, Compacted, Ended, ReplySaved, ToolFinished, tool
from turnstate.conversation import ToolOrigin
from turnstate.errors import ModelFailed, RequestTooLong, TooManyTools
from turnstate.models import ModelRequest, ProviderModel, Retried, Retry, anthropic, bedrock, gemini, openai
from turnstate.session import Session
from turnstate.tools import Tool
from turnstate.toolspec import ToolSpec

pytestmark = [pytest.mark.req("M2", "P1"), pytest.mark.filterwarnings("default")]

KEY = "sk-secret-key"
RETRY = Retry(attempts=5, first_pause=0.001)


@tool(idempotent=True)
def look(n: int) -> str:
    """Look around."""
    return f"look {n}: fog"


@tool(idempotent=True)
def listen(n: int) -> str:
    """Listen."""
    return f"listen {n}: waves"


@tool(idempotent=True)
def smell(n: int) -> str:
    """Smell."""
    return f"smell {n}: salt"


@pytest.fixture(scope="module")
def aws() -> Callable[[str], Any]:
    """Return what makes clients of Bedrock at an address; the first takes its time."""
    import boto3

    session = boto3.Session(aws_access_key_id="id", aws_secret_access_key=KEY, region_name="us-east-1")
    return lambda url: session.client("bedrock-runtime", endpoint_url=url, config=_once())


def _once() -> Any:
    from botocore.config import Config

    return Config(retries={"total_max_attempts": 1})


def models(url: str, aws: Callable[[str], Any]) -> list[Callable[[], ProviderModel]]:
    """Return what makes a model of each provider, at a local server."""
    given: dict[str, Any] = {"api_key": KEY, "retry": RETRY}
    return [
        lambda: openai("gpt-4o", base_url=f"{url}/v1", **given),
        lambda: openai("gpt-5", base_url=f"{url}/v1", responses=True, **given),
        lambda: anthropic("claude-opus-4-8", base_url=url, **given),
        lambda: gemini("gemini-3", base_url=url, **given),
        lambda: bedrock("us.anthropic.claude", client=aws(url), retry=RETRY),
    ]


def on_each(aws: Callable[[str], Any], test: Callable[[ProviderServer, ProviderModel, Session], Any]) -> None:
    """Run a test with each provider, each with a session of its own."""

    async def run() -> None:
        for number in range(5):
            with ProviderServer() as server:
                async with (
                    SessionManager.open("memory:") as sessions,
                    models(server.url, aws)[number]() as model,
                ):
                    await test(server, model, await sessions.create(system="You keep a lighthouse."))
                assert server.rejected == [], model.format

    asyncio.run(run())


async def events(model: ProviderModel, session: Session, words: str) -> list[AgentEvent]:
    agent = Agent(model=model, session=session, tools=[look, listen, smell], budget=Budget(8_000, output=500))
    return [event async for event in agent.run(words)]


def ended(found: list[AgentEvent]) -> Ended:
    last = found[-1]
    assert isinstance(last, Ended)
    return last


def test_what_may_pass_passes_and_nothing_half_is_saved(aws: Callable[[str], Any]) -> None:
    async def run(server: ProviderServer, model: ProviderModel, session: Session) -> None:
        now = (("Retry-After", "0"),)
        server.troubles = [
            Trouble(429, headers=now),
            Trouble(500),
            None,
            Trouble(is_torn=True),
            Trouble(529),
        ]
        found = await events(model, session, "turn 7")
        attempts = [event.attempt for event in found if isinstance(event, Retried)]
        assert attempts == [1, 2, 1, 2], model.format
        assert len(server.requests) == 6
        assert ended(found).reason == "done"
        usage = [event.usage for event in found if isinstance(event, ReplySaved) and event.usage]
        assert [(one.input, one.output, one.cached_share) for one in usage] == [(100, 20, 0.4)] * 2
        server.troubles = [None, Trouble(is_torn=True)]
        assert ended(await events(model, session, "turn 5")).reason == "done"
        said = await session.messages()
        roles = ["user", "assistant", *["tool"] * 3, "assistant"]
        roles += ["user", "assistant", "tool", "tool", "assistant", "tool", "assistant"]
        assert [message.role for message in said] == roles, model.format
        assert [message.text for message in said if message.role == "assistant" and message.text] == [
            FINAL
        ] * 2

    on_each(aws, run)


@pytest.mark.parametrize("responses", [False, True])
def test_the_requests_of_a_session_name_one_cache_key(responses: bool) -> None:
    async def keys(cache: bool | None) -> set[Any]:
        found = set[Any]()
        async with SessionManager.open("memory:", tenant="harbor") as sessions:
            for _ in range(2):
                session = await sessions.create(user="lighthouse")
                with ProviderServer() as server:
                    given: Any = {"base_url": f"{server.url}/v1", "api_key": KEY, "cache": cache}
                    async with openai("m", responses=responses, **given) as model:
                        await events(model, session, "turn 7")
                assert len(server.requests) == 2
                found |= {(body.get("prompt_cache_key"), session.cache_key) for body in server.requests}
        return found

    assert {sent for sent, _ in asyncio.run(keys(None))} == {None}  # another endpoint may reject the field
    sent = asyncio.run(keys(True))
    assert len(sent) == 2  # one for each session …
    assert all(key == own and len(key) == 32 for key, own in sent)  # … that says nothing about whose it is


def test_openai_itself_gets_a_cache_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    request = ModelRequest(messages=(Message.user("hi"),), cache_key="k")
    for url, sent in (
        (None, "k"),
        ("https://eu.api.openai.com/v1", "k"),
        ("https://api.openai.com.example/v1", None),
        ("http://localhost:11434/v1", None),
    ):
        model = openai("m", base_url=url, api_key=KEY)
        assert model._payload(request).get("prompt_cache_key") == sent
    own = openai("m", api_key=KEY, prompt_cache_key="mine")
    assert own._payload(request)["prompt_cache_key"] == "mine"
    assert "prompt_cache_key" not in openai("m", api_key=KEY, cache=False)._payload(request)


@pytest.mark.parametrize("responses", [False, True])
@pytest.mark.parametrize("is_given", [False, True])
def test_an_endpoint_is_foreign_by_its_host_whoever_named_it(
    responses: bool, is_given: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ProviderServer() as server:
        script = [Said((Call("look", '{"n": 7'),)), Said()]
        server.say = lambda _: script.pop(0)
        url = f"{server.url}/v1"
        monkeypatch.setenv("OPENAI_BASE_URL", "https://api.openai.com/v1" if is_given else url)

        async def run() -> None:
            async with (
                SessionManager.open("memory:") as sessions,
                openai("m", base_url=url if is_given else None, api_key=KEY, responses=responses) as model,
            ):
                await events(model, await sessions.create(), "Go on.")

        asyncio.run(run())
    for body in server.requests:
        assert "max_completion_tokens" not in body
        assert ("max_output_tokens" if responses else "max_tokens") in body
    last = server.requests[-1]
    written = [one["arguments"] for one in last.get("input", ()) if one.get("type") == "function_call"]
    for message in last.get("messages", ()):
        written += [one["function"]["arguments"] for one in message.get("tool_calls") or ()]
    assert [json.loads(one) for one in written] == [{"_unparsed": '{"n": 7'}]  # other servers parse them


def test_odd_replies_get_results_that_the_model_can_use_and_leave_a_valid_history(
    aws: Callable[[str], Any],
) -> None:
    async def run(server: ProviderServer, model: ProviderModel, session: Session) -> None:
        broken: Any = {"n": "seven"} if model.format == "gemini" else '{"n": 7'  # Gemini sends objects
        script = [
            Said((Call("look", broken), Call("lok", {"n": 1}), Call("look", {"n": 2}))),
            Said(tuple(Call("listen", {"n": n}) for n in range(20))),
            Said(),
            Said(refuses=True),
            Said(),
        ]

        def say(_: list[Turn]) -> Said:
            return script.pop(0)

        server.say = say
        found = await events(model, session, "Go on.")
        results = [event.result for event in found if isinstance(event, ToolFinished)]
        first = {str(one.result): one.is_error for one in results[:3]}
        assert first.pop("look 2: fog") is False
        assert all(first.values()), (model.format, first)
        assert any("did you mean look?" in text for text in first)
        assert any("arguments" in text for text in first), (model.format, first)
        assert sorted(str(one.result) for one in results[3:]) == sorted(
            f"listen {n}: waves" for n in range(20)
        )
        assert ended(found).reason == "done"
        assert ended(await events(model, session, "Do something bad.")).reason == "refusal", model.format
        assert ended(await events(model, session, "Then not.")).reason == "done"

    on_each(aws, run)


def test_arguments_that_are_not_an_object_run_no_tool(aws: Callable[[str], Any]) -> None:
    """A call whose arguments are cut off or of another type must not run with the tool's defaults."""
    ran = list[str]()

    @tool(idempotent=True)
    def deploy(target: str = "production") -> str:
        """Deploy."""
        ran.append(target)
        return f"deployed to {target}"

    async def run(server: ProviderServer, model: ProviderModel, session: Session) -> None:
        if model.format == "gemini":
            return  # its SDK accepts only objects
        written = ['{"target": "staging", "dry_run": tr', "null", '""', "[]", "7", '{"target": NaN}']
        script = [Said(tuple(Call("deploy", one) for one in [*written, ""])), Said()]
        server.say = lambda _: script.pop(0)
        agent = Agent(model=model, session=session, tools=[deploy], budget=Budget(8_000, output=500))
        found = [event async for event in agent.run("Deploy.")]
        results = [event.result for event in found if isinstance(event, ToolFinished)]
        refused = [str(one.result) for one in results if one.is_error]
        assert len(refused) == len(written), (model.format, results)
        assert all(text in told for text, told in zip(written, refused, strict=True)), model.format
        assert ran == ["production"], model.format  # of the call without arguments
        ran.clear()

    on_each(aws, run)


def test_a_request_that_is_too_long_is_compacted_once_and_sent_once_more(aws: Callable[[str], Any]) -> None:
    async def run(server: ProviderServer, model: ProviderModel, session: Session) -> None:
        for number in range(6):
            await session.append(Message.user(f"Night {number}?"), Message.assistant("Quiet. " * 50))
        too_long = Trouble(is_too_long=True)
        server.troubles = [too_long]
        found = await events(model, session, "turn 1")
        assert sum(isinstance(event, Compacted) for event in found) == 1, model.format
        assert ended(found).reason == "done"
        assert len(str(server.requests[1])) < len(str(server.requests[0]))
        server.troubles = [too_long, too_long]
        with pytest.raises(RequestTooLong):
            await events(model, session, "turn 2")
        assert len(server.requests) == 5  # neither was sent again without a compaction
        agent = Agent(model=model, session=session, tools=[look, listen], budget=Budget(8_000, output=500))
        assert ended([event async for event in agent.resume()]).reason == "done"

    on_each(aws, run)


def test_what_will_not_pass_is_told_at_once_and_without_the_key(aws: Callable[[str], Any]) -> None:
    async def run(server: ProviderServer, model: ProviderModel, session: Session) -> None:
        server.troubles = [Trouble(401, "no such key" if model.format == "bedrock" else f"bad key {KEY}")]
        with pytest.raises(ModelFailed) as caught:
            await events(model, session, "turn 1")
        assert len(server.requests) == 1
        assert "key" in str(caught.value)
        assert KEY not in str(caught.value)
        entries = await session.entries()
        assert KEY not in str(entries)

    on_each(aws, run)


def test_more_tools_than_a_provider_accepts_are_an_error_that_says_whose_they_are() -> None:
    """Nothing is sent: no server listens at the addresses of these providers here."""

    def offered(server: str, number: int) -> Tool:
        async def run(*_: Any) -> None:
            pass

        origin = ToolOrigin.mcp(server) if server else ToolOrigin("custom")
        return Tool(ToolSpec(f"{server}__{number}"), run, origin=origin)

    async def run() -> None:
        given: dict[str, Any] = {"api_key": KEY, "retry": Retry(attempts=1)}
        every = [offered("big", n) for n in range(500)] + [offered("small", n) for n in range(20)]
        for model, most in (
            (openai("gpt-4o", **given), 128),
            (openai("gpt-5", responses=True, **given), 128),
            (gemini("gemini-3", **given), 512),
        ):
            async with SessionManager.open("memory:") as sessions, model:
                session = await sessions.create()
                agent = Agent(model=model, session=session, tools=[*every, look], budget=Budget(800_000))
                with pytest.raises(TooManyTools) as caught:
                    [event async for event in agent.run("Go.")]
                said = str(caught.value)
                assert f"accepts at most {most} tools, and there are 521: 500 of the MCP server big, " in said
                assert "20 of the MCP server small, 1 of your own" in said
                assert "[mcp.NAME]" in said
                assert await session.pending() is not None

    asyncio.run(run())
