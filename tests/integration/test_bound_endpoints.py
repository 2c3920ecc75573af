"""A model that is bound to an endpoint sends its requests there and nowhere else, with the real SDKs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.provider_model import Said
from tests.harness.provider_server import ProviderServer
from turnstate import Message, SessionManager
from turnstate.config import Settings, load_agent
from turnstate.config.assembly import connect
from turnstate.config.binding import Binding, bind, bound
from turnstate.errors import ModelFailed
from turnstate.home import Home
from turnstate.models import Endpoint, ModelRequest, complete, endpoint_of

VARIABLES = ("OPENAI_BASE_URL", "ANTHROPIC_BASE_URL", "GOOGLE_GEMINI_BASE_URL")
MODELS = [("gpt-4o", "openai", "/v1"), ("claude-opus-4-8", "anthropic", ""), ("gemini-3", "gemini", "")]


@pytest.fixture
def private() -> Iterator[ProviderServer]:
    with ProviderServer(say=lambda _turns: Said(())) as serving:
        yield serving


@pytest.fixture
def public(monkeypatch: pytest.MonkeyPatch) -> Iterator[ProviderServer]:
    """The server that every variable of the environment leads to."""
    with ProviderServer(say=lambda _turns: Said(())) as serving:
        for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"):
            monkeypatch.setenv(name, "key")
        for name in VARIABLES:
            monkeypatch.setenv(name, f"{serving.url}{'/v1' if name.startswith('OPENAI') else ''}")
        yield serving


@pytest.mark.parametrize(("name", "provider", "path"), MODELS)
def test_requests_go_to_the_bound_endpoint(
    name: str, provider: str, path: str, private: ProviderServer, public: ProviderServer, tmp_path: Path
) -> None:
    settings = Settings.load(tmp_path, home=Home(tmp_path))
    request = ModelRequest(messages=(Message.user("hello"),))

    async def ask(endpoint: Endpoint) -> None:
        async with connect(name, settings, endpoint=endpoint) as model:
            await complete(model, request)

    asyncio.run(ask(Endpoint(provider, f"{private.url}{path}")))
    assert (len(private.requests), public.requests) == (1, [])
    asyncio.run(ask(endpoint_of(name)))
    assert (len(private.requests), len(public.requests)) == (1, 1)


def test_an_sdk_that_would_send_elsewhere_is_stopped(
    public: ProviderServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    place = endpoint_of("gpt-4o")
    monkeypatch.setattr("turnstate.models.endpoint_of", lambda _address: Endpoint("openai", "http://else/v1"))
    monkeypatch.setattr("turnstate.models.sdks.endpoint_of", lambda _: Endpoint("openai", "http://else/v1"))
    settings = Settings.load(tmp_path, home=Home(tmp_path))
    with pytest.raises(ModelFailed, match=f"would send gpt-4o to {place.url} instead of http://else/v1"):
        connect("gpt-4o", settings)
    assert public.requests == []


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost:80/v1",
        "https://example.com:443/v1/",
        "http://localhost:0080",
        "http://Bücher.example/v1",
        "http://faß。example/v1",
        "http://[::1]:80/v1",
        "http://localhost/my path/ü/v1",
        "http://localhost/a%2fb/%7Eann/%zz/[x]|y/v1",
        "http://localhost/a/../%2e%2e/v1",
        "http://ann:secret@localhost:80/v1?key=secret",
    ],
)
def test_a_url_that_the_sdk_writes_in_another_way_is_the_same_place(url: str, tmp_path: Path) -> None:
    settings = Settings.load(tmp_path, home=Home(tmp_path))
    address = f"x@{url}"
    for endpoint in (None, endpoint_of(address), Endpoint("openai", url)):
        model = connect(address, settings, endpoint=endpoint)
        assert model.url
        assert endpoint_of(f"x@{model.url}") == endpoint_of(address)


def test_an_agent_continues_a_bound_session_at_its_endpoint(
    private: ProviderServer, public: ProviderServer, tmp_path: Path
) -> None:
    home = Home(tmp_path / "home")
    elsewhere = {"TURNSTATE_MODEL": f"other@{public.url}/v1"}
    settings = Settings.load(tmp_path, home=home, environment=elsewhere)
    named = Settings.load(tmp_path, home=home, flags={"model": f"other@{public.url}/v1"})

    async def main() -> None:
        async with SessionManager.open("memory:") as sessions:
            session = await sessions.create(meta={"kept": 1})
            binding = Binding.of(tmp_path, "gpt-4o", Endpoint("openai", f"{private.url}/v1"))
            await bind(session, binding, home)
            assert bound(session.info, home) == binding
            assert session.info.meta["kept"] == 1
            assert bound(session.info, Home(tmp_path / "another")) is None
            for which in (settings, named):
                async with load_agent(None, session, folder=tmp_path, settings=which, home=home) as agent:
                    assert [event async for event in agent.run("hello")]

    asyncio.run(main())
    assert {one["model"] for one in private.requests} == {"gpt-4o"}
    assert {one["model"] for one in public.requests} == {"other"}  # a flag says so
