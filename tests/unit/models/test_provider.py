"""Models of providers: what is sent, what is sent again, and what a failure becomes."""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import AsyncIterator
from email.utils import formatdate
from typing import Any

import pytest

from turnstate import Message
from turnstate.errors import InvalidSetting
from turnstate.models import (
    ModelFailed,
    ModelRequest,
    ProviderModel,
    Reply,
    RequestTooLong,
    Retried,
    Retry,
    TextDelta,
    complete,
)
from turnstate.models.retry import asked_pause

QUICK = Retry(attempts=3, first_pause=0.0)


class HttpError(Exception):
    """An error with a status and headers, as the SDKs raise it."""

    def __init__(self, status: int, text: str = "", **headers: str) -> None:
        super().__init__(text or str(status))
        self.status_code = status
        self.response = type(
            "Response", (), {"headers": {k.replace("_", "-"): v for k, v in headers.items()}}
        )


class APIConnectionError(Exception):
    """The connection was lost, as the SDKs say."""


def chunk(text: str | None = None, *, end: str | None = None, **fields: Any) -> dict[str, Any]:
    delta = {"content": text} if text else {}
    return {"choices": [{"index": 0, "delta": delta | fields, "finish_reason": end}]}


WHOLE = [chunk("It "), chunk("burns."), chunk(end="stop")]
USAGE = {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 3}, "model": "m-1"}


class Endpoint:
    """Answers each request with the next script: an error, or chunks of which some may be errors."""

    def __init__(self, *scripts: Any) -> None:
        self.scripts, self.requests = list(scripts), list[dict[str, Any]]()

    async def send(self, request: dict[str, Any]) -> AsyncIterator[Any]:
        self.requests.append(request)
        script = self.scripts.pop(0)
        if isinstance(script, Exception):
            raise script
        return self._played(script)

    async def _played(self, script: list[Any]) -> AsyncIterator[Any]:
        for one in script:
            if isinstance(one, Exception):
                raise one
            if one is None:
                await asyncio.Event().wait()
            yield one


def model(
    endpoint: Endpoint, retry: Retry = QUICK, secret: str | None = None, **options: Any
) -> ProviderModel:
    return ProviderModel(
        "m",
        "openai-chat",
        endpoint.send,
        limit=lambda most: {"max": most},
        retry=retry,
        options=options,
        secret=secret,
    )


ASK = ModelRequest(messages=(Message.user("Is the lamp lit?"),))


def test_a_request_has_the_messages_the_options_and_the_limit() -> None:
    endpoint = Endpoint([*WHOLE, USAGE])
    request = ModelRequest(messages=ASK.messages, max_output=7, settings={"temperature": 0})
    answer = asyncio.run(complete(model(endpoint, seed=3), request))
    assert endpoint.requests == [
        {
            "messages": [{"role": "user", "content": "Is the lamp lit?"}],
            "model": "m",
            "seed": 3,
            "max": 7,
            "temperature": 0,
        }
    ]
    assert (answer.message.text, answer.reason) == ("It burns.", "stop")
    assert answer.usage is not None
    assert (answer.usage.input, answer.usage.output, answer.usage.model) == (9, 3, "m-1")


@pytest.mark.req("M2")
def test_what_may_pass_is_sent_again_until_it_does_or_the_attempts_are_over() -> None:
    passing = [HttpError(429, retry_after="0"), HttpError(503), APIConnectionError("lost"), TimeoutError()]
    for error in passing:
        endpoint = Endpoint(error, error, WHOLE)
        assert asyncio.run(complete(model(endpoint), ASK)).message.text == "It burns."
        assert len(endpoint.requests) == 3
        endpoint = Endpoint(error, error, error, WHOLE)
        with pytest.raises(ModelFailed):
            asyncio.run(complete(model(endpoint), ASK))
        assert len(endpoint.requests) == 3


@pytest.mark.req("M2")
def test_what_will_not_pass_is_not_sent_again() -> None:
    for error in (HttpError(400), HttpError(401), HttpError(404), ValueError("a bug")):
        endpoint = Endpoint(error, WHOLE)
        with pytest.raises(ModelFailed, match="m: "):
            asyncio.run(complete(model(endpoint), ASK))
        assert len(endpoint.requests) == 1


class APIError(Exception):
    """An error that a provider sends inside a stream, as the SDKs raise it."""

    def __init__(self, type: str, status: int | None = None) -> None:
        super().__init__(type)
        self.body, self.status_code = {"error": {"type": type}}, status


@pytest.mark.req("M2")
def test_an_answer_that_breaks_off_is_asked_for_again_and_begins_anew() -> None:
    for last in ([APIConnectionError("lost")], [HttpError(500)], [APIError("overloaded_error", 200)], []):
        endpoint = Endpoint([chunk("It "), *last], [*WHOLE, USAGE])

        async def hear(endpoint: Endpoint = endpoint) -> list[Any]:
            return [event async for event in model(endpoint).stream(ASK)]

        found = asyncio.run(hear())
        assert [type(event) for event in found[:3]] == [TextDelta, Retried, TextDelta]
        assert found[1].attempt == 1
        reply = Reply()
        for event in found:
            reply.add(event)
        whole = reply.completion()
        assert whole is not None
        assert whole.message.text == "It burns."
        assert len(endpoint.requests) == 2
    endpoint = Endpoint(*[[chunk("It ")]] * 3, WHOLE)
    with pytest.raises(ModelFailed, match="ended before the reply was complete"):
        asyncio.run(complete(model(endpoint), ASK))
    assert len(endpoint.requests) == 3


def test_a_deadline_ends_all_attempts_and_a_pause_that_would_pass_it_is_not_begun() -> None:
    endpoint = Endpoint(HttpError(429, retry_after="20"), WHOLE)
    with pytest.raises(ModelFailed, match="429"):
        asyncio.run(complete(model(endpoint, Retry(deadline=5)), ASK))
    assert len(endpoint.requests) == 1
    endpoint = Endpoint([chunk("It "), None], WHOLE)
    with pytest.raises(ModelFailed, match=r"within 0\.05 seconds"):
        asyncio.run(complete(model(endpoint, Retry(deadline=0.05)), ASK))
    assert len(endpoint.requests) == 1


def test_a_stream_that_is_left_is_closed() -> None:
    closed = list[str]()

    class Stream:
        async def __aiter__(self) -> AsyncIterator[Any]:
            for one in (chunk("It "), None):
                if one is None:
                    await asyncio.Event().wait()
                yield one

        async def close(self) -> None:
            closed.append("closed")

    async def send(_: Any) -> Any:
        return Stream()

    async def left() -> None:
        slow = ProviderModel("m", "openai-chat", send, limit=lambda most: {"max": most})
        task = asyncio.ensure_future(complete(slow, ASK))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        while not closed:
            await asyncio.sleep(0)

    asyncio.run(left())


def test_a_key_is_in_no_error_no_log_and_no_event(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(0)
    key = "sk-very-secret"
    echo = HttpError(500, f"Incorrect key: {key} (never shown)")

    async def heard() -> list[Any]:
        endpoint = Endpoint(echo, echo, echo)
        found = list[Any]()
        secretive = model(endpoint, secret=key)
        try:
            async for event in secretive.stream(ASK):
                found.append(event)
        except ModelFailed as error:
            found.append("".join(traceback.format_exception(error)))
        return [*found, repr(secretive), caplog.text]

    found = asyncio.run(heard())
    assert "Incorrect key: …" in str(found)
    assert key not in str(found)


def test_a_model_that_falls_silent_is_given_up() -> None:
    quick = Retry(attempts=1, first_chunk=0.05)
    for script in ([None], [chunk("It "), None]):
        with pytest.raises(ModelFailed, match=r"0\.05 seconds"):
            asyncio.run(complete(model(Endpoint(script), quick), ASK))


def test_a_provider_says_how_long_to_wait_in_seconds_or_as_a_date() -> None:
    soon = formatdate(time.time() + 100, usegmt=True)
    assert asked_pause(HttpError(429, retry_after="7")) == 7
    assert asked_pause(HttpError(429, retry_after_ms="250", retry_after="7")) == 0.25
    assert 95 < (asked_pause(HttpError(503, retry_after=soon)) or 0) <= 100
    assert asked_pause(HttpError(503, retry_after=formatdate(0))) == 0
    assert asked_pause(HttpError(503, retry_after="tomorrow")) is None
    assert asked_pause(ValueError()) is None
    google = HttpError(429)
    google.details = {"error": {"details": [{"reason": "x"}, {"retryDelay": "13.5s"}]}}  # type: ignore[attr-defined]
    assert asked_pause(google) == 13.5
    retry = Retry(first_pause=1, longest_pause=20)
    assert retry.pause(1, 3.0) == 3.0
    assert retry.pause(1, 300.0) == 20
    assert all(0.5 <= retry.pause(1, None) <= 1 for _ in range(50))
    assert all(10 <= retry.pause(9, None) <= 20 for _ in range(50))
    for wrong in ({"attempts": 0}, {"first_pause": -1}, {"longest_pause": float("nan")}, {"deadline": 0}):
        with pytest.raises(InvalidSetting):
            Retry(**wrong)  # type: ignore[arg-type]


def test_a_request_that_is_too_long_is_told_apart() -> None:
    texts = [
        "This model's maximum context length is 8192 tokens",
        "prompt is too long: 210000 tokens > 200000 maximum",
        "Input is too long for requested model.",
        "The input token count exceeds the maximum number of tokens allowed",
    ]
    for text in texts:
        with pytest.raises(RequestTooLong):
            asyncio.run(complete(model(Endpoint(HttpError(400, text))), ASK))


def test_why_an_answer_ended_is_said_in_one_way() -> None:
    call = {"index": 0, "id": "c", "function": {"name": "look", "arguments": "{}"}}
    cases = {
        "length": [chunk("It"), chunk(end="length"), USAGE],
        "refusal": [chunk("It"), chunk(end="content_filter"), USAGE],
        "stop": [chunk("It"), chunk(end="stop"), USAGE],
        "tool_calls": [chunk(None, tool_calls=[call]), chunk(end="tool_calls"), USAGE],
    }
    for reason, script in cases.items():
        assert asyncio.run(complete(model(Endpoint(script)), ASK)).reason == reason
