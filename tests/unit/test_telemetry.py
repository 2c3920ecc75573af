"""Spans as the real SDK of OpenTelemetry records them, and nothing where it is not used."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes

from turnstate import Budget, Message, SessionManager
from turnstate.agent import Agent, tool
from turnstate.models import ProviderModel, Retry
from turnstate.telemetry import started

pytestmark = pytest.mark.req("M2")

NAMES = {value for name, value in vars(gen_ai_attributes).items() if name.startswith("GEN_AI_")}


@pytest.fixture(scope="module")
def exporter() -> InMemorySpanExporter:
    memory = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(memory))
    trace.set_tracer_provider(provider)
    return memory


@pytest.fixture
def spans(exporter: InMemorySpanExporter) -> InMemorySpanExporter:
    exporter.clear()
    return exporter


@tool(idempotent=True)
def look(where: str) -> str:
    """Look somewhere."""
    if where == "away":
        raise OSError("nothing there")
    return f"fog at the {where}"


def call(number: int, where: str) -> dict[str, Any]:
    function = {"name": "look", "arguments": json.dumps({"where": where})}
    return {"index": number, "id": f"c{number}", "type": "function", "function": function}


def chunk(delta: dict[str, Any], end: str | None = None) -> dict[str, Any]:
    usage = {
        "prompt_tokens": 100,
        "completion_tokens": 7,
        "prompt_tokens_details": {"cached_tokens": 60},
    }
    choice = {"index": 0, "delta": delta, "finish_reason": end}
    return {"id": "chat-1", "model": "m-2026", "choices": [choice], **({"usage": usage} if end else {})}


SCRIPT: list[Any] = [
    ConnectionError("lost"),
    [chunk({"tool_calls": [call(0, "lamp"), call(1, "away")]}, "tool_calls")],
    [chunk({"content": "All is "}), chunk({"content": "fog."}, "stop")],
]


def model() -> ProviderModel:
    script = list(SCRIPT)

    async def played(chunks: list[Any]) -> AsyncIterator[Any]:
        for one in chunks:
            yield one

    async def send(_: Any) -> AsyncIterator[Any]:
        if isinstance(step := script.pop(0), Exception):
            raise step
        return played(step)

    retry = Retry(first_pause=0)
    return ProviderModel("m", "openai-chat", send, limit=lambda most: {"max_tokens": most}, retry=retry)


async def talk() -> str:
    async with SessionManager.open("memory:") as sessions:
        session = await sessions.create()
        for number in range(8):
            await session.append(Message.user(f"Night {number}?"), Message.assistant("Quiet. " * 30))
        agent = Agent(model=model(), session=session, tools=[look], budget=Budget(700, output=50))
        async for _ in agent.run("How is the secret lamp?"):
            assert trace.get_current_span() is trace.INVALID_SPAN  # nothing leaks into the program
        await session.compact()
        return session.id


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def test_a_run_has_spans_for_requests_tools_and_compactions(spans: InMemorySpanExporter) -> None:
    id = asyncio.run(talk())
    found = spans.get_finished_spans()
    assert [span.name for span in found] == [
        *("chat m", "execute_tool look", "execute_tool look", "chat m", "invoke_agent", "turnstate.compact")
    ]
    run, compact = found[-2:]
    assert all(span.parent and span.parent.span_id == run.context.span_id for span in found[:-2])
    assert attributes(run)["gen_ai.conversation.id"] == attributes(compact)["gen_ai.conversation.id"] == id
    assert attributes(run)["turnstate.end"] == "done"
    assert [event.name for event in run.events] == ["turnstate.cut"]
    assert attributes(found[0]) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "m",
        "gen_ai.request.max_tokens": 50,
        "gen_ai.response.id": "chat-1",
        "gen_ai.response.model": "m-2026",
        "gen_ai.response.finish_reasons": ("tool_calls",),
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.output_tokens": 7,
        "gen_ai.usage.cache_read.input_tokens": 60,
    }
    assert [event.name for event in found[0].events] == ["turnstate.retry"]
    assert found[0].kind == trace.SpanKind.CLIENT
    errors = [attributes(span).get("error.type") for span in found[1:3]]
    assert sorted(map(str, errors)) == ["None", "tool_error"]
    used = {name for span in found for name in attributes(span) if name.startswith("gen_ai.")}
    assert used <= NAMES
    shown = "".join(span.to_json() for span in found)
    assert "secret" not in shown
    assert "fog" not in shown


def test_text_is_recorded_if_it_is_asked_for(
    spans: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "true")
    asyncio.run(talk())
    first, one, other, last, *_ = map(attributes, spans.get_finished_spans())
    question = json.loads(first["gen_ai.input.messages"])[-1]
    assert question == {"role": "user", "parts": [{"type": "text", "content": "How is the secret lamp?"}]}
    reply = json.loads(last["gen_ai.output.messages"])
    assert reply == [{"role": "assistant", "parts": [{"type": "text", "content": "All is fog."}]}]
    assert {one["gen_ai.tool.call.result"], other["gen_ai.tool.call.result"]} == {
        "fog at the lamp",
        "OSError: nothing there",
    }
    used = {name for found in (first, one, last) for name in found if name.startswith("gen_ai.")}
    assert used <= NAMES


def test_a_request_that_fails_is_a_span_with_an_error(spans: InMemorySpanExporter) -> None:
    async def send(_: Any) -> Any:
        raise ValueError("secret words")

    async def asked() -> None:
        broken = ProviderModel("m", "anthropic", send, limit=lambda most: {"max_tokens": most})
        async with SessionManager.open("memory:") as sessions:
            agent = Agent(model=broken, session=await sessions.create(), budget=Budget(700))
            async for _ in agent.run("Hi"):
                pass

    with pytest.raises(Exception, match="secret words"):
        asyncio.run(asked())
    chat, run = spans.get_finished_spans()
    assert attributes(chat)["error.type"] == attributes(run)["error.type"] == "ModelFailed"
    assert chat.status.status_code == trace.StatusCode.ERROR
    assert "secret" not in chat.to_json() + run.to_json()


def test_opentelemetry_is_not_imported_and_nothing_is_printed() -> None:
    program = (
        "import sys, logging\n"
        "import turnstate.agent, turnstate.models\n"
        "from turnstate.telemetry import started\n"
        "span = started('chat', 'm', {})\n"
        "with span.current():\n"
        "    span.set({'a': 1}); span.event('e', {}); span.fail('x'); span.end()\n"
        "logging.getLogger('turnstate.models').warning('a warning')\n"
        "assert not any(name.startswith('opentelemetry') for name in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert any(isinstance(one, logging.NullHandler) for one in logging.getLogger("turnstate").handlers)


def test_names_of_the_conventions_are_used_for_operations() -> None:
    operations = {one.value for one in gen_ai_attributes.GenAiOperationNameValues}
    assert {"chat", "execute_tool", "invoke_agent"} <= operations
    providers = {one.value for one in gen_ai_attributes.GenAiProviderNameValues}
    assert {"openai", "anthropic", "gcp.gemini", "aws.bedrock"} <= providers
    started("chat", "m", {"gen_ai.request.model": None}).end()  # None is left out
